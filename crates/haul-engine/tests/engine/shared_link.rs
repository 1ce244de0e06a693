//! Concurrent transfers over one path share its window and its lanes. In virtual time.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{job_at, path};
use futures_util::TryStreamExt;
use haul_engine::budget::{LinkBudgets, LinkShare, Priority};
use haul_engine::{Auto, Cancel, EventSink, Job, Settings, Summary, transfer_sharing};
use haul_storage::memory::{MemoryStorage, SimulatedLink};
use haul_storage::{Range, ReadAt, Storage};
use tokio::time::{Instant, sleep};

const RATE: u64 = 62_500_000;
const SIZE: u64 = 1 << 30;

/// A server at 200 ms with 500 Mbit/s and two files.
fn far() -> Arc<MemoryStorage> {
    let link = SimulatedLink::new(Duration::from_millis(200), RATE);
    let far = MemoryStorage::builder().with_link(link).build();
    far.add_pattern_file("a", SIZE, 1);
    far.add_pattern_file("b", SIZE, 2);
    far
}

/// A download of one of them, and its destination.
fn download(far: &Arc<MemoryStorage>, name: &str, seed: u64) -> (Job, Arc<MemoryStorage>) {
    let near = MemoryStorage::new();
    near.expect_pattern(name, seed);
    (job_at(far, name, &near, name), near)
}

async fn run(budgets: &LinkBudgets, job: Job, settings: Settings) -> Summary {
    let sink = EventSink::new(|_| ());
    let summary = transfer_sharing(budgets, vec![job], settings, sink, Cancel::default()).await;
    assert_eq!(summary.failed, 0);
    summary
}

#[tokio::test(start_paused = true)]
async fn two_transfers_share_one_window_and_one_set_of_lanes() {
    const WINDOW: u64 = 8 << 20;
    let settings = Settings {
        window: Auto::Fixed(WINDOW),
        lanes: Auto::Fixed(5),
        // The link counts whole ranges, the window each block: here each range is one block.
        chunk: Auto::Fixed(256 << 10),
        ..Settings::default()
    };
    let (one, other) = (LinkBudgets::default(), LinkBudgets::default());
    for (second, is_shared) in [(&one, true), (&other, false)] {
        let far = far();
        let ((a, near_a), (b, near_b)) = (download(&far, "a", 1), download(&far, "b", 2));
        tokio::join!(run(&one, a, settings.clone()), run(second, b, settings.clone()));
        assert!(near_a.is_pattern("a", SIZE, 1));
        assert!(near_b.is_pattern("b", SIZE, 2));
        let traffic = far.traffic();
        assert_eq!(traffic.most_lanes, 5);
        assert_eq!(traffic.most_in_flight <= WINDOW, is_shared, "{traffic:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_transfer_needs_no_slow_start_and_no_further_lanes() {
    let alone = {
        let far = far();
        run(&LinkBudgets::default(), download(&far, "a", 1).0, Settings::default()).await;
        far.traffic()
    };
    let (budgets, far) = (LinkBudgets::default(), far());
    let ((a, _), (b, near)) = (download(&far, "a", 1), download(&far, "b", 2));
    let began = Instant::now();
    let second = async {
        sleep(Duration::from_secs(10)).await;
        run(&budgets, b, Settings::default()).await
    };
    let (_, second) = tokio::join!(run(&budgets, a, Settings::default()), second);
    assert!(near.is_pattern("b", SIZE, 2));
    let share = (2 * SIZE) as f64 / began.elapsed().as_secs_f64() / RATE as f64;
    assert!(share > 0.85, "{share:.3} of the link");
    let together = far.traffic();
    assert_eq!(together.most_lanes, alone.most_lanes);
    assert_eq!(second.link.lanes, alone.most_lanes);
    assert!(together.most_in_flight <= alone.most_in_flight * 5 / 4, "{together:?} {alone:?}");
}

#[tokio::test(start_paused = true)]
async fn a_transfer_after_another_starts_with_the_measured_window() {
    let (budgets, far) = (LinkBudgets::default(), far());
    far.add_pattern_file("small", 64 << 20, 3);
    let mut seconds = Vec::new();
    run(&budgets, download(&far, "a", 1).0, Settings::default()).await;
    for budgets in [&budgets, &LinkBudgets::default()] {
        let (job, _near) = download(&far, "small", 3);
        let summary = run(budgets, job, Settings::default()).await;
        seconds.push(summary.elapsed.as_secs_f64());
    }
    // The measured window saves an RTT of 200 ms, though the lanes are open in both cases.
    assert!(seconds[0] + 0.15 < seconds[1], "{seconds:?}");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_transfer_leaves_its_share_to_the_other() {
    let (budgets, far) = (LinkBudgets::default(), far());
    let ((a, _), (b, near)) = (download(&far, "a", 1), download(&far, "b", 2));
    let first = async {
        tokio::select! {
            _ = run(&budgets, a, Settings::default()) => panic!("it is dropped before its end"),
            () = sleep(Duration::from_secs(10)) => {}
        }
        let (in_flight, _) = reader(&budgets, &far).counted();
        let before = far.traffic().bytes;
        sleep(Duration::from_secs(4)).await;
        let carried = far.traffic().bytes - before;
        assert!(in_flight > 0, "the other one goes on");
        assert!(carried as f64 > 0.9 * 4.0 * RATE as f64, "{carried}");
    };
    tokio::join!(first, run(&budgets, b, Settings::default()));
    assert!(near.is_pattern("b", SIZE, 2));
    assert_eq!(reader(&budgets, &far).counted(), (0, 0));
}

fn reader(budgets: &LinkBudgets, far: &Arc<MemoryStorage>) -> Arc<LinkShare> {
    let storage = Arc::clone(far) as Arc<dyn Storage>;
    budgets.reader(&storage, &Settings::default())
}

/// The mean time of ten reads of 256 KiB, made like those of a mount.
async fn reads(share: &Arc<LinkShare>, file: &dyn ReadAt, priority: Priority) -> Duration {
    let began = Instant::now();
    for at in 0..10 {
        let range = Range::new(at << 20, 256 << 10);
        let issued = share.now();
        let mut permit = share.acquire(priority, range.len()).await;
        let block = file.read_at(range).try_next().await.unwrap().unwrap();
        permit.arrived(block.len() as u64);
        share.completed(issued, None, block.len() as u64);
        permit.consumed();
    }
    began.elapsed() / 10
}

#[tokio::test(start_paused = true)]
async fn a_reader_shares_the_window_of_a_copy() {
    let (budgets, far) = (LinkBudgets::default(), far());
    let (job, near) = download(&far, "a", 1);
    let file = far.open(&path("b")).await.unwrap();
    let reading = async {
        sleep(Duration::from_secs(5)).await;
        let share = reader(&budgets, &far);
        let interactive = reads(&share, &*file, Priority::Interactive).await;
        let bulk = reads(&share, &*file, Priority::Bulk).await;
        assert!(interactive <= bulk, "{interactive:?} {bulk:?}");
        // The window holds less than a second of the link.
        assert!(interactive < Duration::from_secs(1), "{interactive:?}");
    };
    tokio::join!(run(&budgets, job, Settings::default()), reading);
    assert!(near.is_pattern("a", SIZE, 1));
}
