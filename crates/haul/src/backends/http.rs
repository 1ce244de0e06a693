//! Opens locations on HTTP and WebDAV servers. All locations on a host (with the same user) share one
//! pool of lanes.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{env, fs, io};

use haul_http::client::{
    Found, Headers, HttpFile, HttpHost, HttpOptions, HttpStorage, Nearest, Proxies,
};
use haul_http::parse::href::{decode, encode_path};
use haul_http::parse::netrc::Netrc;
use haul_http::parse::{Origin, Url, WebScheme};
use haul_storage::{Error, ErrorKind, Location, ReadAt as _, RelPath, Result, Scheme};
use tokio::sync::Semaphore;

use super::headers::CookieFiles;
use super::opened::{OpenedHosts, Shared};
use super::opened_path::{OpenedPath, at_root, rel_path};
use super::state::journals;
use super::tls::tls_options;
use crate::args::RemoteArgs;
use crate::output::{Printer, human};

/// Maximum total bytes of prefetched beginnings of files that were opened but not read yet.
const BEGINNINGS_MOST: usize = 32 << 20;
/// Maximum number of these files that may occupy a lane with an open response.
const WAITING_MOST: usize = 16;

/// The hosts of a command, each opened once.
#[derive(Debug)]
pub(super) struct HttpHosts {
    options: HttpOptions,
    cookies: CookieFiles,
    opened: OpenedHosts<HostKey, HttpHost, HttpStorage>,
    state: Mutex<State>,
    /// One permit for each byte of further prefetched beginnings.
    beginnings: Arc<Semaphore>,
    /// One permit for each further file that may occupy a lane with an open response.
    waiting: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct State {
    /// Header fields from the configuration.
    headers: HashMap<HostKey, Headers>,
    /// The parsed netrc, or `Some(None)` if none can be used; `None` before the first look-up.
    netrc: Option<Option<Arc<Netrc>>>,
}

/// Key of a host's connections.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct HostKey {
    user: Option<String>,
    origin: Origin,
}

impl HttpHosts {
    /// No hosts yet; the settings come from the options and the environment.
    pub(super) fn new(
        remote: &RemoteArgs,
        (headers, cookies, proxies): (Headers, CookieFiles, Proxies),
        shared: &Shared,
    ) -> Self {
        let options = HttpOptions {
            tls: tls_options(&remote.tls),
            headers,
            cookies: cookies.loaded().to_vec(),
            takes_cookies: cookies.is_saving(),
            proxies,
            waits: shared.waits.clone(),
            reach: remote.network.reach(),
            ..HttpOptions::default()
        };
        Self {
            options,
            cookies,
            opened: OpenedHosts::new(shared),
            state: Mutex::default(),
            beginnings: Arc::new(Semaphore::new(BEGINNINGS_MOST)),
            waiting: Arc::new(Semaphore::new(WAITING_MOST)),
        }
    }

    /// Sets the command that prints the password for a host.
    pub(super) fn password_command(&self, location: &Location, command: &str) {
        // A location without a host fails when it is opened.
        if let Ok((key, _)) = parts(location) {
            self.opened.password_command(key, command);
        }
    }

    /// Sets additional header fields for a host.
    pub(super) fn headers(&self, location: &Location, headers: &Headers) {
        if let Ok((key, _)) = parts(location) {
            self.lock().headers.insert(key, headers.clone());
        }
    }

    /// Opens an existing file or directory.
    pub(super) async fn existing(&self, location: &Location) -> Result<OpenedPath> {
        let (key, url) = parts(location)?;
        let host = self.host(&key, location)?;
        let dav = is_dav(location);
        let found = if dav { host.find_dav(&url).await? } else { host.find(&url).await? };
        self.introduce(&key, &host);
        match found {
            Found::File(_) if dav && location.has_trailing_slash() => {
                Err(Error::new(ErrorKind::NotADirectory, "open").at(location))
            }
            Found::File(file) => self.file(&host, location, url, *file, dav).await,
            Found::Directory(root) => {
                let storage = match dav {
                    true => self.dav(&key, &host, location, root).await?,
                    false => HttpStorage::open_web_directory(host, location.clone(), root).await,
                };
                let path = RelPath::root();
                Ok(OpenedPath { storage, path, is_directory: true, exists: true, local: None })
            }
        }
    }

