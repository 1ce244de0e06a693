//! The engine keeps a long link full: whole transfers over simulated links, in virtual time, so that the
//! figures are the same on every machine under any load.

use std::time::Duration;

use crate::support::{job, job_at, run};
use haul_engine::{Auto, Settings};
use haul_storage::memory::{MemoryStorage, SimulatedLink};

const MBIT: u64 = 1_000_000 / 8;

struct Case {
    name: &'static str,
    link: SimulatedLink,
    bytes: u64,
    /// The least share of the link's rate over the whole transfer, its start included.
    at_least: f64,
}

fn link(rtt_ms: u64, mbit: u64) -> SimulatedLink {
    SimulatedLink::new(Duration::from_millis(rtt_ms), mbit * MBIT)
}

fn cases() -> Vec<Case> {
    let case = |name, link, bytes, at_least| Case { name, link, bytes, at_least };
    vec![
        case("200 ms, 500 Mbit", link(200, 500), 4 << 30, 0.90),
        case(
            "200 ms, 500 Mbit, lanes of 2 MiB",
            SimulatedLink { per_lane_window: Some(2 << 20), ..link(200, 500) },
            4 << 30,
            0.88,
        ),
        case(
            // Six lanes that are full all the time would do (2 MiB per 200 ms each); of the eight, writes
            // that wait for the near disk leave some idle.
            "200 ms, 500 Mbit, the ninth lane refused, lanes of 2 MiB",
            SimulatedLink {
                per_lane_window: Some(2 << 20),
                max_lanes_accepted: Some(8),
                ..link(200, 500)
            },
            4 << 30,
            0.72,
        ),
        case("50 ms, 500 Mbit", link(50, 500), 4 << 30, 0.93),
        case("1 ms, 1 Gbit", link(1, 1000), 4 << 30, 0.95),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_long_link_is_kept_full_down_and_up() {
    println!("{:<58} {:>6} {:>6} {:>6} {:>10}", "link", "way", "share", "lanes", "window");
    let mut low = Vec::new();
    for case in cases() {
        for down in [true, false] {
            let far = MemoryStorage::builder().with_link(case.link.clone()).build();
            let near =
                MemoryStorage::builder().with_capabilities(|can| can.server_copy = false).build();
            let (source, destination) = if down { (&far, &near) } else { (&near, &far) };
            source.add_pattern_file("f", case.bytes, 1);
            destination.expect_pattern("f", 1);
            let outcome = run(job(source, destination), Settings::default()).await;
            outcome.assert_clean();
            assert!(destination.is_pattern("f", case.bytes, 1));
            let seconds = outcome.summary.elapsed.as_secs_f64();
            let share = case.bytes as f64 / seconds / case.link.rate_bytes_per_second as f64;
            let way = if down { "down" } else { "up" };
            println!(
                "{:<58} {way:>6} {:>5.1}% {:>6} {:>10}",
                case.name,
                share * 100.0,
                outcome.summary.link.lanes,
                outcome.summary.link.window_bytes
            );
            low.extend((share < case.at_least).then(|| format!("{} {way}: {share:.3}", case.name)));
        }
    }
    assert!(low.is_empty(), "{low:?}");
}

#[tokio::test(start_paused = true)]
async fn a_fixed_window_is_respected() {
    let far = MemoryStorage::builder().with_link(link(100, 1000)).build();
    let near = MemoryStorage::new();
    far.add_pattern_file("f", 256 << 20, 1);
    near.expect_pattern("f", 1);
    let settings =
        Settings { lanes: Auto::Fixed(2), window: Auto::Fixed(4 << 20), ..Settings::default() };
    let outcome = run(job(&far, &near), settings).await;
    outcome.assert_clean();
    assert_eq!(outcome.summary.link.lanes, 2);
    let seconds = outcome.summary.elapsed.as_secs_f64();
    let most = (4 << 20) as f64 / 0.1;
    assert!((256 << 20) as f64 / seconds <= most * 1.05, "{seconds} s");
}

/// Formerly, the blocks of a range were written one after the other, each for an RTT, so that a quarter of this window
/// was in flight.
#[tokio::test(start_paused = true)]
async fn a_window_is_full_although_its_ranges_are_written_in_several_blocks() {
    let far = MemoryStorage::builder().with_link(link(100, 1000)).build();
    let near = MemoryStorage::builder().with_read_block(256 << 10).build();
    near.add_pattern_file("f", 256 << 20, 1);
    far.expect_pattern("f", 1);
    let settings = Settings {
        lanes: Auto::Fixed(4),
        window: Auto::Fixed(4 << 20),
        chunk: Auto::Fixed(1 << 20),
        ..Settings::default()
    };
    let outcome = run(job(&near, &far), settings).await;
    outcome.assert_clean();
    let rate = (256 << 20) as f64 / outcome.summary.elapsed.as_secs_f64();
    let most = (4 << 20) as f64 / 0.1;
    assert!(rate > 0.7 * most && rate < 1.05 * most, "{rate} of {most} bytes/s");
}

/// Formerly, an upload looked at its destination once for the plan, then again after the free space was known.
#[tokio::test(start_paused = true)]
async fn the_comparison_with_the_free_space_delays_no_upload() {
    let mut times = Vec::new();
    for check_space in [false, true] {
        let link = link(100, 1000);
        let far = MemoryStorage::builder().with_link(link).with_capacity(1 << 30).build();
        let near = MemoryStorage::new();
        near.add_pattern_file("f", 16 << 20, 1);
        far.expect_pattern("f", 1);
        let settings = Settings { check_space, ..Settings::default() };
        let outcome = run(job_at(&near, "f", &far, "f"), settings).await;
        outcome.assert_clean();
        times.push(outcome.summary.elapsed);
    }
    assert!(times[1] < times[0] + Duration::from_millis(20), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn many_small_files_share_rtts() {
    for down in [true, false] {
        let far = MemoryStorage::builder().with_link(link(50, 500)).build();
        let near = MemoryStorage::new();
        let (source, destination) = if down { (&far, &near) } else { (&near, &far) };
        for at in 0..2000 {
            source.add_pattern_file(format!("d{}/f{at}", at % 20), 16 << 10, at);
        }
        let outcome = run(job(source, destination), Settings::default()).await;
        outcome.assert_clean();
        let rate = 2000.0 / outcome.summary.elapsed.as_secs_f64();
        println!("2 000 files of 16 KiB at 50 ms, down {down}: {rate:.0} files/s");
        assert!(rate > 500.0, "{rate}");
    }
}

/// Once, bytes that waited for their journal record counted as in flight: with the next range they exceeded
/// the window, and no bytes arrived to fill the record. The memory limit had the same effect.
#[tokio::test(start_paused = true)]
async fn an_upload_with_a_journal_gets_through_a_window_of_one_range() {
    let memories = [Settings::default().memory, 8 << 20];
    let chunks = [7424, 7680, 7936, 8192];
    for (memory, kib) in memories.iter().flat_map(|memory| chunks.map(|kib| (*memory, kib))) {
        let far = MemoryStorage::builder().with_link(link(10, 1000)).with_records().build();
        let near =
            MemoryStorage::builder().with_capabilities(|can| can.server_copy = false).build();
        near.add_pattern_file("f", 64 << 20, 1);
        far.expect_pattern("f", 1);
        let settings = Settings {
            lanes: Auto::Fixed(1),
            window: Auto::Fixed(8 << 20),
            chunk: Auto::Fixed(kib << 10),
            memory,
            ..Settings::default()
        };
        let outcome = run(job(&near, &far), settings).await;
        outcome.assert_clean();
        assert!(far.is_pattern("f", 64 << 20, 1));
    }
}

/// Once, a range that was taken over from a slow lane waited for room that only other ranges could
/// release, which were not polled meanwhile.
#[tokio::test(start_paused = true)]
async fn taking_over_a_range_does_not_wait_for_room_that_only_others_can_release() {
    for chunk in [3 << 20, 3500 << 10, 4 << 20] {
        let far = MemoryStorage::builder().with_link(link(50, 100)).build();
        let near = MemoryStorage::new();
        far.add_pattern_file("f", 30 << 20, 1);
        near.expect_pattern("f", 1);
        let settings = Settings {
            lanes: Auto::Fixed(3),
            window: Auto::Fixed(8 << 20),
            chunk: Auto::Fixed(chunk),
            ..Settings::default()
        };
        let outcome = run(job(&far, &near), settings).await;
        outcome.assert_clean();
        assert!(near.is_pattern("f", 30 << 20, 1));
    }
}
