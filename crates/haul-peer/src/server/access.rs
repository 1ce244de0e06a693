//! Decides which clients may open or join a session, and holds the open sessions.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use haul_storage::{Error, ErrorKind, RelPath, Result, Storage};
use tokio::task::spawn_blocking;

use super::fan::{Fan, SessionId};
use super::grant::Grant;
use super::greeting::{Hello, welcome};
use super::limits;
use super::session::Session;
use crate::identity::Refusal as StoredRefusal;
use crate::tls::{Binding, ProofKey, Role, verify};
use crate::wire::messages::code::Refusal as Code;

/// Why a lane is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    Version,
    Secret,
    Expired,
    Used,
    Busy,
    /// The file of stored tickets cannot be read or written.
    Unsaved,
    Session,
}

impl Refusal {
    pub(super) const fn code(self) -> Code {
        match self {
            Self::Version => Code::Version,
            Self::Secret => Code::Secret,
            Self::Expired => Code::Expired,
            Self::Used => Code::Used,
            Self::Busy | Self::Unsaved => Code::Busy,
            Self::Session => Code::Session,
        }
    }

    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Version => "the peer has an incompatible version of haul",
            Self::Secret => "the ticket is not valid here, or has been revoked",
            Self::Expired => "the ticket has expired",
            Self::Used => "the ticket was for one use, and has been used",
            Self::Busy => "too many sessions are open",
            Self::Unsaved => "the sharer cannot read or change its list of tickets",
            Self::Session => "the session has ended",
        }
    }
}

/// The grants and the sessions of a server.
pub(super) struct Access {
    /// The server's public key.
    pub(super) key: [u8; 32],
    name: String,
    fan: Arc<Fan>,
    state: Arc<Mutex<State>>,
}

struct State {
    grants: Vec<Granted>,
    sessions: HashMap<SessionId, Open>,
    /// Sessions that are being opened. They count towards the limit.
    opening: usize,
}

struct Granted {
    grant: Grant,
    key: ProofKey,
    is_used: bool,
}

struct Open {
    session: Arc<Session>,
    token: [u8; 32],
    /// The key of the client that has opened it: further lanes must present the same one.
    client_key: [u8; 32],
}

impl Access {
    pub(super) fn new(
        key: [u8; 32],
        name: String,
        storage: Arc<dyn Storage>,
        grants: Vec<Grant>,
    ) -> Result<Self> {
        let grants = grants.into_iter().map(|grant| {
            let key = ProofKey::from_secret(grant.secret.expose())?;
            Ok(Granted { grant, key, is_used: false })
        });
        let grants = grants.collect::<Result<_>>()?;
        let state = State { grants, sessions: HashMap::new(), opening: 0 };
        Ok(Self { key, name, fan: Fan::new(storage), state: Arc::new(Mutex::new(state)) })
    }

    /// Checks the proof of a Hello, and opens its session or joins it. Returns the session, and the Welcome.
    pub(super) async fn admit(
        &self,
        hello: &Hello,
        exporter: [u8; 32],
        client_key: [u8; 32],
    ) -> Result<(Arc<Session>, Bytes), Refusal> {
        if !hello.has_common_version {
            return Err(Refusal::Version);
        }
        let binding = hello.binding(exporter, client_key, self.key);
        if let Some(id) = hello.session {
            return self.join(id, hello, &binding, client_key);
        }
        let Chosen { grant, key, mut hold, ended } = self.choose(hello, &binding)?;
        if let Some(ended) = ended {
            let _ = ended.close_all();
        }
        let (id, token) = numbers().map_err(|_| Refusal::Busy)?;
        let lanes = ProofKey::from_token(&token).map_err(|_| Refusal::Busy)?;
        let session = Session::new(id, lanes, Arc::clone(&self.fan), &grant);
        let names = (self.name.as_str(), &token);
        let welcome = welcome(&session, &binding, &key, names).map_err(|_| Refusal::Busy)?;
        // This is the last step that can fail. The use is on disk before the client is admitted.
        consume(&grant).await?;
        hold.is_used = true;
        self.open(&session, token, client_key);
        Ok((session, welcome))
    }

    fn open(&self, session: &Arc<Session>, token: [u8; 32], client_key: [u8; 32]) {
        let open = Open { session: Arc::clone(session), token, client_key };
        let (state, id) = (Arc::downgrade(&self.state), session.id);
        session.set_end_others(move |path| {
            let Some(state) = state.upgrade() else { return false };
            let ended = lock(&state).end_writing(path, id);
            for session in &ended {
                let _ = session.close_all();
            }
            !ended.is_empty()
        });
        self.lock().sessions.insert(session.id, open);
    }

