//! Opens storages for locations; no other module does. (`haul share` and the demo open the directories that they
//! serve.)
//!
//! Local storages are opened on canonical roots (no links, no `..`), so that the engine can see
//! when source and destination are the same or one is inside the other.

mod codes;
mod common;
mod expand;
mod ftp;
mod headers;
mod http;
mod mirrors;
mod opened;
mod opened_path;
mod peer;
mod remotes;
mod secrets;
mod sftp;
mod state;
mod threads;
mod tickets;
mod tls;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use futures_util::StreamExt as _;
use haul_engine::WindowProfile;
use haul_http::parse::href::encode_path;
use haul_local::{LocalOptions, LocalStorage, SplitMode, SplitStorage};
use haul_storage::{
    Entry, EntryKind, Error, ErrorKind, Location, RelPath, Result, Retry, Scheme, Storage, WorkPool,
};

pub(crate) use self::http::netrc_of;
pub(crate) use self::opened_path::OpenedPath;
use self::opened_path::invalid;
use self::peer::Discovery;
use self::remotes::Remotes;
pub(crate) use self::secrets::secret_of;
pub(crate) use self::sftp::settings_of;
use self::tickets::Tickets;
use crate::args::RemoteArgs;
use crate::config::{Config, Remote};
use crate::exit::Stop;
use crate::network_switch;
use crate::options::SplitArg;
use crate::output::Printer;
use crate::settings::Resolved;

/// Lanes that a large transfer will want over a long path by default.
pub(crate) const EXPECTED_LANES: usize = 48;
const MOST_LANES: usize = 64;

/// Lanes that a transfer with these settings will want over a long path.
fn expected_lanes(settings: &haul_engine::Settings) -> usize {
    let lanes = settings.lanes.fixed().unwrap_or(match settings.profile {
        WindowProfile::Safe => 4,
        WindowProfile::Default => EXPECTED_LANES,
        WindowProfile::Aggressive => MOST_LANES,
    });
    lanes.min(MOST_LANES)
}

/// Opens storages, each source directory once, and starts the threads that read and write them.
#[derive(Debug)]
pub(crate) struct Storages<'a> {
    config: &'a Config,
    block_size: u64,
    split: SplitArg,
    sources: Mutex<Sources>,
    remotes: Remotes,
    tickets: Tickets,
}

/// Shared by all sources: the files of one directory use one storage, and all directories use one
/// thread pool.
#[derive(Debug, Default)]
struct Sources {
    opened: HashMap<PathBuf, Arc<dyn Storage>>,
    pool: Option<WorkPool>,
}

impl<'a> Storages<'a> {
    /// Local storages use blocks of `block_size` bytes, and split long files as `split` specifies; on servers,
    /// only [`SplitArg::Join`] has an effect. `lanes` is how many lanes a transfer will want over a long
    /// path; 0 for commands that move little data.
    ///
    /// # Errors
    /// Invalid options about servers.
    pub(crate) fn new(
        config: &'a Config,
        block_size: u64,
        split: SplitArg,
        remote: &RemoteArgs,
        printer: &Printer,
        lanes: usize,
    ) -> Result<Self, Stop> {
        let bridge = remote.network.bridge.as_ref().or(config.bridge.as_ref());
        let discovery =
            Discovery { bridge, lan: network_switch::uses_lan(remote.network.no_lan, config) };
        let remotes = Remotes::new(remote, discovery, printer, lanes).map_err(Stop::Usage)?;
        let (sources, tickets) = (Mutex::default(), Tickets::new(printer));
        Ok(Self { config, block_size, split, sources, remotes, tickets })
    }

    /// For a transfer with these settings.
    ///
    /// # Errors
    /// As [`Storages::new`].
    pub(crate) fn for_transfer(
        config: &'a Config,
        Resolved { engine, split, .. }: &Resolved,
        remote: &RemoteArgs,
        printer: &Printer,
    ) -> Result<Self, Stop> {
        Self::new(config, engine.block_size, *split, remote, printer, expected_lanes(engine))
    }

