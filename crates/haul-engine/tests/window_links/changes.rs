//! The path's RTT or rate changes during a transfer: how soon the window adapts, and that it does not mistake
//! a standing queue for a longer path.
//!
//! `cargo test -p haul-engine --test window_links changes -- --nocapture` prints the results.

use std::thread;
use std::time::Duration;

use haul_engine::window::{Limits, Window};

use super::links::{Arrival, Change, Congestion, Control, Link, Run, run};

/// RTT in milliseconds, and rate in Mbit/s.
type Shape = (f64, f64);

struct Case {
    link: Link,
    to: Shape,
    /// The window is bounded by the backend (`Window::bounded_elsewhere`).
    elsewhere: bool,
    /// Number of RTTs after the change from which utilization is measured.
    after: f64,
    /// Minimum utilization of the new rate from then on, 0 to 1.
    share: f64,
}

/// When the path changes.
const CHANGE: Duration = Duration::from_secs(6);

impl Case {
    /// A case whose lanes take four RTTs to open, as for SSH.
    fn new(name: &'static str, from: Shape, to: Shape) -> Self {
        let link = Link::new(name, from.0, from.1).with(|link| {
            let (rtt, rate) = (Duration::from_secs_f64(to.0 / 1e3), to.1 * 125_000.0);
            link.changes = vec![Change { at: CHANGE, rtt, rate }];
            link.lane_cost = 4;
            link.gauge = true;
            link.segment = 4344;
            link.length = CHANGE + (rtt * 60).max(Duration::from_secs(6));
        });
        Self { link, to, elsewhere: false, after: 10.0, share: 1.0 / 1.15 }
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn run(&self) -> Run {
        let mut window = Window::new(Limits::default());
        if self.elsewhere {
            window = window.bounded_elsewhere();
        }
        run(&self.link, Control::Window(Box::new(window)))
    }

    /// The time that is `rtts` RTTs of the new path after the change.
    fn at(&self, rtts: f64) -> Duration {
        CHANGE + Duration::from_secs_f64(rtts * self.to.0 / 1e3)
    }

    /// Utilization of the new rate between two times, 0 to 1.
    fn used(&self, run: &Run, from: Duration, to: Duration) -> f64 {
        run.goodput(from, to) / (self.to.1 * 125_000.0)
    }
}

fn http(link: &mut Case) {
    link.elsewhere = true;
    link.link.lane_cost = 2;
}

fn cases() -> Vec<Case> {
    let cubic = |case: &mut Case| case.link.congestion = Congestion::Cubic;
    let upload = |case: &mut Case| case.link.arrival = Arrival::Ranges;
    let longer = |name| Case::new(name, (20.0, 300.0), (250.0, 300.0));
    let shorter = |name| Case::new(name, (250.0, 300.0), (20.0, 300.0));
    let slower = |name| Case::new(name, (50.0, 300.0), (50.0, 50.0));
    let faster = |name| Case::new(name, (50.0, 50.0), (50.0, 300.0));
    vec![
        longer("20 → 250 ms"),
        longer("20 → 250 ms, upload").with(upload),
        longer("20 → 250 ms, CUBIC").with(cubic),
        longer("20 → 250 ms, HTTP").with(http),
        Case::new("100 → 180 ms", (100.0, 300.0), (180.0, 300.0)),
        Case::new("100 → 130 ms", (100.0, 300.0), (130.0, 300.0)),
        // BBR keeps the minimum RTT of 2 ms for 10 s, so the only lane sends four packets per RTT. New lanes are
        // open after 11 RTTs, and their slow start takes 7.
        Case::new("2 → 100 ms", (2.0, 300.0), (100.0, 300.0)).with(|case| case.after = 18.0),
        Case::new("20 → 250 ms, 300 → 50 Mbit/s", (20.0, 300.0), (250.0, 50.0)),
        shorter("250 → 20 ms"),
        shorter("250 → 20 ms, upload").with(upload),
        shorter("250 → 20 ms, CUBIC").with(cubic),
        shorter("250 → 20 ms, HTTP").with(http),
        slower("300 → 50 Mbit/s"),
        slower("300 → 50 Mbit/s, upload").with(upload),
        slower("300 → 50 Mbit/s, CUBIC").with(cubic),
        slower("300 → 50 Mbit/s, HTTP").with(http),
        faster("50 → 300 Mbit/s"),
        faster("50 → 300 Mbit/s, upload").with(upload),
        // CUBIC lanes grow as slowly as after a loss, until more lanes are tried.
        faster("50 → 300 Mbit/s, CUBIC").with(cubic).with(|case| case.share = 0.75),
        faster("50 → 300 Mbit/s, HTTP").with(http),
    ]
}

#[test]
fn the_window_adapts_to_a_changed_path() {
    println!(
        "                                  used % in round trips                   window  queue\n\
         path                          5-10 10-15 15-20 20-40 10-..  lanes     MB     ms dropped %"
    );
    let runs: Vec<(Case, Run)> = thread::scope(|scope| {
        let runs: Vec<_> =
            cases().into_iter().map(|case| scope.spawn(|| (case.run(), case))).collect();
        runs.into_iter().map(|run| run.join().unwrap()).map(|(run, case)| (case, run)).collect()
    });
    for (case, run) in &runs {
        let spans = [(5.0, 10.0), (10.0, 15.0), (15.0, 20.0), (20.0, 40.0)];
        let used = spans.map(|(from, to)| 100.0 * case.used(run, case.at(from), case.at(to)));
        let rest = 100.0 * case.used(run, case.at(10.0), case.link.length);
        let half = CHANGE + (case.link.length - CHANGE) / 2;
        println!(
            "{:29} {:5.0} {:5.0} {:5.0} {:5.0} {:5.0} {:6} {:6.2} {:6} {:6.2}",
            case.link.name,
            used[0],
            used[1],
            used[2],
            used[3],
            rest,
            run.end().open,
            run.end().window_bytes as f64 / 1e6,
            run.queue(half, case.link.length).as_millis(),
            run.dropped_percent(),
        );
        if std::env::var("POINTS").is_ok_and(|name| name == case.link.name) {
            for point in run.points.iter().filter(|point| point.time > CHANGE / 2) {
                println!("    {point:?}");
            }
        }
    }
    for (case, run) in &runs {
        let (name, from) = (case.link.name, case.at(case.after));
        let used = case.used(run, from, case.link.length);
        assert!(used >= case.share, "{name}: {:.1} % of the new path", 100.0 * used);
        let half = CHANGE + (case.link.length - CHANGE) / 2;
        let queue = run.queue(half, case.link.length).as_secs_f64();
        let most = 0.8 * (case.to.0 / 1e3) + 0.02;
        assert!(queue < most, "{name}: a queue of {queue:.3} s stays");
    }
}
