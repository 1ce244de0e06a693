//! The hosts that a command has opened. Each host is opened once, however many locations are on it, and further
//! locations in a directory share its storage. One table for each protocol; `K` identifies a host.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haul_net::{PasswordSource, Waits};
use haul_storage::{Location, Result};
use tokio::runtime::Handle;

use super::secrets::Secrets;
use super::threads::LaneThreads;
use super::tls::INSECURE;
use crate::output::Printer;
use crate::terminal::Terminal;

/// Shared by the hosts of all protocols.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) printer: Printer,
    pub(super) waits: Waits,
    pub(super) secrets: Arc<Secrets>,
    /// Lanes that a transfer will need over a long path; 0 for commands that move little data.
    pub(super) lanes: usize,
    pub(super) threads: Arc<LaneThreads>,
}

impl Shared {
    /// The terminal that prompts for passwords.
    pub(super) fn terminal(&self) -> Arc<Terminal> {
        Arc::new(Terminal { quiet: self.printer.is_quiet() })
    }

    /// The runtime of the lanes.
    pub(super) fn runtime(&self) -> Result<Handle> {
        self.threads.handle()
    }

    /// The password of a host: from the environment, else printed by `command`.
    ///
    /// # Errors
    /// It is ambiguous which host `HAUL_PASSWORD` is for.
    pub(super) fn password(
        &self,
        location: &Location,
        command: Option<String>,
    ) -> Result<Option<PasswordSource>> {
        let password = self.secrets.password(location)?;
        Ok(password.or_else(|| command.map(PasswordSource::Command)))
    }
}

/// The hosts of one protocol (`H`) and the directories on them (`S`).
#[derive(Debug)]
pub(super) struct OpenedHosts<K, H, S> {
    pub(super) shared: Shared,
    hosts: Mutex<HashMap<K, Known<H, S>>>,
    has_warned: AtomicBool,
}

#[derive(Debug)]
struct Known<H, S> {
    host: Option<Arc<H>>,
    password_command: Option<String>,
    /// By the path of their root on the server.
    storages: HashMap<Vec<u8>, Arc<S>>,
    /// Whether [`OpenedHosts::introduce`] was called for it.
    is_introduced: bool,
}

impl<H, S> Default for Known<H, S> {
    fn default() -> Self {
        let (host, password_command) = (None, None);
        Self { host, password_command, storages: HashMap::new(), is_introduced: false }
    }
}

impl<K: Clone + Eq + Hash, H, S> OpenedHosts<K, H, S> {
    /// No host yet.
    pub(super) fn new(shared: &Shared) -> Self {
        let (hosts, has_warned) = (Mutex::default(), AtomicBool::new(false));
        Self { shared: shared.clone(), hosts, has_warned }
    }

    /// Sets the command that prints the password of a host.
    pub(super) fn password_command(&self, key: K, command: &str) {
        self.lock().entry(key).or_default().password_command = Some(command.to_owned());
    }

    /// The host of `key`. `open` opens it on first use; its argument is the host's password command.
    pub(super) fn host(
        &self,
        key: &K,
        open: impl FnOnce(Option<String>) -> Result<Arc<H>>,
    ) -> Result<Arc<H>> {
        let mut hosts = self.lock();
        let known = hosts.entry(key.clone()).or_default();
        match &known.host {
            Some(host) => Ok(Arc::clone(host)),
            None => Ok(Arc::clone(known.host.insert(open(known.password_command.clone())?))),
        }
    }

    /// The host of `key`, if it is open.
    pub(super) fn known(&self, key: &K) -> Option<Arc<H>> {
        self.lock().get(key).and_then(|known| known.host.clone())
    }

    /// The storage of the directory `root` of a host; `open` opens it on first use. Tasks that need it at the same time
    /// may each open one.
    pub(super) async fn storage(
        &self,
        key: &K,
        root: &[u8],
        open: impl Future<Output = Result<Arc<S>>>,
    ) -> Result<Arc<S>> {
        let opened = self.lock().get(key).and_then(|known| known.storages.get(root).cloned());
        if let Some(storage) = opened {
            return Ok(storage);
        }
        let storage = open.await?;
        let mut hosts = self.lock();
        let known = hosts.entry(key.clone()).or_default();
        known.storages.insert(root.to_owned(), Arc::clone(&storage));
        Ok(storage)
    }

    /// Prints with `-v` how a host was reached, once.
    pub(super) fn introduce(&self, key: &K, reached: impl FnOnce() -> String) {
        let mut hosts = self.lock();
        let known = hosts.entry(key.clone()).or_default();
        let is_first = !std::mem::replace(&mut known.is_introduced, true);
        drop(hosts);
        let printer = &self.shared.printer;
        if is_first && printer.is_verbose() && !printer.is_json() {
            printer.note(reached());
        }
    }

    /// Warns that no server is verified, once for each protocol.
    pub(super) fn warn_insecure(&self, host: &str) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            self.shared.printer.warning(host, INSECURE);
        }
    }

    /// All open hosts.
    pub(super) fn all(&self) -> Vec<Arc<H>> {
        self.lock().values().filter_map(|known| known.host.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, Known<H, S>>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
