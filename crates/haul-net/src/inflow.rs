//! How much may be under way from one host, on all connections together.
//!
//! A sender finds out how much a path takes by sending ever more until packets are lost; several find it
//! out together, and lose many. Who receives sees what comes in a round trip, and lets no more than some
//! more than that be under way: what comes can still grow, and the queue on the path does not overflow.
//! Every connection gets the same share, so that those that began well are not done long before the others.
//!
//! What comes is counted by the kernel, which goes on while nobody reads. Where a packet is lost those
//! behind it wait for it, and count all at once and late: as if they had come in all that time.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// On shorter paths queues are short, and what comes in a round trip says little.
const SHORT: Duration = Duration::from_millis(10);

/// What may be under way, as a multiple of what came in a round trip: almost as much as a slow start
/// takes, and enough to fill the path when no more comes than before. The queue of a path holds a round
/// trip's worth as a rule: together that is twice as much.
const GROWING: f64 = 1.9;
const STEADY: f64 = 1.5;

/// More than this many times what came in the round trip before is growing.
const GROWTH: f64 = 1.25;

/// A round trip is this many slots.
const SLOTS: usize = 8;

/// What comes from one host.
#[derive(Debug)]
pub struct Inflow {
    slot: Duration,
    began: Instant,
    state: Mutex<State>,
}

/// One connection of an [`Inflow`], until it is dropped.
#[derive(Debug)]
pub struct Feeder {
    inflow: Arc<Inflow>,
    /// The slot in which it was looked at last, and how many bytes had come until then.
    looked: u64,
    received: u64,
}

#[derive(Debug, Default)]
struct State {
    connections: u64,
    /// What came in the slots of the last two round trips, the newest first, and the number of that.
    slots: VecDeque<u64>,
    newest: u64,
    /// The most that came in a round trip. It is not forgotten: what comes later may be less because no
    /// more was let through.
    most: u64,
}

impl Inflow {
    /// Over a path of which this is the shortest round trip; `None` if it is too short to matter.
    pub fn over(round_trip: Duration) -> Option<Arc<Self>> {
        let (slot, began) = (round_trip / SLOTS as u32, Instant::now());
        (round_trip >= SHORT).then(|| Arc::new(Self { slot, began, state: Mutex::default() }))
    }

    /// One connection more, which is `socket`. What has come over it does not count.
    pub fn feeder(self: &Arc<Self>, socket: &impl AsFd) -> Feeder {
        self.state().connections += 1;
        let received = received(socket).unwrap_or_default();
        Feeder { inflow: Arc::clone(self), looked: self.now(), received }
    }

    fn now(&self) -> u64 {
        let slot = self.slot.as_nanos().max(1);
        u64::try_from(self.began.elapsed().as_nanos() / slot).unwrap_or(u64::MAX)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Feeder {
    /// How much more may be under way on its connection, which is `socket`; `None` where the system does
    /// not tell what has come.
    pub fn share(&mut self, socket: &impl AsFd) -> Option<u64> {
        let received = received(socket)?;
        let came = received.saturating_sub(self.received);
        self.received = received;
        Some(self.came(came, self.inflow.now()))
    }

    fn came(&mut self, bytes: u64, now: u64) -> u64 {
        let slots = self.looked..=now.max(self.looked);
        self.looked = now;
        let mut state = self.inflow.state();
        state.came(slots, bytes);
        state.may_be_under_way() / state.connections.max(1)
    }
}

/// What has come over a connection, if the system tells.
fn received(socket: &impl AsFd) -> Option<u64> {
    #[cfg(target_os = "linux")]
    return crate::tcp::received(socket.as_fd());
    #[cfg(not(target_os = "linux"))]
    {
        let _ = socket;
        None
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.inflow.state().connections -= 1;
    }
}

impl State {
    /// Counts what came in these slots, as much in each.
    fn came(&mut self, slots: std::ops::RangeInclusive<u64>, bytes: u64) {
        let (first, last) = slots.into_inner();
        for _ in 0..last.saturating_sub(self.newest).min(2 * SLOTS as u64) {
            self.slots.push_front(0);
        }
        self.newest = self.newest.max(last);
        self.slots.truncate(2 * SLOTS);
        if self.slots.is_empty() {
            self.slots.push_front(0);
        }
        let each = bytes / (last - first + 1);
        let newest = self.newest;
        for (number, slot) in (0..=newest).rev().zip(&mut self.slots) {
            if (first..=last).contains(&number) {
                *slot += each;
            }
        }
    }

    fn may_be_under_way(&mut self) -> u64 {
        let latest: u64 = self.slots.iter().take(SLOTS).sum();
        let before: u64 = self.slots.iter().skip(SLOTS).sum();
        self.most = self.most.max(latest);
        let growing = latest as f64 > before as f64 * GROWTH;
        (self.most as f64 * if growing { GROWING } else { STEADY }) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_grows_may_almost_double_and_what_does_not_may_fill_the_path() {
        let mut state = State::default();
        // A slow start: twice as much in each round trip.
        let (mut slot, mut in_slot) = (0, MIB / 16);
        for _ in 0..5 {
            in_slot *= 2;
            for _ in 0..SLOTS {
                state.came(slot..=slot, in_slot);
                slot += 1;
            }
            let (path, all) = (in_slot * SLOTS as u64, state.may_be_under_way());
            assert!(all > path * 9 / 5 && all < 2 * path, "{all} after {path}");
        }
        // Then no more comes.
        for _ in 0..SLOTS {
            state.came(slot..=slot, in_slot);
            slot += 1;
        }
        let (path, all) = (in_slot * SLOTS as u64, state.may_be_under_way());
        assert_eq!(all, path * 3 / 2);
        // A pause changes nothing: it may be that nobody here took anything in the meantime. What is seen
        // after it came while it lasted.
        slot += 1000;
        state.came(slot - 15..=slot, 2 * path);
        assert_eq!(state.may_be_under_way(), all);
    }

    #[test]
    fn connections_get_equal_shares() {
        assert!(Inflow::over(Duration::from_millis(2)).is_none());
        let inflow = Inflow::over(Duration::from_secs(1000)).unwrap();
        let (socket, _other) = UnixStream::pair().unwrap();
        let mut first = inflow.feeder(&socket);
        let alone = first.came(64 * MIB, 0);
        assert!(alone > 64 * MIB);
        let mut second = inflow.feeder(&socket);
        assert_eq!(second.came(0, 0), alone / 2);
        drop(first);
        assert_eq!(second.came(0, 0), alone);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_the_kernel_has_got_counts_whether_it_is_read_or_not() {
        use std::io::Write;
        use std::net::{TcpListener, TcpStream};

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let receiver = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut sender, _) = listener.accept().unwrap();
        let inflow = Inflow::over(Duration::from_secs(1000)).unwrap();
        let mut feeder = inflow.feeder(&receiver);
        assert_eq!(feeder.share(&receiver), Some(0));
        sender.write_all(&[0; 32 << 10]).unwrap();
        while feeder.share(&receiver).unwrap() < 32 << 10 {}
        let mut later = inflow.feeder(&receiver);
        let most = feeder.share(&receiver);
        assert_eq!(later.share(&receiver), most, "nothing counts twice");
    }
}