    /// Admits a further lane of a session.
    fn join(
        &self,
        id: SessionId,
        hello: &Hello,
        binding: &Binding,
        client_key: [u8; 32],
    ) -> Result<(Arc<Session>, Bytes), Refusal> {
        let state = self.lock();
        let open = state.sessions.get(&id).ok_or(Refusal::Session)?;
        let is_proven = verify(&open.session.key, Role::Client, binding, &hello.proof);
        if open.client_key != client_key || !is_proven {
            return Err(Refusal::Session);
        }
        if open.session.is_expired() {
            return Err(Refusal::Expired);
        }
        let session = Arc::clone(&open.session);
        let names = (self.name.as_str(), &open.token);
        let welcome = welcome(&session, binding, &session.key, names);
        welcome.map(|welcome| (session, welcome)).map_err(|_| Refusal::Busy)
    }

    /// The grant whose secret the Hello proves, if it is still valid. Reserves a place among the sessions for this
    /// client, and a one-use grant. If there are too many sessions, ends the one without lanes for the longest time.
    fn choose(&self, hello: &Hello, binding: &Binding) -> Result<Chosen<'_>, Refusal> {
        let mut state = self.lock();
        // All grants are tried, so that the time does not reveal which one has matched.
        let found: Vec<usize> = state
            .grants
            .iter()
            .enumerate()
            .filter(|(_, granted)| verify(&granted.key, Role::Client, binding, &hello.proof))
            .map(|(at, _)| at)
            .collect();
        let at = *found.first().ok_or(Refusal::Secret)?;
        let granted = &state.grants[at];
        if granted.grant.is_expired() {
            return Err(Refusal::Expired);
        }
        if granted.grant.one_use && granted.is_used {
            return Err(Refusal::Used);
        }
        let is_full = state.sessions.len() + state.opening >= limits::SESSIONS;
        let ended = if is_full { Some(state.end_oldest().ok_or(Refusal::Busy)?) } else { None };
        let granted = &mut state.grants[at];
        granted.is_used = granted.grant.one_use;
        let (grant, key) = (granted.grant.clone(), granted.key.clone());
        state.opening += 1;
        Ok(Chosen { grant, key, hold: Hold { access: self, at, is_used: false }, ended })
    }

    /// Whether a client can open a session, or join one. Blocks: it reads the file of stored tickets.
    pub(super) fn has_valid_ticket_or_session(&self) -> bool {
        let grants: Vec<Grant> = {
            let state = self.lock();
            let is_open = |open: &Open| !open.session.is_expired() && !open.session.has_ended();
            if state.sessions.values().any(is_open) {
                return true;
            }
            let is_valid = |granted: &&Granted| {
                !(granted.grant.is_expired() || granted.grant.one_use && granted.is_used)
            };
            state.grants.iter().filter(is_valid).map(|granted| granted.grant.clone()).collect()
        };
        grants.iter().any(|grant| {
            let stored = grant.stored.as_ref();
            stored.is_none_or(|shares| shares.check(&grant.secret, now()).is_ok())
        })
    }

    /// All sessions, in no order.
    pub(super) fn sessions(&self) -> Vec<Arc<Session>> {
        self.lock().sessions.values().map(|open| Arc::clone(&open.session)).collect()
    }

    /// Removes a session, and ends it.
    pub(super) fn forget(&self, session: &Session) {
        self.lock().sessions.remove(&session.id);
        // The session may have ended already.
        let _ = session.close_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Ends the session that has been without lanes for the longest time, and returns it; `None` if none has lost all
    /// its lanes, or a lane has joined that session just now.
    fn end_oldest(&mut self) -> Option<Arc<Session>> {
        let open = self.sessions.values();
        let idle = open.filter_map(|open| Some((open.session.without_lanes_since()?, open)));
        let (_, oldest) = idle.min_by_key(|(since, _)| *since)?;
        let oldest = Arc::clone(&oldest.session);
        // A lane may have joined just now.
        if !oldest.end_if_without_lanes() {
            return None;
        }
        self.sessions.remove(&oldest.id);
        Some(oldest)
    }

    /// Ends the sessions without lanes, except `own`, that have the part file of `path` open, and returns them.
    fn end_writing(&mut self, path: &RelPath, own: SessionId) -> Vec<Arc<Session>> {
        let sessions = self.sessions.values().map(|open| &open.session);
        let others = sessions.filter(|session| session.id != own && session.writes(path));
        let ended: Vec<_> =
            others.filter(|session| session.end_if_without_lanes()).cloned().collect();
        for session in &ended {
            self.sessions.remove(&session.id);
        }
        ended
    }
}

/// The grant that admits a client.
struct Chosen<'a> {
    grant: Grant,
    key: ProofKey,
    hold: Hold<'a>,
    /// The session that was ended to make room.
    ended: Option<Arc<Session>>,
}