    /// For commands that need names but no file contents.
    ///
    /// # Errors
    /// As [`Storages::new`].
    pub(crate) fn for_names(
        config: &'a Config,
        remote: &RemoteArgs,
        printer: &Printer,
    ) -> Result<Self, Stop> {
        let block_size = haul_engine::Settings::default().block_size;
        Self::new(config, block_size, SplitArg::Auto, remote, printer, 0)
    }

    /// Parses an argument: any form of [`Location`], a remote of the configuration, a [reference to a ticket](tickets)
    /// as in `@FILE`, or a spoken code.
    pub(crate) fn locate(&self, argument: &OsStr) -> Result<Location, Stop> {
        self.locate_one(argument, None, None)
    }

    /// As [`Storages::locate`]; a location on an SFTP server that has no port gets `port`.
    pub(crate) fn locate_at(&self, argument: &OsStr, port: Option<u16>) -> Result<Location, Stop> {
        self.locate_one(argument, None, port)
    }

    /// As [`Storages::locate`], for one of the arguments that a host list expands to. Each argument with a list has its
    /// own `list` number.
    pub(crate) fn locate_listed(&self, argument: &OsStr, list: usize) -> Result<Location, Stop> {
        self.locate_one(argument, Some(list), None)
    }

    fn locate_one(
        &self,
        argument: &OsStr,
        list: Option<usize>,
        sftp_port: Option<u16>,
    ) -> Result<Location, Stop> {
        let given = match self.tickets.at(argument)? {
            Some(location) => Some(location),
            None => Tickets::spoken(argument)?,
        };
        if let Some(location) = given {
            self.remotes.note(&location, None, list);
            return Ok(location);
        }
        let usage = |error: haul_storage::LocationError| Stop::Usage(error.to_string());
        let location = Location::parse(argument).map_err(usage)?;
        let location = match &location {
            Location::Named { name, path } => match self.config.remote.get(name) {
                Some(remote) => {
                    let location = with_port(below(remote, path), sftp_port);
                    self.remotes.note(&location, Some(name.as_str()), list);
                    if let Some(command) = &remote.password_command {
                        self.remotes.password_command(&location, command);
                    }
                    if let Some(headers) = &remote.headers {
                        let noted = self.remotes.headers(&location, headers);
                        noted.map_err(|cause| Stop::Usage(format!("[remote.{name}]: {cause}")))?;
                    }
                    location
                }
                None if name.len() == 1 && path.starts_with(b"\\") => {
                    return Err(Stop::Usage(format!(
                        "{}: this is a Windows path\n\
                         hint: write / for \\, and ./ before it for a local file of that name",
                        argument.display()
                    )));
                }
                None => match Tickets::named(name, path)? {
                    Some(peer) => peer,
                    None => location.as_ssh_host(),
                },
            },
            _ => location,
        };
        let location = with_port(location, sftp_port);
        self.remotes.note(&location, None, list);
        let protocol = match &location {
            Location::Local(_) | Location::Remote { .. } | Location::Peer { .. } => {
                return Ok(location);
            }
            Location::Named { .. } => "sftp",
        };
        let message = format!("{location}: {protocol} is not supported by this build");
        Err(Stop::Usage(message))
    }

    /// Opens an existing location; links in it are followed.
    pub(crate) async fn existing(&self, location: &Location) -> Result<OpenedPath> {
        match location {
            Location::Local(path) => self.local_existing(location, path).await,
            _ => {
                let opened = Box::pin(self.remotes.existing(location)).await;
                let opened = opened.map_err(|error| self.explain(error, location))?;
                if self.split == SplitArg::Join {
                    self.joined(opened, location).await
                } else {
                    Ok(opened)
                }
            }
        }
    }

    /// The location with its ticket in place of a spoken code, which is thereby used up.
    pub(crate) async fn with_ticket(&self, location: &Location) -> Result<Location> {
        Box::pin(self.remotes.with_ticket(location)).await
    }

    /// The name that a peer gave its share; `None` unless the location is behind a ticket and was opened.
    pub(crate) async fn share_name(&self, location: &Location) -> Option<String> {
        Box::pin(self.remotes.share_name(location)).await
    }

