//! The connections to all servers that one host leads to: those that are leased, and those that are shared.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use haul_storage::LinkStatus;
use tokio::runtime::Handle;

use super::connect::Connector;
use super::leases::{LONGEST_RTT, Leases};
use super::pipes::Pipes;
use crate::parse::Origin;

/// Lanes over a path of the longest round trip, and as many fewer over a shorter one: each begins with some
/// 15 KB a round trip (RFC 6928), so twice as many fill the path a round trip earlier. Measured with 16
/// and 32: 800 MB at 200 ms and 500 Mbit/s 15.1 and 15.0 s; with 32 and 48: at 330 ms and 600 Mbit/s 14.1
/// and 13.9 s. At 200 ms 40 and more fill the queue, and packets are dropped.
const LANES: usize = 48;
const FIRST_LANES: usize = 6;

/// Questions that are asked side by side over a long path before a transfer begins.
const QUESTIONS: usize = 3;

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
    /// Where parts of files were asked for last: it is that link that is measured.
    busiest: Option<Origin>,
    expected: usize,
    wished: usize,
}

impl Transport {
    /// No connection yet. They are kept going on `runtime`.
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
        let (wished, expected) = (state.wished, state.expected);
        let leases = state.leases.entry(origin.clone()).or_insert_with(|| {
            let connector = Arc::clone(&self.connector);
            let leases = Leases::new(origin.clone(), connector, self.runtime.clone());
            if let Some(this) = self.this.upgrade().filter(|_| expected > 1) {
                let origin = origin.clone();
                leases.when_long(move |rtt| {
                    this.leases(&origin).wish_at_least(QUESTIONS.min(expected));
                    this.pipes(&origin).open_now(lanes_for(rtt, expected));
                });
            }
            leases.wish(wished);
            leases
        });
        Arc::clone(leases)
    }

    /// The lanes to an origin on which any number of requests are sent one behind the other.
    pub fn pipes(&self, origin: &Origin) -> Arc<Pipes> {
        let mut state = self.lock();
        let wished = state.wished;
        let pipes = state.pipes.entry(origin.clone()).or_insert_with(|| {
            let connector = Arc::clone(&self.connector);
            let pipes = Pipes::new(origin.clone(), connector, self.runtime.clone());
            pipes.wish(wished);
            pipes
        });
        Arc::clone(pipes)
    }

    /// The same for parts of files: it is that link that is measured from now on.
    pub fn pipes_of_parts(&self, origin: &Origin) -> Arc<Pipes> {
        self.lock().busiest = Some(origin.clone());
        self.pipes(origin)
    }

    /// Says how many lanes a transfer will want over a long path.
    pub fn expect(&self, lanes: usize) {
        self.lock().expected = lanes;
    }

    /// How many lanes a transfer will want.
    pub fn expected(&self) -> usize {
        self.lock().expected
    }

    /// Wishes for `lanes` lanes.
    pub fn wish(&self, lanes: usize) {
        let (leases, pipes): (Vec<_>, Vec<_>) = {
            let mut state = self.lock();
            state.wished = lanes;
            (state.leases.values().cloned().collect(), state.pipes.values().cloned().collect())
        };
        leases.iter().for_each(|one| one.wish(lanes));
        pipes.iter().for_each(|one| one.wish(lanes));
    }

    /// What the link to `origin` looks like, or where that has redirected to.
    pub fn status(&self, origin: &Origin) -> LinkStatus {
        let at = self.lock().busiest.clone().unwrap_or_else(|| origin.clone());
        let (leases, pipes) = (self.leases(&at).status(), self.pipes(&at).status());
        let rtt = leases.rtt.into_iter().chain(pipes.rtt).min();
        // Each counts from a shortest round trip of its own.
        let at_present = |link: &LinkStatus| Some(link.rtt? + link.queueing?);
        let at_present = at_present(&pipes).or_else(|| at_present(&leases));
        LinkStatus {
            open: if pipes.open > 0 { pipes.open } else { leases.open },
            opening: leases.opening.max(pipes.opening),
            refused: leases.refused + pipes.refused,
            rtt,
            connect: leases.connect.or(pipes.connect),
            queueing: haul_net::queueing(at_present, rtt),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many lanes a path deserves before anything else is known of it: what one carries in a round
/// trip is little at first.
fn lanes_for(rtt: Duration, most: usize) -> usize {
    let lanes = most.max(LANES) as f64 * rtt.div_duration_f64(LONGEST_RTT);
    (lanes as usize).clamp(FIRST_LANES.min(most), most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_path_gets_more_lanes_and_never_more_than_are_wanted() {
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
