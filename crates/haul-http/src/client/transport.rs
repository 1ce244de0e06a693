//! The connections to one host and all servers it redirects to: leases and shared pipes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use haul_storage::LinkStatus;
use tokio::runtime::Handle;

use super::connect::Connector;
use super::leases::{LONGEST_RTT, Leases};
use super::pipes::Pipes;
use crate::parse::Origin;

/// Lanes over a path with [`LONGEST_RTT`], and proportionally fewer over a shorter one: each begins with some
/// 15 KB per RTT (RFC 6928), so twice as many fill the path one RTT earlier. If a transfer will use more lanes, their
/// number takes the place of this one; if it will use fewer, that is the limit. Measured with 800 MB: at 200 ms
/// and 500 Mbit/s, 16 lanes take 15.1 s and 32 take 15.0 s; at 330 ms and 600 Mbit/s, 32 take 14.1 s and 48
/// take 13.9 s. At 200 ms, 40 and more fill the queue, and packets are dropped.
const LANES: usize = 48;
/// The fewest of them.
const FIRST_LANES: usize = 6;

/// Requests in flight over a long path before a transfer begins.
const FIRST_REQUESTS: usize = 3;

/// The connections to all servers.
#[derive(Debug)]
pub struct Transport {
    connector: Arc<Connector>,
    runtime: Handle,
    state: Mutex<State>,
    this: Weak<Self>,
}

#[derive(Debug, Default)]
struct State {
    leases: HashMap<Origin, Arc<Leases>>,
    pipes: HashMap<Origin, Arc<Pipes>>,
    /// The origin whose link is measured: the last one that got a part or a small request on its shared lanes.
    measured: Option<Origin>,
    expected: usize,
    target: usize,
}

impl Transport {
    /// Opens no connection yet. They are served on `runtime`.
    pub fn new(connector: Arc<Connector>, runtime: Handle) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            connector,
            runtime,
            state: Mutex::default(),
            this: this.clone(),
        })
    }

    /// The lanes to an origin that carry one request at a time.
    pub fn leases(&self, origin: &Origin) -> Arc<Leases> {
        let mut state = self.lock();
        let (target, expected) = (state.target, state.expected);
        let leases = state.leases.entry(origin.clone()).or_insert_with(|| {
            let connector = Arc::clone(&self.connector);
            let leases = Leases::new(origin.clone(), connector, self.runtime.clone());
            if let Some(this) = self.this.upgrade().filter(|_| expected > 1) {
                let origin = origin.clone();
                leases.when_long(move |rtt| {
                    this.leases(&origin).raise_target(FIRST_REQUESTS.min(expected));
                    this.pipes(&origin).open_now(lanes_for(rtt, expected));
                });
            }
            leases.set_target(target);
            leases
        });
        Arc::clone(leases)
    }

    /// The shared lanes to an origin, which carry any number of requests.
    pub fn pipes(&self, origin: &Origin) -> Arc<Pipes> {
        let mut state = self.lock();
        let target = state.target;
        let pipes = state.pipes.entry(origin.clone()).or_insert_with(|| {
            let connector = Arc::clone(&self.connector);
            let pipes = Pipes::new(origin.clone(), connector, self.runtime.clone());
            pipes.set_target(target);
            pipes
        });
        Arc::clone(pipes)
    }

    /// The same for parts of files and small requests: from now on the link to this origin is measured.
    pub fn pipes_of_parts(&self, origin: &Origin) -> Arc<Pipes> {
        self.lock().measured = Some(origin.clone());
        self.pipes(origin)
    }

    /// Sets how many lanes a transfer will use over a long path.
    pub fn expect(&self, lanes: usize) {
        self.lock().expected = lanes;
    }

    /// How many lanes a transfer will use.
    pub fn expected(&self) -> usize {
        self.lock().expected
    }

    /// Sets the number of lanes.
    pub fn set_target(&self, lanes: usize) {
        let (leases, pipes): (Vec<_>, Vec<_>) = {
            let mut state = self.lock();
            state.target = lanes;
            (state.leases.values().cloned().collect(), state.pipes.values().cloned().collect())
        };
        leases.iter().for_each(|one| one.set_target(lanes));
        pipes.iter().for_each(|one| one.set_target(lanes));
    }

    /// The state of the link to `origin`, or to the server that it has redirected to.
    pub fn status(&self, origin: &Origin) -> LinkStatus {
        let at = self.lock().measured.clone().unwrap_or_else(|| origin.clone());
        let (leases, pipes) = (self.leases(&at).status(), self.pipes(&at).status());
        let rtt = leases.rtt.into_iter().chain(pipes.rtt).min();
        // Each `queueing` is relative to its own `rtt`; the result is relative to the shorter of both.
        let current_rtt = |link: &LinkStatus| Some(link.rtt? + link.queueing?);
        let current_rtt = current_rtt(&pipes).or_else(|| current_rtt(&leases));
        LinkStatus {
            open: if pipes.open > 0 { pipes.open } else { leases.open },
            opening: leases.opening.max(pipes.opening),
            refused: leases.refused + pipes.refused,
            rtt,
            connect: leases.connect.or(pipes.connect),
            queueing: haul_net::queueing(current_rtt, rtt),
            path: None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of lanes for a path before anything else is known about it: each carries little per RTT at
/// first.
fn lanes_for(rtt: Duration, most: usize) -> usize {
    let lanes = most.max(LANES) as f64 * rtt.div_duration_f64(LONGEST_RTT);
    (lanes as usize).clamp(FIRST_LANES.min(most), most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_path_gets_more_lanes_up_to_the_expected_number() {
        let lanes = |millis, most| lanes_for(Duration::from_millis(millis), most);
        assert_eq!(
            [20, 100, 200, 330, 5000].map(|millis| lanes(millis, LANES)),
            [6, 16, 32, 48, 48]
        );
        assert_eq!([20, 100, 200, 330].map(|millis| lanes(millis, 4)), [4; 4]);
        assert_eq!([20, 100, 200, 330].map(|millis| lanes(millis, 16)), [6, 16, 16, 16]);
        assert_eq!([20, 100, 200, 330].map(|millis| lanes(millis, 64)), [6, 21, 42, 64]);
    }
}