    /// Shows the folders of parts below a location on a server as files. If the location is such a folder itself,
    /// the storage has to begin above it.
    async fn joined(&self, mut opened: OpenedPath, location: &Location) -> Result<OpenedPath> {
        if !opened.is_directory {
            return Ok(opened);
        }
        if opened.path.is_root()
            && !location.has_trailing_slash()
            && let Some((above, name)) = location.split_name()
            && let Ok(above) = Box::pin(self.remotes.existing(&above)).await
            && let Ok(path) = above.path.join(&name)
        {
            opened = OpenedPath { path, ..above };
        }
        opened.storage = SplitStorage::new(opened.storage, SplitMode::Join);
        opened.is_directory =
            opened.path.is_root() || opened.storage.stat(&opened.path).await?.is_dir();
        Ok(opened)
    }

    /// Opens a destination, which need not exist. A link to a directory is followed; any other
    /// link will be replaced itself. `name` is that of the only source, which will probably be
    /// written there (a hint).
    pub(crate) async fn destination(
        &self,
        location: &Location,
        name: Option<&[u8]>,
    ) -> Result<OpenedPath> {
        match location {
            Location::Local(path) => self.local_destination(location, path).await,
            _ => {
                let opened = Box::pin(self.remotes.destination(location, name)).await;
                opened.map_err(|error| self.explain(error, location))
            }
        }
    }

    /// Opens the entry of a name without following a link, for commands that rename or remove it. A
    /// location without a name (the root of a server, `..`) opens as with [`Storages::existing`].
    pub(crate) async fn itself(&self, location: &Location) -> Result<(OpenedPath, Entry)> {
        let Some((directory, name)) = location.split_name() else {
            let opened = self.existing(location).await?;
            let entry = opened.storage.stat(&opened.path).await?;
            return Ok((opened, entry));
        };
        let above = self.existing(&directory).await?;
        if !above.is_directory {
            return Err(Error::new(ErrorKind::NotADirectory, "open").at(&directory));
        }
        let path = above.path.join(&name).map_err(|error| invalid(location, error))?;
        let entry = match above.storage.stat(&path).await {
            Ok(entry) if may_be_link(location, &entry) => {
                listed(&above, &name).await?.unwrap_or(entry)
            }
            Ok(entry) => entry,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(Error::new(ErrorKind::NotFound, "access").at(location));
            }
            Err(error) => return Err(error),
        };
        if location.has_trailing_slash() && !entry.is_dir() {
            return Err(Error::new(ErrorKind::NotADirectory, "open").at(location));
        }
        let local = above.local.map(|above| above.join(OsStr::from_bytes(&name)));
        let is_directory = entry.is_dir();
        Ok((OpenedPath { storage: above.storage, path, is_directory, exists: true, local }, entry))
    }

    async fn local_existing(&self, location: &Location, path: &Path) -> Result<OpenedPath> {
        let canonical = path.canonicalize().map_err(|error| at(location, "open", error))?;
        let metadata = fs::metadata(&canonical).map_err(|error| at(location, "open", error))?;
        let is_directory = metadata.is_dir()
            && (location.has_trailing_slash() || !self.is_split_source(&canonical).await);
        let (root, name) = if is_directory {
            (canonical.as_path(), RelPath::root())
        } else {
            // Only the root has no parent, and it is a directory.
            let parent = canonical.parent().unwrap_or(&canonical);
            (parent, name_of(&canonical, location)?)
        };
        let storage = self.open_source(root)?;
        Ok(OpenedPath { storage, path: name, is_directory, exists: true, local: Some(canonical) })
    }

    async fn local_destination(&self, location: &Location, path: &Path) -> Result<OpenedPath> {
        let absolute = std::path::absolute(path).map_err(|error| at(location, "open", error))?;
        let (mut root, mut rest) = nearest_directory(&absolute, location)?;
        if rest.is_empty()
            && !location.has_trailing_slash()
            && is_split_file(&root, |above| self.open(above, None)).await
            && let Some(name) = root.file_name().map(OsStr::to_owned)
        {
            root.pop();
            rest.push(name);
        }
        let exists = rest.is_empty() || fs::symlink_metadata(join(&root, &rest)).is_ok();
        if exists && !rest.is_empty() && location.has_trailing_slash() {
            return Err(Error::new(ErrorKind::NotADirectory, "open").at(location));
        }
        refuse_special(&join(&root, &rest), location)?;
        let mut name = RelPath::root();
        for component in &rest {
            name = name.join(component.as_bytes()).map_err(|error| invalid(location, error))?;
        }
        let local = Some(join(&root, &rest));
        let storage = self.open(&root, None)?;
        Ok(OpenedPath { storage, path: name, is_directory: rest.is_empty(), exists, local })
    }

    async fn is_split_source(&self, directory: &Path) -> bool {
        is_split_file(directory, |above| self.open_source(above)).await
    }

    fn open_source(&self, root: &Path) -> Result<Arc<dyn Storage>> {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(storage) = sources.opened.get(root) {
            return Ok(Arc::clone(storage));
        }
        let pool = match &sources.pool {
            Some(pool) => pool.clone(),
            None => WorkPool::new("read", threads())
                .map_err(|error| Error::from_io("start a thread", error))?,
        };
        sources.pool = Some(pool.clone());
        let storage = self.open(root, Some(pool))?;
        sources.opened.insert(root.to_owned(), Arc::clone(&storage));
        Ok(storage)
    }

    /// Opens a directory, with threads of its own unless there is a `pool` (sources share one).
    fn open(&self, root: &Path, pool: Option<WorkPool>) -> Result<Arc<dyn Storage>> {
        let mode = match self.split {
            SplitArg::Auto => SplitMode::Auto,
            SplitArg::Never => SplitMode::Never,
            // In a destination, a directory that `Join` would take for a file stays a directory, so that it is not
            // overwritten.
            SplitArg::Join if pool.is_none() => SplitMode::Auto,
            SplitArg::Join => SplitMode::Join,
            SplitArg::Size(size) => SplitMode::Size(size),
        };
        Ok(SplitStorage::new(LocalStorage::open(root, self.options(pool))?, mode))
    }

    fn options(&self, pool: Option<WorkPool>) -> LocalOptions {
        let best = LocalOptions::default();
        let block_size = self.block_size;
        // An explicit size applies to both; by default reads and writes each have their own best size.
        let write_size = (block_size != best.block_size).then_some(block_size);
        LocalOptions { block_size, write_size, threads: threads(), pool, ..best }
    }
}