    async fn file(
        &self,
        host: &Arc<HttpHost>,
        location: &Location,
        url: Url,
        file: HttpFile,
        dav: bool,
    ) -> Result<OpenedPath> {
        let (directory, _) = split(url.path());
        let root = url.with_path(directory);
        let suggested = file.facts().suggested_name.clone();
        let suggested = suggested.filter(|_| url.query().is_some() || directory == url.path());
        let name = match (&suggested, location.base_name()) {
            (Some(name), _) => name.as_bytes(),
            (None, b"") => b"index.html",
            (None, name) => name,
        };
        let derived = root.with_path(&format!("{directory}{}", encode_path(name)));
        let path = rel_path(location, &[name])?;
        let at = at_root(location, parent(location.path_bytes()));
        let storage = match dav {
            true => HttpStorage::open_dav(Arc::clone(host), at, root, journals()).await?,
            false => HttpStorage::open_web(Arc::clone(host), at, root, file.is_ranged()),
        };
        self.bound_beginnings(&file);
        let given = (file.found() != url || derived != url || suggested.is_some()).then_some(url);
        storage.put(path.clone(), file, given);
        Ok(OpenedPath { storage, path, is_directory: false, exists: true, local: None })
    }

    /// Bounds prefetched beginnings: thousands of files may be opened before the first is read.
    fn bound_beginnings(&self, file: &HttpFile) {
        let bytes = u32::try_from(file.beginning_bytes()).unwrap_or(u32::MAX);
        // A file without range requests occupies a lane with its response until it is read.
        let waits = !file.is_ranged() && file.identity().size > file.beginning_bytes();
        let room = Arc::clone(&self.beginnings).try_acquire_many_owned(bytes);
        let lane = Arc::clone(&self.waiting).try_acquire_many_owned(u32::from(waits));
        match (room, lane) {
            (Ok(room), Ok(lane)) => file.hold_permits(vec![room, lane]),
            _ => file.forget_beginning(),
        }
    }

    /// Opens a destination, which need not exist.
    pub(super) async fn destination(&self, location: &Location) -> Result<OpenedPath> {
        let (key, url) = parts(location)?;
        if url.query().is_some() {
            let error = Error::new(ErrorKind::InvalidInput, "write").at(location);
            return Err(error.because("cannot write to a URL with a query"));
        }
        let host = self.host(&key, location)?;
        let Nearest { directory, rest, is_file } = host.nearest(&url).await?;
        self.introduce(&key, &host);
        if is_file && location.has_trailing_slash() {
            return Err(Error::new(ErrorKind::NotADirectory, "open").at(location));
        }
        let names: Vec<&[u8]> = rest.iter().map(|name| &name[..]).collect();
        let path = rel_path(location, &names)?;
        let storage = self.dav(&key, &host, location, directory).await?;
        if !rest.is_empty() {
            storage.set_url(path.clone(), &url);
        }
        Ok(OpenedPath {
            storage,
            path,
            is_directory: rest.is_empty(),
            exists: is_file || rest.is_empty(),
            local: None,
        })
    }

    /// The storage for a directory of a WebDAV server, shared by further locations there.
    async fn dav(
        &self,
        key: &HostKey,
        host: &Arc<HttpHost>,
        location: &Location,
        root: Url,
    ) -> Result<Arc<HttpStorage>> {
        let decoded = decode(root.path().as_bytes()).unwrap_or_default();
        let (at, path) = (at_root(location, &decoded), root.path().to_owned());
        let open = HttpStorage::open_dav(Arc::clone(host), at, root, journals());
        self.opened.storage(key, path.as_bytes(), open).await
    }

