//! A network link in miniature: round trips, a shared rate, lanes that take time to open and have
//! limits of their own.
//!
//! All waiting is tokio time, so a test under `start_paused = true` moves gigabytes over a long link
//! in no time and gets the same figures each run. The model: an operation goes on the open lane with
//! the least in flight. On a lane, transfers go one after another, as on one connection; they share
//! the bottleneck with those of other lanes, a segment (about 2 ms of it) at a time. A transfer
//! costs its bytes and one round trip, during which the next one's bytes already flow.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tokio::time::{Instant, sleep_until};

use super::lock::lock;
use crate::LinkStatus;

/// What link to simulate.
#[derive(Debug, Clone)]
pub struct SimulatedLink {
    /// Time for a request and its answer.
    pub rtt: Duration,
    /// What all lanes together carry, both directions counted together.
    pub rate_bytes_per_second: u64,
    /// Bytes that one lane may have in flight, as a far end's receive window does: the lane carries
    /// at most this much per round trip.
    pub per_lane_window: Option<u64>,
    /// What one lane carries at most, in bytes per second.
    pub per_lane_rate: Option<u64>,
    /// Round trips until a new lane can be used; about 9 for SSH.
    pub open_round_trips: u32,
    /// The far end refuses lanes beyond this number.
    pub max_lanes_accepted: Option<usize>,
    /// Bytes that the queue before the bottleneck holds. What is in flight beyond this and the BDP
    /// is dropped and has to be sent twice. `None` is a queue without end.
    pub queue_bytes: Option<u64>,
}

impl SimulatedLink {
    /// A link with one limit for all lanes together, lanes that open in 3 round trips, and no other
    /// limits.
    pub fn new(rtt: Duration, rate_bytes_per_second: u64) -> Self {
        Self {
            rtt,
            rate_bytes_per_second,
            per_lane_window: None,
            per_lane_rate: None,
            open_round_trips: 3,
            max_lanes_accepted: None,
            queue_bytes: None,
        }
    }

    /// Bandwidth-delay product in bytes.
    pub fn bdp(&self) -> u64 {
        (self.rate_bytes_per_second as f64 * self.rtt.as_secs_f64()) as u64
    }

    /// What one lane alone carries, in bytes per second.
    fn lane_rate(&self) -> f64 {
        let rtt = self.rtt.as_secs_f64();
        let by_window = match self.per_lane_window {
            Some(window) if rtt > 0.0 => window as f64 / rtt,
            _ => f64::INFINITY,
        };
        by_window.min(self.per_lane_rate.map_or(f64::INFINITY, |rate| rate as f64))
    }
}

/// What went over a simulated link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkTraffic {
    /// Bytes, those that had to be sent twice counted once.
    pub bytes: u64,
    /// Bytes that were dropped at the queue.
    pub dropped: u64,
    /// The most bytes that were in flight or waiting for their lane at once.
    pub most_in_flight: u64,
    /// The most lanes that were open at once.
    pub most_lanes: usize,
}

#[derive(Debug)]
pub(super) struct Link {
    config: SimulatedLink,
    max_lanes: Option<usize>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    lanes: Vec<Lane>,
    next_id: u64,
    refused: usize,
    connect: Option<Duration>,
    /// When the bottleneck has carried all it was given.
    busy_until: Option<Instant>,
    in_flight: u64,
    traffic: LinkTraffic,
}

#[derive(Debug)]
struct Lane {
    id: u64,
    ready: Instant,
    open: bool,
    closing: bool,
    load: u64,
    /// Until when the lane's own limits keep it busy.
    wire: Arc<AsyncMutex<Instant>>,
}

/// No lane could be opened.
#[derive(Debug)]
pub(super) struct Refused;

impl Link {
    pub(super) fn new(config: SimulatedLink, max_lanes: Option<usize>) -> Arc<Self> {
        Arc::new(Self { config, max_lanes, state: Mutex::default() })
    }

    pub(super) fn set_lanes(&self, lanes: usize) {
        let wanted = lanes.min(self.max_lanes.unwrap_or(usize::MAX));
        let mut state = self.settled();
        let mut alive = state.lanes.iter().filter(|lane| !lane.closing).count();
        while alive < wanted {
            state.start_lane(&self.config);
            alive += 1;
        }
        // Those that are still being opened go first.
        for lane in state.lanes.iter_mut().rev() {
            if alive > wanted && !lane.closing {
                lane.closing = true;
                alive -= 1;
            }
        }
        state.lanes.retain(|lane| !lane.closing || lane.load > 0);
    }

    pub(super) fn status(&self) -> LinkStatus {
        let state = self.settled();
        let open = state.lanes.iter().filter(|lane| lane.open).count();
        LinkStatus {
            open,
            opening: state.lanes.len() - open,
            refused: state.refused,
            rtt: state.connect.map(|_| self.config.rtt),
            connect: state.connect,
            queueing: None,
        }
    }

    pub(super) fn traffic(&self) -> LinkTraffic {
        self.settled().traffic
    }

    /// Waits for a request without content and its answer, `round_trips` times.
    pub(super) async fn ask(self: &Arc<Self>, round_trips: u32) -> Result<(), Refused> {
        let _lane = self.acquire(0).await?;
        sleep_until(Instant::now() + self.config.rtt * round_trips).await;
        Ok(())
    }

    /// Sends a request for `expected` bytes; the answer's bytes are then taken as they arrive.
    pub(super) async fn request(self: &Arc<Self>, expected: u64) -> Result<Transfer, Refused> {
        let lane = self.acquire(expected).await?;
        let arrival = Instant::now() + self.config.rtt;
        sleep_until(arrival).await;
        Ok(self.transfer(lane, arrival).await)
    }

