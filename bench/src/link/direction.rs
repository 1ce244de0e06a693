//! One direction of a link, without I/O: packets are offered at a time and are due at another.
//!
//! A packet waits until the line is free, takes its bytes' time on the line, and arrives a one-way
//! delay later. One that would wait longer than the queue allows is dropped, as at a full router.
//! Time is nanoseconds since any fixed moment.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::packet::Wire;

/// Nanoseconds.
pub(super) type Nanos = u64;

/// The emulation of one direction.
#[derive(Debug)]
pub(super) struct Direction {
    delay: Nanos,
    jitter: Nanos,
    /// None: the line takes no time.
    nanos_per_byte: Option<f64>,
    queue: Nanos,
    loss: f64,
    random: u64,
    /// When the line has sent all that it took.
    line_free: Nanos,
    /// In order of `due`.
    under_way: VecDeque<Packet>,
}

/// A packet on its way.
#[derive(Debug)]
pub(super) struct Packet {
    due: Nanos,
    wire: Wire,
    pub(super) bytes: Vec<u8>,
}

/// What became of packets, and how much went over the line. Shared with whoever wants to look.
#[derive(Debug, Default)]
pub struct Counters {
    packets: AtomicU64,
    bytes: AtomicU64,
    lost: AtomicU64,
    dropped: AtomicU64,
}

impl Counters {
    /// Packets carried; a large segment counts as the packets it stands for.
    pub fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    /// Bytes carried, IP headers included, as single packets would have had them.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Packets lost at random.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Packets dropped because the queue was full.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// The settings of one direction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    /// One way.
    pub(super) delay: Duration,
    pub(super) jitter: Duration,
    /// Bits per second.
    pub(super) rate: Option<f64>,
    pub(super) queue: Duration,
    pub(super) loss: f64,
    pub(super) seed: u64,
}

impl Direction {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            delay: nanos(settings.delay),
            jitter: nanos(settings.jitter),
            nanos_per_byte: settings.rate.map(|bits| 8e9 / bits),
            queue: nanos(settings.queue),
            loss: settings.loss,
            random: scramble(settings.seed),
            line_free: 0,
            under_way: VecDeque::new(),
        }
    }

    /// Takes a packet from the sender, or loses it.
    pub(super) fn offer(&mut self, now: Nanos, bytes: &[u8], wire: Wire, counters: &Counters) {
        if self.loss > 0.0 && self.uniform() < self.loss {
            counters.lost.fetch_add(wire.packets, Ordering::Relaxed);
            return;
        }
        self.line_free = self.line_free.max(now);
        if let Some(nanos_per_byte) = self.nanos_per_byte {
            if self.line_free - now > self.queue {
                counters.dropped.fetch_add(wire.packets, Ordering::Relaxed);
                return;
            }
            self.line_free += (wire.bytes as f64 * nanos_per_byte) as Nanos;
        }
        let jitter =
            if self.jitter > 0 { (self.uniform() * self.jitter as f64) as Nanos } else { 0 };
        let last = self.under_way.back().map_or(0, |packet| packet.due);
        let due = (self.line_free + self.delay + jitter).max(last);
        self.under_way.push_back(Packet { due, wire, bytes: bytes.to_vec() });
    }

    /// When the next packet arrives.
    pub(super) fn next_due(&self) -> Option<Nanos> {
        self.under_way.front().map(|packet| packet.due)
    }

    /// The next packet that has arrived by `now`. It counts as carried now, not when the queue took it:
    /// what is counted over a time can so never be more than the line's rate.
    pub(super) fn arrived(&mut self, now: Nanos, counters: &Counters) -> Option<Packet> {
        if self.next_due()? > now {
            return None;
        }
        let packet = self.under_way.pop_front()?;
        counters.packets.fetch_add(packet.wire.packets, Ordering::Relaxed);
        counters.bytes.fetch_add(packet.wire.bytes, Ordering::Relaxed);
        Some(packet)
    }

    /// Evenly in [0, 1), by xorshift64.
    fn uniform(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1_u64 << 53) as f64
    }
}

fn nanos(duration: Duration) -> Nanos {
    duration.as_nanos().try_into().unwrap_or(Nanos::MAX)
}

