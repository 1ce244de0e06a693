//! A budget for the bytes in flight from one host, on all connections together.
//!
//! A sender finds the capacity of a path by sending ever more until packets are lost; several senders do so at once,
//! and lose many. The receiver knows the bytes received per RTT, and allows somewhat more than that in flight: the rate
//! can still grow, but the queue on the path does not overflow. A connection that receives less than an equal share may
//! catch up. One that receives more, because others are idle, may go on growing. If the RTT of the path changes, bytes
//! are counted over the new RTT.
//!
//! The kernel counts bytes that it has received in order, even before haul reads them. Bytes behind a lost packet wait
//! for the retransmission and are all counted at once, late. They are spread evenly over the time since the last count.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Whether this system reports received bytes. Otherwise bytes in flight cannot be limited.
pub const COUNTS_RECEIVED_BYTES: bool = cfg!(target_os = "linux");

/// On paths with a shorter RTT queues are short, and bytes received per RTT say little.
const MIN_RTT: Duration = Duration::from_millis(10);

/// Bytes allowed in flight, as a multiple of bytes received per RTT, while the rate grows: almost as much as a slow
/// start needs. Since the queue of a path usually holds one RTT's worth, the path takes a multiple of about 2.
const GROWING: f64 = 1.9;
/// The multiple while the rate does not grow: enough to fill the path.
const STEADY: f64 = 1.5;

/// The rate grows if more than this multiple of the bytes of the previous RTT was received.
const GROWTH: f64 = 1.25;

/// An RTT above this multiple of the initial one is not caused by our own bytes in flight: others fill the queue, or
/// the path has become longer. The budget is then at least the bytes received in such a longer RTT, with headroom.
const LATE: f64 = 2.0;
/// An RTT below this fraction of the initial one means that the path has become shorter.
const SHORTER: f64 = 0.75;

/// Slots per initial RTT, in which received bytes are counted.
const SLOTS: usize = 8;
/// Longer RTTs are counted in full up to this multiple of the initial one.
const MAX_RTT_RATIO: f64 = 32.0;
/// Slots to remember: two of the longest RTTs.
const MAX_SLOTS: usize = 2 * SLOTS * MAX_RTT_RATIO as usize;

/// The budget of one host.
#[derive(Debug)]
pub struct ReceiveBudget {
    /// The initial RTT.
    rtt: Duration,
    began: Instant,
    state: Mutex<State>,
}

/// The share of one connection in a [`ReceiveBudget`]. Dropping it removes the connection from the budget.
#[derive(Debug)]
pub struct BudgetShare {
    receive_budget: Arc<ReceiveBudget>,
    /// The slot of the last count.
    counted_until: u64,
    /// Bytes that the connection had received by then.
    received: u64,
    own: Arrivals,
}

#[derive(Debug, Default)]
struct State {
    connections: u64,
    all: Arrivals,
}

/// Bytes received on one connection, or on all.
#[derive(Debug, Default)]
struct Arrivals {
    /// Bytes received in the last slots, the newest first.
    slots: VecDeque<u64>,
    /// The number of the newest slot.
    newest: u64,
    /// The most bytes received in an initial RTT. It never decreases: later values may be lower only because the
    /// budget allowed no more.
    max_per_rtt: u64,
}

impl ReceiveBudget {
    /// A budget for a path with this RTT, which must be the shortest one measured. `None` if the path is too short for
    /// a budget to matter.
    pub fn over(rtt: Duration) -> Option<Arc<Self>> {
        let (began, state) = (Instant::now(), Mutex::default());
        (rtt >= MIN_RTT).then(|| Arc::new(Self { rtt, began, state }))
    }

    /// Adds the connection `socket`. Bytes that it has received before do not count.
    pub fn add_connection(self: &Arc<Self>, socket: &impl AsFd) -> BudgetShare {
        self.state().connections += 1;
        let received = received(socket).map_or(0, |(received, _)| received);
        BudgetShare {
            receive_budget: Arc::clone(self),
            counted_until: self.now(),
            received,
            own: Arrivals::default(),
        }
    }

