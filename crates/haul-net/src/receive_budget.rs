//! How much may be under way from one host, on all connections together.
//!
//! A sender finds out how much a path takes by sending ever more until packets are lost; several find it
//! out together, and lose many. Who receives sees what comes in a round trip, and lets no more than some
//! more than that be under way: what comes can still grow, and the queue on the path does not overflow.
//! A connection that brings less than its equal share may catch up; one that brings more, because others
//! have nothing to bring, may go on growing. Where the path becomes longer or shorter, what comes is
//! counted over a round trip as it is then.
//!
//! What comes is counted by the kernel, which goes on while nobody reads. Where a packet is lost those
//! behind it wait for it, and count all at once and late: as if they had come in all that time.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Whether this system tells what has come, without which nothing can be bounded.
pub const TELLS_WHAT_CAME: bool = cfg!(target_os = "linux");

/// On shorter paths queues are short, and what comes in a round trip says little.
const SHORT: Duration = Duration::from_millis(10);

/// What may be under way, as a multiple of what came in a round trip: almost as much as a slow start
/// takes, and enough to fill the path when no more comes than before. The queue of a path holds a round
/// trip's worth as a rule: together that is twice as much.
const GROWING: f64 = 1.9;
const STEADY: f64 = 1.5;

/// More than this many times what came in the round trip before is growing.
const GROWTH: f64 = 1.25;

/// Round trips that take longer than this many times that of the beginning are so for another reason than
/// what is let through here: others fill the queue, or the path has become longer. Then as much has to be
/// under way as comes in such a one, and some more. Where they take less than this part, the path has
/// become shorter.
const LATE: f64 = 2.0;
const SHORTER: f64 = 0.75;

/// The round trip of the beginning is this many slots. Of one that is longer more are counted, up to so
/// many times as many.
const SLOTS: usize = 8;
const MOST_LONGER: f64 = 32.0;
const KEPT: usize = 2 * SLOTS * MOST_LONGER as usize;

/// What comes from one host.
#[derive(Debug)]
pub struct ReceiveBudget {
    rtt: Duration,
    began: Instant,
    state: Mutex<State>,
}

/// One connection of an [`ReceiveBudget`], until it is dropped.
#[derive(Debug)]
pub struct BudgetShare {
    receive_budget: Arc<ReceiveBudget>,
    /// The slot in which it was looked at last, and how many bytes had come until then.
    looked: u64,
    received: u64,
    own: Flow,
}

#[derive(Debug, Default)]
struct State {
    connections: u64,
    all: Flow,
}

/// What comes over one connection, or over all.
#[derive(Debug, Default)]
struct Flow {
    /// What came in the last slots, the newest first, and the number of that.
    slots: VecDeque<u64>,
    newest: u64,
    /// The most that came in a round trip. It is not forgotten: what comes later may be less because no
    /// more was let through.
    most: u64,
}

impl ReceiveBudget {
    /// Over a path of which this is the shortest round trip; `None` if it is too short to matter.
    pub fn over(rtt: Duration) -> Option<Arc<Self>> {
        let (began, state) = (Instant::now(), Mutex::default());
        (rtt >= SHORT).then(|| Arc::new(Self { rtt, began, state }))
    }

    /// One connection more, which is `socket`. What has come over it does not count.
    pub fn feeder(self: &Arc<Self>, socket: &impl AsFd) -> BudgetShare {
        self.state().connections += 1;
        let received = received(socket).map_or(0, |(received, _)| received);
        BudgetShare {
            receive_budget: Arc::clone(self),
            looked: self.now(),
            received,
            own: Flow::default(),
        }
    }

