//! Sign-ins by redirect: a request is redirected to a server that signs it in and redirects it back. One request at a
//! time does this while the others wait: the cookies that it receives may spare them the sign-in.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::parse::Origin;

/// Sign-ins by redirect, current and past.
#[derive(Debug, Default)]
pub struct Walks {
    /// Held by the request that is being signed in.
    walking: tokio::sync::Mutex<()>,
    /// Number of completed sign-ins that set cookies.
    done: AtomicU64,
    /// Servers that sign in requests without setting cookies.
    without_cookies: Mutex<HashSet<Origin>>,
}

/// A sign-in by redirect in progress.
#[derive(Debug)]
pub struct Walk<'a> {
    /// The server that signs in.
    through: Origin,
    /// The cookie jar's change counter before it.
    changes: u64,
    _alone: tokio::sync::MutexGuard<'a, ()>,
}

impl Walk<'_> {
    /// Sets the cookie jar's change counter before the sign-in.
    #[must_use]
    pub fn from(self, changes: u64) -> Self {
        Self { changes, ..self }
    }
}

impl Walks {
    /// Number of completed sign-ins that set cookies.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Whether the server may set cookies that spare other requests the sign-in.
    pub fn may_set_cookies(&self, origin: &Origin) -> bool {
        !self.without_cookies().contains(origin)
    }

    /// Waits until no other sign-in is in progress, and begins one.
    pub async fn begin(&self, through: &Origin) -> Walk<'_> {
        let alone = self.walking.lock().await;
        Walk { through: through.clone(), changes: 0, _alone: alone }
    }

    /// Ends a sign-in; `changes` is the cookie jar's change counter now.
    pub fn ended(&self, walk: Walk<'_>, changes: u64) {
        if walk.changes == changes {
            self.without_cookies().insert(walk.through);
        } else {
            self.done.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn without_cookies(&self) -> MutexGuard<'_, HashSet<Origin>> {
        self.without_cookies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
