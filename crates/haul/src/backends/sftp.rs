//! Places on SFTP servers. One host is one set of lanes, however many locations are on it.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haul_net::Waits;
use haul_sftp::codec::FileKind;
use haul_sftp::ssh::{ConfigFile, PasswordSource, Pins, Setting, SshHost, SshOptions, describe};
use haul_sftp::{Nearest, SftpHost, SftpStorage, SshDial};
use haul_storage::{Error, ErrorKind, Location, RelPath, Result, Storage};

use super::place::{Place, at_root, rel_path, split};
use super::secrets::Secrets;
use super::state::{journals, state};
use super::threads::LaneThreads;
use crate::args::RemoteArgs;
use crate::output::{Printer, human};
use crate::terminal::Terminal;

/// Opens hosts, each once.
#[derive(Debug)]
pub(super) struct SftpPlaces {
    options: SshOptions,
    port: Option<u16>,
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
    hosts: HashMap<HostKey, Arc<SftpHost>>,
    password_commands: HashMap<HostKey, String>,
    storages: HashMap<(HostKey, Vec<u8>), Arc<SftpStorage>>,
    /// Of which it was said how they were reached.
    introduced: HashSet<HostKey>,
}

/// What makes one host different from another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct HostKey {
    user: Option<String>,
    host: String,
    port: Option<u16>,
}

impl SftpPlaces {
    /// Hosts as the options say, and the environment.
    pub(super) fn new(
        remote: &RemoteArgs,
        printer: &Printer,
        waits: &Waits,
        secrets: &Arc<Secrets>,
        lanes: usize,
        threads: &Arc<LaneThreads>,
    ) -> Self {
        let options = options_of(remote, waits);
        let ssh = &remote.ssh;
        let terminal = Terminal { quiet: printer.is_quiet() };
        let (printer, opened) = (printer.clone(), Mutex::default());
        let (secrets, threads) = (Arc::clone(secrets), Arc::clone(threads));
        Self { options, port: ssh.port, terminal, printer, secrets, lanes, threads, opened }
    }

    /// Remembers what prints the password of a host.
    pub(super) fn password_command(&self, location: &Location, command: &str) {
        if let Ok((key, _)) = self.parts(location) {
            self.lock().password_commands.insert(key, command.to_owned());
        }
    }

    /// Opens what is there; links in the location are followed.
    pub(super) async fn existing(&self, location: &Location) -> Result<Place> {
        let (key, path) = self.parts(location)?;
        let host = self.host(&key, location)?;
        let resolved = host.resolve(path).await?;
        let Some(kind) = resolved.kind else {
            return Err(Error::new(ErrorKind::NotFound, "open").at(location));
        };
        let is_directory = kind == FileKind::Directory;
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

    /// Opens a place to write to, which need not exist. `name` is that of the only source.
    pub(super) async fn destination(
        &self,
        location: &Location,
        name: Option<&[u8]>,
    ) -> Result<Place> {
        let (key, path) = self.parts(location)?;
        let host = self.host(&key, location)?;
        let Nearest { directory, rest, kind, exists } = host.nearest(path, name).await?;
        if exists && !rest.is_empty() && location.has_trailing_slash() {
            return Err(Error::new(ErrorKind::NotADirectory, "open").at(location));
        }
        if kind.is_some_and(|kind| !matches!(kind, FileKind::File | FileKind::Directory)) {
            return Err(Error::new(ErrorKind::AlreadyExists, "replace")
                .at(location)
                .because("it is a device, a pipe or a socket"));
        }
        let names: Vec<&[u8]> = rest.iter().map(|name| &name[..]).collect();
        let path = rel_path(location, &names)?;
        let storage = self.storage(&key, &host, location, &directory).await?;
        Ok(Place {
            storage,
            path,
            is_directory: rest.is_empty(),
            exists: exists || rest.is_empty(),
            local: None,
        })
    }

    fn host(&self, key: &HostKey, location: &Location) -> Result<Arc<SftpHost>> {
        let mut opened = self.lock();
        if let Some(host) = opened.hosts.get(key) {
            return Ok(Arc::clone(host));
        }
        for identity in &self.options.identities {
            fs::metadata(identity).map_err(|error| {
                Error::from_io("read the key", error)
                    .at(identity.display())
                    .hinting("-i names a private key; leave it out to use the keys of ssh")
            })?;
        }
        let runtime = self.threads.handle()?;
        let mut options = self.options.clone();
        options.password = self.secrets.password(location)?;
        if options.password.is_none()
            && let Some(command) = opened.password_commands.get(key)
        {
            options.password = Some(PasswordSource::Command(command.clone()));
        }
        let terminal = Arc::new(self.terminal);
        let user = key.user.as_deref();
        let ssh = SshHost::resolve(user, &key.host, key.port, &options, terminal)?;
        let dial = SshDial::new(Arc::new(ssh));
        let host = SftpHost::new(Arc::new(dial), runtime);
        host.expect(self.lanes);
        if let Some(places) = state("servers") {
            host.remember_in(&places);
        }
        let (name, printer) = (host.name(), self.printer.clone());
        host.warn_through(Box::new(move |message| printer.warning(&name, message)));
        opened.hosts.insert(key.clone(), Arc::clone(&host));
        Ok(host)
    }

    async fn storage(
        &self,
        key: &HostKey,
        host: &Arc<SftpHost>,
        location: &Location,
        root: &[u8],
    ) -> Result<Arc<dyn Storage>> {
        let storage_key = (key.clone(), root.to_owned());
        if let Some(storage) = self.lock().storages.get(&storage_key) {
            return Ok(Arc::clone(storage) as _);
        }
        let at = at_root(location, root);
        let root = bytes::Bytes::copy_from_slice(root);
        let storage = SftpStorage::open(Arc::clone(host), at, root, journals()).await?;
        let first = {
            let mut opened = self.lock();
            opened.storages.insert(storage_key, Arc::clone(&storage));
            opened.introduced.insert(key.clone())
        };
        if first && self.printer.is_verbose() && !self.printer.is_json() {
            let line = human::connected(&host.name(), &host.link(), host.round_trips());
            self.printer.note(line);
        }
        Ok(storage)
    }

    fn parts<'a>(&self, location: &'a Location) -> Result<(HostKey, &'a [u8])> {
        match location {
            Location::Remote { user, host, port, path, .. } => {
                let key =
                    HostKey { user: user.clone(), host: host.clone(), port: port.or(self.port) };
                Ok((key, path))
            }
            // `locate` lets nothing else through.
            _ => Err(Error::new(ErrorKind::Unsupported, "open").at(location)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the command line says about SSH.
fn options_of(remote: &RemoteArgs, waits: &Waits) -> SshOptions {
    let ssh = &remote.ssh;
    // The first of two options of a name decides.
    let mut options = ssh.options.clone();
    options.extend(remote.network.ssh_options());
    SshOptions {
        identities: ssh.identities.clone(),
        jump: ssh.jump.clone(),
        config: ssh.config_file.as_deref().map(ConfigFile::from).unwrap_or_default(),
        options,
        compress: ssh.compress,
        accept_new_host_keys: ssh.accept_new_host_keys,
        password: None,
        memory: state("hosts"),
        pins: Pins::default(),
        waits: waits.clone(),
    }
}

/// What is known about a host before it is dialled; `port` is that of the location, or of `-P`.
pub(crate) fn settings_of(
    user: Option<&str>,
    host: &str,
    port: Option<u16>,
    remote: &RemoteArgs,
) -> Result<Vec<Setting>> {
    describe(user, host, port, &options_of(remote, &Waits::default()))
}
