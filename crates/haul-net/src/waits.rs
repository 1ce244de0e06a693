//! Reports long waits for a peer: a wait longer than [`REPORTED_AFTER`] is reported with what is
//! expected.
//!
//! ```text
//! Waits (one per program) → HostWaits (one per host) → watch, within: around each awaited future
//! ```
//!
//! Bytes on any connection of a host end its silence: reports are about silent hosts, not about one
//! slow response among many. A host gets one report at a time, however many tasks wait for it. A
//! wait costs one timer, like [`tokio::time::timeout`].

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

/// How long a host is silent before a report.
pub const REPORTED_AFTER: Duration = Duration::from_secs(10);

/// Default for how long a host may be silent before a connection to it is closed.
pub const SILENCE: Duration = Duration::from_secs(60);

/// Further reports follow after this many times [`REPORTED_AFTER`].
const AGAIN_AFTER: u32 = 3;

/// A long wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// Host and port, as a user writes them.
    pub host: String,
    /// What is expected from it, such as `response to OPTIONS /a`.
    pub what: String,
    /// How long the host has been silent during the wait.
    pub waited: Duration,
}

type Report = dyn Fn(&Wait) + Send + Sync;

/// Reports long waits, and limits them. The default reports none.
#[derive(Clone)]
pub struct Waits {
    after: Duration,
    silence: Duration,
    report: Option<Arc<Report>>,
}

/// The waits for one host; clones share its state.
#[derive(Debug, Clone)]
pub struct HostWaits {
    host: Option<Arc<Host>>,
    silence: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Self { after: REPORTED_AFTER, silence: SILENCE, report: None }
    }
}

impl Default for HostWaits {
    fn default() -> Self {
        Self { host: None, silence: SILENCE }
    }
}

struct Host {
    name: String,
    waits: Waits,
    began: Instant,
    /// Time of the last bytes and of the last report, in milliseconds since `began`.
    last_activity: AtomicU64,
    reported: AtomicU64,
    /// Open [`Pause`]s.
    paused: AtomicUsize,
}

/// While it exists, waits for the host are not reported: the host itself waits for input for which the
/// user is prompted.
#[derive(Debug)]
pub struct Pause(Option<Arc<Host>>);

impl Waits {
    /// Reports long waits to `report`, which must not block.
    pub fn new(report: impl Fn(&Wait) + Send + Sync + 'static) -> Self {
        Self { report: Some(Arc::new(report)), ..Self::default() }
    }

    /// Sets how long a host is silent before a report, instead of [`REPORTED_AFTER`].
    #[must_use]
    pub fn after(self, after: Duration) -> Self {
        Self { after, ..self }
    }

    /// How long a host may be silent before a connection to it is closed.
    pub const fn silence(&self) -> Duration {
        self.silence
    }

    /// Sets how long a host may be silent before a connection to it is closed, instead of [`SILENCE`].
    #[must_use]
    pub fn with_silence(self, silence: Duration) -> Self {
        Self { silence, ..self }
    }

    /// The waits for one host; `host` is its name in reports.
    pub fn of(&self, host: impl Into<String>) -> HostWaits {
        let host = self.report.is_some().then(|| {
            Arc::new(Host {
                name: host.into(),
                waits: self.clone(),
                began: Instant::now(),
                last_activity: AtomicU64::new(0),
                reported: AtomicU64::new(0),
                paused: AtomicUsize::new(0),
            })
        });
        HostWaits { host, silence: self.silence }
    }
}

impl HostWaits {
    /// How long the host may be silent before a connection to it is closed.
    pub const fn silence(&self) -> Duration {
        self.silence
    }

    /// Awaits `future`, which needs something from the host; `what` describes that in a few words.
    pub async fn watch<T>(&self, what: impl Fn() -> String, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let Some(host) = &self.host else { return future.await };
        let began = Instant::now();
        loop {
            if let Ok(output) = timeout_at(host.next_report(began), future.as_mut()).await {
                host.on_activity();
                return output;
            }
            host.report(began, Instant::now(), &what);
        }
    }

    /// Like [`HostWaits::watch`], with a time limit; `None` if it takes longer.
    pub async fn within<T>(
        &self,
        limit: Duration,
        what: impl Fn() -> String,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let mut future = pin!(future);
        let began = Instant::now();
        let end = began + limit;
        loop {
            let next = self.host.as_ref().map_or(end, |host| host.next_report(began));
            match timeout_at(next.min(end), future.as_mut()).await {
                Ok(output) => {
                    self.on_activity();
                    return Some(output);
                }
                Err(_) if Instant::now() >= end => return None,
                Err(_) => {
                    if let Some(host) = &self.host {
                        host.report(began, Instant::now(), &what);
                    }
                }
            }
        }
    }

    /// Records that the host has sent or taken bytes outside of a watched wait.
    pub fn on_activity(&self) {
        if let Some(host) = &self.host {
            host.on_activity();
        }
    }

