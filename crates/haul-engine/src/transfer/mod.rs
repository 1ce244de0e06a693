//! Transfers the items of a plan, several at once, while a timer drives the window and the progress events.

mod backup;
mod bytes;
mod compare;
mod expected;
mod file;
mod finish;
mod large;
mod link;
mod listed;
mod look;
mod motion;
mod moved;
mod obstacle;
mod open;
mod outcome;
mod queue;
mod small;
mod times;
mod untimed;
mod verify;

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use haul_storage::{Error, ErrorKind, WorkPool};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

pub use backup::{is_backup, move_to_backup};
pub use compare::{Verdict, verdict};

use self::queue::{ORDERED, Queue};
use crate::budget::LinkBudgets;
use crate::context::Context;
use crate::job::NumberedJob;
use crate::plan::{Item, count, delete_extra, finish_directories, plan};
use crate::tally::Tally;
use crate::{Cancel, EventSink, Job, Order, Phase, Settings, Summary};

/// Capacity of the queues before and after the lookup of destinations, in items each.
const PLANNED_AHEAD: usize = 512;
/// How long an interrupted transfer may go on. Part files on a disk are synced within 5 s.
const GRACE: Duration = Duration::from_secs(8);
/// Interval at which the link status is sampled.
const TICK: Duration = Duration::from_millis(25);

/// Transfers all jobs, several files at once, and returns a summary. Failures of single files are events, and
/// counted in the summary; the other files continue. The caller opens the storages.
pub async fn transfer(
    jobs: Vec<Job>,
    settings: Settings,
    events: EventSink,
    cancel: Cancel,
) -> Summary {
    transfer_sharing(&LinkBudgets::default(), jobs, settings, events, cancel).await
}

/// [`transfer`], sharing window and lanes of each path with all transfers that use the same `budgets`.
pub async fn transfer_sharing(
    budgets: &LinkBudgets,
    jobs: Vec<Job>,
    settings: Settings,
    events: EventSink,
    cancel: Cancel,
) -> Summary {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let pool = match WorkPool::new("haul-digest", cores) {
        Ok(pool) => pool,
        Err(error) => {
            Tally::new(events).fail(Error::from_io("start a thread", error));
            return Summary { failed: 1, ..Summary::default() };
        }
    };
    transfer_on(&pool, budgets, jobs, settings, events, cancel).await
}

/// [`transfer_sharing`], with a thread pool that other transfers use too.
pub async fn transfer_on(
    pool: &WorkPool,
    budgets: &LinkBudgets,
    jobs: Vec<Job>,
    settings: Settings,
    events: EventSink,
    cancel: Cancel,
) -> Summary {
    let tally = Tally::new(events);
    let context = Context::new(budgets, &jobs, settings, tally, &cancel, pool.clone());
    let named = jobs.clone();
    tokio::select! {
        () = run(&context, jobs) => {}
        () = keep_time(&context) => {}
        () = context.room.watch(&named, &context.roots.sources) => {}
        () = count_ahead(&context, &named) => {}
        () = grace_over(&context) => {}
    }
    // A short transfer may have ended before the first tick.
    context.flow.tick();
    context.tally.progress(&context.flow, Some(Phase::Ended));
    let summary = context.tally.summary(&context.flow, cancel.is_cancelled());
    Summary { out_of_space: context.room.is_stopped(), ..summary }
}

/// Waits for an interruption, then for [`GRACE`]. Otherwise a silent server would delay the end of an
/// interrupted transfer until the request times out.
async fn grace_over(context: &Context) {
    context.cancel.cancelled().await;
    sleep(GRACE).await;
}

/// Runs the count, if its result is wanted; never ends.
async fn count_ahead(context: &Context, jobs: &[Job]) {
    if context.settings.count_ahead || context.settings.check_space {
        count(context, jobs).await;
    }
    std::future::pending::<()>().await;
}

async fn run(context: &Context, jobs: Vec<Job>) {
    let (items, received) = mpsc::channel(PLANNED_AHEAD);
    let (finishes, finished) = mpsc::unbounded_channel();
    // The channels close when their senders are dropped, so the plan owns these.
    let planned = jobs.clone();
    let planning = plan(context, planned, items, finishes);
    let (looked, known) = mpsc::channel(PLANNED_AHEAD);
    let looking = look::look_together(context, received, looked);
    let moving = async move {
        let Some(order) = context.settings.order else {
            return move_items(context, known).await;
        };
        let (sorted, first) = mpsc::channel(small::BATCH_FILES);
        tokio::join!(put_in_order(context, order, known, sorted), move_items(context, first));
    };
    tokio::join!(planning, looking, moving, finish_directories(context, finished));
    if context.settings.delete {
        delete(context, jobs).await;
    }
}

