//! Limits how long a lane may be silent while a response is pending, and reports long waits.
//!
//! ```text
//! Patience (one per host) → Silence (one per lane): on_activity, on_request, on_response → within
//! ```
//!
//! A lane counts as silent from the last byte received or the last packet sent on it, not per
//! request: servers respond in any order, and most process one request after the other. A silent
//! lane is closed after [`SILENCE`], or after [`LASTING`] while a request is pending that may
//! legitimately take long: a slow disk that writes back, a huge file being removed. This applies to
//! all lanes of the host, because they share its disk.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use haul_net::HostWaits;
use haul_storage::text;
use tokio::time::Instant;

use crate::codec::{Extended, OpenFlags, Request};

/// How long a lane may be silent while a response is pending. If the host's waits have another
/// limit, all limits are longer or shorter by the difference.
pub(super) const SILENCE: Duration = haul_net::SILENCE;

/// Limit for requests that wait for a disk: write-back of the server's memory (CLOSE on a network
/// file system, fsync), and freeing the blocks of a huge file.
pub(super) const LASTING: Duration = Duration::from_secs(30 * 60);

/// Rate that a payload is expected to reach at least, in bytes per second.
const SLOWEST: u64 = 4096;

/// Rate that a copy within the server or a digest is expected to reach at least, in bytes per second.
const SLOWEST_COPY: u64 = 1 << 20;

/// Longer than any file: 1 PiB.
const LARGEST: u64 = 1 << 50;

/// Shared by all lanes of a host.
#[derive(Debug, Clone, Default)]
pub(super) struct Patience {
    waits: HostWaits,
    /// Pending requests whose limit is [`LASTING`] or longer.
    lasting: Arc<AtomicUsize>,
}

/// Measures the silence of one lane.
#[derive(Debug)]
pub(super) struct Silence {
    host: Patience,
    began: Instant,
    /// Time of the last progress on the lane, in milliseconds since `began`.
    activity_ms: AtomicU64,
}

/// Names a request in reports and errors: `response to OPENDIR /srv/data`.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    name: &'static str,
    path: Option<Bytes>,
}

impl Patience {
    /// For a host whose long waits `waits` reports.
    pub(super) fn new(waits: HostWaits) -> Self {
        Self { waits, lasting: Arc::default() }
    }

    /// How long a lane may be silent while a short request is pending.
    pub(super) const fn silence(&self) -> Duration {
        self.waits.silence()
    }
}

impl Silence {
    /// For a new lane.
    pub(super) fn new(host: Patience) -> Self {
        Self { host, began: Instant::now(), activity_ms: AtomicU64::new(0) }
    }

    /// Bytes were received, or a packet was sent.
    pub(super) fn on_activity(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.activity_ms.store(now, Ordering::Relaxed);
        self.host.waits.on_activity();
    }

