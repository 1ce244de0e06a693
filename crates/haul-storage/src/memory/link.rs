//! A simulated network link: RTT, a shared rate, and lanes that take time to open and have limits of
//! their own.
//!
//! All waiting uses tokio's clock, so a test under `start_paused = true` moves gigabytes over a long
//! link in no time and gets the same results each run. The model: an operation uses the open lane with
//! the least in flight. On a lane, transfers follow each other, as on one connection; they share the
//! bottleneck with those of other lanes in segments of about 2 ms. A transfer costs its bytes and one
//! RTT, during which the bytes of the next one already flow.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tokio::time::{Instant, sleep_until};

use super::lock::lock;
use crate::LinkStatus;

/// The parameters of a simulated link.
#[derive(Debug, Clone)]
pub struct SimulatedLink {
    /// Time for a request and its response.
    pub rtt: Duration,
    /// The rate of all lanes together, in both directions together.
    pub rate_bytes_per_second: u64,
    /// Maximum bytes in flight on one lane, like the far end's receive window: the lane carries at most
    /// this much per RTT.
    pub per_lane_window: Option<u64>,
    /// Maximum rate of one lane, in bytes per second.
    pub per_lane_rate: Option<u64>,
    /// RTTs until a new lane can be used.
    pub open_rtts: u32,
    /// The far end refuses lanes beyond this number.
    pub max_lanes_accepted: Option<usize>,
    /// Capacity of the queue before the bottleneck, in bytes. While more than this plus the BDP is in flight, bytes
    /// are dropped and sent twice. `None` is an unlimited queue.
    pub queue_bytes: Option<u64>,
}

impl SimulatedLink {
    /// A link with one limit for all lanes together, lanes that open in 3 RTTs, and no other limits.
    pub fn new(rtt: Duration, rate_bytes_per_second: u64) -> Self {
        Self {
            rtt,
            rate_bytes_per_second,
            per_lane_window: None,
            per_lane_rate: None,
            open_rtts: 3,
            max_lanes_accepted: None,
            queue_bytes: None,
        }
    }

    /// Bandwidth-delay product in bytes.
    pub fn bdp(&self) -> u64 {
        (self.rate_bytes_per_second as f64 * self.rtt.as_secs_f64()) as u64
    }

    /// The rate of a single lane, in bytes per second.
    fn lane_rate(&self) -> f64 {
        let rtt = self.rtt.as_secs_f64();
        let by_window = match self.per_lane_window {
            Some(window) if rtt > 0.0 => window as f64 / rtt,
            _ => f64::INFINITY,
        };
        by_window.min(self.per_lane_rate.map_or(f64::INFINITY, |rate| rate as f64))
    }
}

/// The traffic over a simulated link so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkTraffic {
    /// Bytes carried; bytes sent twice count once.
    pub bytes: u64,
    /// Bytes dropped at the queue.
    pub dropped: u64,
    /// Maximum of bytes that were in flight or waiting for their lane at the same time.
    pub most_in_flight: u64,
    /// Maximum of lanes that were open at the same time.
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
    /// When the bottleneck becomes idle.
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
    /// When the lane becomes idle.
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
        // Lanes that are still opening are closed first.
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
            path: None,
        }
    }

    pub(super) fn traffic(&self) -> LinkTraffic {
        self.settled().traffic
    }

    /// Waits for `rtts` requests and responses without content, one after the other.
    pub(super) async fn wait_rtts(self: &Arc<Self>, rtts: u32) -> Result<(), Refused> {
        let _lane = self.acquire(0).await?;
        sleep_until(Instant::now() + self.config.rtt * rtts).await;
        Ok(())
    }

    /// Sends a request for `expected` bytes; [`Transfer::carry`] then waits for the bytes of the response.
    pub(super) async fn request(self: &Arc<Self>, expected: u64) -> Result<Transfer, Refused> {
        let lane = self.acquire(expected).await?;
        let arrival = Instant::now() + self.config.rtt;
        sleep_until(arrival).await;
        Ok(self.transfer(lane, arrival).await)
    }

    /// Like [`Link::request`], for bytes that follow a response that has just arrived.
    pub(super) async fn follow(self: &Arc<Self>, expected: u64) -> Result<Transfer, Refused> {
        let lane = self.acquire(expected).await?;
        Ok(self.transfer(lane, Instant::now()).await)
    }

    /// Sends `bytes` bytes and waits for the response.
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

    /// The open lane with the least in flight. Waits until one is open, and opens one if there is none.
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

    /// The state, after opening or refusing the lanes that are due.
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
            state.connect = Some(self.config.rtt * self.config.open_rtts);
        }
        state.traffic.most_lanes = state.traffic.most_lanes.max(open);
        state
    }

    /// Reserves the bottleneck for `bytes` bytes, from `from` on. Returns the time at which it will have carried them.
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
        let ready = now + config.rtt * config.open_rtts;
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

/// A lane in use by an operation.
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

/// A transfer on one lane.
#[derive(Debug)]
pub(super) struct Transfer {
    lane: LaneUse,
    wire: Option<OwnedMutexGuard<Instant>>,
    from: Instant,
}

impl Transfer {
    /// Waits until `bytes` more bytes have been carried, and returns the exact time at which they were (tokio wakes
    /// up to 1 ms later, which must not add up).
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
