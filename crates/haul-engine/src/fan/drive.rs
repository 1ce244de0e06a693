//! Runs the transfers of many hosts, a limited number at once, and sums up their progress and results.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use haul_storage::{Error, Medium, Result, WorkPool};
use tokio::time::{Instant, sleep};

use super::event::{FanEvent, FanSink, FanSummary, HostEnd, HostOutcome};
use super::seat::Seat;
use super::seats::MOST_SEATS;
use super::store::Store;
use super::view::Sources;
use crate::budget::LinkBudgets;
use crate::retry::Retries;
use crate::transfer::transfer_on;
use crate::{
    Cancel, Event, EventSink, Filter, Job, LinkSummary, Phase, Progress, Settings, Summary,
};

/// The most hosts that can be served at once.
pub const MOST_AT_ONCE: usize = MOST_SEATS;

/// The smallest window of a host; if memory is not enough for that, fewer hosts are served at once.
const LEAST_WINDOW: u64 = 1 << 20;

/// Settings for all hosts.
#[derive(Debug, Clone)]
pub struct FanSettings {
    /// For the transfer of each host; `memory` and `bandwidth_limit` are totals for all hosts.
    pub transfer: Settings,
    /// Hosts that are served at once; 32 is usual.
    pub at_once: usize,
    /// Whether the first failure of any host stops all.
    pub fail_fast: bool,
    /// Whether the hosts have common sources, which are then read once.
    pub one_source: bool,
}

/// The jobs of a host's transfer, and its filter.
#[derive(Debug)]
pub struct Opened {
    /// What to move, as for [`transfer()`](crate::transfer()).
    pub jobs: Vec<Job>,
    /// Which paths take part; it replaces the filter in the settings.
    pub filter: Filter,
}

/// Runs one transfer for each of `hosts` hosts and returns the summary. `open` is called with the number
/// of a host, again after a transient failure, and opens what the host's transfer needs. A failed host
/// does not affect the others, unless `fail_fast` is set.
pub async fn fan_out<Open, Opening>(
    hosts: usize,
    open: Open,
    settings: FanSettings,
    events: FanSink,
    cancel: Cancel,
) -> FanSummary
where
    Open: Fn(usize) -> Opening,
    Opening: Future<Output = Result<Opened>>,
{
    let together = Together::new(hosts, events, settings.transfer.progress_interval);
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let pool = match WorkPool::new("haul-digest", cores) {
        Ok(pool) => pool,
        Err(error) => return together.unstarted(hosts, &error),
    };
    let share = Share::new(&settings, hosts);
    let drive = Drive {
        open,
        settings: share.settings,
        fail_fast: settings.fail_fast,
        store: settings.one_source.then(|| Arc::new(Store::new(share.store_bytes))),
        sources: Sources::default(),
        together: Arc::new(together),
        stop: Cancel::default(),
        budgets: LinkBudgets::default(),
        pool,
    };
    let serve = stream::iter(0..hosts)
        .map(|host| Box::pin(drive.serve(host)))
        .buffer_unordered(share.at_once)
        .for_each(|end| async { drive.together.ended(end) });
    let mut serve = std::pin::pin!(serve);
    tokio::select! {
        () = &mut serve => {}
        () = cancel.cancelled() => {
            // Transfers in progress end in an orderly way.
            drive.stop.cancel();
            serve.await;
        }
    }
    let mut summary = drive.together.summary(cancel.is_cancelled());
    if let Some(store) = &drive.store {
        summary.source_bytes = store.meter.read_bytes();
        summary.most_held_bytes = store.meter.most_held_bytes();
    }
    summary
}

/// How memory and bandwidth are divided among the hosts.
struct Share {
    at_once: usize,
    settings: Settings,
    store_bytes: u64,
}

impl Share {
    fn new(all: &FanSettings, hosts: usize) -> Self {
        let store_bytes = if all.one_source { all.transfer.memory / 2 } else { 0 };
        let windows = all.transfer.memory - store_bytes;
        let most = usize::try_from(windows / LEAST_WINDOW).unwrap_or(MOST_SEATS);
        let at_once = all.at_once.min(hosts).min(most).clamp(1, MOST_SEATS);
        let mut settings = all.transfer.clone();
        settings.memory = windows / at_once as u64;
        settings.bandwidth_limit =
            all.transfer.bandwidth_limit.map(|limit| (limit / at_once as u64).max(1));
        Self { at_once, settings, store_bytes }
    }
}

struct Drive<Open> {
    open: Open,
    settings: Settings,
    fail_fast: bool,
    store: Option<Arc<Store>>,
    sources: Sources,
    together: Arc<Together>,
    /// Stops all hosts.
    stop: Cancel,
    budgets: LinkBudgets,
    pool: WorkPool,
}

