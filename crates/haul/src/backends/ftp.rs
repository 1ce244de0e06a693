//! Opens locations on FTP servers. All locations on one host share its lanes.

use std::sync::Arc;

use haul_ftp::{FtpHost, FtpOptions, FtpStorage, Kind, Nearest, TlsMode};
use haul_http::client::Proxies;
use haul_storage::{Error, ErrorKind, Location, Result, Scheme};

use super::opened::{OpenedHosts, Shared};
use super::opened_path::{OpenedPath, at_root, found_at, rel_path};
use super::state::journals;
use super::tls::tls_options;
use crate::args::RemoteArgs;
use crate::output::human;

/// The FTP hosts of a command, each opened once.
#[derive(Debug)]
pub(super) struct FtpHosts {
    options: FtpOptions,
    proxies: Proxies,
    opened: OpenedHosts<HostKey, FtpHost, FtpStorage>,
}

/// Identifies a host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct HostKey {
    user: Option<String>,
    host: String,
    port: Option<u16>,
    tls: bool,
}

impl FtpHosts {
    /// Hosts are opened with these options and proxies.
    pub(super) fn new(remote: &RemoteArgs, proxies: Proxies, shared: &Shared) -> Self {
        let options = FtpOptions {
            trust: tls_options(&remote.tls),
            waits: shared.waits.clone(),
            reach: remote.network.reach(),
            ..FtpOptions::default()
        };
        Self { options, proxies, opened: OpenedHosts::new(shared) }
    }

    /// Sets the command that prints the password of a host.
    pub(super) fn password_command(&self, location: &Location, command: &str) {
        if let Ok((key, _)) = parts(location) {
            self.opened.password_command(key, command);
        }
    }

    /// Opens an existing location.
    pub(super) async fn existing(&self, location: &Location) -> Result<OpenedPath> {
        let (key, path) = parts(location)?;
        let host = self.host(&key, location)?;
        let resolved = host.resolve(path).await?;
        let kind = resolved.kind.map(|kind| kind == Kind::Directory);
        let (root, name, is_directory) = found_at(location, &resolved.path, kind)?;
        let storage = self.storage(&key, &host, location, root).await?;
        Ok(OpenedPath { storage, path: name, is_directory, exists: true, local: None })
    }

    /// Opens a destination, which need not exist.
    pub(super) async fn destination(&self, location: &Location) -> Result<OpenedPath> {
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
        Ok(OpenedPath { storage, path, is_directory: rest.is_empty(), exists, local: None })
    }

    fn host(&self, key: &HostKey, location: &Location) -> Result<Arc<FtpHost>> {
        let shared = &self.opened.shared;
        self.opened.host(key, |password_command| {
            if self.options.trust.insecure {
                self.opened.warn_insecure(&format!("ftp://{}", key.host));
            }
            let mut options = self.options.clone();
            options.password = shared.password(location, password_command)?;
            options.user.clone_from(&key.user);
            options.tls = if key.tls { TlsMode::Always } else { TlsMode::Auto };
            let port = key.port.unwrap_or(options.tls.default_port());
            options.proxy = self.proxies.of_ftp(&key.host, port)?;
            let (terminal, runtime) = (shared.terminal(), shared.runtime()?);
            let host = FtpHost::new(key.host.clone(), key.port, options, terminal, runtime);
            host.expect(shared.lanes);
            let (name, printer) = (host.name(), shared.printer.clone());
            host.warn_through(move |message| printer.warning(&name, message));
            Ok(host)
        })
    }

    async fn storage(
        &self,
        key: &HostKey,
        host: &Arc<FtpHost>,
        location: &Location,
        root: &[u8],
    ) -> Result<Arc<FtpStorage>> {
        let at = at_root(location, root);
        let open = FtpStorage::open(Arc::clone(host), at, root.to_owned().into(), journals());
        let storage = self.opened.storage(key, root, open).await?;
        self.opened.introduce(key, || human::reached(&host.name(), &host.link()));
        Ok(storage)
    }
}

fn parts(location: &Location) -> Result<(HostKey, &[u8])> {
    // `Remotes` passes only locations on FTP servers.
    let Location::Remote { scheme, user, host, port, path, .. } = location else {
        return Err(Error::new(ErrorKind::Unsupported, "open").at(location));
    };
    let tls = *scheme == Scheme::Ftps;
    Ok((HostKey { user: user.clone(), host: host.clone(), port: *port, tls }, path))
}
