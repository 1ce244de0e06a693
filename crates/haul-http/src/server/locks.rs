//! WebDAV locks in memory. They expire unless they are refreshed. Those of `dav-server` itself never expire: a client
//! that has disappeared would block others for ever.

use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use dav_server::davpath::DavPath;
use dav_server::ls::{DavLock, DavLockSystem, LsFuture};
use quick_xml::escape::escape;
use xmltree::{Element, EmitterConfig};

use super::limits;
use super::paths::{is_within, trimmed};

/// All locks of a server. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Locks {
    held: Arc<Mutex<Vec<Held>>>,
}

/// A lock. Its owner is stored as text, which takes a hundredth of the memory of XML elements.
#[derive(Debug)]
struct Held {
    lock: DavLock,
    owner: Box<str>,
}

impl Locks {
    /// Whether `principal` with these lock tokens may change the resource at a path.
    pub(super) fn allows(&self, path: &DavPath, principal: &str, tokens: &[String]) -> bool {
        self.hindrance(path, Some(principal), false, tokens).is_none()
    }

    /// The property `lockdiscovery` of the resource at a path.
    pub(super) fn described(&self, path: &[u8]) -> String {
        let held = self.held();
        if held.is_empty() {
            return String::new();
        }
        held.iter().filter(|one| covers(&one.lock, path)).map(described).collect()
    }

    /// The tokens of locks on the resource at a path, on resources below it, and of deep locks above it.
    pub(super) fn around(&self, path: &[u8]) -> Vec<String> {
        let held = self.held();
        let concerned = held.iter().filter(|one| concerns(one, path));
        concerned.map(|one| one.lock.token.clone()).collect()
    }

    /// Whether there are locks around a path, in the sense of [`around`](Self::around), other than these.
    pub(super) fn are_others(&self, path: &[u8], than: &[String]) -> bool {
        self.held().iter().any(|one| concerns(one, path) && !than.contains(&one.lock.token))
    }

    /// Ends the locks in `before` that are on a path or below it, after the resource at that path was removed.
    pub(super) fn removed(&self, path: &[u8], before: &[String]) {
        let path = trimmed(path);
        let ends = |one: &Held| {
            is_within(trimmed(one.lock.path.as_bytes()), path) && before.contains(&one.lock.token)
        };
        self.held().retain(|one| !ends(one));
    }

    /// A lock that prevents `principal` from changing the resource at a path, and those below it if `deep`.
    fn hindrance(
        &self,
        path: &DavPath,
        principal: Option<&str>,
        deep: bool,
        tokens: &[String],
    ) -> Option<DavLock> {
        let held = self.held();
        let path = path.as_bytes();
        let concerns = |lock: &&DavLock| covers(lock, path) || (deep && is_below(lock, path));
        let is_own =
            |lock: &DavLock| tokens.contains(&lock.token) && principal == lock.principal.as_deref();
        let locks = || held.iter().map(|one| &one.lock).filter(concerns);
        let holds_shared = locks().any(|lock| lock.shared && is_own(lock));
        let is_fine = |lock: &DavLock| is_own(lock) || lock.shared && holds_shared;
        locks().find(|lock| !is_fine(lock)).cloned()
    }

    /// The locks that have not expired.
    fn held(&self) -> MutexGuard<'_, Vec<Held>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if !held.is_empty() {
            let now = SystemTime::now();
            held.retain(|one| one.lock.timeout_at.is_none_or(|end| end > now));
        }
        held
    }
}