    /// Sends `bytes` bytes and waits for the answer.
    pub(super) async fn send(self: &Arc<Self>, bytes: u64) -> Result<(), Refused> {
        let lane = self.acquire(bytes).await?;
        let mut transfer = self.transfer(lane, Instant::now()).await;
        let sent = transfer.carry(bytes).await;
        drop(transfer.wire.take());
        sleep_until(sent + self.config.rtt).await;
        Ok(())
    }

    async fn transfer(self: &Arc<Self>, lane: LaneUse, earliest: Instant) -> Transfer {
        let wire = Arc::clone(&lane.wire).lock_owned().await;
        let from = earliest.max(*wire);
        Transfer { lane, wire: Some(wire), from }
    }

    /// The open lane with the least in flight; waits until one is open, and opens the first.
    async fn acquire(self: &Arc<Self>, bytes: u64) -> Result<LaneUse, Refused> {
        // Requests count too, so that those without content spread over the lanes.
        let load = bytes + 1024;
        let mut waited = false;
        loop {
            let ready = {
                let mut state = self.settled();
                let usable = state.lanes.iter_mut().filter(|lane| lane.open && !lane.closing);
                if let Some(lane) = usable.min_by_key(|lane| lane.load) {
                    lane.load += load;
                    let (id, wire) = (lane.id, Arc::clone(&lane.wire));
                    state.in_flight += bytes;
                    state.traffic.most_in_flight =
                        state.traffic.most_in_flight.max(state.in_flight);
                    return Ok(LaneUse { link: Arc::clone(self), id, load, bytes, wire });
                }
                let opening = state.lanes.iter().filter(|lane| !lane.open && !lane.closing);
                match opening.map(|lane| lane.ready).min() {
                    Some(ready) => ready,
                    None if waited => return Err(Refused),
                    None => state.start_lane(&self.config),
                }
            };
            waited = true;
            sleep_until(ready).await;
        }
    }

    /// The state, with lanes opened or refused whose time has come.
    fn settled(&self) -> std::sync::MutexGuard<'_, State> {
        let mut state = lock(&self.state);
        let now = Instant::now();
        let mut open = state.lanes.iter().filter(|lane| lane.open).count();
        let limit = self.config.max_lanes_accepted.unwrap_or(usize::MAX);
        let before = state.lanes.len();
        state.lanes.retain_mut(|lane| {
            if lane.open || lane.ready > now {
                return true;
            }
            lane.open = open < limit;
            open += usize::from(lane.open);
            lane.open
        });
        state.refused += before - state.lanes.len();
        if open > 0 && state.connect.is_none() {
            state.connect = Some(self.config.rtt * self.config.open_round_trips);
        }
        state.traffic.most_lanes = state.traffic.most_lanes.max(open);
        state
    }

    /// Takes a share of the bottleneck from `from` on; gives when it has carried all.
    fn reserve(&self, from: Instant, bytes: u64) -> Instant {
        let mut state = lock(&self.state);
        let mut cost = bytes;
        if let Some(queue) = self.config.queue_bytes
            && state.in_flight > self.config.bdp() + queue
        {
            state.traffic.dropped += bytes;
            cost *= 2;
        }
        state.traffic.bytes += bytes;
        let start = state.busy_until.map_or(from, |busy| busy.max(from));
        let end = start + seconds(cost as f64 / self.config.rate_bytes_per_second.max(1) as f64);
        state.busy_until = Some(end);
        end
    }
}

impl State {
    fn start_lane(&mut self, config: &SimulatedLink) -> Instant {
        let now = Instant::now();
        let ready = now + config.rtt * config.open_round_trips;
        self.next_id += 1;
        self.lanes.push(Lane {
            id: self.next_id,
            ready,
            open: false,
            closing: false,
            load: 0,
            wire: Arc::new(AsyncMutex::new(now)),
        });
        ready
    }
}

/// A lane while an operation is on it.
#[derive(Debug)]
struct LaneUse {
    link: Arc<Link>,
    id: u64,
    load: u64,
    bytes: u64,
    wire: Arc<AsyncMutex<Instant>>,
}

impl Drop for LaneUse {
    fn drop(&mut self) {
        let mut state = lock(&self.link.state);
        state.in_flight -= self.bytes;
        if let Some(lane) = state.lanes.iter_mut().find(|lane| lane.id == self.id) {
            lane.load -= self.load;
        }
        state.lanes.retain(|lane| !lane.closing || lane.load > 0);
    }
}

/// Bytes on their way on one lane.
#[derive(Debug)]
pub(super) struct Transfer {
    lane: LaneUse,
    wire: Option<OwnedMutexGuard<Instant>>,
    from: Instant,
}

impl Transfer {
    /// Waits until `bytes` more bytes are through; gives the exact time at which they were (tokio
    /// wakes up to 1 ms later, and that must not add up).
    pub(super) async fn carry(&mut self, bytes: u64) -> Instant {
        let config = &self.lane.link.config;
        let segment = (config.rate_bytes_per_second / 500).clamp(16 << 10, 1 << 20);
        let mut left = bytes;
        while left > 0 {
            let part = left.min(segment);
            let by_lane = self.from + seconds(part as f64 / config.lane_rate());
            self.from = self.lane.link.reserve(self.from, part).max(by_lane);
            if let Some(wire) = &mut self.wire {
                **wire = self.from;
            }
            sleep_until(self.from).await;
            left -= part;
        }
        self.from
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}