/// Whether a directory holds the parts of one file, as the storage of its parent sees it.
async fn is_split_file(
    directory: &Path,
    open: impl FnOnce(&Path) -> Result<Arc<dyn Storage>>,
) -> bool {
    let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else {
        return false;
    };
    if !directory.join("00").is_file() {
        return false;
    }
    let Ok(name) = RelPath::root().join(name.as_bytes()) else { return false };
    // If the parent cannot be opened, the directory counts as a plain one.
    let Ok(storage) = open(parent) else { return false };
    storage.stat(&name).await.is_ok_and(|entry| entry.is_file())
}

/// Whether an entry may be a link although its kind is another: FTP servers follow links in requests for one
/// name, and show them only in listings.
fn may_be_link(location: &Location, entry: &Entry) -> bool {
    let is_ftp = matches!(location, Location::Remote { scheme: Scheme::Ftp | Scheme::Ftps, .. });
    is_ftp && !matches!(entry.kind, EntryKind::Symlink(_))
}

/// The entry of a name in the listing of its directory.
async fn listed(directory: &OpenedPath, name: &[u8]) -> Result<Option<Entry>> {
    let mut listing = directory.storage.list(&directory.path).await?;
    while let Some(batch) = listing.next().await {
        if let Some(found) = batch?.into_iter().find(|entry| entry.path.name() == name) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Threads for reading, and as many for writing.
fn threads() -> usize {
    thread::available_parallelism().map_or(2, usize::from).clamp(2, 8)
}

/// The nearest directory at or above `path` that exists, canonical, and the names below it.
fn nearest_directory(path: &Path, location: &Location) -> Result<(PathBuf, Vec<OsString>)> {
    let mut rest = Vec::new();
    let mut current = path;
    loop {
        match current.canonicalize() {
            Ok(found) if found.is_dir() => {
                rest.reverse();
                return Ok((found, rest));
            }
            // Only the last component may be a file.
            Ok(_) if !rest.is_empty() => {
                return Err(Error::new(ErrorKind::NotADirectory, "open").at(current.display()));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(at(location, "open", error)),
        }
        match current.components().next_back() {
            Some(Component::Normal(name)) => rest.push(name.to_owned()),
            // `..` has no meaning below something that does not exist.
            _ => return Err(Error::new(ErrorKind::NotFound, "open").at(current.display())),
        }
        let Some(parent) = current.parent() else {
            return Err(Error::new(ErrorKind::NotFound, "open").at(location));
        };
        current = parent;
    }
}

/// Refuses devices, pipes and sockets: committing a file would replace them by a rename, which a user
/// who writes `/dev/null` or `/dev/stdout` does not mean.
fn refuse_special(path: &Path, location: &Location) -> Result<()> {
    let cause = match fs::metadata(path) {
        Ok(found) if !found.is_file() && !found.is_dir() => "it is a device, a pipe or a socket",
        _ if leads_to_device(path) => "it is a link to an open file; write - for standard output",
        _ => return Ok(()),
    };
    Err(Error::new(ErrorKind::AlreadyExists, "replace").at(location).because(cause))
}

/// Whether a path is a link into `/dev` (except `/dev/shm`) or `/proc`, as `/dev/stdout` is: its target may be an open
/// file, and replacing the link would not write to that.
fn leads_to_device(path: &Path) -> bool {
    const LINKS: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        let is_memory = path.starts_with("/dev/shm");
        let Ok(target) = fs::read_link(&path) else { return false };
        path = path.parent().unwrap_or(Path::new("/")).join(target);
        if !is_memory && (path.starts_with("/dev") || path.starts_with("/proc")) {
            return !path.starts_with("/dev/shm");
        }
    }
    false
}

impl Storages<'_> {
    /// Adds a hint if `a:b` may have been meant as a local file, or as a remote with a similar name.
    fn explain(&self, error: Error, location: &Location) -> Error {
        let error = explain(error, location);
        let Location::Remote { scheme: Scheme::Sftp, user: None, host, port: None, .. } = location
        else {
            return error;
        };
        let is_unknown = error.kind() == ErrorKind::Unreachable && error.retry() == Retry::Never;
        if !is_unknown || error.hint().is_some() {
            return error;
        }
        let similar = |name: &&str| strsim::jaro_winkler(name, host) > 0.75;
        let names: Vec<_> =
            self.config.remote.keys().map(String::as_str).filter(similar).take(5).collect();
        if names.is_empty() {
            return error;
        }
        let names: Vec<_> = names.iter().map(|name| format!("{name}:")).collect();
        error.hinting(format!("the configuration has {}", names.join(", ")))
    }
}

/// Adds a hint if a local file is named `a:b`.
fn explain(error: Error, location: &Location) -> Error {
    let Location::Remote { scheme: Scheme::Sftp, user: None, host, port: None, path, .. } =
        location
    else {
        return error;
    };
    let path = path.strip_prefix(b"/~/").unwrap_or(path);
    let mut written = OsString::from(format!("{host}:"));
    written.push(OsStr::from_bytes(path));
    if fs::symlink_metadata(&written).is_err() {
        return error;
    }
    let written = written.display();
    error.hinting(format!(
        "'{written}' is read as a host and a path; for the local file of that name write \
         ./{written}"
    ))
}

fn join(root: &Path, rest: &[OsString]) -> PathBuf {
    rest.iter().fold(root.to_owned(), |path, name| path.join(name))
}

fn name_of(path: &Path, location: &Location) -> Result<RelPath> {
    let name = path.file_name().unwrap_or_default();
    RelPath::root().join(name.as_bytes()).map_err(|error| invalid(location, error))
}

fn at(location: &Location, operation: &'static str, error: io::Error) -> Error {
    Error::from_io(operation, error).at(location)
}

/// The location of a remote itself.
pub(crate) fn location_of(remote: &Remote) -> Location {
    below(remote, b"")
}

/// The path `below` the url of a remote.
fn below(remote: &Remote, below: &[u8]) -> Location {
    let joined = |base: &[u8]| {
        let mut joined = base.to_vec();
        if !joined.is_empty() && !joined.ends_with(b"/") && !below.is_empty() {
            joined.push(b'/');
        }
        // The remote's url is the root: `name:/x` is below it, too.
        joined.extend_from_slice(below.strip_prefix(b"/").unwrap_or(below));
        joined
    };
    match remote.base.clone() {
        Location::Local(root) => {
            let path = joined(root.as_os_str().as_bytes());
            Location::Local(PathBuf::from(OsStr::from_bytes(&path)))
        }
        Location::Remote { scheme, user, host, port, path, query, written } => Location::Remote {
            scheme,
            user: user.or_else(|| remote.user.clone()),
            host,
            port: port.or(remote.port),
            written: written_below(written, below),
            path: joined(&path),
            query,
        },
        Location::Peer { ticket, path } => Location::Peer { ticket, path: joined(&path) },
        other @ Location::Named { .. } => other,
    }
}

/// Appends `below`, percent-encoded, to a path as written, with a single slash between them.
pub(crate) fn written_below(written: Option<String>, below: &[u8]) -> Option<String> {
    let mut written = written?;
    if !written.ends_with('/') && !below.is_empty() {
        written.push('/');
    }
    written.push_str(&encode_path(below.strip_prefix(b"/").unwrap_or(below)));
    Some(written)
}

/// A location on an SFTP server with this port, unless it has one.
fn with_port(mut location: Location, given: Option<u16>) -> Location {
    if let Location::Remote { scheme: Scheme::Sftp, port, .. } = &mut location {
        *port = port.or(given);
    }
    location
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::OutputArgs;

    fn locate(config: &str, argument: &str) -> Result<String, String> {
        let config = Config::of(config);
        let printer = Printer::new(OutputArgs::default());
        let storages =
            Storages::new(&config, 1 << 20, SplitArg::Auto, &RemoteArgs::default(), &printer, 0)
                .unwrap();
        match storages.locate(OsStr::new(argument)) {
            Ok(location) => Ok(location.to_string()),
            Err(Stop::Usage(message)) => Err(message),
            Err(Stop::Failed(error)) => Err(error.to_string()),
        }
    }

    #[test]
    fn a_remote_of_the_configuration_is_a_prefix() {
        let config = "[remote.disk]\nurl = \"/mnt/disk\"\n";
        assert_eq!(locate(config, "disk:a/b"), Ok("/mnt/disk/a/b".to_owned()));
        assert_eq!(locate(config, "disk:/a/"), Ok("/mnt/disk/a/".to_owned()));
        assert_eq!(locate(config, "disk:"), Ok("/mnt/disk".to_owned()));
    }

    #[test]
    fn user_and_port_of_a_remote_fill_its_location() {
        let config = "[remote.nas]\nurl = \"sftp://nas/vol\"\nuser = \"ada\"\nport = 2222\n";
        assert_eq!(locate(config, "nas:x"), Ok("sftp://ada@nas:2222/vol/x".to_owned()));
    }

    #[test]
    fn a_spoken_code_is_a_location_and_its_words_are_not_printed() {
        assert_eq!(locate("", "7-orbit-candle"), Ok("7-…".to_owned()));
        assert_eq!(locate("", "7-Orbit-Candle/a/b"), Ok("7-…/a/b".to_owned()));
        let message = locate("", "7-orbt-candle/a").unwrap_err();
        assert_eq!(
            message,
            "7-…/a: cannot use the code (the first word is not in the word list; did you mean orbit?)\n\
             hint: for a local file of that name write './' before it"
        );
        for local in ["./7-orbit-candle", "7-orbit", "2026-orbit-photos", "a/7-orbit-candle"] {
            let located = locate("", local).unwrap();
            assert!(located.ends_with(local.trim_start_matches("./")), "{located}");
        }
    }

    #[test]
    fn tickets_urls_and_ssh_hosts_are_locations() {
        let ticket = "haul1abcdefghijklmnopqrstuvwxyz234567/x";
        assert_eq!(locate("", ticket), Ok("haul1abcd…/x".to_owned()));
        assert_eq!(locate("", "ftp://host/x"), Ok("ftp://host/x".to_owned()));
        assert_eq!(locate("", "host:x"), Ok("sftp://host/~/x".to_owned()));
    }
}
