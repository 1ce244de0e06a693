//! The window on simulated links: which share of each link it settles at, how soon, how steadily.
//!
//! `cargo test -p haul-engine --test window_links -- --nocapture` prints the table (`ONLY=NAME` one row,
//! `POINTS=NAME` the decisions of one). Next to its share, rounds and drops, a row has those of an oracle: the best
//! fixed lanes and window, known beforehand, in the same simulator and under the same conditions. Rounds are RTTs
//! (10 ms on paths shorter than that) since the first lane was open. The goal of 95 % within 8 rounds cannot be reached
//! where one lane is not enough: the next ones open 9 RTTs later, unless a row has fewer, and their slow start
//! from 14 KiB takes 7 more. So the assertions are 95 % and the oracle's time plus a little; the reason for
//! weaker ones is at their row, or at a similar one.

#![expect(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a test: it prints its table, and its parts are not marked as tests themselves"
)]

mod changes;
mod links;

use std::thread;
use std::time::Duration;

use haul_engine::window::{Decision, Limits, Window};
use links::{Arrival, Congestion, Control, Link, Run, run};

/// A link, what an oracle would choose for it, and what is asserted.
struct Case {
    link: Link,
    oracle_lanes: usize,
    oracle_bdps: f64,
    /// Per cent of the link, at least.
    share: f64,
    /// Rounds more than the oracle, at most.
    later: usize,
    /// The largest window in the second half divided by the smallest, at most, and how often it
    /// changes in 10 seconds: a trial up and down again.
    swing: f64,
    changes: f64,
}

impl Case {
    /// A case with the usual goals.
    fn new(link: Link, oracle_lanes: usize, oracle_bdps: f64) -> Self {
        Self { link, oracle_lanes, oracle_bdps, share: 95.0, later: 2, swing: 1.4, changes: 2.0 }
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn run(self) -> Row {
        let link = &self.link;
        // 4 ms for the hosts, as in the window.
        let rtt = link.rtt.as_secs_f64() + 0.004;
        let window_bytes = (self.oracle_bdps * link.rate * rtt) as u64;
        let ranges_per_lane = if link.one_request { 1 } else { 4 };
        let range_bytes = window_bytes / (ranges_per_lane * self.oracle_lanes as u64);
        let range_bytes = range_bytes.max(16 << 10);
        let decision = Decision { lanes: self.oracle_lanes, window_bytes, range_bytes, files: 8 };
        let oracle = run(link, Control::Fixed(decision));
        let mut window = Window::new(Limits::default());
        if link.one_request {
            window = window.one_request_a_lane();
        }
        let window = run(link, Control::Window(Box::new(window)));
        Row { case: self, oracle, window }
    }
}

struct Row {
    case: Case,
    oracle: Run,
    window: Run,
}

impl Row {
    fn print(&self) {
        let (window, oracle, length) = (&self.window, &self.oracle, self.case.link.length);
        let end = window.end();
        let (changes, swing) = window.swing(length / 2, length);
        println!(
            "{:31} {:6.1} {:6.1} {:7} {:6} {:6} {:8.2} {:6} {:8} {:6.2} {:7.2} {:6.2}",
            self.case.link.name,
            window.share(),
            oracle.share(),
            window.rounds_to_settle(),
            oracle.rounds_to_settle(),
            end.open,
            end.window_bytes as f64 / 1e6,
            end.range_bytes >> 10,
            changes,
            swing,
            window.dropped_percent(),
            oracle.dropped_percent(),
        );
        if std::env::var("POINTS").is_ok_and(|name| name == self.case.link.name) {
            window.points.iter().for_each(|point| println!("    {point:?}"));
        }
    }

