//! Properties for any sequence of observations, and single rules that need no link.

use std::time::Duration;

use haul_storage::{ErrorKind, LinkStatus};
use proptest::prelude::*;

use super::{Completion, Limits, Window};
use crate::{Auto, WindowProfile};

const MS: Duration = Duration::from_millis(1);

fn link(open: usize, opening: usize, refused: usize, rtt_ms: u32) -> LinkStatus {
    let rtt = Some(MS * rtt_ms);
    LinkStatus { open, opening, refused, rtt, ..LinkStatus::default() }
}

/// An observation of the driver.
#[derive(Debug, Clone)]
enum Seen {
    Link(LinkStatus),
    Completed { bytes: u64, took: Duration },
    Progress { bytes: u64, in_flight: u64 },
    Failed(ErrorKind),
    Starved,
    Timeout,
}

fn seen() -> impl Strategy<Value = Seen> {
    let time = || proptest::option::of(0..2000u32);
    let status = (0..80usize, 0..20usize, 0..30usize, time(), time());
    prop_oneof![
        3 => status.prop_map(|(open, opening, refused, rtt, queueing)| {
            let [rtt, queueing] = [rtt, queueing].map(|ms| ms.map(|ms| MS * ms));
            Seen::Link(LinkStatus { open, opening, refused, rtt, queueing, ..LinkStatus::default() })
        }),
        6 => (0..64u64 << 20, 0..3000u32)
            .prop_map(|(bytes, ms)| Seen::Completed { bytes, took: MS * ms }),
        6 => (0..4u64 << 20, 0..300u64 << 20)
            .prop_map(|(bytes, in_flight)| Seen::Progress { bytes, in_flight }),
        1 => prop_oneof![Just(u64::MAX), Just(0)]
            .prop_map(|bytes| Seen::Progress { bytes, in_flight: bytes }),
        1 => prop_oneof![
            Just(ErrorKind::Busy),
            Just(ErrorKind::Unreachable),
            Just(ErrorKind::NotFound)
        ]
        .prop_map(Seen::Failed),
        1 => Just(Seen::Starved),
        2 => Just(Seen::Timeout),
    ]
}

fn auto<T: std::fmt::Debug + Clone>(
    fixed: impl Strategy<Value = T>,
) -> impl Strategy<Value = Auto<T>> {
    prop_oneof![Just(None), fixed.prop_map(Some)]
        .prop_map(|fixed| fixed.map_or(Auto::Auto, Auto::Fixed))
}

fn any_limits() -> impl Strategy<Value = Limits> {
    let profile = prop_oneof![
        Just(WindowProfile::Safe),
        Just(WindowProfile::Default),
        Just(WindowProfile::Aggressive)
    ];
    (
        auto(0..100usize),
        auto(0..1u64 << 30),
        auto(0..64u64 << 20),
        auto(0..1000usize),
        prop_oneof![Just(0), Just(u64::MAX), 0..1u64 << 30],
        0..100usize,
        profile,
    )
        .prop_map(|(lanes, window, chunk, files, memory, max_lanes, profile)| Limits {
            lanes,
            window,
            chunk,
            files,
            memory,
            max_lanes,
            profile,
        })
}

