//! Places on FTP servers. One host is one set of lanes, however many locations are on it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haul_ftp::{FtpHost, FtpOptions, FtpStorage, Kind, Nearest, TlsMode};
use haul_http::client::Proxies;
use haul_net::{PasswordSource, Waits};
use haul_storage::{Error, ErrorKind, Location, RelPath, Result, Scheme};

use super::place::{Place, at_root, rel_path, split};
use super::secrets::Secrets;
use super::state::journals;
use super::threads::LaneThreads;
use super::tls::{INSECURE, tls_options};
use crate::args::RemoteArgs;
use crate::output::{Printer, human};
use crate::terminal::Terminal;

/// Opens hosts, each once.
#[derive(Debug)]
pub(super) struct FtpPlaces {
    options: FtpOptions,
    proxies: Proxies,
    terminal: Terminal,
    printer: Printer,
    secrets: Arc<Secrets>,
    /// Lanes that a transfer will want over a long path; 0 for what moves little.
    lanes: usize,
    threads: Arc<LaneThreads>,
    opened: Mutex<Opened>,
}

#[derive(Debug, Default)]
struct Opened {
    hosts: HashMap<HostKey, Arc<FtpHost>>,
    password_commands: HashMap<HostKey, String>,
    storages: HashMap<(HostKey, Vec<u8>), Arc<FtpStorage>>,
    warned: bool,
    /// Of which it was said how they were reached.
    introduced: HashSet<HostKey>,
}

/// What makes one host different from another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct HostKey {
    user: Option<String>,
    host: String,
    port: Option<u16>,
    tls: bool,
}

impl FtpPlaces {
    /// Hosts as the options say, and the environment.
    pub(super) fn new(
        remote: &RemoteArgs,
        proxies: Proxies,
        printer: &Printer,
        waits: &Waits,
        secrets: &Arc<Secrets>,
        lanes: usize,
        threads: &Arc<LaneThreads>,
    ) -> Self {
        let options = FtpOptions {
            trust: tls_options(&remote.tls),
            waits: waits.clone(),
            reach: remote.network.reach(),
            ..FtpOptions::default()
        };
        let terminal = Terminal { quiet: printer.is_quiet() };
        let (printer, opened) = (printer.clone(), Mutex::default());
        let (secrets, threads) = (Arc::clone(secrets), Arc::clone(threads));
        Self { options, proxies, terminal, printer, secrets, lanes, threads, opened }
    }

    /// Remembers what prints the password of a host.
    pub(super) fn password_command(&self, location: &Location, command: &str) {
        if let Ok((key, _)) = parts(location) {
            self.lock().password_commands.insert(key, command.to_owned());
        }
    }

    /// Opens what is there.
    pub(super) async fn existing(&self, location: &Location) -> Result<Place> {
        let (key, path) = parts(location)?;
        let host = self.host(&key, location)?;
        let resolved = host.resolve(path).await?;
        let Some(kind) = resolved.kind else {
            return Err(Error::new(ErrorKind::NotFound, "open").at(location));
        };
        let is_directory = kind == Kind::Directory;
        if !is_directory && location.has_trailing_slash() {
            return Err(Error::new(ErrorKind::NotADirectory, "open").at(location));
        }
        let (root, name) = if is_directory {
            (&resolved.path[..], RelPath::root())
        } else {
            let (root, name) = split(&resolved.path);
            (root, rel_path(location, &[name])?)
        };
        let storage = self.storage(&key, &host, location, root).await?;
        Ok(Place { storage, path: name, is_directory, exists: true, local: None })
    }

    /// Opens a place to write to, which need not exist.
    pub(super) async fn destination(&self, location: &Location) -> Result<Place> {
        let (key, path) = parts(location)?;
        let host = self.host(&key, location)?;
        let Nearest { directory, rest, kind } = host.nearest(path).await?;
        if kind == Some(Kind::File) && location.has_trailing_slash() {
            return Err(Error::new(ErrorKind::NotADirectory, "open").at(location));
        }
        if kind == Some(Kind::Other) {
            return Err(Error::new(ErrorKind::AlreadyExists, "replace")
                .at(location)
                .because("it is neither a file nor a directory"));
        }
        let names: Vec<&[u8]> = rest.iter().map(|name| &name[..]).collect();
        let path = rel_path(location, &names)?;
        let storage = self.storage(&key, &host, location, &directory).await?;
        let exists = kind.is_some() || rest.is_empty();
        Ok(Place { storage, path, is_directory: rest.is_empty(), exists, local: None })
    }

    fn host(&self, key: &HostKey, location: &Location) -> Result<Arc<FtpHost>> {
        let mut opened = self.lock();
        if let Some(host) = opened.hosts.get(key) {
            return Ok(Arc::clone(host));
        }
        if self.options.trust.insecure && !std::mem::replace(&mut opened.warned, true) {
            self.printer.warning(&format!("ftp://{}", key.host), INSECURE);
        }
        let mut options = self.options.clone();
        options.password = self.secrets.password(location)?;
        options.user.clone_from(&key.user);
        options.tls = if key.tls { TlsMode::Always } else { TlsMode::Auto };
        let port = key.port.unwrap_or(options.tls.default_port());
        options.proxy = self.proxies.of_ftp(&key.host, port)?;
        if options.password.is_none()
            && let Some(command) = opened.password_commands.get(key)
        {
            options.password = Some(PasswordSource::Command(command.clone()));
        }
        let terminal = Arc::new(self.terminal);
        let threads = self.threads.handle()?;
        let host = FtpHost::new(key.host.clone(), key.port, options, terminal, threads);
        host.expect(self.lanes);
        opened.hosts.insert(key.clone(), Arc::clone(&host));
        Ok(host)
    }

    async fn storage(
        &self,
        key: &HostKey,
        host: &Arc<FtpHost>,
        location: &Location,
        root: &[u8],
    ) -> Result<Arc<FtpStorage>> {
        let storage_key = (key.clone(), root.to_owned());
        if let Some(storage) = self.lock().storages.get(&storage_key) {
            return Ok(Arc::clone(storage));
        }
        let at = at_root(location, root);
        let root = bytes::Bytes::copy_from_slice(root);
        let storage = FtpStorage::open(Arc::clone(host), at, root, journals()).await?;
        let first = {
            let mut opened = self.lock();
            opened.storages.insert(storage_key, Arc::clone(&storage));
            opened.introduced.insert(key.clone())
        };
        if first && self.printer.is_verbose() && !self.printer.is_json() {
            self.printer.note(human::reached(&host.name(), &host.link()));
        }
        Ok(storage)
    }

    fn lock(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn parts(location: &Location) -> Result<(HostKey, &[u8])> {
    // `Remotes` lets nothing else through.
    let Location::Remote { scheme, user, host, port, path, .. } = location else {
        return Err(Error::new(ErrorKind::Unsupported, "open").at(location));
    };
    let tls = *scheme == Scheme::Ftps;
    Ok((HostKey { user: user.clone(), host: host.clone(), port: *port, tls }, path))
}
