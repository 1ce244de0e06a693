//! Pins each host to one key: the first that was accepted holds for the rest of the run.
//!
//! A run makes many connections to a host. Without pins each of them could reach another machine whose key
//! happens to be accepted too: because keys of new hosts are accepted without a prompt and the known_hosts file
//! cannot hold them (`/dev/null`), or because the name has several known keys. The second machine would get
//! the password, and parts of one file would go to both.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The pins of a run. Clones share them.
#[derive(Clone, Default)]
pub struct Pins(Arc<Mutex<HashMap<Endpoint, Arc<Pin>>>>);

/// What identifies a host: the name that is dialled, the route to it (the same address behind two jump hosts
/// is two hosts), and the name that its key is looked up by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Endpoint {
    host_name: String,
    port: u16,
    alias: Option<String>,
    route: String,
}

/// The key of one host, once one was accepted.
#[derive(Debug, Default)]
pub struct Pin(OnceLock<Vec<u8>>);

impl Pins {
    /// The pin of the host that is dialled by this name and port, whose key is looked up by the alias;
    /// `route` describes how it is reached.
    pub(super) fn of(
        &self,
        host_name: &str,
        port: u16,
        alias: Option<&str>,
        route: String,
    ) -> Arc<Pin> {
        let endpoint = Endpoint {
            host_name: host_name.to_ascii_lowercase(),
            port,
            alias: alias.map(str::to_ascii_lowercase),
            route,
        };
        let mut pins = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(pins.entry(endpoint).or_default())
    }
}

impl Pin {
    /// The key, if one was accepted.
    pub fn key(&self) -> Option<&[u8]> {
        self.0.get().map(Vec::as_slice)
    }

    /// Pins the host to an accepted key. `false`: it is pinned to another one.
    pub fn hold(&self, key: &[u8]) -> bool {
        self.0.get_or_init(|| key.to_vec()) == key
    }
}

impl fmt::Debug for Pins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pins")
    }
}