    fn check(&self) {
        let Case { link, share, later, .. } = &self.case;
        let (name, window) = (link.name, &self.window);
        assert!(window.share() >= *share, "{name}: {:.1} % of the link", window.share());
        let (rounds, best) = (window.rounds_to_settle(), self.oracle.rounds_to_settle());
        assert!(rounds <= best + later, "{name}: settles after {rounds} rounds, not {best}");
        let (changes, swing) = window.swing(link.length / 2, link.length);
        let most_changes = self.case.changes * (link.length.as_secs_f64() / 2.0 / 10.0).ceil();
        assert!(changes as f64 <= most_changes, "{name}: {changes} changes");
        assert!(swing <= self.case.swing, "{name}: the window moves by a factor of {swing}");
        assert!(window.most_opening <= 8, "{name}: {} lanes being opened", window.most_opening);
    }
}

fn lan(link: &mut Link) {
    link.segment = 8 << 10;
    link.length = Duration::from_secs(3);
}

fn long_path(name: &'static str, change: impl FnOnce(&mut Link)) -> Case {
    Case::new(Link::new(name, 200.0, 500.0).with(change), 12, 1.3)
}

/// The same with the kernel's RTTs.
fn gauged(case: Case) -> Case {
    case.with(|case| case.link.gauge = true)
}

fn lossy(name: &'static str, loss: f64, change: impl FnOnce(&mut Link)) -> Case {
    let link = Link::new(name, 100.0, 500.0).with(|link| {
        link.loss = loss;
        link.segment = 4344;
        link.lane_bytes = 2_700_000;
    });
    Case::new(link.with(change), 16, 1.5)
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn cases() -> Vec<Case> {
    vec![
        Case::new(Link::new("0.2 ms 10 Gbit (LAN)", 0.2, 10_000.0).with(lan), 1, 1.3),
        Case::new(
            Link::new("1 ms 1 Gbit", 1.0, 1000.0).with(|link| link.segment = 2 * 1448),
            1,
            1.3,
        ),
        Case::new(Link::new("50 ms 500 Mbit", 50.0, 500.0), 3, 1.3),
        long_path("200 ms 500 Mbit", |_| ()),
        long_path("  lanes open in 3 round trips", |link| link.lane_cost = 3),
        long_path("  writing, whole ranges acked", |link| {
            link.lane_cost = 3;
            link.arrival = Arrival::Ranges;
        }),
        long_path("  one request a lane (HTTP/1.1)", |link| {
            link.lane_cost = 3;
            link.one_request = true;
        })
        // Only ranges of several RTTs keep such lanes busy, so nothing but congestion control bounds the
        // bytes on the path: the queue overflows for the oracle too, and goodput scatters.
        .with(|case| {
            case.oracle_bdps = 4.0;
            case.share = 88.0;
            case.swing = 8.0;
            case.changes = 4.0;
        }),
        Case::new(
            Link::new("2 ms 1 Gbit, server thinks 30 ms", 2.0, 1000.0).with(|link| {
                link.think = Duration::from_millis(30);
                link.segment = 4344;
                link.length = Duration::from_secs(20);
            }),
            1,
            8.0,
        )
        // Rounds of 10 ms; a response takes three of them, which the search finds by widening.
        .with(|case| case.later = 12),
        long_path("  CUBIC", |link| link.congestion = Congestion::Cubic),
        long_path("  2 MiB a lane", |link| link.lane_bytes = 2 << 20),
        // The 12 lanes of the path are too few. That shows when they have ramped up and the window
        // has settled; 9 + 8 RTTs later the next ones have ramped up, and are judged.
        long_path("  768 KiB a lane", |link| link.lane_bytes = 768 << 10).with(|case| {
            case.oracle_lanes = 24;
            case.later = 36;
        }),
        long_path("  ninth lane refused", |link| {
            link.lane_bytes = 2_700_000;
            link.lane_limit = 8;
        })
        .with(|case| case.oracle_lanes = 8),
        Case::new(
            Link::new("330 ms 600 Mbit, 2.7 MB a lane", 330.0, 600.0)
                .with(|link| link.lane_bytes = 2_700_000),
            16,
            1.3,
        ),
        Case::new(
            Link::new("100 ms 500 Mbit, 20 ms jitter", 100.0, 500.0)
                .with(|link| link.jitter = Duration::from_millis(20)),
            8,
            1.5,
        ),
        lossy("100 ms 500 Mbit, 0.1 % loss", 0.001, |_| ()).with(|case| case.share = 92.0),
        // Each lane waits for lost packets all the time, and its socket buffer fills meanwhile. A wider
        // window gains more and drops more; the oracle has 16 lanes and does no better.
        lossy("  1 % loss", 0.01, |_| ()).with(|case| case.share = 75.0),
        gauged(Case::new(Link::new("50 ms 500 Mbit, gauged", 50.0, 500.0), 3, 1.3)),
        gauged(long_path("200 ms 500 Mbit, gauged", |_| ())),
        gauged(long_path("  lanes open in 4 round trips", |link| link.lane_cost = 4)),
        gauged(long_path("  4, CUBIC", |link| {
            link.lane_cost = 4;
            link.congestion = Congestion::Cubic;
        })),
        gauged(long_path("  4, writing", |link| {
            link.lane_cost = 4;
            link.arrival = Arrival::Ranges;
        })),
        gauged(long_path("  4, 2 MiB a lane", |link| {
            link.lane_cost = 4;
            link.lane_bytes = 2 << 20;
        })),
        gauged(long_path("  4, 768 KiB a lane", |link| {
            link.lane_cost = 4;
            link.lane_bytes = 768 << 10;
        }))
        .with(|case| {
            case.oracle_lanes = 24;
            case.later = 36;
        }),
        gauged(Case::new(
            Link::new("330 ms 600 Mbit, 2.7 MB a lane, g.", 330.0, 600.0)
                .with(|link| link.lane_bytes = 2_700_000),
            16,
            1.3,
        )),
        gauged(Case::new(
            Link::new("100 ms, 20 ms jitter, gauged", 100.0, 500.0)
                .with(|link| link.jitter = Duration::from_millis(20)),
            8,
            1.5,
        )),
        gauged(lossy("100 ms, 0.1 % loss, gauged", 0.001, |_| ()).with(|case| case.share = 92.0)),
        gauged(lossy("  1 % loss, gauged", 0.01, |_| ()).with(|case| {
            case.share = 75.0;
            // Queues come and go with losses, so the first window is too small.
            case.later = 14;
        })),
        // CUBIC keeps 1.2 MSS / √loss = 17 KiB per lane in flight with any window, and the default
        // profile has at most 32 lanes. Lanes are added only after earlier ones have proved themselves.
        lossy("  1 % loss, CUBIC", 0.01, |link| {
            link.congestion = Congestion::Cubic;
            link.length = Duration::from_secs(80);
        })
        .with(|case| {
            case.oracle_lanes = 32;
            case.share = 8.0;
            case.later = 200;
        }),
    ]
}

#[test]
fn the_window_fills_each_link_soon_and_stays_there() {
    println!(
        "                                    share      rounds to settle    window   range      \
         changes, swing     dropped\n\
         link                             %  oracle         oracle  lanes       MB    KiB    \
         (2nd half)       %  oracle"
    );
    let rows: Vec<Row> = thread::scope(|scope| {
        let runs: Vec<_> = cases()
            .into_iter()
            .filter(|c| {
                std::env::var("ONLY").is_err() || c.link.name == std::env::var("ONLY").unwrap()
            })
            .map(|case| scope.spawn(|| case.run()))
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    for row in &rows {
        row.print();
    }
    for row in &rows {
        row.check();
    }
}

#[test]
fn the_window_follows_a_server_that_slows_down_and_recovers() {
    let (slow, again, end) =
        (Duration::from_secs(20), Duration::from_secs(40), Duration::from_secs(60));
    let link = Link::new("server slows to a third", 100.0, 500.0).with(|link| {
        link.server =
            vec![(Duration::ZERO, link.rate), (slow, link.rate / 3.0), (again, link.rate)];
        link.length = end;
    });
    let (rate, round) = (link.rate, link.round());
    let run = run(&link, Control::Window(Box::new(Window::new(Limits::default()))));
    let at = |time| run.at(time).window_bytes as f64 / 1e6;
    let (before, narrow, after) = (at(slow), at(again), at(end));
    let shrinks = run.points.iter().find(|point| point.time > slow);
    let shrinks = (shrinks.unwrap().time - slow).as_secs_f64() / round.as_secs_f64();
    let recovers = run.rounds_until(again, rate);
    println!(
        "server slows to a third and recovers: window {before:.2} MB, {narrow:.2} MB after \
         {shrinks:.0} rounds, {after:.2} MB; full again after {recovers} rounds"
    );
    assert!(narrow < 0.5 * before, "the window shrinks with the BDP");
    assert!(shrinks <= 6.0);
    assert!(recovers <= 12);
    assert!(run.goodput(slow / 2, slow) > 0.95 * rate);
    assert!(run.goodput(slow + round * 10, again) > 0.95 * rate / 3.0);
    assert!(run.goodput(again + round * 20, end) > 0.95 * rate);
    assert!(after < 1.4 * before && after > before / 1.4, "the window recovers with the BDP");
}

#[test]
fn one_lane_stays_on_a_lan_and_two_where_two_are_faster() {
    let link = Link::new("LAN", 0.2, 10_000.0).with(lan);
    let alone = run(&link, Control::Window(Box::new(Window::new(Limits::default()))));
    assert_eq!(alone.end().lanes, 1);
    assert!(alone.points.iter().any(|point| point.lanes == 2), "a second lane was tried");

    let link = link.with(|link| link.lane_rate = 0.6 * link.rate);
    let halved = run(&link, Control::Window(Box::new(Window::new(Limits::default()))));
    assert_eq!(halved.end().lanes, 2);
    assert!(halved.goodput(Duration::from_millis(2500), link.length) > 0.95 * link.rate);
}

#[test]
fn a_refused_lane_is_not_requested_again() {
    let link = Link::new("ninth lane refused", 100.0, 500.0).with(|link| {
        link.lane_limit = 8;
        link.lane_bytes = 512 << 10;
        link.length = Duration::from_secs(120);
        link.segment = 64 << 10;
    });
    let run = run(&link, Control::Window(Box::new(Window::new(Limits::default()))));
    let refused_at = run.points.iter().find(|point| point.lanes > 8).unwrap().time;
    let lowered_by = refused_at + link.rtt * 12;
    assert!(run.points.iter().all(|point| point.lanes <= 8 || point.time < lowered_by));
    assert_eq!(run.end().open, 8);
    assert!(run.refused <= 8);
}

#[test]
fn a_window_bounded_elsewhere_settles_higher() {
    let link = Link::new("200 ms 500 Mbit", 200.0, 500.0).with(|link| {
        link.lane_cost = 4;
        link.gauge = true;
    });
    let bdp = link.rate * link.rtt.as_secs_f64();
    let settled = |window: Window| {
        let end = run(&link, Control::Window(Box::new(window))).end();
        end.window_bytes as f64 / bdp
    };
    let (else_where, alone) = (
        settled(Window::new(Limits::default()).bounded_elsewhere()),
        settled(Window::new(Limits::default())),
    );
    println!(
        "settled at {else_where:.2} BDPs, and at {alone:.2} where the window is the only bound"
    );
    assert!((1.6..=1.9).contains(&else_where) && (1.1..=1.5).contains(&alone));
}