    /// A request with this limit was sent.
    pub(super) fn on_request(&self, limit: Duration) {
        if is_lasting(limit) {
            self.host.lasting.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The request is not pending any more.
    pub(super) fn on_response(&self, limit: Duration) {
        if is_lasting(limit) {
            self.host.lasting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Awaits something from the server, which `what` names in reports. `longest` returns the longest
    /// limit of the lane's pending requests.
    ///
    /// # Errors
    /// The limit, once the lane has made no progress for that long.
    pub(super) async fn within<T>(
        &self,
        what: impl Fn() -> String,
        longest: impl Fn() -> Duration,
        future: impl Future<Output = T>,
    ) -> Result<T, Duration> {
        let mut future = std::pin::pin!(future);
        let began = Instant::now();
        let mut left = self.host.waits.silence();
        loop {
            if let Some(output) = self.host.waits.within(left, &what, future.as_mut()).await {
                return Ok(output);
            }
            let limit = self.limit(longest());
            let activity =
                self.began + Duration::from_millis(self.activity_ms.load(Ordering::Relaxed));
            left = (activity.max(began) + limit).saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(limit);
            }
        }
    }

    fn limit(&self, longest: Duration) -> Duration {
        let limit = match self.host.lasting.load(Ordering::Relaxed) {
            0 => longest.max(SILENCE),
            _ => longest.max(LASTING),
        };
        limit - SILENCE + self.host.waits.silence()
    }
}

fn is_lasting(limit: Duration) -> bool {
    limit >= LASTING
}

/// How long the lane may be silent while this request is pending.
pub(super) fn limit(request: &Request) -> Duration {
    let moved = |bytes: u64| SILENCE + Duration::from_secs(bytes / SLOWEST);
    match request {
        Request::Read { length, .. } => moved(u64::from(*length)),
        Request::Write { data, .. } => moved(data.len() as u64),
        Request::Setstat(_, attrs) | Request::Fsetstat(_, attrs) if attrs.size.is_some() => LASTING,
        Request::Open { flags, .. } if flags.has(OpenFlags::TRUNCATE) => LASTING,
        // The name replaced or removed may be the last one of a huge file.
        Request::Close(_) | Request::Remove(_) | Request::Rename { .. } => LASTING,
        Request::Extended(Extended::Fsync(_) | Extended::PosixRename { .. }) => LASTING,
        Request::Extended(Extended::CopyData { length, .. }) => copied(*length),
        Request::Extended(Extended::CheckFileName { length, .. }) => copied(*length),
        _ => SILENCE,
    }
}

/// Like [`limit`], for a copy within the server, or a digest, of `bytes` bytes.
pub(super) fn copied(bytes: u64) -> Duration {
    LASTING + Duration::from_secs(bytes.min(LARGEST) / SLOWEST_COPY)
}

impl Subject {
    /// Describes a request.
    pub(super) fn of(request: &Request) -> Self {
        let (name, path) = match request {
            Request::Init { .. } => ("INIT", None),
            Request::Open { path, .. } => ("OPEN", Some(path)),
            Request::Close(_) => ("CLOSE", None),
            Request::Read { .. } => ("READ", None),
            Request::Write { .. } => ("WRITE", None),
            Request::Lstat(path) => ("LSTAT", Some(path)),
            Request::Fstat(_) => ("FSTAT", None),
            Request::Setstat(path, _) => ("SETSTAT", Some(path)),
            Request::Fsetstat(..) => ("FSETSTAT", None),
            Request::Opendir(path) => ("OPENDIR", Some(path)),
            Request::Readdir(_) => ("READDIR", None),
            Request::Remove(path) => ("REMOVE", Some(path)),
            Request::Mkdir(path, _) => ("MKDIR", Some(path)),
            Request::Rmdir(path) => ("RMDIR", Some(path)),
            Request::Realpath(path) => ("REALPATH", Some(path)),
            Request::Stat(path) => ("STAT", Some(path)),
            Request::Rename { to, .. } => ("RENAME", Some(to)),
            Request::Readlink(path) => ("READLINK", Some(path)),
            Request::Symlink { link, .. } => ("SYMLINK", Some(link)),
            Request::Extended(extended) => match extended {
                Extended::PosixRename { to, .. } => ("posix-rename", Some(to)),
                Extended::Hardlink { to, .. } => ("hardlink", Some(to)),
                Extended::Fsync(_) => ("fsync", None),
                Extended::Statvfs(path) => ("statvfs", Some(path)),
                Extended::Fstatvfs(_) => ("fstatvfs", None),
                Extended::Lsetstat(path, _) => ("lsetstat", Some(path)),
                Extended::CopyData { .. } => ("copy-data", None),
                Extended::ExpandPath(path) => ("expand-path", Some(path)),
                Extended::CheckFileName { path, .. } => ("check-file-name", Some(path)),
                Extended::Limits => ("limits", None),
                Extended::Unknown { .. } => ("an extended request", None),
            },
        };
        Self { name, path: path.cloned() }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "response to {}", self.name)?;
        match &self.path {
            Some(path) => write!(f, " {}", text::name(path)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use haul_storage::Block;

    use super::*;
    use crate::codec::{Attrs, Handle};

    fn copy(length: u64) -> Request {
        let handle = Handle::from(Bytes::from_static(b"h"));
        Request::Extended(Extended::CopyData {
            from: handle.clone(),
            from_offset: 0,
            length,
            to: handle,
            to_offset: 0,
        })
    }

    #[test]
    fn requests_that_wait_for_a_disk_have_a_longer_limit() {
        let handle = || Handle::from(Bytes::from_static(b"h"));
        let path = || Bytes::from_static(b"/p");
        for request in [
            Request::Lstat(path()),
            Request::Opendir(path()),
            Request::Readdir(handle()),
            Request::Setstat(path(), Attrs::default()),
            Request::Open { path: path(), flags: OpenFlags::READ, attrs: Attrs::default() },
        ] {
            assert_eq!(limit(&request), SILENCE, "{request:?}");
        }
        for request in [
            Request::Close(handle()),
            Request::Extended(Extended::Fsync(handle())),
            Request::Setstat(path(), Attrs { size: Some(0), ..Attrs::default() }),
            Request::Open { path: path(), flags: OpenFlags::TRUNCATE, attrs: Attrs::default() },
        ] {
            assert_eq!(limit(&request), LASTING, "{request:?}");
        }
        // 1 TiB within the server at 1 MiB/s.
        assert!(limit(&copy(1 << 40)) > Duration::from_secs(1 << 20));
        // 256 KiB at 4 KiB/s.
        let data = Block::from(Bytes::from(vec![0; 256 << 10]));
        let write = Request::Write { handle: handle(), offset: 0, data };
        assert_eq!(limit(&write), SILENCE + Duration::from_secs(64));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lane_that_makes_progress_is_not_silent() {
        let silence = Silence::new(Patience::default());
        let began = Instant::now();
        let progress = async {
            for _ in 0..10 {
                tokio::time::sleep(SILENCE * 9 / 10).await;
                silence.on_activity();
            }
            pending::<()>().await;
        };
        let failed = silence.within(|| "x".to_owned(), || SILENCE, progress).await;
        assert_eq!(failed, Err(SILENCE));
        assert_eq!(began.elapsed(), SILENCE * 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flush_on_one_lane_extends_the_limit_of_the_others() {
        let host = Patience::default();
        let [flushing, other] = [Silence::new(host.clone()), Silence::new(host)];
        flushing.on_request(LASTING);
        let began = Instant::now();
        let wait = || other.within(|| "x".to_owned(), || SILENCE, pending::<()>());
        assert_eq!(wait().await, Err(LASTING));
        assert_eq!(began.elapsed(), LASTING);
        flushing.on_response(LASTING);
        let began = Instant::now();
        assert_eq!(wait().await, Err(SILENCE));
        assert_eq!(began.elapsed(), SILENCE);
    }
}