/// Spreads a seed over 64 bits, never zero, by the finaliser of splitmix64.
fn scramble(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    fn settings() -> Settings {
        Settings {
            delay: Duration::from_millis(100),
            jitter: Duration::ZERO,
            rate: Some(8e6),
            queue: Duration::from_millis(10),
            loss: 0.0,
            seed: 1,
        }
    }

    fn wire(bytes: u64) -> Wire {
        Wire { bytes, packets: 1 }
    }

    #[test]
    fn a_packet_arrives_after_its_time_on_the_line_and_the_delay() {
        let (mut line, counters) = (Direction::new(settings()), Counters::default());
        // 1 000 bytes at 1 MB/s: 1 ms.
        line.offer(5 * MS, b"a", wire(1000), &counters);
        line.offer(5 * MS, b"b", wire(1000), &counters);
        assert_eq!(line.next_due(), Some(106 * MS));
        assert!(line.arrived(106 * MS - 1, &counters).is_none());
        assert_eq!(
            line.arrived(106 * MS, &counters).map(|packet| packet.bytes),
            Some(b"a".to_vec())
        );
        assert_eq!(line.next_due(), Some(107 * MS));
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let (mut line, counters) = (Direction::new(settings()), Counters::default());
        for _ in 0..20 {
            line.offer(0, b"x", wire(1000), &counters);
        }
        // Eleven stay: the wait of the first is nothing, that of the eleventh just 10 ms.
        assert_eq!((line.under_way.len(), counters.dropped()), (11, 9));
        line.offer(2 * MS, b"x", wire(1000), &counters);
        assert_eq!(line.under_way.len(), 12, "two have left the queue meanwhile");
        assert_eq!((counters.packets(), counters.bytes()), (0, 0), "none has arrived");
        while line.arrived(110 * MS, &counters).is_some() {}
        assert_eq!((counters.packets(), counters.bytes()), (10, 10_000));
        while line.arrived(Nanos::MAX, &counters).is_some() {}
        assert_eq!((counters.packets(), counters.bytes()), (12, 12_000));
    }

    #[test]
    fn a_line_without_a_rate_takes_no_time_and_never_drops() {
        let unlimited = Settings { rate: None, ..settings() };
        let (mut line, counters) = (Direction::new(unlimited), Counters::default());
        for _ in 0..1000 {
            line.offer(0, b"x", wire(60_000), &counters);
        }
        assert_eq!((line.next_due(), counters.dropped()), (Some(100 * MS), 0));
    }

    #[test]
    fn jitter_delays_and_never_reorders() {
        let jittery = Settings {
            jitter: Duration::from_millis(30),
            rate: None,
            queue: Duration::MAX,
            ..settings()
        };
        let (mut line, counters) = (Direction::new(jittery), Counters::default());
        for n in 0..200_u8 {
            line.offer(u64::from(n) * MS, &[n], wire(100), &counters);
        }
        let (mut last, mut latest, mut delayed) = (None, 0, 0);
        while let Some(due) = line.next_due() {
            let packet = line.arrived(due, &counters).expect("it is due");
            let n = packet.bytes[0];
            assert!(last.is_none_or(|last| n == last + 1), "in order");
            assert!(due >= latest && due <= (u64::from(n) + 130) * MS);
            delayed += u64::from(due > (u64::from(n) + 101) * MS);
            (last, latest) = (Some(n), due);
        }
        assert!(delayed > 100, "most packets are late, {delayed} were");
    }

    #[test]
    fn the_share_lost_is_the_share_set_and_depends_on_the_seed_only() {
        let lossy = Settings { loss: 0.01, rate: None, ..settings() };
        let lost = |seed| {
            let (mut line, counters) =
                (Direction::new(Settings { seed, ..lossy }), Counters::default());
            for _ in 0..200_000 {
                line.offer(0, b"", wire(1500), &counters);
            }
            counters.lost()
        };
        assert_eq!(lost(3), lost(3));
        for seed in 0..5 {
            // 2 000 expected; five standard deviations are 223.
            assert!((1777..=2223).contains(&lost(seed)), "{} lost", lost(seed));
        }
    }
}