/// Removes what the sources do not have, once everything else is done.
async fn delete(context: &Context, jobs: Vec<Job>) {
    for (index, job) in jobs.into_iter().enumerate() {
        let job = NumberedJob { index, job };
        // A destination that this run has created has nothing extra. One that no walk has reached is left alone.
        if context.cancel.is_cancelled() || context.roots.was_fresh(index) != Some(false) {
            continue;
        }
        // Reported by the walk.
        if context.roots.overlaps.is_inside(index) {
            continue;
        }
        let name = job.destination_name(&job.job.destination_path);
        if context.has_failed_listing() && !context.settings.ignore_errors {
            let why = "a listing of the source failed, so nothing is removed (--ignore-errors removes \
                       all the same)";
            context.tally.warn(name, why);
            continue;
        }
        if let Err(error) = delete_extra(context, &job).await {
            context.tally.fail(error.at(name));
        }
    }
}

/// Sends the items in order, once all have arrived, [`ORDERED`] are queued, or the plan waits for them.
async fn put_in_order(
    context: &Context,
    order: Order,
    mut items: mpsc::Receiver<Item>,
    sorted: mpsc::Sender<Item>,
) {
    let mut queue = Queue::new(order);
    let (mut more, mut begun) = (true, false);
    while more || queue.len() > 0 {
        let is_full = queue.len() >= ORDERED;
        begun |= is_full || !more;
        // Items that the plan waits for must not wait for the plan (deadlock otherwise).
        let may_go = begun || context.is_awaited_now();
        tokio::select! {
            biased;
            () = context.cancel.cancelled() => return,
            item = items.recv(), if more && !is_full => match item {
                Some(item) => queue.push(item),
                None => more = false,
            },
            permit = sorted.reserve(), if may_go && queue.len() > 0 => {
                let Ok(permit) = permit else { return };
                if let Some(item) = queue.pop() {
                    permit.send(item);
                }
            }
            () = context.is_awaited(), if !may_go => {}
        }
    }
}

async fn move_items(context: &Context, mut items: mpsc::Receiver<Item>) {
    let mut running = FuturesUnordered::new();
    let mut received = Vec::with_capacity(small::BATCH_FILES);
    let mut waiting = VecDeque::new();
    let mut more = true;
    let mut cancelled = pin!(context.cancel.cancelled());
    while more || !running.is_empty() {
        while running.len() < context.flow.decision().files.max(1) {
            let Some(piece) = waiting.pop_front() else { break };
            running.push(Box::pin(move_piece(context, piece)));
        }
        let wanted = more && waiting.is_empty();
        tokio::select! {
            Some(()) = running.next(), if !running.is_empty() => {}
            count = items.recv_many(&mut received, small::BATCH_FILES), if wanted => {
                more = count > 0;
                waiting.extend(pieces(context, received.drain(..)));
            },
            () = &mut cancelled, if more => {
                more = false;
                waiting.clear();
                items.close();
                // Planned items that have not begun are left to the next run.
                while items.try_recv().is_ok() {}
            }
        }
    }
}

/// Groups small files into batches. Each other item is a piece of its own.
fn pieces(context: &Context, items: impl Iterator<Item = Item>) -> Vec<Vec<Item>> {
    let mut pieces: Vec<Vec<Item>> = Vec::new();
    let mut batch: Vec<Item> = Vec::new();
    let mut batch_bytes = 0;
    let most =
        context.flow.limit_bytes().map_or(small::BATCH_BYTES, |most| most.min(small::BATCH_BYTES));
    for item in items {
        if !small::fits_batch(context, &item) {
            if context.settings.order.is_some() {
                pieces.push(std::mem::take(&mut batch));
                batch_bytes = 0;
            }
            pieces.push(vec![item]);
            continue;
        }
        let same_job = batch.first().is_none_or(|first| Arc::ptr_eq(&first.job, &item.job));
        let changes_directory = batch.len() >= small::BATCH_ENOUGH
            && batch.last().is_some_and(|last| !last.shares_directory(&item));
        if !same_job || changes_directory || batch_bytes + item.source.size > most {
            pieces.push(std::mem::take(&mut batch));
            batch_bytes = 0;
        }
        batch_bytes += item.source.size;
        batch.push(item);
    }
    pieces.push(batch);
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

async fn move_piece(context: &Context, piece: Vec<Item>) {
    let one_by_one = if piece.len() > 1 { small::move_batch(context, piece).await } else { piece };
    for item in one_by_one {
        move_item(context, item).await;
    }
}

async fn move_item(context: &Context, item: Item) {
    if let Err(error) = file::move_any(context, &item).await {
        let stopped = error.kind() == ErrorKind::Interrupted && context.cancel.is_cancelled();
        if !stopped {
            context.tally.fail(error.at(item.job.source_name(&item.source.path)));
        }
    }
}

/// Samples the link status every [`TICK`], and reports progress at the set interval; never ends.
async fn keep_time(context: &Context) {
    let interval = context.settings.progress_interval.max(TICK);
    let mut next_progress = Instant::now() + interval;
    loop {
        sleep_until(next_progress.min(Instant::now() + TICK)).await;
        context.flow.tick();
        if Instant::now() >= next_progress {
            next_progress = Instant::now() + interval;
            if let Some(files) = context.in_flight.current.files(context.flow.now()) {
                context.tally.current(files);
            }
            context.tally.progress(&context.flow, None);
        }
    }
}
