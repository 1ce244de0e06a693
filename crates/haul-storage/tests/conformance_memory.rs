//! The conformance suite on the in-memory backend, with many combinations of capabilities.

use std::time::Duration;

use haul_storage::conformance;
use haul_storage::memory::{Builder, MemoryStorage, SimulatedLink};
use haul_storage::{Capabilities, StoredTimes, Writes};

/// Runs the suite and checks that it leaves nothing behind.
async fn conforms(builder: Builder) {
    let storage = builder.build();
    conformance::run_all(storage.clone()).await;
    assert_eq!(storage.paths(), Vec::<String>::new());
}

fn without(take_away: impl FnOnce(&mut Capabilities)) -> Builder {
    MemoryStorage::builder().with_digests().with_capabilities(take_away)
}

#[tokio::test(start_paused = true)]
async fn the_memory_storage_conforms_with_all_capabilities() {
    conforms(MemoryStorage::builder().with_digests()).await;
}

#[tokio::test(start_paused = true)]
async fn the_memory_storage_conforms_without_each_single_capability() {
    let takers: [fn(&mut Capabilities); 15] = [
        |c| c.ranged_reads = false,
        |c| c.writes = Writes::InOrder,
        |c| c.rename = false,
        |c| c.conditional_commits = false,
        |c| c.server_copy = false,
        |c| c.symlinks = false,
        |c| c.hard_links = false,
        |c| c.sync = false,
        |c| c.resume = false,
        |c| c.lock = false,
        |c| c.times = false,
        |c| c.mode = false,
        |c| c.owner = false,
        |c| c.xattrs = false,
        |c| c.digests.clear(),
    ];
    for take_away in takers {
        conforms(without(take_away)).await;
    }
}

/// Like a plain HTTP server that accepts PUT.
#[tokio::test(start_paused = true)]
async fn the_memory_storage_conforms_without_any_capability() {
    let nothing = without(|c| {
        c.ranged_reads = false;
        c.digests.clear();
        c.writes = Writes::InOrder;
        c.rename = false;
        c.conditional_commits = false;
        c.server_copy = false;
        c.symlinks = false;
        c.hard_links = false;
        c.sync = false;
        c.resume = false;
        c.lock = false;
        c.times = false;
        c.mode = false;
        c.owner = false;
        c.xattrs = false;
        c.max_lanes = Some(1);
        c.whole_limit = 0;
    });
    conforms(nothing.with_modified(false).with_ids(false)).await;
}

#[tokio::test(start_paused = true)]
async fn the_memory_storage_conforms_as_a_fat_file_system() {
    conforms(without(|c| {
        c.symlinks = false;
        c.hard_links = false;
        c.mode = false;
        c.owner = false;
        c.xattrs = false;
        c.stored_times = StoredTimes::in_steps_of(2_000_000_000);
        c.max_file_size = Some(u64::from(u32::MAX));
    }))
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_memory_storage_conforms_with_every_precision_of_times() {
    for step in [1, 100, 1000, 1_000_000, 1_000_000_000] {
        conforms(without(|c| c.stored_times = StoredTimes::in_steps_of(step))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_memory_storage_conforms_as_an_ftp_server_that_resumes() {
    conforms(without(|c| {
        c.writes = Writes::InOrder;
        c.lock = false;
        c.server_copy = false;
        c.max_lanes = Some(2);
    }))
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_memory_storage_conforms_with_tags_instead_of_times_and_ids() {
    let tags = without(|c| c.times = false).with_modified(false).with_ids(false).with_tags(true);
    conforms(tags).await;
}

#[tokio::test(start_paused = true)]
async fn the_memory_storage_conforms_with_blocks_and_batches_of_any_size() {
    for (block, batch) in [(777, 1), (4096, 7), (64 << 20, 100_000)] {
        conforms(MemoryStorage::builder().with_read_block(block).with_list_batch(batch)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_memory_storage_conforms_with_records() {
    conforms(MemoryStorage::builder().with_records()).await;
    conforms(MemoryStorage::builder().with_records().with_capabilities(|can| {
        can.writes = Writes::InOrder;
    }))
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_memory_storage_conforms_behind_a_long_link() {
    let link = SimulatedLink {
        per_lane_window: Some(2 << 20),
        max_lanes_accepted: Some(2),
        queue_bytes: Some(1 << 20),
        ..SimulatedLink::new(Duration::from_millis(30), 62_500_000)
    };
    conforms(MemoryStorage::builder().with_link(link)).await;
}