    /// Suspends reports until the result is dropped; silence counts from then on.
    #[must_use]
    pub fn pause(&self) -> Pause {
        if let Some(host) = &self.host {
            host.paused.fetch_add(1, Ordering::Relaxed);
        }
        Pause(self.host.clone())
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        if let Some(host) = &self.0 {
            host.on_activity();
            host.paused.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Host {
    fn on_activity(&self) {
        self.on_activity_at(Instant::now());
    }

    fn on_activity_at(&self, now: Instant) {
        self.last_activity.store(self.millis(now), Ordering::Relaxed);
    }

    fn millis(&self, now: Instant) -> u64 {
        u64::try_from((now - self.began).as_millis()).unwrap_or(u64::MAX)
    }

    fn at(&self, millis: u64) -> Instant {
        self.began + Duration::from_millis(millis)
    }

    /// The start of the host's silence during a wait that began at `began`.
    fn silent_since(&self, began: Instant) -> Instant {
        self.at(self.last_activity.load(Ordering::Relaxed)).max(began)
    }

    fn next_report(&self, began: Instant) -> Instant {
        let first = self.silent_since(began) + self.waits.after;
        match self.reported.load(Ordering::Relaxed) {
            0 => first,
            last => first.max(self.at(last) + AGAIN_AFTER * self.waits.after),
        }
    }

    /// Reports a wait, unless a [`Pause`] is open, another task has just done so, or the host was active meanwhile.
    fn report(&self, began: Instant, now: Instant, what: &impl Fn() -> String) {
        if self.paused.load(Ordering::Relaxed) > 0 {
            self.on_activity_at(now);
            return;
        }
        let last = self.reported.load(Ordering::Relaxed);
        if self.next_report(began) > now {
            return;
        }
        let mine = self.reported.compare_exchange(
            last,
            self.millis(now).max(1),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if mine.is_ok()
            && let Some(report) = &self.waits.report
        {
            let waited = now - self.silent_since(began);
            report(&Wait { host: self.name.clone(), what: what(), waited });
        }
    }
}

impl fmt::Debug for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waits").field("after", &self.after).finish_non_exhaustive()
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::sync::Mutex;

    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    type Reports = Arc<Mutex<Vec<(String, u64)>>>;

    /// A host, and its reports with the wait in whole seconds.
    fn reported() -> (Arc<Host>, Reports) {
        let all = Reports::default();
        let reports = Arc::clone(&all);
        let waits = Waits::new(move |wait| {
            assert_eq!(wait.host, "host:80");
            reports.lock().unwrap().push((wait.what.clone(), wait.waited.as_secs()));
        });
        (waits.of("host:80").host.unwrap(), all)
    }

    /// Checks a wait that began at second `began` in each second of `seconds`.
    fn wait(host: &Host, began: u64, seconds: std::ops::Range<u64>, what: &str) {
        let at = |second| host.began + Duration::from_secs(second);
        for second in seconds {
            host.report(at(began), at(second), &|| what.to_owned());
        }
    }

    fn expected(of: &[(&str, u64)]) -> Vec<(String, u64)> {
        of.iter().map(|(what, waited)| ((*what).to_owned(), *waited)).collect()
    }

    #[test]
    fn a_long_wait_is_reported_again_after_three_times_as_long() {
        let (host, all) = reported();
        wait(&host, 0, 0..10, "a");
        assert_eq!(*all.lock().unwrap(), []);
        wait(&host, 5, 10..80, "b");
        assert_eq!(*all.lock().unwrap(), expected(&[("b", 10), ("b", 40), ("b", 70)]));
    }

    #[test]
    fn many_waits_for_one_host_make_one_report() {
        let (host, all) = reported();
        for second in 0..30 {
            for what in ["a", "b", "c"] {
                wait(&host, 0, second..second + 1, what);
            }
        }
        assert_eq!(*all.lock().unwrap(), expected(&[("a", 10)]));
    }

    #[test]
    fn a_host_active_on_another_connection_is_not_silent() {
        let (host, all) = reported();
        for second in (0..60).step_by(8) {
            host.on_activity_at(host.began + Duration::from_secs(second));
            wait(&host, 0, second..second + 8, "a");
        }
        assert_eq!(*all.lock().unwrap(), []);
        wait(&host, 0, 64..68, "a");
        assert_eq!(*all.lock().unwrap(), expected(&[("a", 10)]));
    }

    #[test]
    fn waits_during_a_prompt_are_not_reported() {
        let reports = Arc::new(Mutex::new(0));
        let count = Arc::clone(&reports);
        let of_host = Waits::new(move |_| *count.lock().unwrap() += 1).of("host:80");
        let host = of_host.host.as_ref().unwrap();
        let pause = of_host.pause();
        wait(host, 0, 0..60, "a");
        assert_eq!(*reports.lock().unwrap(), 0);
        drop(pause);
        host.on_activity_at(host.began + Duration::from_secs(60));
        wait(host, 0, 60..70, "a");
        assert_eq!(*reports.lock().unwrap(), 0);
        wait(host, 0, 70..71, "a");
        assert_eq!(*reports.lock().unwrap(), 1);
    }

    #[tokio::test]
    async fn a_watched_future_is_reported_until_it_completes() {
        let (reports, mut reported) = unbounded_channel();
        let waits = Waits::new(move |wait| drop(reports.send(wait.clone())));
        let host = waits.after(Duration::from_millis(1)).of("host:80");
        let awaited = async {
            let mut all = Vec::new();
            while all.len() < 2 {
                all.push(reported.recv().await.unwrap());
            }
            all
        };
        for wait in host.watch(|| "a".to_owned(), awaited).await {
            assert_eq!((&wait.host[..], &wait.what[..]), ("host:80", "a"));
            assert!(wait.waited >= Duration::from_millis(1));
        }
    }

    #[tokio::test]
    async fn a_wait_ends_at_its_limit() {
        let what = || "a".to_owned();
        for waits in [Waits::default(), Waits::new(|_| {}).after(Duration::from_millis(1))] {
            let host = waits.of("host:80");
            assert_eq!(host.within(Duration::from_millis(5), what, pending::<()>()).await, None);
            assert_eq!(host.within(Duration::ZERO, what, ready(7)).await, Some(7));
        }
    }
}
