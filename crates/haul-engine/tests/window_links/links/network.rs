//! The events of a simulated link: requests, segments through the bottleneck, acknowledgements,
//! lanes that open or are refused.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

use super::driver::{Control, Driver};
use super::sender::{MSS, Sender};
use super::{Link, Run, queue_bytes};

/// The most lanes that a backend opens at once.
const MOST_OPENING: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Request {
        lane: usize,
        bytes: u64,
    },
    Arrival {
        lane: usize,
        number: u64,
        offset: u64,
        bytes: u64,
    },
    Ack {
        lane: usize,
        number: u64,
        acknowledged: u64,
    },
    Pace {
        lane: usize,
    },
    ProbeTimeout {
        lane: usize,
    },
    ServerReady,
    LaneOpens,
    Wakeup,
    /// The acknowledgement of a request, with its RTT in nanoseconds.
    RequestAck {
        lane: usize,
        took: u64,
    },
    Look,
    /// The path changes to this entry of the link's list.
    Change(usize),
}

/// How often the link's status is polled, as by the engine.
const LOOK: Duration = Duration::from_millis(25);

struct Network {
    link: Link,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    numbers: u64,
    random: u64,
    driver: Driver,
    lanes: Vec<Lane>,
    bottleneck_free: u64,
    last_arrival: u64,
    last_ack: u64,
    server_free: u64,
    server_waiters: VecDeque<usize>,
    server_set: bool,
    /// The lane whose turn it is at the server.
    served: Option<usize>,
    wakeup: Option<u64>,
    run: Run,
}

struct Lane {
    sender: Sender,
    pace_set: bool,
    probe_set: bool,
    waits_for_server: bool,
    /// Requests of the driver that the lane has not sent; bytes that it has requested, and received.
    requests: VecDeque<u64>,
    requested: u64,
    received: u64,
    early: BTreeMap<u64, u64>,
    /// The RTT that haul's kernel has measured last, and when.
    rtt: u64,
    measured: Option<u64>,
}

/// Runs a link from the moment its first lane is open.
pub(crate) fn run(link: &Link, control: Control) -> Run {
    let mut network = Network::new(link, control);
    if link.gauge {
        network.push(nanos(LOOK), Event::Look);
    }
    for (index, change) in link.changes.iter().enumerate() {
        network.push(nanos(change.at), Event::Change(index));
    }
    network.act();
    let end = nanos(link.length);
    while let Some(Reverse((time, _, event))) = network.events.pop() {
        if time >= end {
            break;
        }
        network.now = time;
        network.handle(event);
        network.act();
    }
    network.run.points = network.driver.points;
    network.run.refused = network.driver.link.refused;
    network.run
}

