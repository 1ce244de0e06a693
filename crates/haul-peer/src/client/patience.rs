//! Reports long waits for responses, and limits them.
//!
//! ```text
//! session (messages, pieces), pulse (bytes) → Patience (one per host): on_progress → within
//! ```
//!
//! A peer that sends nothing loses its lanes (`pulse`). But a peer whose disk hangs still responds to Pings. So a
//! response is given up after [`SILENCE`] without progress, or after [`LASTING`] while a request is pending that may
//! legitimately take long, as over SFTP:
//!
//! - Progress is a response to a request, on any lane, and the bytes of transfers in both directions. So a request may
//!   wait for others without a limit of its own: a server executes 64 reads at a time. Pongs do not count, nor do
//!   responses to notices such as Cancel, which a server sends even if its disk hangs: otherwise, each request that is
//!   given up, and cancelled, would extend the wait for the others.
//! - Requests that flush, allocate or free blocks take as long as the disk does, and those that read all of a file as
//!   long as its size demands. All other requests use the same disk, so they get the longest limit that is pending.
//! - Only the time in which a task waits counts, not that of a slow consumer.
//! - The lanes stay open, other than over SFTP: they work, and the server executes each request on its own. The request
//!   fails like one whose lane was lost, and its caller repeats it.

use std::collections::BTreeMap;
use std::fmt;
use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use haul_net::HostWaits;
use haul_storage::{Error, ErrorKind, Result, text};
use tokio::time::sleep;

use crate::wire::messages::{self, to_server::Body};

/// How long a peer may make no progress while a response is awaited. If the host's waits have another limit, all limits
/// are longer or shorter by the difference.
pub(super) const SILENCE: Duration = haul_net::SILENCE;

/// Limit of requests that wait for a disk: those that flush a file, allocate its blocks, or free those of a huge one.
const LASTING: Duration = Duration::from_secs(30 * 60);

/// Rate that a piece of an upload is expected to reach at least, in bytes per second.
const SLOWEST: u64 = 4096;

/// Rate that a copy on the peer or a digest is expected to reach at least, in bytes per second.
const SLOWEST_COPY: u64 = 1 << 20;

/// Longer than any file: 1 PiB.
const LARGEST: u64 = 1 << 50;

/// A wait is checked this often. Each check counts as at most this much time: the program may have been suspended, and
/// what has arrived meanwhile is yet to be read.
const STEP: Duration = Duration::from_secs(5);

/// Shared by all sessions with a host.
#[derive(Debug, Default)]
pub(super) struct Patience {
    waits: HostWaits,
    /// Counts the signs of progress.
    progress: AtomicU64,
    /// How many requests with each limit are pending, of those whose limit is longer than [`SILENCE`].
    lasting: Mutex<BTreeMap<Duration, usize>>,
}

/// A pending request whose limit is longer than [`SILENCE`].
#[derive(Debug)]
pub(super) struct Lasting {
    patience: Arc<Patience>,
    limit: Duration,
}

/// Names a request in reports and errors: `response to LIST photos`.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    name: &'static str,
    /// The first of its paths, or the new one of a rename or copy; empty if it has none, or that is the share's root.
    path: Bytes,
    pub(super) limit: Duration,
}

impl Patience {
    /// For a host whose long waits `waits` reports.
    pub(super) fn new(waits: HostWaits) -> Self {
        Self { waits, ..Self::default() }
    }

    /// The waits for the host.
    pub(super) const fn waits(&self) -> &HostWaits {
        &self.waits
    }

    /// The peer has responded to a request, or bytes of a transfer have moved.
    pub(super) fn on_progress(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
        self.waits.on_activity();
    }

    /// A request with this limit is pending until the result is dropped. Returns `None` for limits up to [`SILENCE`].
    pub(super) fn expect(self: &Arc<Self>, limit: Duration) -> Option<Lasting> {
        (limit > SILENCE).then(|| {
            *self.lock().entry(limit).or_default() += 1;
            Lasting { patience: Arc::clone(self), limit }
        })
    }

