//! The traffic of a session: counted as it moves, and read from time to time for display.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haul_storage::RelPath;

/// How the connections of a client reach the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// Without a bridge: the client has connected to this machine, or this machine to the client.
    Direct,
    /// Through a bridge.
    Bridge,
    /// Some directly, some through a bridge.
    Both,
}

impl Route {
    /// `None` if there is no connection.
    const fn of(direct: usize, bridged: usize) -> Option<Self> {
        match (direct, bridged) {
            (0, 0) => None,
            (_, 0) => Some(Self::Direct),
            (0, _) => Some(Self::Bridge),
            _ => Some(Self::Both),
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Bridge => "bridge",
            Self::Both => "direct and bridge",
        })
    }
}

/// The state of a client's session at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionStatus {
    /// Later sessions of this process have higher numbers.
    pub number: u64,
    /// The client's address: that of its latest connection, as far as it is known.
    pub address: SocketAddr,
    /// The route of the open connections, or if there are none, of the earlier ones.
    pub route: Route,
    /// Open connections. Without one, the session waits for its client.
    pub lanes: usize,
    /// Bytes of files sent so far.
    pub sent: u64,
    /// Bytes of files received so far.
    pub received: u64,
    /// The file whose data was requested or received last.
    pub file: Option<Arc<RelPath>>,
}

/// A session that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionEnd {
    /// The route of its connections.
    pub route: Route,
    /// Bytes of files sent.
    pub sent: u64,
    /// Bytes of files received.
    pub received: u64,
    /// From its first connection to the end of its last one.
    pub after: Duration,
}

/// Counts the traffic of a session.
#[derive(Debug)]
pub(super) struct Activity {
    number: u64,
    since: Instant,
    sent: AtomicU64,
    received: AtomicU64,
    direct: Count,
    bridged: Count,
    latest: Mutex<Latest>,
    is_reported: AtomicBool,
}

/// Connections of a kind: those that are open, and all so far.
#[derive(Debug, Default)]
struct Count {
    open: AtomicUsize,
    joined: AtomicUsize,
}

#[derive(Debug, Default)]
struct Latest {
    address: Option<SocketAddr>,
    file: Option<Arc<RelPath>>,
}

/// Counts a connection until it is dropped.
#[derive(Debug)]
pub(super) struct Joined {
    activity: Arc<Activity>,
    is_bridged: bool,
}

impl Activity {
    pub(super) fn new() -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Arc::new(Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            since: Instant::now(),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            direct: Count::default(),
            bridged: Count::default(),
            latest: Mutex::default(),
            is_reported: AtomicBool::new(false),
        })
    }

    /// Records a connection of the client at `from`.
    pub(super) fn join(self: &Arc<Self>, from: SocketAddr, is_bridged: bool) -> Joined {
        let count = self.count(is_bridged);
        count.open.fetch_add(1, Ordering::Relaxed);
        count.joined.fetch_add(1, Ordering::Relaxed);
        self.lock().address = Some(from);
        Joined { activity: Arc::clone(self), is_bridged }
    }

    /// Records the file whose data was requested or received last.
    pub(super) fn set_file(&self, file: &Arc<RelPath>) {
        let mut latest = self.lock();
        if latest.file.as_ref().is_none_or(|last| !Arc::ptr_eq(last, file)) {
            latest.file = Some(Arc::clone(file));
        }
    }

    /// Counts bytes of files that a lane has taken to send, or that were read to be sent as small files.
    pub(super) fn sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes of files that were received and written.
    pub(super) fn received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The state of the session; `None` before its first connection, and once its end was reported.
    pub(super) fn status(&self) -> Option<SessionStatus> {
        let (address, file) = {
            let latest = self.lock();
            (latest.address?, latest.file.clone())
        };
        if self.is_reported.load(Ordering::Relaxed) {
            return None;
        }
        let open = |count: &Count| count.open.load(Ordering::Relaxed);
        let (direct, bridged) = (open(&self.direct), open(&self.bridged));
        Some(SessionStatus {
            number: self.number,
            address,
            route: Route::of(direct, bridged).or_else(|| self.joined())?,
            lanes: direct + bridged,
            sent: self.sent.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
            file,
        })
    }

    /// The client's address, and the totals of the session, whose last connection ended `ago`. `None` if it had
    /// no connection, or this was called before.
    pub(super) fn end(&self, ago: Duration) -> Option<(SocketAddr, SessionEnd)> {
        let address = self.lock().address?;
        let route = self.joined()?;
        if self.is_reported.swap(true, Ordering::Relaxed) {
            return None;
        }
        let end = SessionEnd {
            route,
            sent: self.sent.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
            after: self.since.elapsed().saturating_sub(ago),
        };
        Some((address, end))
    }

    /// The route of all connections so far.
    fn joined(&self) -> Option<Route> {
        let joined = |count: &Count| count.joined.load(Ordering::Relaxed);
        Route::of(joined(&self.direct), joined(&self.bridged))
    }

    fn count(&self, is_bridged: bool) -> &Count {
        if is_bridged { &self.bridged } else { &self.direct }
    }

    fn lock(&self) -> MutexGuard<'_, Latest> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.activity.count(self.is_bridged).open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_shown_from_its_first_connection_to_its_end() {
        let activity = Activity::new();
        assert_eq!(activity.status(), None);
        let from: SocketAddr = "192.0.2.7:4180".parse().unwrap();
        let joined = [activity.join(from, false), activity.join(from, true)];
        let file = Arc::new(RelPath::parse("a/b").unwrap());
        activity.set_file(&file);
        activity.sent(100);
        activity.received(7);
        let status = activity.status().unwrap();
        assert_eq!((status.address, status.lanes, status.route), (from, 2, Route::Both));
        assert_eq!((status.sent, status.received, status.file), (100, 7, Some(file)));
        let [direct, bridged] = joined;
        drop(direct);
        assert_eq!(activity.status().unwrap().route, Route::Bridge);
        drop(bridged);
        let status = activity.status().unwrap();
        assert_eq!((status.lanes, status.route), (0, Route::Both));
        let (address, end) = activity.end(Duration::ZERO).unwrap();
        assert_eq!((address, end.sent, end.received), (from, 100, 7));
        assert_eq!((activity.end(Duration::ZERO), activity.status()), (None, None));
    }
}