impl Network {
    fn new(link: &Link, control: Control) -> Self {
        let rounds = (link.length.as_secs_f64() / link.round().as_secs_f64()).ceil() as usize;
        let mut network = Self {
            link: link.clone(),
            now: 0,
            events: BinaryHeap::new(),
            numbers: 0,
            random: 0x9e37_79b9_7f4a_7c15,
            driver: Driver::new(control, link),
            lanes: Vec::new(),
            bottleneck_free: 0,
            last_arrival: 0,
            last_ack: 0,
            server_free: 0,
            server_waiters: VecDeque::new(),
            server_set: false,
            served: None,
            wakeup: None,
            run: Run {
                link: link.clone(),
                rounds: vec![0.0; rounds],
                points: Vec::new(),
                sent: 0,
                dropped: 0,
                queues: Vec::new(),
                most_opening: 0,
                refused: 0,
            },
        };
        network.add_lane();
        network
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Request { lane, bytes } => {
                self.lanes[lane].sender.request(bytes);
                let queued = self.bottleneck_free.saturating_sub(self.now);
                let way_back = queued + nanos(self.link.rtt) / 2;
                let took = nanos(self.link.rtt) / 2 + way_back;
                self.push(self.now + way_back, Event::RequestAck { lane, took });
                self.send(lane);
            }
            Event::Arrival { lane, number, offset, bytes } => {
                self.arrive(lane, number, offset, bytes);
            }
            Event::Ack { lane, number, acknowledged } => {
                self.lanes[lane].sender.on_ack(self.now, number, acknowledged);
                self.send(lane);
            }
            Event::Pace { lane } => {
                self.lanes[lane].pace_set = false;
                self.send(lane);
            }
            Event::ProbeTimeout { lane } => self.probe_timeout(lane),
            Event::ServerReady => {
                self.server_set = false;
                if let Some(lane) = self.server_waiters.pop_front() {
                    self.lanes[lane].waits_for_server = false;
                    self.served = Some(lane);
                    self.send(lane);
                    self.served = None;
                }
                self.await_server();
            }
            Event::LaneOpens => {
                self.driver.link.opening -= 1;
                if self.driver.link.open >= self.link.lane_limit {
                    self.driver.link.refused += 1;
                } else {
                    self.driver.open_lane();
                    self.add_lane();
                }
                self.driver.report_link(self.time());
            }
            Event::RequestAck { lane, took } => {
                let lane = &mut self.lanes[lane];
                lane.rtt = took;
                lane.measured = Some(self.now);
            }
            Event::Look => {
                self.look();
                self.push(self.now + nanos(LOOK), Event::Look);
            }
            Event::Change(index) => {
                let change = self.link.changes[index];
                self.link.rtt = change.rtt;
                self.link.rate = change.rate;
                self.link.queue_bytes = queue_bytes(change.rtt, change.rate);
            }
            Event::Wakeup => {
                if self.wakeup == Some(self.now) {
                    self.wakeup = None;
                    self.driver.on_timeout(self.time());
                }
            }
        }
    }

    fn look(&mut self) {
        let queue = Duration::from_nanos(self.bottleneck_free.saturating_sub(self.now));
        self.run.queues.push((self.time(), queue));
        if self.link.gauge {
            let now = self.now;
            let fresh = |lane: &&Lane| lane.measured.is_some_and(|at| at + 3 * lane.rtt >= now);
            let mut seen: Vec<u64> = self.lanes.iter().filter(fresh).map(|lane| lane.rtt).collect();
            seen.sort_unstable();
            let time = Duration::from_nanos;
            let known = self.driver.link.rtt;
            let shortest = known.into_iter().chain(seen.first().map(|least| time(*least))).min();
            let median = seen.get(seen.len() / 2).map(|median| time(*median));
            self.driver.link.rtt = shortest;
            self.driver.link.queueing =
                median.zip(shortest).map(|(now, shortest)| now.saturating_sub(shortest));
        }
        self.driver.report_link(self.time());
    }

    /// Lets the driver act after each event.
    fn act(&mut self) {
        let target = self.driver.decision().lanes;
        let link = self.driver.link;
        let may_open = (target - link.open.min(target)).min(MOST_OPENING);
        if may_open > link.opening {
            let opens = self.now + nanos(self.link.rtt * self.link.lane_cost);
            for _ in link.opening..may_open {
                self.driver.link.opening += 1;
                self.push(opens, Event::LaneOpens);
            }
            self.run.most_opening = self.run.most_opening.max(self.driver.link.opening);
            self.driver.report_link(self.time());
        } else if target < link.open {
            self.driver.close_lanes(target);
            self.driver.report_link(self.time());
        }
        while let Some((lane, bytes)) = self.driver.issue(self.time()) {
            self.lanes[lane].requests.push_back(bytes);
            self.request(lane);
        }
        if let Some(wakeup) = self.driver.next_wakeup().map(nanos)
            && self.wakeup.is_none_or(|set| wakeup < set)
        {
            self.wakeup = Some(wakeup);
            self.push(wakeup, Event::Wakeup);
        }
    }

    fn request(&mut self, index: usize) {
        let lane = &mut self.lanes[index];
        while !(self.link.one_request && lane.requested > lane.received) {
            let Some(bytes) = lane.requests.pop_front() else { return };
            lane.requested += bytes;
            self.numbers += 1;
            let arrives = self.now + nanos(self.link.rtt) / 2 + nanos(self.link.think);
            let request = Event::Request { lane: index, bytes };
            self.events.push(Reverse((arrives, self.numbers, request)));
        }
    }

    /// Sends what a lane may send, in bursts of at most 1 ms (as Linux does with pacing).
    fn send(&mut self, index: usize) {
        let burst = (nanos(self.link.rtt) / 16).min(1_000_000);
        let burst_ends = self.now + burst;
        while let Some(bytes) = self.lanes[index].sender.sendable(self.link.segment) {
            let lane = &mut self.lanes[index];
            if lane.sender.pace_at > burst_ends {
                if !std::mem::replace(&mut lane.pace_set, true) {
                    let at = lane.sender.pace_at - burst / 2;
                    self.push(at, Event::Pace { lane: index });
                }
                break;
            }
            if lane.sender.next_is_new() && !self.server_has_time(index, bytes) {
                self.lanes[index].sender.wait_for_data();
                break;
            }
            let segment = self.lanes[index].sender.send(self.now, bytes);
            self.transmit(index, segment.number, segment.offset, bytes);
        }
        let lane = &mut self.lanes[index];
        if lane.sender.has_in_flight() && !std::mem::replace(&mut lane.probe_set, true) {
            let at = lane.sender.last_sent() + lane.sender.probe_timeout();
            self.push(at.max(self.now + 1), Event::ProbeTimeout { lane: index });
        }
    }

    fn server_has_time(&mut self, index: usize, bytes: u64) -> bool {
        let now = self.time();
        let since = self.link.server.iter().rev().find(|(from, _)| *from <= now);
        let rate = since.map_or(f64::INFINITY, |(_, rate)| *rate);
        if rate.is_infinite() {
            return true;
        }
        let turn_of_others = !self.server_waiters.is_empty() && self.served != Some(index);
        if self.server_free > self.now || turn_of_others {
            if !std::mem::replace(&mut self.lanes[index].waits_for_server, true) {
                self.server_waiters.push_back(index);
                self.await_server();
            }
            return false;
        }
        self.served = None;
        self.server_free = self.now.max(self.server_free) + (bytes as f64 / rate * 1e9) as u64;
        true
    }

    fn await_server(&mut self) {
        if !self.server_waiters.is_empty() && !std::mem::replace(&mut self.server_set, true) {
            self.push(self.server_free.max(self.now), Event::ServerReady);
        }
    }

    /// Passes a segment through the bottleneck: queue, rate, loss.
    fn transmit(&mut self, lane: usize, number: u64, offset: u64, bytes: u64) {
        self.run.sent += 1;
        let backlog = self.bottleneck_free.saturating_sub(self.now) as f64 / 1e9 * self.link.rate;
        if backlog + bytes as f64 > self.link.queue_bytes.max(2.0 * self.link.segment as f64) {
            self.run.dropped += 1;
            return;
        }
        self.bottleneck_free =
            self.bottleneck_free.max(self.now) + (bytes as f64 / self.link.rate * 1e9) as u64;
        if self.random() < self.link.loss * bytes as f64 / MSS as f64 {
            return;
        }
        let jitter = (nanos(self.link.jitter) as f64 * self.random()) as u64;
        let arrives = self.bottleneck_free + nanos(self.link.rtt) / 2 + jitter;
        self.last_arrival = self.last_arrival.max(arrives);
        self.push(self.last_arrival, Event::Arrival { lane, number, offset, bytes });
    }

    fn arrive(&mut self, index: usize, number: u64, offset: u64, bytes: u64) {
        let lane = &mut self.lanes[index];
        let before = lane.received;
        if offset <= lane.received {
            lane.received = lane.received.max(offset + bytes);
        } else {
            lane.early.insert(offset, bytes);
        }
        while let Some(entry) = lane.early.first_entry() {
            if *entry.key() > lane.received {
                break;
            }
            let (offset, bytes) = entry.remove_entry();
            lane.received = lane.received.max(offset + bytes);
        }
        let (acknowledged, in_order) = (lane.received, lane.received - before);
        self.last_ack = self.last_ack.max(self.now + nanos(self.link.rtt) / 2);
        self.push(self.last_ack, Event::Ack { lane: index, number, acknowledged });
        if in_order > 0 {
            let round = (self.now / nanos(self.run.link.round())) as usize;
            if let Some(sum) = self.run.rounds.get_mut(round) {
                *sum += in_order as f64;
            }
            self.driver.arrive(self.time(), index, in_order);
            self.request(index);
        }
    }

    fn probe_timeout(&mut self, index: usize) {
        let lane = &mut self.lanes[index];
        lane.probe_set = false;
        if !lane.sender.has_in_flight() {
            return;
        }
        let due = lane.sender.last_sent() + lane.sender.probe_timeout();
        if due <= self.now {
            lane.sender.on_probe_timeout(self.now);
            self.send(index);
        } else {
            lane.probe_set = true;
            self.push(due, Event::ProbeTimeout { lane: index });
        }
    }

    fn add_lane(&mut self) {
        let link = &self.link;
        let seed = self.lanes.len();
        self.lanes.push(Lane {
            sender: Sender::new(link, seed),
            pace_set: false,
            probe_set: false,
            waits_for_server: false,
            requests: VecDeque::new(),
            requested: 0,
            received: 0,
            early: BTreeMap::new(),
            rtt: 0,
            measured: None,
        });
    }

    fn push(&mut self, time: u64, event: Event) {
        self.numbers += 1;
        self.events.push(Reverse((time, self.numbers, event)));
    }

    fn time(&self) -> Duration {
        Duration::from_nanos(self.now)
    }

    /// Uniform in 0..1, the same in every run (xorshift64).
    fn random(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}
