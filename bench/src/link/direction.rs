//! One direction of a link, as a state machine without I/O: packets are offered at one time and due at a later one.
//!
//! A packet waits until the line is free, occupies it for a time proportional to its bytes, and arrives after the
//! one-way delay and a random jitter. A packet that would have to wait longer than the queue allows is dropped, as by a
//! router with a full queue. The settings may change at given times. They then apply to all that is not yet sent;
//! packets that have left the line arrive as before. Packets are never reordered. Times are in nanoseconds
//! since any fixed moment.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::packet::Wire;

/// Nanoseconds.
pub(super) type Nanos = u64;

/// The emulation of one direction.
#[derive(Debug)]
pub(super) struct Direction {
    /// Settings with the time at which they begin, relative to `began`. In order of time, the first at 0.
    stages: Vec<(Nanos, Settings)>,
    /// When the first stage began.
    began: Nanos,
    /// Index of the next stage.
    next_stage: usize,
    /// The settings of the current stage.
    now: Shape,
    /// State of the random number generator.
    random: u64,
    /// When the line has sent all packets accepted so far.
    line_free: Nanos,
    /// Packets accepted and not yet arrived, in order of `leaves` and of `due`.
    in_flight: VecDeque<Packet>,
}

/// [`Settings`] in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Shape {
    delay: Nanos,
    jitter: Nanos,
    /// `None`: unlimited rate.
    nanos_per_byte: Option<f64>,
    queue: Nanos,
    loss: f64,
}

/// A packet in the queue, on the line or in flight.
#[derive(Debug)]
pub(super) struct Packet {
    /// When its last byte has been sent.
    leaves: Nanos,
    /// When it arrives.
    due: Nanos,
    /// Its share of the jitter, 0 to 1.
    jitter: f64,
    wire: Wire,
    pub(super) bytes: Vec<u8>,
}

/// Counters of packets and bytes, shared with the threads that report them.
#[derive(Debug, Default)]
pub struct Counters {
    packets: AtomicU64,
    bytes: AtomicU64,
    lost: AtomicU64,
    dropped: AtomicU64,
}

impl Counters {
    /// Packets carried. A large segment counts as the packets it would be split into.
    pub fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    /// Bytes carried, IP headers included: for a large segment, those of each packet that it would be split into.
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

/// The settings of one direction during one stage.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    /// One-way delay.
    pub(super) delay: Duration,
    /// Largest extra delay.
    pub(super) jitter: Duration,
    /// Bits per second; `None` if unlimited.
    pub(super) rate: Option<f64>,
    /// Longest wait in the queue.
    pub(super) queue: Duration,
    /// Share of packets lost, 0 to 1.
    pub(super) loss: f64,
}

impl Direction {
    /// A direction with `settings`, and no changes yet.
    pub(super) fn new(settings: Settings, seed: u64) -> Self {
        Self {
            stages: vec![(0, settings)],
            began: 0,
            next_stage: 1,
            now: Shape::from(settings),
            random: scramble(seed),
            line_free: 0,
            in_flight: VecDeque::new(),
        }
    }

    /// Adds a change to `settings` at `after` from the beginning, which must be later than all changes added before.
    #[must_use]
    pub(super) fn then(mut self, after: Duration, settings: Settings) -> Self {
        self.stages.push((nanos(after), settings));
        self
    }

    /// Sets the moment from which the times of changes count. If it differs from the previous one, the first settings
    /// apply again.
    pub(super) fn begin(&mut self, began: Nanos) {
        if self.began != began {
            self.began = began;
            self.next_stage = 0;
        }
    }

    /// Accepts a packet from the sender, loses it at random, or drops it if the queue is full.
    pub(super) fn offer(&mut self, now: Nanos, bytes: &[u8], wire: Wire, counters: &Counters) {
        self.pass_time(now);
        if self.now.loss > 0.0 && self.uniform() < self.now.loss {
            counters.lost.fetch_add(wire.packets, Ordering::Relaxed);
            return;
        }
        self.line_free = self.line_free.max(now);
        if let Some(nanos_per_byte) = self.now.nanos_per_byte {
            if self.line_free - now > self.now.queue {
                counters.dropped.fetch_add(wire.packets, Ordering::Relaxed);
                return;
            }
            self.line_free += (wire.bytes as f64 * nanos_per_byte) as Nanos;
        }
        let jitter = if self.now.jitter > 0 { self.uniform() } else { 0.0 };
        let last = self.in_flight.back().map_or(0, |packet| packet.due);
        let leaves = self.line_free;
        let due = (leaves + self.now.delay(jitter)).max(last);
        self.in_flight.push_back(Packet { leaves, due, jitter, wire, bytes: bytes.to_vec() });
    }