/// Reserves a grant, and one of [`limits::SESSIONS`], for a client. If the client is not admitted, the grant remains
/// unused.
struct Hold<'a> {
    access: &'a Access,
    at: usize,
    is_used: bool,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let mut state = self.access.lock();
        state.opening -= 1;
        if !self.is_used {
            state.grants[self.at].is_used = false;
        }
    }
}

/// Checks a stored secret, and uses it up if it is for one use.
async fn consume(grant: &Grant) -> Result<(), Refusal> {
    let Some(shares) = grant.stored.clone() else { return Ok(()) };
    let secret = grant.secret.clone();
    // Blocks on the disk, and on other processes.
    let outcome = spawn_blocking(move || shares.consume(&secret, now())).await;
    match outcome {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(StoredRefusal::Expired)) => Err(Refusal::Expired),
        Ok(Err(StoredRefusal::Used)) => Err(Refusal::Used),
        Ok(Err(StoredRefusal::Unknown | StoredRefusal::Revoked)) => Err(Refusal::Secret),
        Ok(Err(StoredRefusal::Store(_))) | Err(_) => Err(Refusal::Unsaved),
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A new session's id, which is never zero, and its token.
fn numbers() -> Result<(SessionId, [u8; 32])> {
    let (mut id, mut token) = ([0; 16], [0; 32]);
    let failed = |_| Error::new(ErrorKind::Other, "generate random numbers");
    aws_lc_rs::rand::fill(&mut id).map_err(failed)?;
    aws_lc_rs::rand::fill(&mut token).map_err(failed)?;
    id[0] |= 1;
    Ok((id, token))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use haul_net::Observer;
    use haul_storage::memory::MemoryStorage;
    use tokio::sync::mpsc::unbounded_channel;
    use tokio::time::sleep;

    use super::super::greeting::hello;
    use super::super::lane::expire;
    use super::super::served::Served;
    use super::*;
    use crate::identity::{Identity, Shares, Terms};
    use crate::lane::Frames;
    use crate::ticket::Secret;
    use crate::tls::{self, prove};
    use crate::wire::messages::{self, to_server};
    use crate::wire::{MIN_VERSION, VERSION, message_frame};

    const KEY: [u8; 32] = [1; 32];
    const EXPORTER: [u8; 32] = [2; 32];
    const CLIENT: [u8; 32] = [3; 32];

    fn access(grants: Vec<Grant>) -> Access {
        Access::new(KEY, String::new(), MemoryStorage::new(), grants).unwrap()
    }

    /// Opens a session without a client.
    fn open(access: &Access, number: u8, grant: &Grant) -> Arc<Session> {
        let key = ProofKey::from_token(&[number; 32]).unwrap();
        let session = Session::new([number; 16], key, Arc::clone(&access.fan), grant);
        access.open(&session, [number; 32], CLIENT);
        session
    }

    /// The Hello of a client that has the secret.
    async fn hello_with(secret: &Secret) -> (Hello, Binding) {
        let (session, nonce) = ([0; 16], [4; 32]);
        let binding =
            Binding { exporter: EXPORTER, client_key: CLIENT, server_key: KEY, session, nonce };
        let key = ProofKey::from_secret(secret.expose()).unwrap();
        let message = messages::Hello {
            min_version: MIN_VERSION,
            max_version: VERSION,
            session: Bytes::new(),
            proof: Bytes::copy_from_slice(&prove(&key, Role::Client, &binding)),
            nonce: Bytes::copy_from_slice(&nonce),
            client: String::new(),
        };
        let body = Some(to_server::Body::Hello(message));
        let frame = message_frame(&messages::ToServer { id: 0, body, again: false }).unwrap();
        (hello(&mut Frames::new(&frame[..])).await.unwrap(), binding)
    }

    /// Formerly, it counted against the limit of sessions for as long as the server ran.
    #[tokio::test(start_paused = true)]
    async fn an_expired_session_is_removed() {
        let grant = Grant::new(Secret::generate().unwrap());
        let grant = Grant { expires: Some(UNIX_EPOCH), ..grant };
        let identity = Identity::ephemeral().unwrap();
        let tls = tls::server_config(identity.pkcs8(), &identity.spki()).unwrap();
        let observer = Observer::default();
        let served = Served::new(access(Vec::new()), tls, observer);
        let session = open(&served.access, 1, &grant);
        // Each of its lanes notices the expiry.
        for _ in 0..2 {
            expire(&served, &session);
        }
        assert_eq!(served.access.lock().sessions.len(), 1);
        sleep(limits::LINGER + Duration::from_secs(1)).await;
        assert_eq!(served.access.lock().sessions.len(), 0);
    }

    /// Formerly, its only use could be spent on a client that was then refused, because there were too many sessions.
    #[tokio::test]
    async fn a_one_use_ticket_is_not_used_up_if_there_are_too_many_sessions() {
        let [any, one] = [false, true].map(|one_use| {
            let grant = Grant::new(Secret::generate().unwrap());
            Grant { one_use, ..grant }
        });
        let access = access(vec![any.clone(), one.clone()]);
        for number in 1..limits::SESSIONS {
            open(&access, number as u8, &any);
        }
        let (first, binding) = hello_with(&any.secret).await;
        let first = access.choose(&first, &binding).ok().unwrap();
        let (second, binding) = hello_with(&one.secret).await;
        assert_eq!(access.choose(&second, &binding).err(), Some(Refusal::Busy));
        drop(first);
        assert!(access.choose(&second, &binding).is_ok());
        assert_eq!(access.lock().opening, 0);
    }

    /// Formerly, its holder could make the sharer connect to any address, as long as the sharer ran.
    #[tokio::test]
    async fn an_expired_or_used_ticket_does_not_count_as_valid() {
        let grant = Grant::new(Secret::generate().unwrap());
        let expired = Grant { expires: Some(UNIX_EPOCH), ..grant.clone() };
        assert!(
            access(vec![grant.clone()]).has_valid_ticket_or_session()
                && !access(vec![expired]).has_valid_ticket_or_session()
        );
        let one = Grant { one_use: true, ..grant };
        let access = access(vec![one.clone()]);
        assert!(access.has_valid_ticket_or_session());
        let (hello, _) = hello_with(&one.secret).await;
        let (session, _) = access.admit(&hello, EXPORTER, CLIENT).await.ok().unwrap();
        // The client of the open session may open further lanes.
        assert!(access.has_valid_ticket_or_session());
        access.forget(&session);
        assert!(!access.has_valid_ticket_or_session());
    }

    /// Formerly, its holder could make the sharer connect to any address, if another process had revoked it.
    #[tokio::test]
    async fn a_revoked_ticket_does_not_count_as_valid() {
        let directory = tempfile::tempdir().unwrap();
        let shares = Shares::at(&directory.path().join("haul/shares.toml"));
        let label = "/data".to_owned();
        let (is_one_use, is_writable, sets_owners) = (false, false, false);
        let terms = Terms { label, expires: None, is_one_use, is_writable, sets_owners };
        let stored = shares.store(&terms, 10).unwrap();
        let grant = Grant { stored: Some(shares.clone()), ..Grant::new(stored.secret) };
        let access = access(vec![grant.clone()]);
        assert!(access.has_valid_ticket_or_session());
        let session = open(&access, 1, &grant);
        assert_eq!(shares.revoke_all(|_| true, 11).unwrap(), 1);
        // A session that is open continues.
        assert!(access.has_valid_ticket_or_session());
        access.forget(&session);
        assert!(!access.has_valid_ticket_or_session());
    }

    /// Formerly, clients that had crashed kept others out for a minute.
    #[tokio::test(start_paused = true)]
    async fn the_session_that_is_without_lanes_for_the_longest_time_makes_room() {
        let grant = Grant::new(Secret::generate().unwrap());
        let access = access(vec![grant.clone()]);
        let sessions: Vec<_> =
            (1..=limits::SESSIONS).map(|number| open(&access, number as u8, &grant)).collect();
        let lanes: Vec<_> = sessions
            .iter()
            .map(|session| session.add_lane(unbounded_channel().0, Bytes::new()).unwrap())
            .collect();
        let (hello, binding) = hello_with(&grant.secret).await;
        assert_eq!(access.choose(&hello, &binding).err(), Some(Refusal::Busy));
        for at in [5, 3, 7] {
            sessions[at].remove_lane(lanes[at]);
            sleep(Duration::from_secs(1)).await;
        }
        // The client of the first one returns, and leaves again.
        let returned = sessions[5].add_lane(unbounded_channel().0, Bytes::new()).unwrap();
        sessions[5].remove_lane(returned);
        for at in [3, 7, 5] {
            let (session, _) = access.admit(&hello, EXPORTER, CLIENT).await.ok().unwrap();
            session.add_lane(unbounded_channel().0, Bytes::new()).unwrap();
            assert!(!access.lock().sessions.contains_key(&sessions[at].id));
            assert!(sessions[at].add_lane(unbounded_channel().0, Bytes::new()).is_err());
        }
        assert_eq!(access.lock().sessions.len(), limits::SESSIONS);
        assert_eq!(access.choose(&hello, &binding).err(), Some(Refusal::Busy));
    }
}
