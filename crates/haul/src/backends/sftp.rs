//! Opens locations on SFTP servers. All locations on one host share its lanes.

use std::fs;
use std::sync::Arc;

use haul_net::Waits;
use haul_sftp::codec::FileKind;
use haul_sftp::ssh::{ConfigFile, Pins, Setting, SshHost, SshOptions, describe};
use haul_sftp::{Nearest, SftpHost, SftpStorage, SshDial};
use haul_storage::{Error, ErrorKind, Location, Result};

use super::opened::{OpenedHosts, Shared};
use super::opened_path::{OpenedPath, at_root, found_at, rel_path};
use super::state::{journals, state};
use crate::args::RemoteArgs;
use crate::output::human;

/// Opens each host once.
#[derive(Debug)]
pub(super) struct SftpHosts {
    options: SshOptions,
    port: Option<u16>,
    opened: OpenedHosts<HostKey, SftpHost, SftpStorage>,
}

/// Identifies a host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct HostKey {
    user: Option<String>,
    host: String,
    port: Option<u16>,
}

impl SftpHosts {
    /// Hosts are opened with these options.
    pub(super) fn new(remote: &RemoteArgs, shared: &Shared) -> Self {
        let options = options_of(remote, &shared.waits);
        Self { options, port: remote.ssh.port, opened: OpenedHosts::new(shared) }
    }

    /// Sets the command that prints the password of a host.
    pub(super) fn password_command(&self, location: &Location, command: &str) {
        if let Ok((key, _)) = self.parts(location) {
            self.opened.password_command(key, command);
        }
    }

    /// Opens an existing location; links in it are followed.
    pub(super) async fn existing(&self, location: &Location) -> Result<OpenedPath> {
        let (key, path) = self.parts(location)?;
        let host = self.host(&key, location)?;
        let resolved = host.resolve(path).await?;
        let kind = resolved.kind.map(|kind| kind == FileKind::Directory);
        let (root, name, is_directory) = found_at(location, &resolved.path, kind)?;
        let storage = self.storage(&key, &host, location, root).await?;
        Ok(OpenedPath { storage, path: name, is_directory, exists: true, local: None })
    }

    /// Opens a destination, which need not exist. `name` is that of the only source.
    pub(super) async fn destination(
        &self,
        location: &Location,
        name: Option<&[u8]>,
    ) -> Result<OpenedPath> {
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
        Ok(OpenedPath {
            storage,
            path,
            is_directory: rest.is_empty(),
            exists: exists || rest.is_empty(),
            local: None,
        })
    }

    fn host(&self, key: &HostKey, location: &Location) -> Result<Arc<SftpHost>> {
        let shared = &self.opened.shared;
        self.opened.host(key, |password_command| {
            for identity in &self.options.identities {
                fs::metadata(identity).map_err(|error| {
                    Error::from_io("read the key", error)
                        .at(identity.display())
                        .hinting("-i names a private key; leave it out to use the keys of ssh")
                })?;
            }
            let runtime = shared.runtime()?;
            let mut options = self.options.clone();
            options.password = shared.password(location, password_command)?;
            let user = key.user.as_deref();
            let ssh = SshHost::resolve(user, &key.host, key.port, &options, shared.terminal())?;
            let dial = SshDial::new(Arc::new(ssh));
            let host = SftpHost::new(Arc::new(dial), runtime);
            host.expect(shared.lanes);
            if let Some(directory) = state("servers") {
                host.remember_in(&directory);
            }
            let (name, printer) = (host.name(), shared.printer.clone());
            host.warn_through(Box::new(move |message| printer.warning(&name, message)));
            Ok(host)
        })
    }

    async fn storage(
        &self,
        key: &HostKey,
        host: &Arc<SftpHost>,
        location: &Location,
        root: &[u8],
    ) -> Result<Arc<SftpStorage>> {
        let at = at_root(location, root);
        let open = SftpStorage::open(Arc::clone(host), at, root.to_owned().into(), journals());
        let storage = self.opened.storage(key, root, open).await?;
        let reached = || human::connected(&host.name(), &host.link(), host.rtts());
        self.opened.introduce(key, reached);
        Ok(storage)
    }

    fn parts<'a>(&self, location: &'a Location) -> Result<(HostKey, &'a [u8])> {
        match location {
            Location::Remote { user, host, port, path, .. } => {
                let key =
                    HostKey { user: user.clone(), host: host.clone(), port: port.or(self.port) };
                Ok((key, path))
            }
            // `Remotes` passes only locations on SFTP servers.
            _ => Err(Error::new(ErrorKind::Unsupported, "open").at(location)),
        }
    }
}

/// The SSH options of the command line.
fn options_of(remote: &RemoteArgs, waits: &Waits) -> SshOptions {
    let ssh = &remote.ssh;
    // The first of several options with the same name wins.
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

/// The settings of a host that are known before connecting; `port` is that of the location, or of `-P`.
pub(crate) fn settings_of(
    user: Option<&str>,
    host: &str,
    port: Option<u16>,
    remote: &RemoteArgs,
) -> Result<Vec<Setting>> {
    describe(user, host, port, &options_of(remote, &Waits::default()))
}
