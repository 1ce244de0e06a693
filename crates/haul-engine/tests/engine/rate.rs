//! `--bwlimit`: the transfer rate is within 3 % of the limit for all file sizes and storages. In virtual time.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{job, run};
use haul_engine::Settings;
use haul_storage::memory::{Builder, MemoryStorage, SimulatedLink};
use haul_storage::{Capabilities, Writes};

/// A kind of storage: its name, whether it is behind a link, and its capabilities.
type Kind = (&'static str, bool, fn(&mut Capabilities));

const KINDS: [Kind; 6] = [
    ("disk", false, |_| {}),
    ("SFTP", true, |_| {}),
    ("FTP", true, |can| (can.long_reads, can.pipelined_reads) = (true, false)),
    ("HTTP without ranges", true, |can| can.ranged_reads = false),
    ("HTTP", true, |can| can.pipelined_writes = false),
    ("WebDAV", true, |can| can.writes = Writes::InOrder),
];

fn storage(kind: Kind) -> Arc<MemoryStorage> {
    builder(kind).build()
}

fn builder((_, is_far, change): Kind) -> Builder {
    let link = |builder: Builder| {
        builder.with_link(SimulatedLink::new(Duration::from_millis(20), 100 << 20))
    };
    let builder = MemoryStorage::builder().with_capabilities(change);
    if is_far { link(builder) } else { builder }
}

async fn check(
    limit: u64,
    source: Arc<MemoryStorage>,
    destination: Arc<MemoryStorage>,
    name: &str,
) {
    let bytes: u64 = source.entries().iter().map(|entry| entry.size).sum();
    let settings = Settings { bandwidth_limit: Some(limit), ..Settings::default() };
    let outcome = run(job(&source, &destination), settings).await;
    outcome.assert_clean();
    let rate = bytes as f64 / outcome.summary.elapsed.as_secs_f64();
    let share = rate / limit as f64;
    assert!((0.97..1.03).contains(&share), "{name}, {limit} bytes/s: {share:.3} of it");
}

/// Bytes for 30 s at the limit, so that connecting and the last response do not matter.
fn bytes(limit: u64) -> u64 {
    limit * 30
}

const LIMITS: [u64; 4] = [10 << 10, 300 << 10, 500 << 10, 1_234_567];

#[tokio::test(start_paused = true)]
async fn the_rate_of_a_large_file_is_the_limit() {
    for limit in LIMITS {
        for kind in KINDS {
            let (far, near) = (storage(kind), storage(KINDS[0]));
            far.add_pattern_file("f", bytes(limit), 1);
            near.expect_pattern("f", 1);
            check(limit, far, near, &format!("from {}", kind.0)).await;
            let (far, near) = (storage(kind), storage(KINDS[0]));
            near.add_pattern_file("f", bytes(limit), 1);
            far.expect_pattern("f", 1);
            check(limit, near, far, &format!("to {}", kind.0)).await;
        }
    }
}

/// Formerly, if blocks were shorter than their permit, half of the permit was wasted, and with it half of the rate.
#[tokio::test(start_paused = true)]
async fn the_rate_of_a_single_read_is_the_limit_for_any_block_length() {
    for limit in [300 << 10, 1_234_567, 8 << 20] {
        for kind in [KINDS[2], KINDS[3]] {
            for block in [1400, 16 << 10, 100_000, 1 << 20] {
                let far = builder(kind).with_read_block(block).build();
                let near = storage(KINDS[0]);
                far.add_pattern_file("f", bytes(limit), 1);
                near.expect_pattern("f", 1);
                check(limit, far, near, &format!("{} in blocks of {block} bytes", kind.0)).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_rate_of_many_files_is_the_limit() {
    for limit in [10 << 10, 300 << 10, 1_234_567] {
        for kind in KINDS {
            let (far, near) = (storage(kind), storage(KINDS[0]));
            let length = bytes(limit) / 50;
            for at in 0..50 {
                // Different lengths, with about `bytes(limit)` in all.
                let more = (at % 10) * length / 10;
                near.add_pattern_file(format!("{at:02}"), length / 2 + more, at);
            }
            check(limit, near, far, &format!("50 files to {}", kind.0)).await;
        }
    }
}
