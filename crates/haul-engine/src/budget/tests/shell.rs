//! Tasks that wait for permits.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use haul_storage::Storage;
use haul_storage::memory::{MemoryStorage, SimulatedLink};
use proptest::prelude::*;

use crate::budget::{LinkBudgets, LinkShare, Priority};
use crate::{Auto, Settings};

const WINDOW: u64 = 1 << 20;

fn far() -> Arc<dyn Storage> {
    let link = SimulatedLink::new(Duration::from_millis(50), 50_000_000);
    MemoryStorage::builder().with_link(link).build()
}

fn settings() -> Settings {
    Settings { window: Auto::Fixed(WINDOW), lanes: Auto::Fixed(2), ..Settings::default() }
}

/// Two readers of one storage.
fn two() -> (Arc<LinkShare>, Arc<LinkShare>) {
    let (budgets, storage) = (LinkBudgets::default(), far());
    (budgets.reader(&storage, &settings()), budgets.reader(&storage, &settings()))
}

#[tokio::test(start_paused = true)]
async fn readers_of_one_host_share_its_window() {
    let (first, second) = two();
    let mut all = first.acquire(Priority::Bulk, WINDOW).await;
    let mut waits = Box::pin(second.acquire(Priority::Interactive, WINDOW / 2));
    assert!((&mut waits).now_or_never().is_none(), "the window is full");
    all.arrived(WINDOW / 2);
    let permit = waits.now_or_never().unwrap();
    assert_eq!(second.counted(), (WINDOW, WINDOW / 2));
    assert_eq!(first.counted(), (WINDOW, WINDOW));
    permit.consumed();
    all.consumed();
    assert_eq!(first.counted(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn readers_of_two_hosts_share_nothing() {
    let budgets = LinkBudgets::default();
    let (first, second) =
        (budgets.reader(&far(), &settings()), budgets.reader(&far(), &settings()));
    let _all = first.acquire(Priority::Bulk, WINDOW).await;
    assert!(second.try_acquire(Priority::Bulk, WINDOW).is_some());
}

#[tokio::test(start_paused = true)]
async fn interactive_requests_are_granted_first() {
    let (first, second) = two();
    let all = first.acquire(Priority::Bulk, WINDOW).await;
    let mut bulk = Box::pin(first.acquire(Priority::Bulk, WINDOW));
    let mut ahead = Box::pin(second.acquire(Priority::ReadAhead, WINDOW));
    let mut person = Box::pin(second.acquire(Priority::Interactive, WINDOW));
    assert!((&mut bulk).now_or_never().is_none());
    assert!((&mut ahead).now_or_never().is_none());
    assert!((&mut person).now_or_never().is_none());
    assert!(!second.has_room(Priority::Interactive, 1));
    drop(all);
    assert!((&mut bulk).now_or_never().is_none());
    assert!((&mut ahead).now_or_never().is_none());
    person.now_or_never().unwrap().consumed();
    assert!((&mut bulk).now_or_never().is_none());
    ahead.now_or_never().unwrap().consumed();
    bulk.now_or_never().unwrap().consumed();
}

/// Formerly, shorter requests behind one that did not fit went on waiting even after it was withdrawn.
#[tokio::test(start_paused = true)]
async fn a_withdrawn_request_makes_room_for_the_next() {
    let (first, second) = two();
    let _some = first.acquire(Priority::Bulk, WINDOW / 2).await;
    let mut long = Box::pin(first.acquire(Priority::Bulk, WINDOW));
    assert!((&mut long).now_or_never().is_none());
    let mut short = Box::pin(second.acquire(Priority::Bulk, WINDOW / 4));
    assert!((&mut short).now_or_never().is_none());
    drop(long);
    assert!(short.now_or_never().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_reader_releases_its_permits_and_requests() {
    let (first, second) = two();
    let all = first.acquire(Priority::Bulk, WINDOW).await;
    {
        let mut waits = Box::pin(first.acquire(Priority::Interactive, WINDOW));
        assert!((&mut waits).now_or_never().is_none());
        // The grant arrives, but is not taken.
        drop(all);
    }
    drop(first);
    assert_eq!(second.counted(), (0, 0));
    assert!(second.try_acquire(Priority::Bulk, WINDOW).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_writer_of_a_host_has_a_window_of_its_own() {
    let (budgets, storage) = (LinkBudgets::default(), far());
    let reader = budgets.reader(&storage, &settings());
    let writers = [(); 2].map(|()| budgets.writer(&storage, &settings()));
    let _read = reader.acquire(Priority::Bulk, WINDOW).await;
    let _written = writers[0].acquire(Priority::Bulk, WINDOW).await;
    assert!(writers[1].try_acquire(Priority::Bulk, WINDOW).is_none());
    assert!(writers[0].has_links());
}

#[tokio::test(start_paused = true)]
async fn each_reader_of_a_disk_has_a_budget_of_its_own() {
    let (budgets, disk) = (LinkBudgets::default(), MemoryStorage::new() as Arc<dyn Storage>);
    let (first, second) = (budgets.reader(&disk, &settings()), budgets.reader(&disk, &settings()));
    let _all = first.acquire(Priority::Bulk, settings().memory).await;
    assert!(second.try_acquire(Priority::Bulk, settings().memory).is_some());
    assert!(!first.has_links());
}

/// Formerly, if the arrival of a block was reported on the whole permit and the block's part was split off
/// only then, its bytes were subtracted from those in flight twice: at the arrival, and again with its part.
#[test]
fn a_block_is_in_flight_until_it_arrives_whether_it_is_split_off_before_or_after() {
    let blocks = prop::collection::vec((1..WINDOW / 4, any::<bool>(), 0..4usize), 1..40);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    proptest!(|(blocks in blocks, unused in 0..WINDOW / 2)| {
        let _in_runtime = runtime.enter();
        let (share, _) = two();
        let mut range = share.try_acquire(Priority::Bulk, WINDOW).unwrap();
        drop(range.split(unused));
        let (mut in_flight, mut held) = (WINDOW - unused, WINDOW - unused);
        let mut in_hand = Vec::new();
        for (length, splits_first, settles) in blocks {
            let length = length.min(range.left());
            let block = if splits_first {
                let mut block = range.split(length);
                block.arrived(length);
                block
            } else {
                range.arrived(length);
                range.split(length)
            };
            in_flight -= length;
            in_hand.push(block);
            prop_assert_eq!(range.left(), in_flight);
            prop_assert_eq!(share.counted(), (in_flight, held));
            for mut block in in_hand.drain(..settles.min(in_hand.len())) {
                held -= block.held();
                // After a write the engine reports the arrival again: it must not count twice.
                block.arrived(block.held());
                block.consumed();
                prop_assert_eq!(share.counted(), (in_flight, held));
            }
        }
        drop((range, in_hand));
        prop_assert_eq!(share.counted(), (0, 0));
    });
}