fn apply(window: &mut Window, now: Duration, seen: &Seen) {
    match *seen {
        Seen::Link(status) => window.on_link(now, status),
        Seen::Completed { bytes, took } => {
            let issued = now.saturating_sub(took);
            window.on_completion(now, &Completion { bytes, issued, first_byte: None });
        }
        Seen::Progress { bytes, in_flight } => window.on_progress(now, bytes, in_flight),
        Seen::Failed(kind) => window.on_failure(now, kind),
        Seen::Starved => window.on_starved(now),
        Seen::Timeout => window.on_timeout(now),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_decision_stays_within_the_limits(
        limits in any_limits(),
        observations in proptest::collection::vec((0..500u64, seen()), 0..300),
    ) {
        let mut window = Window::new(limits);
        let memory = limits.memory.max(64 << 10);
        let mut now = Duration::ZERO;
        for (step, seen) in &observations {
            now += MS * *step as u32;
            apply(&mut window, now, seen);
            let decision = window.decision();
            prop_assert!((1..=limits.max_lanes.clamp(1, 64)).contains(&decision.lanes));
            prop_assert!((1..=memory).contains(&decision.window_bytes));
            prop_assert!(decision.range_bytes >= 1);
            prop_assert!(decision.files >= 1);
            match limits.chunk.fixed() {
                Some(chunk) => prop_assert_eq!(decision.range_bytes, chunk.max(1)),
                None => prop_assert!(decision.range_bytes <= decision.window_bytes),
            }
            if let Some(fixed) = limits.window.fixed() {
                prop_assert_eq!(decision.window_bytes, fixed.clamp(1, memory));
            }
            if let Some(fixed) = limits.lanes.fixed() {
                prop_assert!(decision.lanes <= fixed.max(1));
            }
            if let Some(fixed) = limits.files.fixed() {
                prop_assert_eq!(decision.files, fixed.max(1));
            }
            if let Some(wakeup) = window.next_wakeup() {
                prop_assert!(wakeup > now);
            }
        }
    }

    #[test]
    fn a_refusal_is_remembered(
        refused_at in 1..20usize,
        observations in proptest::collection::vec((0..500u64, seen()), 0..200),
    ) {
        let mut window = Window::new(Limits::default());
        window.on_link(Duration::ZERO, link(refused_at, 1, 0, 300));
        window.on_link(MS, link(refused_at, 0, 1, 300));
        let mut now = MS;
        for (step, seen) in &observations {
            now += MS * *step as u32;
            // Lanes that open all the same, and links that restart, are not tested here.
            if now < Duration::from_secs(300) && !matches!(seen, Seen::Link(_)) {
                apply(&mut window, now, seen);
                prop_assert!(window.decision().lanes <= refused_at);
            }
        }
    }

    #[test]
    fn a_clock_that_runs_backwards_does_no_harm(
        observations in proptest::collection::vec((0..100_000u64, seen()), 0..200),
    ) {
        let mut window = Window::new(Limits::default());
        for (time, seen) in &observations {
            apply(&mut window, MS * *time as u32, seen);
            let decision = window.decision();
            prop_assert!(decision.window_bytes <= Limits::default().memory);
        }
    }
}

/// Reports `rate` bytes per second in steps of 5 ms, with the window full.
fn flow(window: &mut Window, from: Duration, length: Duration, rate: u64) {
    let mut now = from;
    while now < from + length {
        now += MS * 5;
        window.on_progress(now, rate / 200, window.decision().window_bytes);
    }
}

#[test]
fn a_long_path_gets_several_lanes_at_once_and_a_short_one_gets_one() {
    for (rtt_ms, lanes) in [(1, 1), (10, 1), (50, 3), (100, 6), (200, 9), (330, 9)] {
        let mut window = Window::new(Limits::default());
        assert_eq!(window.decision().lanes, 1);
        window.on_link(Duration::ZERO, link(1, 0, 0, rtt_ms));
        // One is open, and at most 8 are being opened.
        assert_eq!(window.decision().lanes, lanes, "{rtt_ms} ms");
        let mut window = Window::new(Limits::default()).written_to();
        window.on_link(Duration::ZERO, link(1, 0, 0, rtt_ms));
        assert_eq!(window.decision().lanes, lanes.max(2), "{rtt_ms} ms, to write");
    }
}

#[test]
fn a_window_bounded_elsewhere_begins_with_all_that_lanes_of_a_very_long_path_can_carry() {
    let first = |window: Window, rtt_ms| {
        let mut window = window;
        window.on_link(Duration::ZERO, link(1, 0, 0, rtt_ms));
        window.decision().window_bytes >> 20
    };
    let bounded = || Window::new(Limits::default()).bounded_elsewhere();
    assert_eq!([1, 50, 200].map(|ms| first(Window::new(Limits::default()), ms)), [4, 4, 6]);
    assert_eq!([1, 50, 200].map(|ms| first(bounded(), ms)), [4, 4, 24]);
}

#[test]
fn a_short_path_gets_no_more_than_it_can_use() {
    // All bytes in flight arrive each time, so that a wider window seems to gain.
    let widest = |limits: Limits, rtt_ms: u32| {
        let mut window = Window::new(limits);
        window.on_link(Duration::ZERO, link(1, 0, 0, rtt_ms));
        let (mut now, mut widest) = (Duration::ZERO, 0);
        for _ in 0..2000 {
            now += MS * 5;
            let bytes = window.decision().window_bytes;
            window.on_progress(now, bytes, bytes);
            widest = widest.max(window.decision().window_bytes);
        }
        widest
    };
    assert_eq!(widest(Limits::default(), 0), 12_500_000);
    assert_eq!(widest(Limits::default(), 1), 15_625_000);
    assert_eq!(widest(Limits::default(), 100), Limits::default().memory);
    let fixed = Limits { window: Auto::Fixed(64 << 20), ..Limits::default() };
    assert_eq!(widest(fixed, 0), 64 << 20);
}

#[test]
fn a_long_path_gets_many_files_at_once() {
    let files = |window: Window, rtt_ms| {
        let mut window = window;
        window.on_link(Duration::ZERO, link(1, 0, 0, rtt_ms));
        window.decision().files
    };
    let pipelined = [0, 1, 20, 50, 500].map(|rtt_ms| files(Window::new(Limits::default()), rtt_ms));
    assert_eq!(pipelined, [64, 64, 108, 256, 256]);
    let others = [0, 1, 20, 50, 500]
        .map(|rtt_ms| files(Window::new(Limits::default()).one_request_a_lane(), rtt_ms));
    assert_eq!(others, [8, 13, 108, 256, 256]);
}

#[test]
fn errors_cost_files_first_then_lanes_then_range_size() {
    let mut window = Window::new(Limits::default());
    window.on_link(Duration::ZERO, link(8, 0, 0, 100));
    let start = window.decision();
    let mut now = Duration::ZERO;
    let mut fail = |window: &mut Window| {
        now += Duration::from_secs(2);
        window.on_failure(now, ErrorKind::Busy);
        window.decision()
    };
    let mut files = start.files;
    while files > 1 {
        let decision = fail(&mut window);
        assert_eq!((decision.files, decision.lanes), (files / 2, start.lanes));
        files = decision.files;
    }
    let decision = fail(&mut window);
    assert!(decision.lanes < start.lanes);
    let range = decision.range_bytes;
    for _ in 0..12 {
        fail(&mut window);
    }
    let decision = window.decision();
    assert_eq!(decision.lanes, 1);
    assert!(decision.range_bytes < range);
}

#[test]
fn a_lost_lane_causes_one_reaction() {
    let mut window = Window::new(Limits::default());
    window.on_link(Duration::ZERO, link(6, 0, 0, 100));
    let before = window.decision();
    window.on_link(MS, link(5, 0, 1, 100));
    for _ in 0..20 {
        window.on_failure(MS * 2, ErrorKind::Unreachable);
    }
    let after = window.decision();
    assert_eq!((after.lanes, after.files), (5, before.files / 2));
    // It is opened again after a while.
    window.on_timeout(Duration::from_secs(20));
    assert_eq!(window.decision().lanes, before.lanes);
}

#[test]
fn starved_rounds_are_not_judged() {
    let mut window = Window::new(Limits::default());
    window.on_link(Duration::ZERO, link(1, 0, 0, 10));
    flow(&mut window, Duration::ZERO, Duration::from_secs(3), 400_000_000);
    assert!(window.settled());
    let (decision, goodput) = (window.decision(), window.goodput());
    let mut now = Duration::from_secs(3);
    for _ in 0..100 {
        now += MS * 10;
        window.on_starved(now);
        window.on_progress(now, 1000, 0);
    }
    assert_eq!(window.decision(), decision);
    // The round in which starvation began had been full for most of its time.
    assert!(window.goodput().abs_diff(goodput) < goodput / 10);
}

#[test]
fn without_known_bytes_in_flight_rounds_with_a_moment_without_work_are_not_judged() {
    let mut window = Window::new(Limits::default());
    window.on_link(Duration::ZERO, link(1, 0, 0, 10));
    let mut now = Duration::ZERO;
    let mut arrive = |window: &mut Window, bytes, is_starved| {
        for _ in 0..200 {
            let issued = now;
            now += MS * 5;
            if is_starved {
                window.on_starved(now);
            }
            window.on_completion(now, &Completion { bytes, issued, first_byte: None });
        }
        window.goodput()
    };
    let goodput = arrive(&mut window, 1_000_000, false);
    assert!(goodput > 150_000_000, "{goodput}");
    assert_eq!(arrive(&mut window, 1000, true), goodput);
}

/// The permits of long reads cover less than the window. Formerly, no round was judged, and the goodput
/// of the slow start stayed.
#[test]
fn rounds_of_long_reads_are_judged_unless_a_lane_is_idle() {
    let mut window = Window::new(Limits::default()).of_long_reads();
    let mut now = Duration::ZERO;
    window.on_link(now, link(1, 0, 0, 10));
    let mut arrive = |window: &mut Window, bytes, is_idle| {
        for _ in 0..300 {
            now += MS;
            if is_idle {
                window.on_idle_lane(now);
            }
            window.on_starved(now);
            window.on_progress(now, bytes, 1000);
        }
        window.goodput()
    };
    let slow_start = arrive(&mut window, 1000, false);
    let goodput = arrive(&mut window, 50_000, false);
    assert!(goodput > 40 * slow_start, "{slow_start} {goodput}");
    assert_eq!(arrive(&mut window, 1000, true), goodput);
}

#[test]
fn a_range_reported_in_blocks_is_counted_once() {
    let rate = |blocks: bool| {
        let mut window = Window::new(Limits::default());
        window.on_link(Duration::ZERO, link(1, 0, 0, 10));
        for step in 1..200 {
            let now = MS * 5 * step;
            if blocks {
                for _ in 0..4 {
                    window.on_progress(now, 250_000, 4 << 20);
                }
            }
            let issued = now - MS * 5;
            let completion = Completion { bytes: 1_000_000, issued, first_byte: None };
            window.on_completion(now, &completion);
        }
        window.goodput()
    };
    let (blocks, ranges) = (rate(true), rate(false));
    assert!(blocks.abs_diff(ranges) < ranges / 50, "{blocks} and {ranges}");
}

#[test]
fn nothing_wakes_an_idle_window() {
    let mut window = Window::new(Limits::default());
    assert_eq!(window.next_wakeup(), None);
    flow(&mut window, Duration::ZERO, Duration::from_secs(1), 10_000_000);
    for _ in 0..5 {
        let Some(wakeup) = window.next_wakeup() else { return };
        window.on_timeout(wakeup);
    }
    panic!("it wakes up again and again");
}

#[test]
fn slow_lanes_of_a_short_path_make_room_for_more() {
    let mut window = Window::new(Limits::default());
    window.on_link(Duration::ZERO, link(1, 0, 0, 1));
    let before = window.decision();
    // All of the window is requested from one lane that carries 1 MB/s.
    flow(&mut window, Duration::ZERO, Duration::from_secs(1), 1_000_000);
    let after = window.decision();
    assert!(after.lanes > before.lanes);
    assert!(after.window_bytes >= before.window_bytes + (512 << 10), "{after:?}");
}

/// Reports seconds in which each lane delivers `burst` bytes at the beginning and then nothing, with the window or
/// `behind` in flight, whichever is more. Returns the lanes after each second.
fn slow_lanes(window: &mut Window, from: u64, seconds: u64, burst: u64, behind: u64) -> Vec<usize> {
    let mut each = Vec::new();
    for second in from..from + seconds {
        let mut now = Duration::from_secs(second);
        for _ in 0..window.decision().lanes {
            now += MS;
            let in_flight = window.decision().window_bytes.max(behind);
            window.on_progress(now, burst, in_flight);
        }
        while now < Duration::from_secs(second + 1) {
            now += MS * 20;
            window.on_link(now, link(window.decision().lanes, 0, 0, 0));
            if window.next_wakeup().is_some_and(|at| at <= now) {
                window.on_timeout(now);
            }
        }
        each.push(window.decision().lanes);
    }
    each
}

#[test]
fn lanes_that_become_slow_get_more_beside_them() {
    let mut window = Window::new(Limits::default());
    window.on_link(Duration::ZERO, link(1, 0, 0, 0));
    flow(&mut window, Duration::ZERO, Duration::from_secs(1), 1_000_000_000);
    assert_eq!(window.decision().lanes, 1, "a lane that fast is not slow");
    // Bytes requested by then are still in flight, even if the window is smaller by now.
    let mut lanes = slow_lanes(&mut window, 1, 1, 1_000_000, 6 << 20);
    while lanes.len() < 12 {
        let before = window.decision().lanes;
        lanes.extend(slow_lanes(&mut window, 1 + lanes.len() as u64, 1, 1_000_000, 6 << 20));
        let after = window.decision();
        assert!(after.lanes == before || after.window_bytes > 6 << 20, "room for the new ones");
        assert!(after.lanes == before || after.range_bytes <= 256 << 10, "{after:?}");
    }
    assert!(lanes[3] >= 2 && lanes.is_sorted() && lanes[11] >= 12, "{lanes:?}");
}

#[test]
fn lanes_that_gain_nothing_are_closed() {
    let mut window = Window::new(Limits::default());
    window.on_link(Duration::ZERO, link(1, 0, 0, 0));
    let mut lanes = Vec::new();
    for second in 0..50 {
        // The link carries 1 MB/s with any number of lanes.
        let share = 1_000_000 / window.decision().lanes as u64;
        lanes.extend(slow_lanes(&mut window, second, 1, share, 6 << 20));
    }
    let tried = lanes.iter().filter(|lanes| **lanes == 2).count();
    assert!((1..=6).contains(&tried) && !lanes.contains(&3), "{lanes:?}");
}

#[test]
fn small_files_do_not_count_as_slow_lanes() {
    let mut window = Window::new(Limits::default());
    window.on_link(Duration::ZERO, link(1, 0, 0, 0));
    for step in 1..10_000 {
        window.on_progress(MS * step, 1000, 8000);
    }
    assert_eq!(window.decision().lanes, 1);
}

#[test]
fn lanes_that_cannot_pay_off_are_not_tried() {
    let lanes_with = |left: u64| {
        let mut window = Window::new(Limits::default());
        window.on_left(left);
        window.on_link(Duration::ZERO, link(16, 0, 0, 200));
        let before = window.decision().lanes;
        flow(&mut window, Duration::ZERO, Duration::from_secs(60), 50_000_000);
        (before, window.decision().lanes)
    };
    let (before, after) = lanes_with(u64::MAX);
    assert!(after > before, "{after} lanes");
    let (before, after) = lanes_with(50_000_000);
    assert_eq!(before, after);
}

/// HTTP opens six lanes where three are requested. Once, three more were tried, existed already, and gained
/// nothing.
#[test]
fn a_trial_requests_more_lanes_than_a_backend_has_opened_by_itself() {
    let mut window = Window::new(Limits::default());
    let status = |open| LinkStatus { queueing: Some(Duration::ZERO), ..link(open, 0, 0, 50) };
    window.on_link(Duration::ZERO, status(6));
    assert_eq!(window.decision().lanes, 3);
    let mut tried = 3;
    for step in 0..400u32 {
        flow(&mut window, MS * 10 * step, MS * 10, 6_000_000);
        window.on_link(MS * 10 * (step + 1), status(tried.max(6)));
        tried = tried.max(window.decision().lanes);
    }
    assert!(tried >= 12, "{tried} lanes");
}

/// Two lanes over loopback moved 0.6 of what one does, in runs of just over two seconds.
#[test]
fn over_a_short_path_no_second_lane_is_tried_when_little_is_left() {
    let most_lanes = |left: u64| {
        let mut window = Window::new(Limits::default());
        window.on_left(left);
        window.on_link(Duration::ZERO, link(1, 0, 0, 0));
        let mut most = 0;
        for step in 0..400u32 {
            flow(&mut window, MS * 10 * step, MS * 10, 450_000_000);
            most = most.max(window.decision().lanes);
        }
        most
    };
    assert_eq!((most_lanes(u64::MAX), most_lanes(100_000_000)), (2, 1));
}

/// The wait once was counted from when the window was made: later searches tried a second lane as soon as they had
/// settled.
#[test]
fn each_search_over_a_short_path_waits_before_it_tries_a_second_lane() {
    for restarts in [false, true] {
        let mut window = Window::new(Limits::default());
        window.on_link(Duration::ZERO, link(1, 0, 0, 0));
        let from = Duration::from_secs(60);
        if restarts {
            flow(&mut window, Duration::ZERO, Duration::from_secs(1), 450_000_000);
            window.forget(from);
            window.on_link(from, link(1, 0, 0, 0));
        }
        let tried = (0..400u32).find(|step| {
            flow(&mut window, from + MS * 10 * *step, MS * 10, 450_000_000);
            window.decision().lanes > 1
        });
        assert!(tried.is_some_and(|step| step >= 190), "after {tried:?} steps of 10 ms");
    }
}
