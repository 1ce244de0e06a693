//! Requests that a client sends right behind its first Hello, so that their responses arrive with the Welcome: for a
//! source, its entry, its listing, and the beginning of the file; for a destination, its entry and its free space. They
//! change nothing, and only the peer with the ticket's key receives them. What fails here is requested again later.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use haul_storage::{Entry, RelPath, Result};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::ahead::AHEAD;
use super::lane::Lane;
use super::reading::Reading;
use super::send::{cancel, send_notices};
use super::session::{Responses, Session, frame};
use crate::wire::convert::path_bytes;
use crate::wire::messages::{self, to_server};

/// Responses count as current for this long.
pub(super) const CURRENT: Duration = Duration::from_secs(2);

const STAT: u32 = 1;
const LIST: u32 = 2;
pub(super) const OPEN: u32 = 3;
const READ: u32 = 4;
const SPACE: u32 = 5;

/// The location that a command looks at first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct First {
    pub(super) path: RelPath,
    /// Whether it will be listed or read. If not, it will be written to, and its free space is requested.
    pub(super) is_read: bool,
}

/// The frames of the requests for a location.
pub(super) fn frames(first: &First) -> Result<Vec<u8>> {
    let path = path_bytes(&first.path);
    let look = [(STAT, to_server::Body::Stat(stat(&path)))];
    let reading = [
        (LIST, to_server::Body::List(messages::List { path: path.clone() })),
        (OPEN, to_server::Body::Open(messages::Open { path })),
        (READ, to_server::Body::Read(read())),
    ];
    let space =
        [(SPACE, to_server::Body::Space(messages::PathOf { path: path_bytes(&first.path) }))];
    let reading = reading.into_iter().filter(|_| first.is_read);
    let space = space.into_iter().filter(|_| !first.is_read);
    let mut frames = Vec::new();
    for (id, body) in look.into_iter().chain(reading).chain(space) {
        frames.extend_from_slice(&frame(id, body)?);
    }
    Ok(frames)
}

fn stat(path: &Bytes) -> messages::Stat {
    messages::Stat { paths: vec![path.clone()] }
}

fn read() -> messages::Read {
    messages::Read { length: AHEAD, opened_by: OPEN, ..messages::Read::default() }
}

/// Requests that were sent with the Hello, and whose responses the lane will deliver.
pub(super) struct Sent {
    path: RelPath,
    stat: Responses,
    space: Option<Responses>,
    reading: Option<SentReading>,
}

struct SentReading {
    list: Responses,
    open: Responses,
    read: Responses,
}

impl Sent {
    /// Registers the requests for a location. To be called before the lane receives anything.
    pub(super) fn register(session: &Session, lane: u64, first: First) -> Self {
        let First { path, is_read } = first;
        let bytes = path_bytes(&path);
        let register = |id, body| session.register_as(id, lane, &body);
        let stat = register(STAT, to_server::Body::Stat(stat(&bytes)));
        let path_of = || bytes.clone();
        let reading = is_read.then(|| SentReading {
            list: register(LIST, to_server::Body::List(messages::List { path: path_of() })),
            open: register(OPEN, to_server::Body::Open(messages::Open { path: path_of() })),
            read: register(READ, to_server::Body::Read(read())),
        });
        let space = || to_server::Body::Space(messages::PathOf { path: path_of() });
        let space = (!is_read).then(|| register(SPACE, space()));
        Self { path, stat, space, reading }
    }

    /// The responses, once the lane is running.
    pub(super) fn on(self, lane: &Arc<Lane>) -> Early {
        let Self { path, stat, space, reading } = self;
        let (list, open) = reading
            .map(|SentReading { list, open, read }| {
                let range = haul_storage::Range::new(0, AHEAD);
                let reading = Some(Reading::new(Arc::clone(lane), read, range));
                let (lane, is_taken) = (Arc::clone(lane), false);
                (list, Opening { lane, responses: open, reading, is_taken })
            })
            .unzip();
        let since = Instant::now();
        let stat = Arc::new(Mutex::new(Looked::Sent(stat)));
        Early { path, lane: Arc::clone(lane), since, stat, space, list, open }
    }
}

/// The responses, until they are taken.
pub(super) struct Early {
    pub(super) path: RelPath,
    pub(super) lane: Arc<Lane>,
    /// When the responses arrived: when the lane was accepted, or when the entry arrived, if a task had to wait for it.
    pub(super) since: Instant,
    /// Locked by the task that waits for the entry. Only tasks that need the entry wait for this lock.
    pub(super) stat: Arc<Mutex<Looked>>,
    pub(super) space: Option<Responses>,
    pub(super) list: Option<Responses>,
    pub(super) open: Option<Opening>,
}

pub(super) enum Looked {
    Sent(Responses),
    /// The entry, or `NotFound`.
    Known(Box<Result<Entry>>),
}

/// The request that opens the file.
pub(super) struct Opening {
    pub(super) lane: Arc<Lane>,
    pub(super) responses: Responses,
    pub(super) reading: Option<Reading>,
    /// Whether the caller has taken the response.
    pub(super) is_taken: bool,
}

/// If the file is not taken, the open is cancelled: the server then closes the file, even if it has responded already.
impl Drop for Opening {
    fn drop(&mut self) {
        let (session, id) = (&self.lane.session, self.responses.id);
        session.forget(id);
        if !self.is_taken {
            let cancel = messages::Cancel { id, once: true };
            session.notice(to_server::Body::Cancel(cancel));
            if !self.lane.is_ended() {
                send_notices(&self.lane);
            }
        }
    }
}

impl Early {
    pub(super) fn is_current(&self) -> bool {
        self.since.elapsed() <= CURRENT
    }
}

impl fmt::Debug for Early {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Early").field("lane", &self.lane).finish_non_exhaustive()
    }
}

/// Requests whose responses are not taken are cancelled.
impl Drop for Early {
    fn drop(&mut self) {
        let [space, list] = [&self.space, &self.list].map(|sent| sent.as_ref().map(|sent| sent.id));
        for id in [Some(STAT), space, list].into_iter().flatten() {
            if self.lane.session.forget(id) {
                cancel(&self.lane, id);
            }
        }
    }
}
