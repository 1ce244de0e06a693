//! Ways through servers that sign in who is redirected to them. One request at a time goes there; the others wait.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::parse::Origin;

/// Who is on such a way, and who was.
#[derive(Debug, Default)]
pub struct Walks {
    /// Held by who signs in at a server that was redirected to, so that the others need not.
    walking: tokio::sync::Mutex<()>,
    /// How often that was done.
    done: AtomicU64,
    /// Servers that sign in who is redirected to them, without cookies.
    without_cookies: Mutex<HashSet<Origin>>,
}

/// The way through a server that signs in.
#[derive(Debug)]
pub struct Walk<'a> {
    through: Origin,
    /// Changes of cookies before it.
    changes: u64,
    _alone: tokio::sync::MutexGuard<'a, ()>,
}

impl Walk<'_> {
    /// The same when so many cookies had changed before it.
    #[must_use]
    pub fn from(self, changes: u64) -> Self {
        Self { changes, ..self }
    }
}

impl Walks {
    /// How many have come to their end.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Whether the server may set cookies that spare others the way there.
    pub fn may_set_cookies(&self, origin: &Origin) -> bool {
        !self.without_cookies().contains(origin)
    }

    /// Waits until nobody else is on the way, and begins it.
    pub async fn begin(&self, through: &Origin) -> Walk<'_> {
        let alone = self.walking.lock().await;
        Walk { through: through.clone(), changes: 0, _alone: alone }
    }

    /// One has come to its end; so many cookies have changed by now.
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
