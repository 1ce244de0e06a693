//! Looks up what exists at the destinations of many items at once: on a disk, handing a lookup to a thread and
//! back takes longer than the lookup itself.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use haul_storage::Medium;
use tokio::sync::mpsc;

use crate::context::Context;
use crate::plan::{Existing, Item};

/// The most files of a batch.
const BATCH: usize = 128;

/// Batches in flight.
const AT_ONCE: usize = 4;

/// Passes the items on in their order, with the entry at their destination where a batched lookup pays. A
/// batch has the items planned so far: no item waits for a batch to fill.
pub async fn look_together(
    context: &Context,
    mut items: mpsc::Receiver<Item>,
    looked: mpsc::Sender<Item>,
) {
    let mut batches = FuturesOrdered::new();
    let mut received = Vec::with_capacity(BATCH);
    let mut ready: VecDeque<Item> = VecDeque::new();
    let mut more = true;
    let mut cancelled = pin!(context.cancel.cancelled());
    while more || !batches.is_empty() || !ready.is_empty() {
        let wanted = more && batches.len() < AT_ONCE;
        tokio::select! {
            biased;
            () = &mut cancelled => return,
            permits = looked.reserve_many(ready.len()), if !ready.is_empty() => {
                let Ok(permits) = permits else { return };
                permits.zip(ready.drain(..)).for_each(|(permit, item)| permit.send(item));
            }
            Some(batch) = batches.next(), if ready.is_empty() && !batches.is_empty() => ready = batch,
            count = items.recv_many(&mut received, BATCH), if wanted => {
                more = count > 0;
                if more {
                    batches.push_back(look(std::mem::take(&mut received)));
                    received.reserve(BATCH);
                }
            }
        }
    }
}

async fn look(mut items: Vec<Item>) -> VecDeque<Item> {
    let is_worth_it = |item: &Item| {
        let is_disk = item.job.job.destination.capabilities().medium == Medium::Disk;
        is_disk && item.source.is_file() && matches!(item.existing, Existing::Unknown)
    };
    let mut rest = &mut items[..];
    while let Some(first) = rest.iter().position(is_worth_it) {
        let job = Arc::clone(&rest[first].job);
        let same_job = |item: &Item| Arc::ptr_eq(&item.job, &job) && is_worth_it(item);
        let length = rest[first..].iter().take_while(|item| same_job(item)).count();
        let (batch, after) = rest[first..].split_at_mut(length);
        let paths = batch.iter().map(|item| item.destination.clone()).collect();
        let outcomes = job.job.destination.stat_many(paths).await;
        for (item, outcome) in batch.iter_mut().zip(outcomes) {
            item.existing = Existing::from(outcome);
        }
        rest = after;
    }
    items.into()
}