    /// Awaits the response to a request.
    ///
    /// # Errors
    /// `Unreachable`, once the peer has made no progress for as long as the pending requests permit.
    pub(super) async fn within<T>(
        &self,
        subject: &Subject,
        response: impl Future<Output = T>,
    ) -> Result<T> {
        let response = self.waits.watch(|| subject.to_string(), response);
        // Outside of the watched wait: a response that is given up is no sign of life.
        tokio::select! {
            biased;
            response = response => Ok(response),
            error = self.exhausted(subject) => Err(error),
        }
    }

    /// Awaits a response that may be late by as much as a file's size demands. `size`, in bytes, is awaited only if the
    /// response is late, since most files are small.
    pub(super) async fn extended_by<T>(
        self: &Arc<Self>,
        size: impl Future<Output = u64>,
        response: impl Future<Output = T>,
    ) -> T {
        let late = async {
            sleep(SILENCE).await;
            let _lasting = self.expect(copied(size.await));
            pending().await
        };
        tokio::select! {
            response = response => response,
            never = late => never,
        }
    }

    /// Waits until the peer has made no progress for as long as the pending requests permit. Returns that as an error.
    async fn exhausted(&self, subject: &Subject) -> Error {
        let (mut progress, mut silent) = (self.progress.load(Ordering::Relaxed), Duration::ZERO);
        loop {
            let step = self.limit(subject).saturating_sub(silent).min(STEP);
            sleep(step).await;
            silent += step;
            let before = std::mem::replace(&mut progress, self.progress.load(Ordering::Relaxed));
            if progress != before {
                silent = Duration::ZERO;
            } else if silent >= self.limit(subject) {
                let silent = silent.as_secs();
                return Error::new(ErrorKind::Unreachable, "talk to the peer")
                    .because(format!("the peer made no progress for {silent} s ({subject})"));
            }
        }
    }

