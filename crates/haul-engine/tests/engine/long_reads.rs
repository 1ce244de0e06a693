//! Sources whose reads are expensive to start (FTP): few long ranges, one on each lane.

use std::time::Duration;

use crate::support::{job, run};
use haul_engine::{Auto, Settings};
use haul_storage::memory::{MemoryStorage, Operation, SimulatedLink};
use haul_storage::{DigestKind, ErrorKind};
use std::sync::Arc;

const SIZE: u64 = 512 << 20;

fn far(link: SimulatedLink) -> Arc<MemoryStorage> {
    let builder = MemoryStorage::builder().with_link(link);
    let far =
        builder.with_capabilities(|can| (can.long_reads, can.pipelined_reads) = (true, false));
    let far = far.build();
    far.add_pattern_file("f", SIZE, 1);
    far
}

/// 200 ms and 500 Mbit/s, with 10 MiB/s per lane.
fn long_link() -> SimulatedLink {
    let link = SimulatedLink::new(Duration::from_millis(200), 500_000_000 / 8);
    SimulatedLink { per_lane_window: Some(2 << 20), ..link }
}

fn near() -> Arc<MemoryStorage> {
    let near = MemoryStorage::builder().with_capabilities(|can| can.server_copy = false).build();
    near.expect_pattern("f", 1);
    near
}

#[tokio::test(start_paused = true)]
async fn each_lane_has_long_reads_and_all_end_together() {
    let (far, near) = (far(long_link()), near());
    let outcome = run(job(&far, &near), Settings::default()).await;
    outcome.assert_clean();
    assert!(near.is_pattern("f", SIZE, 1));
    let (reads, lanes) = (far.faults().count(Operation::Read), outcome.summary.link.lanes);
    assert!(lanes >= 8, "{lanes} lanes");
    assert!(reads <= 5 * lanes as u64, "{reads} reads over {lanes} lanes");
    let share = SIZE as f64 / outcome.summary.elapsed.as_secs_f64() / (500e6 / 8.0);
    assert!(share > 0.6, "{share:.2} of the link");
}

#[tokio::test(start_paused = true)]
async fn a_file_whose_bytes_pass_in_order_is_one_read() {
    for in_order in ["digest", "writer"] {
        let far = far(long_link());
        let near = MemoryStorage::builder().with_capabilities(|can| {
            can.server_copy = false;
            if in_order == "writer" {
                can.writes = haul_storage::Writes::InOrder;
            }
        });
        let near = near.build();
        near.expect_pattern("f", 1);
        let digest = (in_order == "digest").then_some(DigestKind::Sha256);
        let outcome = run(job(&far, &near), Settings { digest, ..Settings::default() }).await;
        outcome.assert_clean();
        assert!(near.is_pattern("f", SIZE, 1));
        assert_eq!(far.faults().count(Operation::Read), 1, "{in_order}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_completes_although_reads_break() {
    let (far, near) = (far(long_link()), near());
    for nth in [1, 3, 6, 7] {
        far.faults().on(Operation::Read).nth(nth).tear(nth * (5 << 20), ErrorKind::Unreachable);
    }
    let outcome = run(job(&far, &near), Settings::default()).await;
    assert!(outcome.failures().is_empty(), "{:?}", outcome.failures());
    assert!(near.is_pattern("f", SIZE, 1));
    // Each broken read continues where it broke, the first after 5 MiB.
    let bytes = far.traffic().bytes;
    assert!(bytes < SIZE + (4 << 20), "{} bytes were read twice", bytes - SIZE);
}

#[tokio::test(start_paused = true)]
async fn the_rate_stays_within_its_limit_even_with_little_memory() {
    let rate = 20 << 20;
    for (ranged, memory) in [(true, 256 << 10), (true, 8 << 20), (false, 8 << 20)] {
        let far = MemoryStorage::builder().with_link(long_link()).with_capabilities(|can| {
            (can.long_reads, can.pipelined_reads, can.ranged_reads) = (true, false, ranged);
        });
        let (far, near) = (far.build(), near());
        far.add_pattern_file("f", SIZE, 1);
        let settings = Settings {
            memory,
            bandwidth_limit: Some(rate),
            lanes: Auto::Fixed(4),
            ..Settings::default()
        };
        let outcome = run(job(&far, &near), settings).await;
        outcome.assert_clean();
        assert!(near.is_pattern("f", SIZE, 1));
        let seconds = outcome.summary.elapsed.as_secs_f64();
        assert!(SIZE as f64 / seconds <= rate as f64 * 1.05, "{ranged} {memory}: {seconds} s");
    }
}

/// A write over the link takes an RTT, so several are in flight.
#[tokio::test(start_paused = true)]
async fn blocks_of_a_long_read_are_written_over_a_link_without_waiting_for_each() {
    for ranged in [true, false] {
        let far = MemoryStorage::builder().with_capabilities(|can| {
            can.medium = haul_storage::Medium::Link;
            (can.long_reads, can.pipelined_reads, can.ranged_reads) = (true, false, ranged);
        });
        let far = far.with_read_block(256 << 10).build();
        far.add_pattern_file("f", SIZE, 1);
        let link = SimulatedLink::new(Duration::from_millis(200), 500_000_000 / 8);
        let near = MemoryStorage::builder().with_link(link);
        let near = near.with_capabilities(|can| can.server_copy = false).build();
        near.expect_pattern("f", 1);
        let outcome = run(job(&far, &near), Settings::default()).await;
        outcome.assert_clean();
        assert!(near.is_pattern("f", SIZE, 1));
        let seconds = outcome.summary.elapsed.as_secs_f64();
        println!("{ranged}: {:.1} MB/s", SIZE as f64 / seconds / 1e6);
        assert!(SIZE as f64 / seconds > 15e6, "{ranged}: {seconds} s");
    }
}

/// Each file has its share of the lanes, so that there are few reads and none is short.
#[tokio::test(start_paused = true)]
async fn several_files_share_the_lanes() {
    const FILES: u64 = 8;
    let builder = MemoryStorage::builder().with_link(long_link());
    let far =
        builder.with_capabilities(|can| (can.long_reads, can.pipelined_reads) = (true, false));
    let far = far.build();
    let near = near();
    for file in 0..FILES {
        far.add_pattern_file(format!("f{file}"), SIZE / FILES, file);
        near.expect_pattern(format!("f{file}"), file);
    }
    let outcome = run(job(&far, &near), Settings::default()).await;
    outcome.assert_clean();
    for file in 0..FILES {
        assert!(near.is_pattern(format!("f{file}"), SIZE / FILES, file), "f{file}");
    }
    let (reads, lanes) = (far.faults().count(Operation::Read), outcome.summary.link.lanes);
    println!("{reads} reads over {lanes} lanes");
    assert!(reads <= 5 * lanes as u64, "{reads} reads over {lanes} lanes");
    let share = SIZE as f64 / outcome.summary.elapsed.as_secs_f64() / (500e6 / 8.0);
    println!("{share:.2} of the link");
    assert!(share > 0.6, "{share:.2} of the link");
}