    /// Applies all changes that are due by `now`.
    pub(super) fn pass_time(&mut self, now: Nanos) {
        while let Some(&(after, settings)) = self.stages.get(self.next_stage) {
            let at = self.began.saturating_add(after);
            if at > now {
                break;
            }
            self.next_stage += 1;
            self.change(at, Shape::from(settings));
        }
    }

    /// Applies new settings at `at`. Bytes that are not sent by then get the new rate, and their packets the new delay
    /// with their share of the new jitter.
    fn change(&mut self, at: Nanos, shape: Shape) {
        let before = std::mem::replace(&mut self.now, shape);
        let (mut left_before, mut free, mut last) = (at, at, 0);
        for packet in &mut self.in_flight {
            if packet.leaves > at {
                let bytes = before.nanos_per_byte.map_or(0.0, |nanos_per_byte| {
                    (packet.leaves - left_before) as f64 / nanos_per_byte
                });
                left_before = packet.leaves;
                free += shape.nanos_per_byte.map_or(0, |per_byte| (bytes * per_byte) as Nanos);
                packet.leaves = free;
                packet.due = (free + shape.delay(packet.jitter)).max(last);
            }
            last = packet.due;
        }
        self.line_free = free;
    }

    /// When the next packet arrives.
    pub(super) fn next_due(&self) -> Option<Nanos> {
        self.in_flight.front().map(|packet| packet.due)
    }

    /// When the next packet arrives or the settings change, whichever is first.
    pub(super) fn next_event(&self) -> Option<Nanos> {
        let change = self.stages.get(self.next_stage);
        let change = change.map(|(after, _)| self.began.saturating_add(*after));
        self.next_due().into_iter().chain(change).min()
    }

    /// The next packet that has arrived by `now`. It is counted now and not when it was accepted: packets enter the
    /// queue faster than the line sends them.
    pub(super) fn arrived(&mut self, now: Nanos, counters: &Counters) -> Option<Packet> {
        if self.next_due()? > now {
            return None;
        }
        let packet = self.in_flight.pop_front()?;
        counters.packets.fetch_add(packet.wire.packets, Ordering::Relaxed);
        counters.bytes.fetch_add(packet.wire.bytes, Ordering::Relaxed);
        Some(packet)
    }

    /// A random number from [0, 1), by xorshift64.
    fn uniform(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1_u64 << 53) as f64
    }
}

impl Shape {
    /// The delay of a packet with this share of the jitter.
    fn delay(&self, jitter: f64) -> Nanos {
        self.delay + (jitter * self.jitter as f64) as Nanos
    }
}

impl From<Settings> for Shape {
    fn from(settings: Settings) -> Self {
        Self {
            delay: nanos(settings.delay),
            jitter: nanos(settings.jitter),
            nanos_per_byte: settings.rate.map(|bits| 8e9 / bits),
            queue: nanos(settings.queue),
            loss: settings.loss,
        }
    }
}

fn nanos(duration: Duration) -> Nanos {
    duration.as_nanos().try_into().unwrap_or(Nanos::MAX)
}