    fn now(&self) -> u64 {
        let slot = (self.rtt / SLOTS as u32).as_nanos().max(1);
        u64::try_from(self.began.elapsed().as_nanos() / slot).unwrap_or(u64::MAX)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BudgetShare {
    /// How much more may be under way on its connection, which is `socket`; `None` where the system does
    /// not tell what has come.
    pub fn share(&mut self, socket: &impl AsFd) -> Option<u64> {
        let (received, micros) = received(socket)?;
        let came = received.saturating_sub(self.received);
        self.received = received;
        let rtt = Duration::from_micros(micros.into());
        Some(self.came(came, self.receive_budget.now(), rtt))
    }

    fn came(&mut self, bytes: u64, now: u64, rtt: Duration) -> u64 {
        let (first, last) = (self.looked, now.max(self.looked));
        self.looked = last;
        self.own.came(first, last, bytes);
        let mut state = self.receive_budget.state();
        state.all.came(first, last, bytes);
        let connections = state.connections.max(1);
        let times = rtt.as_secs_f64() / self.receive_budget.rtt.as_secs_f64();
        if times > 0.0 && times < SHORTER {
            // What came in a round trip of the beginning comes in so much less time now.
            let equal = state.all.with_headroom(state.all.most, SLOTS) as f64 * times;
            let slots = slots(times);
            return (equal as u64 / connections).max(self.own.more(slots));
        }
        let equal = state.all.with_headroom(state.all.most, SLOTS) / connections;
        let late = if times > LATE { self.own.more(slots(times)) } else { 0 };
        equal.max(self.own.more(SLOTS)).max(late)
    }
}

/// Slots of a round trip that takes so many times as long as that of the beginning.
fn slots(times: f64) -> usize {
    ((SLOTS as f64 * times.min(MOST_LONGER)).ceil() as usize).max(1)
}

/// What has come over a connection, and how long its round trips are, if the system tells.
fn received(socket: &impl AsFd) -> Option<(u64, u32)> {
    #[cfg(target_os = "linux")]
    return crate::tcp::received(socket.as_fd());
    #[cfg(not(target_os = "linux"))]
    {
        let _ = socket;
        None
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.receive_budget.state().connections -= 1;
    }
}

impl Flow {
    /// Counts what came in the slots from `first` to `last`, as much in each.
    fn came(&mut self, first: u64, last: u64, bytes: u64) {
        for _ in 0..last.saturating_sub(self.newest).min(KEPT as u64) {
            self.slots.push_front(0);
        }
        self.newest = self.newest.max(last);
        self.slots.truncate(KEPT);
        if self.slots.is_empty() {
            self.slots.push_front(0);
        }
        let each = bytes / (last - first + 1);
        let newest = self.newest;
        let since = (0..=newest).rev().take_while(|number| *number >= first);
        for (number, slot) in since.zip(&mut self.slots) {
            if number <= last {
                *slot += each;
            }
        }
        self.most = self.most.max(self.latest(SLOTS));
    }

    /// What came in the last round trip, of so many slots.
    fn latest(&self, slots: usize) -> u64 {
        self.slots.iter().take(slots).sum()
    }

    /// What came in the one before.
    fn before(&self, slots: usize) -> u64 {
        self.slots.iter().skip(slots).take(slots).sum()
    }

    /// Somewhat more than what came in a round trip of so many slots.
    fn more(&self, slots: usize) -> u64 {
        self.with_headroom(self.latest(slots).max(self.before(slots)), slots)
    }

    /// Somewhat more than `bytes`, by how much what comes in a round trip of so many slots grows.
    fn with_headroom(&self, bytes: u64, slots: usize) -> u64 {
        let growing = self.latest(slots) as f64 > self.before(slots) as f64 * GROWTH;
        (bytes as f64 * if growing { GROWING } else { STEADY }) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    const MIB: u64 = 1 << 20;
    const UNKNOWN: Duration = Duration::ZERO;

    #[test]
    fn what_grows_may_almost_double_and_what_does_not_may_fill_the_path() {
        let mut flow = Flow::default();
        // A slow start: twice as much in each round trip.
        let (mut slot, mut in_slot) = (0, MIB / 16);
        for _ in 0..5 {
            in_slot *= 2;
            for _ in 0..SLOTS {
                flow.came(slot, slot, in_slot);
                slot += 1;
            }
            let (path, all) = (in_slot * SLOTS as u64, flow.with_headroom(flow.most, SLOTS));
            assert!(all > path * 9 / 5 && all < 2 * path, "{all} after {path}");
        }
        // Then no more comes.
        for _ in 0..SLOTS {
            flow.came(slot, slot, in_slot);
            slot += 1;
        }
        let (path, all) = (in_slot * SLOTS as u64, flow.with_headroom(flow.most, SLOTS));
        assert_eq!(all, path * 3 / 2);
        // A pause changes nothing: it may be that nobody here took anything in the meantime. What is seen
        // after it came while it lasted.
        slot += 1000;
        flow.came(slot - 15, slot, 2 * path);
        assert_eq!(flow.with_headroom(flow.most, SLOTS), all);
    }

    /// Connections of a host with round trips of `rtt`.
    fn connections<const N: usize>(rtt: Duration) -> [BudgetShare; N] {
        let (socket, _other) = UnixStream::pair().unwrap();
        let receive_budget = ReceiveBudget::over(rtt).unwrap();
        std::array::from_fn(|_| receive_budget.feeder(&socket))
    }

    #[test]
    fn short_paths_are_left_alone() {
        assert!(ReceiveBudget::over(Duration::from_millis(2)).is_none());
    }

    #[test]
    fn who_brings_little_may_have_an_equal_share() {
        let [mut first, mut second] = connections(Duration::from_secs(1000));
        let most = first.came(64 * MIB, 0, UNKNOWN);
        assert!(most > 100 * MIB);
        assert_eq!(second.came(0, 0, UNKNOWN), most / 2);
        drop(first);
        assert_eq!(second.came(0, 0, UNKNOWN), most);
    }

    #[test]
    fn who_brings_all_is_not_held_by_those_that_bring_nothing() {
        let mut connections: [BudgetShare; 8] = connections(Duration::from_secs(1000));
        let mut bytes = MIB / 8;
        for slot in 0..10 * SLOTS as u64 {
            if slot % SLOTS as u64 == 0 {
                bytes = bytes * 3 / 2;
            }
            let share = connections[0].came(bytes, slot, UNKNOWN);
            if slot >= 2 * SLOTS as u64 {
                let came = bytes * SLOTS as u64;
                assert!(share > came * 5 / 4, "{share} when {came} come in a round trip");
            }
        }
    }

    #[test]
    fn where_a_round_trip_takes_much_longer_more_may_be_under_way() {
        let rtt = Duration::from_secs(1000);
        let [mut connection] = connections(rtt);
        let slots = SLOTS as u64;
        // As long as it ever was: what comes in a round trip, and half as much.
        let steady: Vec<u64> =
            (0..4 * slots).map(|slot| connection.came(MIB, slot, rtt * 3 / 2)).collect();
        assert_eq!(steady.last(), Some(&(12 * MIB)));
        // Ten times as long, and no more comes: it takes ten times as much to go on as it does.
        let far: Vec<u64> =
            (0..20 * slots).map(|slot| connection.came(MIB, 4 * slots + slot, rtt * 10)).collect();
        assert_eq!(far.last(), Some(&(120 * MIB)));
    }

    /// As when a path becomes longer within a transfer.
    #[test]
    fn a_slow_start_over_a_path_that_has_become_longer_may_almost_double() {
        let rtt = Duration::from_secs(1000);
        let [mut old, mut connection] = connections(rtt);
        for slot in 0..4 * SLOTS as u64 {
            old.came(MIB, slot, rtt);
        }
        drop(old);
        let (slots, mut each) = (10 * SLOTS as u64, MIB / 64);
        for round in 0..8 {
            each *= 2;
            let came = each * slots;
            let first = 4 * SLOTS as u64 + round * slots;
            let shares = (first..first + slots).map(|slot| connection.came(each, slot, rtt * 10));
            let share = shares.last().unwrap();
            assert!(share > came * 9 / 5, "{share} after {came}");
        }
    }

    #[test]
    fn where_the_path_becomes_shorter_less_may_be_under_way() {
        let rtt = Duration::from_secs(1000);
        let [mut connection] = connections(rtt);
        let slots = SLOTS as u64;
        for slot in 0..4 * slots {
            connection.came(MIB, slot, rtt);
        }
        let shares = (4 * slots..6 * slots).map(|slot| connection.came(MIB, slot, rtt / 4));
        // Two slots are a round trip now.
        assert_eq!(shares.last(), Some(3 * MIB));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_the_kernel_has_got_counts_whether_it_is_read_or_not() {
        use std::io::Write;
        use std::net::{TcpListener, TcpStream};

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let receiver = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut sender, _) = listener.accept().unwrap();
        let receive_budget = ReceiveBudget::over(Duration::from_secs(1000)).unwrap();
        let mut feeder = receive_budget.feeder(&receiver);
        assert_eq!(feeder.share(&receiver), Some(0));
        sender.write_all(&[0; 32 << 10]).unwrap();
        while feeder.share(&receiver).unwrap() < 32 << 10 {}
        drop(feeder);
        // What had come before does not count a second time.
        let before = receive_budget.state().all.latest(SLOTS);
        receive_budget.feeder(&receiver).share(&receiver).unwrap();
        assert_eq!(receive_budget.state().all.latest(SLOTS), before);
    }
}