    /// The number of the current slot.
    fn now(&self) -> u64 {
        let slot = (self.rtt / SLOTS as u32).as_nanos().max(1);
        u64::try_from(self.began.elapsed().as_nanos() / slot).unwrap_or(u64::MAX)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BudgetShare {
    /// Bytes that may be in flight on its connection, `socket`. `None` if the system does not report received bytes.
    pub fn allowed_bytes(&mut self, socket: &impl AsFd) -> Option<u64> {
        let (received, micros) = received(socket)?;
        let bytes = received.saturating_sub(self.received);
        self.received = received;
        let rtt = Duration::from_micros(micros.into());
        Some(self.on_received(bytes, self.receive_budget.now(), rtt))
    }

    /// Counts `bytes` received since the last call. Returns the bytes that may be in flight. `rtt` is the current one,
    /// or zero if unknown.
    fn on_received(&mut self, bytes: u64, now: u64, rtt: Duration) -> u64 {
        let (first, last) = (self.counted_until, now.max(self.counted_until));
        self.counted_until = last;
        self.own.add(first, last, bytes);
        let mut state = self.receive_budget.state();
        state.all.add(first, last, bytes);
        let connections = state.connections.max(1);
        let ratio = rtt.as_secs_f64() / self.receive_budget.rtt.as_secs_f64();
        if ratio > 0.0 && ratio < SHORTER {
            // At the same rate, proportionally fewer bytes are received in the shorter RTT.
            let equal = state.all.with_headroom(state.all.max_per_rtt, SLOTS) as f64 * ratio;
            let slots = slots(ratio);
            return (equal as u64 / connections).max(self.own.budget(slots));
        }
        let equal = state.all.with_headroom(state.all.max_per_rtt, SLOTS) / connections;
        let late = if ratio > LATE { self.own.budget(slots(ratio)) } else { 0 };
        equal.max(self.own.budget(SLOTS)).max(late)
    }
}

/// Slots of an RTT with this ratio to the initial one.
fn slots(ratio: f64) -> usize {
    ((SLOTS as f64 * ratio.min(MAX_RTT_RATIO)).ceil() as usize).max(1)
}

/// Bytes received on a connection, and its RTT in microseconds, if the system reports them.
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

impl Arrivals {
    /// Adds `bytes` to the slots from `first` to `last`, spread evenly.
    fn add(&mut self, first: u64, last: u64, bytes: u64) {
        for _ in 0..last.saturating_sub(self.newest).min(MAX_SLOTS as u64) {
            self.slots.push_front(0);
        }
        self.newest = self.newest.max(last);
        self.slots.truncate(MAX_SLOTS);
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
        self.max_per_rtt = self.max_per_rtt.max(self.latest(SLOTS));
    }

    /// Bytes received in the last RTT, which is `slots` slots long.
    fn latest(&self, slots: usize) -> u64 {
        self.slots.iter().take(slots).sum()
    }

    /// Bytes received in the RTT before that.
    fn previous(&self, slots: usize) -> u64 {
        self.slots.iter().skip(slots).take(slots).sum()
    }

    /// The larger of the last two RTTs' bytes, with headroom.
    fn budget(&self, slots: usize) -> u64 {
        self.with_headroom(self.latest(slots).max(self.previous(slots)), slots)
    }

    /// `bytes` times [`GROWING`] or [`STEADY`], depending on whether the rate grows.
    fn with_headroom(&self, bytes: u64, slots: usize) -> u64 {
        let growing = self.latest(slots) as f64 > self.previous(slots) as f64 * GROWTH;
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
    fn a_growing_rate_may_almost_double_and_a_steady_one_fills_the_path() {
        let mut flow = Arrivals::default();
        // A slow start: twice as much in each RTT.
        let (mut slot, mut in_slot) = (0, MIB / 16);
        for _ in 0..5 {
            in_slot *= 2;
            for _ in 0..SLOTS {
                flow.add(slot, slot, in_slot);
                slot += 1;
            }
            let (path, all) = (in_slot * SLOTS as u64, flow.with_headroom(flow.max_per_rtt, SLOTS));
            assert!(all > path * 9 / 5 && all < 2 * path, "{all} after {path}");
        }
        // Then the rate stays the same.
        for _ in 0..SLOTS {
            flow.add(slot, slot, in_slot);
            slot += 1;
        }
        let (path, all) = (in_slot * SLOTS as u64, flow.with_headroom(flow.max_per_rtt, SLOTS));
        assert_eq!(all, path * 3 / 2);
        // A pause does not reduce the budget: perhaps bytes arrived, but were not counted. The bytes counted after it
        // may have arrived at any time during it.
        slot += 1000;
        flow.add(slot - 15, slot, 2 * path);
        assert_eq!(flow.with_headroom(flow.max_per_rtt, SLOTS), all);
    }

    /// Connections to a host with this RTT.
    fn connections<const N: usize>(rtt: Duration) -> [BudgetShare; N] {
        let (socket, _other) = UnixStream::pair().unwrap();
        let receive_budget = ReceiveBudget::over(rtt).unwrap();
        std::array::from_fn(|_| receive_budget.add_connection(&socket))
    }

    #[test]
    fn short_paths_have_no_budget() {
        assert!(ReceiveBudget::over(Duration::from_millis(2)).is_none());
    }

    #[test]
    fn a_slow_connection_may_have_an_equal_share() {
        let [mut first, mut second] = connections(Duration::from_secs(1000));
        let all = first.on_received(64 * MIB, 0, UNKNOWN);
        assert!(all > 100 * MIB);
        assert_eq!(second.on_received(0, 0, UNKNOWN), all / 2);
        drop(first);
        assert_eq!(second.on_received(0, 0, UNKNOWN), all);
    }

    #[test]
    fn idle_connections_do_not_limit_the_only_active_one() {
        let mut connections: [BudgetShare; 8] = connections(Duration::from_secs(1000));
        let mut bytes = MIB / 8;
        for slot in 0..10 * SLOTS as u64 {
            if slot % SLOTS as u64 == 0 {
                bytes = bytes * 3 / 2;
            }
            let share = connections[0].on_received(bytes, slot, UNKNOWN);
            if slot >= 2 * SLOTS as u64 {
                let per_rtt = bytes * SLOTS as u64;
                assert!(share > per_rtt * 5 / 4, "{share} with {per_rtt} received per RTT");
            }
        }
    }

    #[test]
    fn a_much_longer_rtt_allows_more_in_flight() {
        let rtt = Duration::from_secs(1000);
        let [mut connection] = connections(rtt);
        let slots = SLOTS as u64;
        // About the initial RTT: bytes received per RTT, and half as much again.
        let steady: Vec<u64> =
            (0..4 * slots).map(|slot| connection.on_received(MIB, slot, rtt * 3 / 2)).collect();
        assert_eq!(steady.last(), Some(&(12 * MIB)));
        // Ten times as long at the same rate: this needs ten times as many bytes in flight.
        let longer: Vec<u64> = (0..20 * slots)
            .map(|slot| connection.on_received(MIB, 4 * slots + slot, rtt * 10))
            .collect();
        assert_eq!(longer.last(), Some(&(120 * MIB)));
    }

    /// As on a path that becomes longer during a transfer.
    #[test]
    fn a_slow_start_with_a_longer_rtt_may_almost_double() {
        let rtt = Duration::from_secs(1000);
        let [mut old, mut connection] = connections(rtt);
        for slot in 0..4 * SLOTS as u64 {
            old.on_received(MIB, slot, rtt);
        }
        drop(old);
        let (slots, mut each) = (10 * SLOTS as u64, MIB / 64);
        for round in 0..8 {
            each *= 2;
            let per_rtt = each * slots;
            let first = 4 * SLOTS as u64 + round * slots;
            let shares =
                (first..first + slots).map(|slot| connection.on_received(each, slot, rtt * 10));
            let share = shares.last().unwrap();
            assert!(share > per_rtt * 9 / 5, "{share} after {per_rtt}");
        }
    }

    #[test]
    fn a_shorter_rtt_allows_less_in_flight() {
        let rtt = Duration::from_secs(1000);
        let [mut connection] = connections(rtt);
        let slots = SLOTS as u64;
        for slot in 0..4 * slots {
            connection.on_received(MIB, slot, rtt);
        }
        let shares = (4 * slots..6 * slots).map(|slot| connection.on_received(MIB, slot, rtt / 4));
        // The RTT is two slots now.
        assert_eq!(shares.last(), Some(3 * MIB));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn received_bytes_count_before_they_are_read() {
        use std::io::Write;
        use std::net::{TcpListener, TcpStream};

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let receiver = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut sender, _) = listener.accept().unwrap();
        let receive_budget = ReceiveBudget::over(Duration::from_secs(1000)).unwrap();
        let mut share = receive_budget.add_connection(&receiver);
        assert_eq!(share.allowed_bytes(&receiver), Some(0));
        sender.write_all(&[0; 32 << 10]).unwrap();
        while share.allowed_bytes(&receiver).unwrap() < 32 << 10 {}
        drop(share);
        // Bytes received before a connection was added do not count.
        let before = receive_budget.state().all.latest(SLOTS);
        receive_budget.add_connection(&receiver).allowed_bytes(&receiver).unwrap();
        assert_eq!(receive_budget.state().all.latest(SLOTS), before);
    }
}