impl<Open, Opening> Drive<Open>
where
    Open: Fn(usize) -> Opening,
    Opening: Future<Output = Result<Opened>>,
{
    async fn serve(&self, host: usize) -> HostEnd {
        let began = Instant::now();
        let outcome = if self.stop.is_cancelled() {
            HostOutcome::NotBegun
        } else {
            self.move_all(host).await
        };
        if self.fail_fast && matches!(outcome, HostOutcome::Unopened(_)) {
            self.stop.cancel();
        }
        HostEnd { host, outcome, elapsed: began.elapsed() }
    }

    async fn move_all(&self, host: usize) -> HostOutcome {
        // Before the host is opened, so that the store caches for it what the others read meanwhile.
        let seat = self.store.as_ref().and_then(Seat::take);
        let Opened { mut jobs, filter } = tokio::select! {
            opened = self.open(host) => match opened {
                Ok(opened) => opened,
                Err(error) => return HostOutcome::Unopened(error),
            },
            () = self.stop.cancelled() => return HostOutcome::NotBegun,
        };
        let mut budgets = self.budgets.clone();
        if let Some(seat) = seat {
            for job in &mut jobs {
                job.source = self.sources.view(&job.source, &seat);
                if job.source.capabilities().medium == Medium::Link {
                    // Bytes of this source pass its link once for all hosts: the lanes of one transfer are enough.
                    budgets = LinkBudgets::default();
                }
            }
        }
        let sink = self.sink(host);
        let settings = Settings { filter, ..self.settings.clone() };
        let stop = self.stop.clone();
        let summary = transfer_on(&self.pool, &budgets, jobs, settings, sink, stop).await;
        HostOutcome::Moved(Box::new(summary))
    }

    async fn open(&self, host: usize) -> Result<Opened> {
        let settings = &self.settings;
        let mut retries = Retries::new(settings.retries, settings.retry_pause, host as u64);
        loop {
            let error = match (self.open)(host).await {
                Ok(opened) => return Ok(opened),
                Err(error) => error,
            };
            let (error, pause) = retries.next(error, 0)?;
            let (error, attempt) = (Arc::new(error), retries.attempt());
            self.together.events.send(FanEvent::Opening { host, error, attempt, pause });
            sleep(pause).await;
        }
    }

    fn sink(&self, host: usize) -> EventSink {
        let (together, stop) = (Arc::clone(&self.together), self.stop.clone());
        let fail_fast = self.fail_fast;
        EventSink::new(move |event| match event {
            Event::Progress(progress) => together.progress(host, progress),
            event => {
                if fail_fast && matches!(event, Event::Failed(_)) {
                    stop.cancel();
                }
                together.events.send(FanEvent::Of { host, event });
            }
        })
    }
}

/// Sums up progress and results of the hosts.
#[derive(Debug)]
struct Together {
    events: FanSink,
    interval: Duration,
    started: Instant,
    state: Mutex<Sums>,
}

#[derive(Debug)]
struct Sums {
    /// The last progress of each host.
    progress: Vec<Option<Progress>>,
    reported_at: Option<Instant>,
    summary: FanSummary,
}

impl Together {
    fn new(hosts: usize, events: FanSink, interval: Duration) -> Self {
        let summary = FanSummary { hosts: hosts as u64, ..FanSummary::default() };
        let sums = Sums { progress: vec![None; hosts], reported_at: None, summary };
        Self { events, interval, started: Instant::now(), state: Mutex::new(sums) }
    }

    /// Ends all hosts, because the threads that all of them need could not be started.
    fn unstarted(&self, hosts: usize, cause: &io::Error) -> FanSummary {
        let copy = || {
            cause.raw_os_error().map_or_else(|| cause.kind().into(), io::Error::from_raw_os_error)
        };
        for host in 0..hosts {
            let outcome = HostOutcome::Unopened(Error::from_io("start a thread", copy()));
            self.ended(HostEnd { host, outcome, elapsed: Duration::ZERO });
        }
        self.summary(false)
    }

    fn progress(&self, host: usize, progress: Progress) {
        let now = Instant::now();
        let sum = {
            let mut sums = self.lock();
            sums.progress[host] = Some(progress);
            if sums.reported_at.is_some_and(|at| now < at + self.interval) {
                return;
            }
            sums.reported_at = Some(now);
            sum(&sums.progress, self.started.elapsed())
        };
        self.events.send(FanEvent::Progress(sum));
    }

    fn ended(&self, end: HostEnd) {
        {
            let mut sums = self.lock();
            // A host that has not been opened has never had any progress.
            let nothing = nothing(Phase::Ended, end.elapsed);
            sums.progress[end.host].get_or_insert(nothing).phase = Phase::Ended;
            let summary = &mut sums.summary;
            match &end.outcome {
                HostOutcome::Moved(moved) => {
                    add(&mut summary.total, moved);
                    summary.failed_hosts += u64::from(moved.failed > 0);
                    summary.stopped_hosts += u64::from(moved.failed == 0 && moved.interrupted);
                }
                HostOutcome::Unopened(_) => {
                    summary.failed_hosts += 1;
                    summary.total.failed += 1;
                }
                HostOutcome::NotBegun => summary.stopped_hosts += 1,
            }
        }
        self.events.send(FanEvent::Ended(end));
    }