impl DavLockSystem for Locks {
    fn lock(
        &'_ self,
        path: &DavPath,
        principal: Option<&str>,
        owner: Option<&Element>,
        timeout: Option<Duration>,
        shared: bool,
        deep: bool,
    ) -> LsFuture<'_, Result<DavLock, DavLock>> {
        let timeout = bounded(timeout);
        let mut lock = DavLock {
            token: token(),
            path: Box::new(path.clone()),
            principal: principal.map(str::to_owned),
            owner: None,
            timeout_at: Some(SystemTime::now() + timeout),
            timeout: Some(timeout),
            shared,
            deep,
        };
        let mut held = self.held();
        let path = path.as_bytes();
        let concerned: Vec<&DavLock> = held
            .iter()
            .map(|one| &one.lock)
            .filter(|other| covers(other, path) || (deep && is_below(other, path)))
            .collect();
        let conflict = concerned.iter().find(|other| !(shared && other.shared));
        let outcome = match conflict {
            Some(other) => Err((*other).clone()),
            None if concerned.len() >= limits::LOCKS_TOGETHER || held.len() >= limits::LOCKS => {
                Err(lock)
            }
            None => {
                let text = owner.map(written).unwrap_or_default().into_boxed_str();
                held.push(Held { lock: lock.clone(), owner: text });
                lock.owner = owner.map(|owner| Box::new(owner.clone()));
                Ok(lock)
            }
        };
        Box::pin(ready(outcome))
    }

    fn unlock(&'_ self, path: &DavPath, token: &str) -> LsFuture<'_, Result<(), ()>> {
        let mut held = self.held();
        let found = held.iter().position(|one| is_named(&one.lock, path, token));
        let outcome = found.map(|at| drop(held.swap_remove(at))).ok_or(());
        Box::pin(ready(outcome))
    }

    fn refresh(
        &'_ self,
        path: &DavPath,
        token: &str,
        timeout: Option<Duration>,
    ) -> LsFuture<'_, Result<DavLock, ()>> {
        let mut held = self.held();
        let found = held.iter_mut().find(|one| is_named(&one.lock, path, token));
        let outcome = found.map(|Held { lock, owner }| {
            let timeout = bounded(timeout);
            lock.timeout = Some(timeout);
            lock.timeout_at = Some(SystemTime::now() + timeout);
            // The text was written by the same library. Without an owner it is empty, and parsing returns an error.
            let owner = Element::parse(owner.as_bytes()).ok().map(Box::new);
            DavLock { owner, ..lock.clone() }
        });
        Box::pin(ready(outcome.ok_or(())))
    }

    /// With `ignore_principal`, which is set only for the evaluation of the `If` header, checks whether any token is
    /// that of a lock that covers the path and has not expired.
    fn check(
        &'_ self,
        path: &DavPath,
        principal: Option<&str>,
        ignore_principal: bool,
        deep: bool,
        submitted_tokens: &[String],
    ) -> LsFuture<'_, Result<(), DavLock>> {
        let outcome = if ignore_principal {
            let held = self.held();
            let named =
                |one: &Held| submitted_tokens.iter().any(|token| is_named(&one.lock, path, token));
            held.iter().any(named).then_some(()).ok_or_else(|| no_lock(path))
        } else {
            self.hindrance(path, principal, deep, submitted_tokens).map_or(Ok(()), Err)
        };
        Box::pin(ready(outcome))
    }

    fn discover(&'_ self, path: &DavPath) -> LsFuture<'_, Vec<DavLock>> {
        let held = self.held();
        let locks = held.iter().map(|one| &one.lock);
        Box::pin(ready(locks.filter(|lock| covers(lock, path.as_bytes())).cloned().collect()))
    }

    /// Does nothing. `dav-server` calls this after DELETE and MOVE, but also before it replaces a resource by
    /// COPY or MOVE, which may fail; the handler calls [`removed`](Locks::removed) once they have succeeded.
    fn delete(&'_ self, _: &DavPath) -> LsFuture<'_, Result<(), ()>> {
        Box::pin(ready(Ok(())))
    }
}

/// Whether a lock is on a path, or deep on a directory above it.
fn covers(lock: &DavLock, path: &[u8]) -> bool {
    let (locked, path) = (trimmed(lock.path.as_bytes()), trimmed(path));
    locked == path || (lock.deep && is_within(path, locked))
}

/// Whether a lock is on a path, on something below it, or deep on a directory above it.
fn concerns(one: &Held, path: &[u8]) -> bool {
    covers(&one.lock, path) || is_below(&one.lock, path)
}

/// Whether a lock has this token and covers the path.
fn is_named(lock: &DavLock, path: &DavPath, token: &str) -> bool {
    lock.token == token && covers(lock, path.as_bytes())
}

/// Whether a lock is on a directory or something in it.
fn is_below(lock: &DavLock, directory: &[u8]) -> bool {
    is_within(trimmed(lock.path.as_bytes()), trimmed(directory))
}

fn bounded(timeout: Option<Duration>) -> Duration {
    timeout.unwrap_or(limits::LOCK).min(limits::LOCK)
}

/// A new token that cannot be guessed (RFC 4918, section 6.5, requires a URI that is never reused).
fn token() -> String {
    let mut bytes = [0; 16];
    // Without random numbers the token can be guessed, but the lock still protects against mistakes.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = data_encoding::HEXLOWER.encode(&bytes);
    let (a, b, c, d, e) = (&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
    format!("urn:uuid:{a}-{b}-{c}-{d}-{e}")
}

/// A placeholder for "no lock".
fn no_lock(path: &DavPath) -> DavLock {
    DavLock {
        token: String::new(),
        path: Box::new(path.clone()),
        principal: None,
        owner: None,
        timeout_at: None,
        timeout: None,
        shared: false,
        deep: false,
    }
}

/// An `activelock` (RFC 4918, section 14.1).
fn described(Held { lock, owner }: &Held) -> String {
    let scope = if lock.shared { "shared" } else { "exclusive" };
    let depth = if lock.deep { "infinity" } else { "0" };
    let seconds = lock.timeout.unwrap_or(limits::LOCK).as_secs();
    let (token, root) = (escape(&lock.token), escape(lock.path.as_url_string()));
    format!(
        "<D:activelock><D:locktype><D:write/></D:locktype><D:lockscope><D:{scope}/></D:lockscope>\
         <D:depth>{depth}</D:depth>{owner}<D:timeout>Second-{seconds}</D:timeout>\
         <D:locktoken><D:href>{token}</D:href></D:locktoken>\
         <D:lockroot><D:href>{root}</D:href></D:lockroot></D:activelock>"
    )
}

/// The owner of a lock, as XML text.
fn written(owner: &Element) -> String {
    let mut written = Vec::new();
    let config = EmitterConfig::new().write_document_declaration(false);
    match owner.write_with_config(&mut written, config) {
        Ok(()) => String::from_utf8_lossy(&written).into_owned(),
        // On an error the owner is omitted, since it is only information for people.
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> DavPath {
        DavPath::new(text).unwrap()
    }

    async fn lock(locks: &Locks, at: &str, shared: bool, deep: bool) -> Result<DavLock, DavLock> {
        locks.lock(&path(at), Some("me"), None, None, shared, deep).await
    }

    #[tokio::test]
    async fn an_exclusive_lock_blocks_all_but_its_holder() {
        let locks = Locks::default();
        let held = lock(&locks, "/a/", false, true).await.unwrap();
        assert!(lock(&locks, "/a/b", true, false).await.is_err());
        assert!(lock(&locks, "/", false, true).await.is_err(), "it conflicts with the lock below");
        let own = [held.token.clone()];
        assert!(!locks.allows(&path("/a/b"), "me", &[]));
        assert!(locks.allows(&path("/a/b"), "me", &own));
        assert!(!locks.allows(&path("/a/b"), "you", &own));
        assert!(locks.allows(&path("/ab"), "you", &[]));
        assert!(locks.unlock(&path("/other"), &held.token).await.is_err());
        locks.unlock(&path("/a/b"), &held.token).await.unwrap();
        assert!(locks.allows(&path("/a"), "you", &[]));
    }

    #[tokio::test]
    async fn shared_locks_coexist_and_holding_one_is_enough() {
        let locks = Locks::default();
        let first = lock(&locks, "/a", true, false).await.unwrap();
        let second = lock(&locks, "/a", true, false).await.unwrap();
        assert_ne!(first.token, second.token);
        assert!(lock(&locks, "/a", false, false).await.is_err());
        assert!(locks.allows(&path("/a"), "me", &[second.token]));
        assert!(!locks.allows(&path("/a"), "me", &[]));
    }

    #[tokio::test]
    async fn a_refresh_returns_the_owner_and_locks_on_a_resource_are_limited() {
        let locks = Locks::default();
        let owner = Element::parse("<D:owner xmlns:D=\"DAV:\">me &amp; you</D:owner>".as_bytes());
        let owner = owner.unwrap();
        let held = locks.lock(&path("/a"), None, Some(&owner), None, true, false).await.unwrap();
        assert_eq!(held.owner.as_deref(), Some(&owner));
        let refreshed = locks.refresh(&path("/a"), &held.token, None).await.unwrap();
        assert_eq!(refreshed.owner.unwrap().get_text().unwrap(), "me & you");
        assert!(locks.described(b"/a").contains(">me &amp; you</D:owner>"));
        for _ in 1..limits::LOCKS_TOGETHER {
            lock(&locks, "/a", true, false).await.unwrap();
        }
        assert!(lock(&locks, "/a", true, false).await.is_err());
        assert!(lock(&locks, "/", true, true).await.is_err(), "it overlaps with all of them");
        lock(&locks, "/b", true, false).await.unwrap();
    }

    #[tokio::test]
    async fn an_expired_lock_blocks_nothing_and_cannot_be_refreshed() {
        let locks = Locks::default();
        let short = Some(Duration::from_millis(20));
        let held = locks.lock(&path("/a"), None, None, short, false, false).await.unwrap();
        tokio::time::sleep(Duration::from_millis(30)).await;
        assert!(locks.allows(&path("/a"), "me", &[]));
        assert!(locks.refresh(&path("/a"), &held.token, None).await.is_err());
        assert!(locks.check(&path("/a"), None, true, false, &[held.token]).await.is_err());
    }
}