    fn limit(&self, subject: &Subject) -> Duration {
        let longest = self.lock().last_key_value().map(|(limit, _)| *limit);
        let limit = longest.unwrap_or(SILENCE).max(subject.limit);
        limit.saturating_sub(SILENCE) + self.waits.silence()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Duration, usize>> {
        self.lasting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Lasting {
    fn drop(&mut self) {
        let mut lasting = self.patience.lock();
        if let Some(count) = lasting.get_mut(&self.limit) {
            *count -= 1;
            if *count == 0 {
                lasting.remove(&self.limit);
            }
        }
    }
}

/// The limit of a request that reads a file of `bytes` bytes on the peer, and sends no progress.
fn copied(bytes: u64) -> Duration {
    LASTING + Duration::from_secs(bytes.min(LARGEST) / SLOWEST_COPY)
}

const fn limit(request: &Body) -> Duration {
    match request {
        // The name replaced or removed may be the last one of a huge file.
        Body::CreateLink(messages::CreateLink { replace: true, .. })
        | Body::Remove(_)
        | Body::Rename(_)
        // They truncate an old part file, make data durable, or free what was written.
        | Body::Create(_)
        | Body::Record(_)
        | Body::Sync(_)
        | Body::Commit(_)
        | Body::Abort(_)
        | Body::Reopen(_)
        | Body::WriteWhole(_)
        // The caller extends it by the file's size: see `copied`.
        | Body::Copy(_)
        | Body::Digest(_) => LASTING,
        _ => SILENCE,
    }
}

impl Subject {
    /// Describes a request.
    pub(super) fn of(request: &Body) -> Self {
        let (name, path) = match request {
            Body::Stat(messages::Stat { paths }) => ("STAT", paths.first()),
            Body::List(messages::List { path }) => ("LIST", Some(path)),
            Body::Open(messages::Open { path }) => ("OPEN", Some(path)),
            Body::Read(_) => ("READ", None),
            Body::Recheck(_) => ("RECHECK", None),
            Body::ReadMetadata(_) => ("READ-METADATA", None),
            Body::Metadata(of) => ("METADATA", Some(&of.path)),
            Body::NextData(_) => ("NEXT-DATA", None),
            Body::ReadWhole(messages::ReadWhole { paths, .. }) => ("READ-WHOLE", paths.first()),
            Body::CreateDir(create) => ("CREATE-DIR", Some(&create.path)),
            Body::CreateLink(create) => ("CREATE-LINK", Some(&create.path)),
            Body::Remove(of) => ("REMOVE", Some(&of.path)),
            Body::Rename(rename) => ("RENAME", Some(&rename.to)),
            Body::Copy(copy) => ("COPY", Some(&copy.to)),
            Body::SetMetadata(set) => ("SET-METADATA", Some(&set.path)),
            Body::Digest(of) => ("DIGEST", Some(&of.path)),
            Body::Space(of) => ("SPACE", Some(&of.path)),
            Body::Allocated(of) => ("ALLOCATED", Some(&of.path)),
            Body::Create(create) => ("CREATE", Some(&create.path)),
            Body::Record(_) => ("RECORD", None),
            Body::Sync(_) => ("SYNC", None),
            Body::Commit(_) => ("COMMIT", None),
            Body::Abort(_) => ("ABORT", None),
            Body::Reopen(_) => ("REOPEN", None),
            Body::WriteWhole(write) => ("WRITE-WHOLE", Some(&write.path)),
            // The Welcome is awaited by `opener`. No task waits for a response to the others.
            Body::Hello(_)
            | Body::Cancel(_)
            | Body::Close(_)
            | Body::Ping(_)
            | Body::Bye(_)
            | Body::More(_)
            | Body::Answered(_)
            | Body::LaneLost(_) => ("a notice", None),
        };
        Self { name, path: path.cloned().unwrap_or_default(), limit: limit(request) }
    }

    /// Describes a piece of an upload with `length` bytes.
    pub(super) fn write(length: usize) -> Self {
        let limit = SILENCE + Duration::from_secs(length as u64 / SLOWEST);
        Self { name: "WRITE", path: Bytes::new(), limit }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "response to {}", self.name)?;
        match self.path.is_empty() {
            true => Ok(()),
            false => write!(f, " {}", text::name(&self.path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use haul_net::Waits;
    use haul_storage::RelPath;
    use tokio::time::{Instant, advance, timeout};

    use super::*;
    use crate::wire::convert::path_bytes;
    use crate::wire::messages::{Empty, List, PathOf, SyncPart};

    /// Longer than [`LASTING`], on a paused clock.
    const DAY: Duration = Duration::from_secs(86_400);

    fn path() -> Bytes {
        path_bytes(&RelPath::parse("photos").unwrap())
    }

    fn list() -> Subject {
        Subject::of(&Body::List(List { path: path() }))
    }

    /// How long a response is awaited that does not arrive.
    async fn waited(patience: &Patience, subject: &Subject) -> Duration {
        let began = Instant::now();
        let waiting = timeout(DAY, patience.within(subject, pending::<()>()));
        let error = waiting.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        Duration::from_secs(began.elapsed().as_secs())
    }

    #[test]
    fn a_subject_names_the_request_and_its_path() {
        assert_eq!(list().to_string(), "response to LIST photos");
        let root = Body::List(List { path: path_bytes(&RelPath::root()) });
        assert_eq!(Subject::of(&root).to_string(), "response to LIST");
        let paths = vec![Bytes::from_static(b"a\x1b[2J"), path()];
        let stat = Subject::of(&Body::Stat(messages::Stat { paths })).to_string();
        assert!(stat.starts_with("response to STAT a") && !stat.contains('\u{1b}'), "{stat}");
        assert_eq!(
            Subject::of(&Body::Sync(SyncPart { handle: 1 })).to_string(),
            "response to SYNC"
        );
        assert_eq!(Subject::write(1).to_string(), "response to WRITE");
    }

    #[test]
    fn requests_that_wait_for_a_disk_have_a_longer_limit() {
        let of = |path| PathOf { path };
        let link = |replace| messages::CreateLink { path: path(), link: None, replace };
        for request in [
            Body::List(List { path: path() }),
            Body::Open(messages::Open { path: path() }),
            Body::Read(messages::Read::default()),
            Body::CreateDir(messages::CreateDir { path: path(), mode: None }),
            Body::CreateLink(link(false)),
            Body::Space(of(path())),
            Body::Ping(Empty {}),
        ] {
            assert_eq!(Subject::of(&request).limit, SILENCE, "{request:?}");
        }
        for request in [
            Body::CreateLink(link(true)),
            Body::Remove(of(path())),
            Body::Create(messages::Create { path: path(), options: None }),
            Body::Sync(SyncPart { handle: 1 }),
            Body::Commit(messages::Commit::default()),
            Body::Digest(messages::DigestOf { path: path(), kind: 1 }),
        ] {
            assert_eq!(Subject::of(&request).limit, LASTING, "{request:?}");
        }
        // 256 KiB at 4 KiB/s, and 1 TiB at 1 MiB/s.
        assert_eq!(Subject::write(256 << 10).limit, SILENCE + Duration::from_secs(64));
        assert!(copied(1 << 40) > Duration::from_secs(1 << 20));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_once_the_peer_makes_no_progress() {
        let patience = Arc::new(Patience::default());
        assert_eq!(waited(&patience, &list()).await, SILENCE);
        let progress = async {
            for _ in 0..10 {
                sleep(SILENCE - STEP).await;
                patience.on_progress();
            }
            pending::<()>().await;
        };
        let subject = list();
        tokio::select! {
            waited = waited(&patience, &subject) => {
                let expected = 10 * (SILENCE - STEP) + SILENCE;
                assert!((expected..=expected + STEP).contains(&waited), "{waited:?}");
            }
            () = progress => {}
        }
    }

    /// Formerly, the end of a wait that was given up counted as a sign of life.
    #[tokio::test(start_paused = true)]
    async fn a_wait_that_is_given_up_does_not_delay_the_report_of_another_one() {
        let reports = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&reports);
        let waits = Waits::new(move |wait| sink.lock().unwrap().push(wait.waited.as_secs()));
        let (patience, subject) = (Patience::new(waits.of("peer")), list());
        let second = async {
            sleep(Duration::from_secs(45)).await;
            waited(&patience, &subject).await
        };
        tokio::join!(waited(&patience, &subject), second);
        // At 10 and 40 s the first one; at 70 and 100 s the second one.
        assert_eq!(*reports.lock().unwrap(), [10, 40, 25, 55]);
    }

    /// They use the same disk.
    #[tokio::test(start_paused = true)]
    async fn a_pending_flush_extends_the_limit_of_other_requests() {
        let patience = Arc::new(Patience::default());
        let [first, second] = [(); 2].map(|()| patience.expect(LASTING));
        assert!(patience.expect(SILENCE).is_none());
        drop(first);
        assert_eq!(waited(&patience, &list()).await, LASTING);
        drop(second);
        assert_eq!(waited(&patience, &list()).await, SILENCE);
        // With `--timeout 10`.
        let patience =
            Patience::new(Waits::default().with_silence(Duration::from_secs(10)).of("peer"));
        assert_eq!(waited(&patience, &list()).await, Duration::from_secs(10));
        let sync = Subject::of(&Body::Sync(SyncPart { handle: 1 }));
        assert_eq!(waited(&patience, &sync).await, LASTING - Duration::from_secs(50));
    }

    #[tokio::test(start_paused = true)]
    async fn a_digest_may_take_as_long_as_the_size_of_its_file_demands() {
        let patience = Arc::new(Patience::default());
        let digest = Subject::of(&Body::Digest(messages::DigestOf { path: path(), kind: 1 }));
        let take = |size: u64, duration: Duration| {
            let (patience, digest) = (Arc::clone(&patience), digest.clone());
            async move {
                let response = patience.within(&digest, sleep(duration));
                patience.extended_by(async { size }, response).await
            }
        };
        take(0, LASTING - STEP).await.unwrap();
        take(0, LASTING + STEP).await.unwrap_err();
        take(1 << 40, 10 * LASTING).await.unwrap();
        assert!(patience.lock().is_empty());
    }

    /// What has arrived while the program was suspended is read only after its timers have fired.
    #[tokio::test(start_paused = true)]
    async fn time_in_which_the_program_was_suspended_does_not_count() {
        let (patience, subject) = (Patience::default(), list());
        let (began, hour) = (Instant::now(), Duration::from_secs(3600));
        let suspended = async {
            // The wait has begun.
            tokio::task::yield_now().await;
            advance(hour).await;
        };
        let waiting = timeout(DAY, patience.within(&subject, pending::<()>()));
        let (waited, ()) = tokio::join!(waiting, suspended);
        waited.unwrap().unwrap_err();
        // The hour counts as one step.
        assert_eq!(began.elapsed().as_secs(), (hour + SILENCE - STEP).as_secs());
    }
}