/// Spreads a seed over 64 bits by the finaliser of splitmix64. The result is never zero.
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
        }
    }

    fn wire(bytes: u64) -> Wire {
        Wire { bytes, packets: 1 }
    }

    #[test]
    fn a_packet_arrives_after_its_transmission_time_and_the_delay() {
        let (mut line, counters) = (Direction::new(settings(), 1), Counters::default());
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
    fn packets_are_dropped_and_counted_while_the_queue_is_full() {
        let (mut line, counters) = (Direction::new(settings(), 1), Counters::default());
        for _ in 0..20 {
            line.offer(0, b"x", wire(1000), &counters);
        }
        // Eleven are accepted: the first does not wait, the eleventh waits for exactly 10 ms.
        assert_eq!((line.in_flight.len(), counters.dropped()), (11, 9));
        line.offer(2 * MS, b"x", wire(1000), &counters);
        assert_eq!(line.in_flight.len(), 12, "two have left the queue meanwhile");
        assert_eq!((counters.packets(), counters.bytes()), (0, 0), "none has arrived");
        while line.arrived(110 * MS, &counters).is_some() {}
        assert_eq!((counters.packets(), counters.bytes()), (10, 10_000));
        while line.arrived(Nanos::MAX, &counters).is_some() {}
        assert_eq!((counters.packets(), counters.bytes()), (12, 12_000));
    }

    #[test]
    fn a_line_without_a_rate_has_no_transmission_time_and_never_drops() {
        let unlimited = Settings { rate: None, ..settings() };
        let (mut line, counters) = (Direction::new(unlimited, 1), Counters::default());
        for _ in 0..1000 {
            line.offer(0, b"x", wire(60_000), &counters);
        }
        assert_eq!((line.next_due(), counters.dropped()), (Some(100 * MS), 0));
    }

    /// The arrival times of all packets.
    fn arrivals(line: &mut Direction, counters: &Counters) -> Vec<Nanos> {
        let next = |line: &mut Direction| {
            let due = line.next_due()?;
            line.arrived(due, counters).map(|_| due)
        };
        std::iter::from_fn(|| next(line)).collect()
    }

    #[test]
    fn a_change_of_delay_applies_to_packets_that_have_not_left_the_line() {
        let far = Settings { delay: Duration::from_millis(300), ..settings() };
        let near = Settings { delay: Duration::from_millis(10), ..settings() };
        let counters = Counters::default();
        let mut line = Direction::new(settings(), 1)
            .then(Duration::from_millis(10), far)
            .then(Duration::from_millis(500), near);
        line.begin(7 * MS);
        // At 1 ms each they leave the line at 16, 17 and 18 ms; the change is at 17 ms.
        for _ in 0..3 {
            line.offer(15 * MS, b"x", wire(1000), &counters);
        }
        line.pass_time(17 * MS);
        assert_eq!(arrivals(&mut line, &counters), [116 * MS, 117 * MS, 318 * MS]);
        // From 300 back to 10 ms: a later packet still does not arrive before an earlier one.
        line.offer(505 * MS, b"x", wire(1000), &counters);
        line.offer(510 * MS, b"x", wire(1000), &counters);
        line.offer(900 * MS, b"x", wire(1000), &counters);
        assert_eq!(arrivals(&mut line, &counters), [806 * MS, 806 * MS, 911 * MS]);
    }

    /// Formerly, packets that waited for the line when its settings changed had no jitter.
    #[test]
    fn waiting_packets_keep_their_share_of_the_jitter_when_the_link_changes() {
        let jittery = Settings {
            jitter: Duration::from_millis(50),
            queue: Duration::from_secs(1),
            ..settings()
        };
        let (counters, change) = (Counters::default(), Duration::from_micros(500));
        let mut steady = Direction::new(jittery, 1);
        let mut changed = Direction::new(jittery, 1).then(change, jittery);
        let wider = Settings { jitter: jittery.jitter * 2, ..jittery };
        let mut widened = Direction::new(jittery, 1).then(change, wider);
        for line in [&mut steady, &mut changed, &mut widened] {
            // The last one leaves the line, which sends one per millisecond, long after the change.
            for _ in 0..100 {
                line.offer(0, b"x", wire(1000), &counters);
            }
            line.pass_time(MS);
        }
        let (steady, changed) =
            (arrivals(&mut steady, &counters), arrivals(&mut changed, &counters));
        assert_eq!(changed, steady);
        assert!(steady.iter().zip(1..).any(|(due, leaves)| *due > (leaves + 101) * MS));
        let widened = arrivals(&mut widened, &counters);
        assert!(widened.iter().zip(&steady).all(|(wide, due)| wide >= due) && widened != steady);
    }

    #[test]
    fn a_change_of_rate_applies_to_unsent_bytes() {
        let slow = Settings { rate: Some(2e6), queue: Duration::from_secs(1), ..settings() };
        let counters = Counters::default();
        let mut line = Direction::new(settings(), 1).then(Duration::from_millis(2), slow);
        for _ in 0..4 {
            line.offer(1_500_000, b"x", wire(1000), &counters);
        }
        line.pass_time(2 * MS);
        // Half of the first packet has been sent at 1 MB/s; everything else is sent at 250 kB/s.
        assert_eq!(arrivals(&mut line, &counters), [104, 108, 112, 116].map(|ms| ms * MS));
        line.offer(200 * MS, b"x", wire(1000), &counters);
        line.offer(200 * MS, b"x", wire(1000), &counters);
        assert_eq!(arrivals(&mut line, &counters), [304 * MS, 308 * MS]);
    }

    #[test]
    fn a_restarted_line_has_its_first_settings_again() {
        let far = Settings { delay: Duration::from_millis(300), ..settings() };
        let counters = Counters::default();
        let mut line = Direction::new(settings(), 1).then(Duration::from_millis(10), far);
        for began in [0, 1000 * MS] {
            line.begin(began);
            line.offer(began + 5 * MS, b"x", wire(1000), &counters);
            line.offer(began + 20 * MS, b"x", wire(1000), &counters);
            let expected = [began + 106 * MS, began + 321 * MS];
            assert_eq!(arrivals(&mut line, &counters), expected);
        }
    }

    #[test]
    fn jitter_delays_and_never_reorders() {
        let jittery = Settings {
            jitter: Duration::from_millis(30),
            rate: None,
            queue: Duration::MAX,
            ..settings()
        };
        let (mut line, counters) = (Direction::new(jittery, 1), Counters::default());
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
    fn loss_has_the_configured_share_and_depends_on_the_seed_only() {
        let lossy = Settings { loss: 0.01, rate: None, ..settings() };
        let lost = |seed| {
            let (mut line, counters) = (Direction::new(lossy, seed), Counters::default());
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