    fn host(&self, key: &HostKey, location: &Location) -> Result<Arc<HttpHost>> {
        let shared = &self.opened.shared;
        self.opened.host(key, |password_command| {
            if self.options.tls.insecure {
                self.opened.warn_insecure(&location.to_string());
            }
            let mut options = self.options.clone();
            options.password = shared.password(location, password_command)?;
            options.token = shared.secrets.token(location)?;
            let mut state = self.lock();
            if let Some(headers) = state.headers.get(key) {
                options.headers = std::mem::take(&mut options.headers).or(headers);
            }
            let netrc = state.netrc.get_or_insert_with(|| netrc(&shared.printer).map(Arc::new));
            options.netrc.clone_from(netrc);
            let (terminal, runtime) = (shared.terminal(), shared.runtime()?);
            let (origin, user) = (key.origin.clone(), key.user.clone());
            let host = HttpHost::new(origin, user, &options, terminal, runtime);
            host.expect(shared.lanes);
            Ok(host)
        })
    }

    fn introduce(&self, key: &HostKey, host: &HttpHost) {
        self.opened.introduce(key, || human::reached(&host.name(), &host.link()));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Saves the cookies at the end of the command.
impl Drop for HttpHosts {
    fn drop(&mut self) {
        let cookies: Vec<_> = self.opened.all().iter().map(|host| host.cookies()).collect();
        if let Err((file, cause)) = self.cookies.save(&cookies) {
            let cause = format!("cannot save cookies ({cause})");
            self.opened.shared.printer.warning(&file.display().to_string(), &cause);
        }
    }
}

/// Path of the netrc file, if it has an entry for the host and user.
pub(crate) fn netrc_of(host: &str, user: Option<&str>, printer: &Printer) -> Option<PathBuf> {
    netrc(printer)?.lookup(host, user)?;
    netrc_file()
}

fn netrc_file() -> Option<PathBuf> {
    let named = env::var_os("NETRC").filter(|name| !name.is_empty()).map(PathBuf::from);
    named.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".netrc")))
}

/// Reads ~/.netrc, or the file that NETRC names. A file to which other users have any access is ignored with a
/// warning.
fn netrc(printer: &Printer) -> Option<Netrc> {
    let path = netrc_file()?;
    let at = path.display().to_string();
    let text = match fs::metadata(&path) {
        Ok(found) if found.permissions().mode() & 0o077 != 0 => {
            printer.warning(&at, "others have access to it, so it is not used: chmod 600 it");
            return None;
        }
        Ok(_) => fs::read(&path),
        Err(error) => Err(error),
    };
    match text {
        Ok(text) => Netrc::parse(&text)
            .map_err(|error| printer.warning(&at, &format!("not used: {error}")))
            .ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            printer.warning(&at, &format!("not used: {error}"));
            None
        }
    }
}

fn parts(location: &Location) -> Result<(HostKey, Url)> {
    // `Remotes` passes remote locations only.
    let Location::Remote { scheme, user, host, port, path, query, written } = location else {
        return Err(Error::new(ErrorKind::Unsupported, "open").at(location));
    };
    let scheme = match scheme {
        Scheme::Https | Scheme::Davs => WebScheme::Https,
        _ => WebScheme::Http,
    };
    let wrong = |error: haul_http::parse::HrefError| {
        Error::new(ErrorKind::InvalidInput, "open").at(location).because(error.to_string())
    };
    let origin = Origin::new(scheme, host, *port).map_err(wrong)?;
    let url = match written {
        Some(written) => Url::as_written(origin.clone(), written, query.as_deref()),
        None => Url::new(origin.clone(), path, query.as_deref()),
    };
    let url = url.map_err(wrong)?;
    Ok((HostKey { user: user.clone(), origin }, url))
}

fn is_dav(location: &Location) -> bool {
    matches!(location, Location::Remote { scheme: Scheme::Dav | Scheme::Davs, .. })
}

/// Splits an encoded path into the directory, with its slash, and the name.
fn split(path: &str) -> (&str, &str) {
    path.split_at(path.rfind('/').map_or(0, |slash| slash + 1))
}

/// The directory part of a decoded path, with its slash.
fn parent(path: &[u8]) -> &[u8] {
    &path[..path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1)]
}