    fn summary(&self, interrupted: bool) -> FanSummary {
        let (mut progress, mut summary) = {
            let sums = self.lock();
            (sum(&sums.progress, self.started.elapsed()), sums.summary.clone())
        };
        progress.phase = Phase::Ended;
        self.events.send(FanEvent::Progress(progress));
        summary.total.elapsed = self.started.elapsed();
        summary.total.interrupted = interrupted;
        summary
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Sums> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The progress of all hosts together; hosts that have not begun add nothing yet.
fn sum(hosts: &[Option<Progress>], elapsed: Duration) -> Progress {
    let phase = if hosts.iter().all(Option::is_some) { Phase::Moving } else { Phase::Planning };
    let mut sum = nothing(phase, elapsed);
    for host in hosts.iter().flatten() {
        sum.files += host.files;
        sum.total_files += host.total_files;
        sum.bytes += host.bytes;
        sum.total_bytes += host.total_bytes;
        sum.moved_bytes += host.moved_bytes;
        if host.phase != Phase::Ended {
            sum.bytes_per_second += host.bytes_per_second;
        }
        if host.phase == Phase::Planning {
            sum.phase = Phase::Planning;
        }
        // A link that is no longer used has no lanes and no window.
        let link = match host.phase {
            Phase::Ended => LinkSummary { lanes: 0, window_bytes: 0, ..host.link },
            _ => host.link,
        };
        add_link(&mut sum.link, &link);
    }
    sum
}

/// The progress of a host that has moved nothing.
const fn nothing(phase: Phase, elapsed: Duration) -> Progress {
    Progress {
        phase,
        elapsed,
        files: 0,
        total_files: 0,
        bytes: 0,
        total_bytes: 0,
        moved_bytes: 0,
        bytes_per_second: 0,
        link: LinkSummary { lanes: 0, window_bytes: 0, rtt: None, connect: None, path: None },
    }
}

fn add(total: &mut Summary, host: &Summary) {
    total.files += host.files;
    total.unchanged += host.unchanged;
    total.replaced += host.replaced;
    total.verified += host.verified;
    total.bytes += host.bytes;
    total.moved_bytes += host.moved_bytes;
    total.resumed_bytes += host.resumed_bytes;
    total.links += host.links;
    total.directories += host.directories;
    total.removed += host.removed;
    total.failed += host.failed;
    total.skipped += host.skipped;
    total.retries += host.retries;
    add_link(&mut total.link, &host.link);
}

/// Adds a host's link.
fn add_link(total: &mut LinkSummary, host: &LinkSummary) {
    total.lanes += host.lanes;
    total.window_bytes += host.window_bytes;
    total.rtt = shorter(total.rtt, host.rtt);
    total.connect = total.connect.max(host.connect);
    total.path = total.path.or(host.path);
}

fn shorter(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formerly, the summary counted no hosts, and only the first host was reported as failed.
    #[tokio::test]
    async fn without_threads_all_hosts_fail() {
        let ended = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&ended);
        let sink = FanSink::new(move |event| match event {
            FanEvent::Ended(end) => sink.lock().unwrap().push((end.host, end.is_done())),
            FanEvent::Progress(_) => {}
            other => panic!("{other:?}"),
        });
        let together = Together::new(3, sink, Duration::ZERO);
        let summary = together.unstarted(3, &io::ErrorKind::WouldBlock.into());
        assert_eq!((summary.hosts, summary.failed_hosts, summary.total.failed), (3, 3, 3));
        assert_eq!(*ended.lock().unwrap(), [(0, false), (1, false), (2, false)]);
    }

    /// Formerly, the phase stayed `Planning` if a host could not be opened: no totals, no remaining time.
    #[test]
    fn planning_ends_although_some_hosts_were_never_opened() {
        let phases = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&phases);
        let sink = FanSink::new(move |event| {
            if let FanEvent::Progress(progress) = event {
                sink.lock().unwrap().push(progress.phase);
            }
        });
        let together = Together::new(3, sink, Duration::ZERO);
        together.progress(0, nothing(Phase::Moving, Duration::ZERO));
        let error = Error::from_io("connect", io::ErrorKind::ConnectionRefused.into());
        for (host, outcome) in [(1, HostOutcome::Unopened(error)), (2, HostOutcome::NotBegun)] {
            together.progress(0, nothing(Phase::Moving, Duration::ZERO));
            together.ended(HostEnd { host, outcome, elapsed: Duration::ZERO });
        }
        together.progress(0, nothing(Phase::Moving, Duration::ZERO));
        let planning = [Phase::Planning; 3];
        assert_eq!(phases.lock().unwrap()[..3], planning);
        assert_eq!(phases.lock().unwrap()[3..], [Phase::Moving]);
    }
}
