//! Mounts: the builder, and the mount while it exists.

use std::path::{self, Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use haul_engine::Settings;
use haul_engine::budget::LinkBudgets;
use haul_storage::{Error, ErrorKind, RelPath, Result, Storage};
use rustix::process::{getegid, geteuid};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::attributes::Ages;
use crate::cache::Cache;
use crate::names::{Names, Shown};
use crate::read::{Context, Files, ReadOptions};
use crate::session::{AttachOptions, Attached, Detached, End, Session, attach, checked};
use crate::status::{MemoryStatus, OpenFile, Status};
use crate::view::View;
use crate::write::{Changes, Overlay, Spool, Warning, Warnings, WriteOptions};

/// Names whose attributes are held in memory, about 400 bytes each.
const MOST_NAMES: usize = 50_000;

/// Minimum memory for the contents of files, in bytes.
const LEAST_MEMORY: u64 = 4 << 20;

/// A mounted storage. Dropping it unmounts; processes that still use it get errors.
#[derive(Debug)]
pub struct Mount {
    point: PathBuf,
    attached: Attached,
    session: Option<Session>,
    observer: Observer,
    cache: Option<Arc<Cache>>,
    changes: Option<Arc<Changes>>,
    runtime: OwnRuntime,
}

/// Reports the state of a mount, on any thread. It does not keep the mount alive.
#[derive(Debug, Clone)]
pub struct Observer {
    view: Weak<View>,
    root: RelPath,
    memory: u64,
}

impl Observer {
    /// The state; `None` once the mount has ended.
    pub fn status(&self) -> Option<Status> {
        let status = self.view.upgrade()?.status();
        let relative = |file: OpenFile| {
            let path = file.path.relative_to(&self.root).unwrap_or_else(|| file.path.clone());
            OpenFile { path, ..file }
        };
        let files = status.files.into_iter().map(relative).collect();
        let memory = MemoryStatus { limit: self.memory, ..status.memory };
        Some(Status { files, memory, ..status })
    }
}

/// The runtime of a mount. It ends without waiting for its tasks, so that it may be dropped within another runtime.
#[derive(Debug)]
struct OwnRuntime {
    runtime: Option<Runtime>,
    handle: Handle,
}

impl OwnRuntime {
    fn start(threads: usize) -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("mount")
            .enable_all()
            .build()
            .map_err(|error| Error::from_io("start threads", error))?;
        let handle = runtime.handle().clone();
        Ok(Self { runtime: Some(runtime), handle })
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// How a mount ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// It was unmounted, or root has ended its connection to the kernel.
    Unmounted,
    /// The kernel is older than Linux 5.4: its FUSE has a protocol before 7.31.
    TooOld,
    /// Requests cannot be read; the errno.
    Failed(i32),
}

/// Options of a mount.
#[derive(Debug, Clone)]
#[must_use]
pub struct MountBuilder {
    storage: Arc<dyn Storage>,
    root: RelPath,
    source: String,
    /// Identifies the location; `None` means by `source`.
    identity: Option<String>,
    budgets: LinkBudgets,
    settings: Settings,
    memory: u64,
    timeout: Duration,
    attribute_age: Duration,
    missing_age: Duration,
    owner: (u32, u32),
    umask: u32,
    allow_other: bool,
    nonempty: bool,
    noexec: bool,
    cache: Option<(PathBuf, u64)>,
    spools: Option<PathBuf>,
    sync_close: bool,
    warnings: Warnings,
}

impl Mount {
    /// Options to mount a storage; read-only without [`MountBuilder::writable`].
    pub fn builder(storage: Arc<dyn Storage>) -> MountBuilder {
        MountBuilder {
            source: storage.location().to_string(),
            identity: None,
            storage,
            root: RelPath::root(),
            budgets: LinkBudgets::default(),
            settings: Settings::default(),
            memory: 256 << 20,
            timeout: Duration::from_secs(60),
            attribute_age: Duration::from_secs(5),
            missing_age: Duration::from_secs(1),
            owner: (geteuid().as_raw(), getegid().as_raw()),
            umask: 0,
            allow_other: false,
            nonempty: false,
            noexec: false,
            cache: None,
            spools: None,
            sync_close: false,
            warnings: Warnings::default(),
        }
    }

    /// The canonical path of the mount point.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Reports the state of the mount.
    pub fn observer(&self) -> Observer {
        self.observer.clone()
    }

    /// Number of files that wait to be uploaded. Those that are left when the mount ends are uploaded by the next one.
    pub fn pending(&self) -> usize {
        self.changes.as_ref().map_or(0, |changes| changes.pending())
    }

    /// Waits until the mount has ended: it was unmounted from outside, or cannot be served.
    pub async fn ended(&self) -> Ended {
        let Some(session) = &self.session else { return Ended::Unmounted };
        match session.ended().await {
            End::Unmounted | End::Aborted => Ended::Unmounted,
            End::TooOld => Ended::TooOld,
            End::Failed(number) => Ended::Failed(number),
        }
    }

    /// Unmounts, at once even if processes use the mount: these get errors from then on.
    ///
    /// # Errors
    /// If the system refuses to unmount. The mount is no longer served then.
    pub fn unmount(mut self) -> Result<()> {
        self.end().map(drop)
    }

    /// Unmounts as [`Mount::unmount`] does, then waits until the files that were closed are uploaded, or until there
    /// was no progress for `patience`. Returns the number of files that are not uploaded.
    ///
    /// # Errors
    /// Those of [`Mount::unmount`].
    pub async fn unmount_and_upload(mut self, patience: Duration) -> Result<usize> {
        let all_closed = self.end()?;
        match &self.changes {
            Some(changes) => Ok(changes.drained(patience, all_closed).await),
            None => Ok(0),
        }
    }

    /// Returns whether no process had a file open when the file system was unmounted.
    fn end(&mut self) -> Result<bool> {
        let was_unmounted = self.session.as_ref().is_some_and(Session::was_unmounted);
        let all_closed = self.attached.detach().map(|detached| match detached {
            Detached::Unused => true,
            Detached::InUse => false,
            // After a lazy unmount, the kernel ends the connection once the last file is closed.
            Detached::Nothing => was_unmounted,
        });
        // The tasks hold the device, too: it is closed once they have ended.
        self.session = None;
        if let Some(cache) = self.cache.take() {
            // Not only when the last task has ended: the next mount may use it at once.
            cache.close();
        }
        all_closed
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // `unmount` reports errors.
        drop(self.end());
    }
}

impl MountBuilder {
    /// Mounts the directory `root` of the storage instead of its root.
    pub fn root(mut self, root: RelPath) -> Self {
        self.root = root;
        self
    }

    /// What `mount` and `df` show as the source; the location of the storage by default.
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = source.into();
        self
    }

    /// Identifies the location for later mounts, which continue its uploads; the source by default. It is not shown,
    /// and only a hash of it is stored.
    pub fn identity(mut self, identity: impl Into<String>) -> Self {
        self.identity = Some(identity.into());
        self
    }

    /// Shares the window and the lanes of links with everything else that uses these budgets.
    pub fn budgets(mut self, budgets: LinkBudgets) -> Self {
        self.budgets = budgets;
        self
    }

    /// Lanes and window of the link. The limit of memory in them is ignored: [`MountBuilder::memory`] sets it.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Most bytes of file contents in memory, held and in flight; at least 4 MiB.
    pub const fn memory(mut self, bytes: u64) -> Self {
        self.memory = if bytes < LEAST_MEMORY { LEAST_MEMORY } else { bytes };
        self
    }

    /// A read fails after this time without progress, most other requests after this time in all.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Maximum age of the attributes that processes see.
    pub const fn attribute_age(mut self, age: Duration) -> Self {
        self.attribute_age = age;
        self
    }

    /// How long a name that did not exist may be taken for missing.
    pub const fn missing_age(mut self, age: Duration) -> Self {
        self.missing_age = age;
        self
    }

    /// User and group of all entries; by default those of this process.
    pub const fn owner(mut self, user: u32, group: u32) -> Self {
        self.owner = (user, group);
        self
    }

    /// Permission bits that no entry but a link has; by default those of the storage are shown.
    pub const fn umask(mut self, umask: u32) -> Self {
        self.umask = umask;
        self
    }

    /// Lets other users use the mount. The kernel then checks the permission bits.
    pub const fn allow_other(mut self, allow: bool) -> Self {
        self.allow_other = allow;
        self
    }

    /// Allows a mount point with entries, which are hidden meanwhile.
    pub const fn nonempty(mut self, nonempty: bool) -> Self {
        self.nonempty = nonempty;
        self
    }

    /// Lets no process execute files of the mount.
    pub const fn noexec(mut self, noexec: bool) -> Self {
        self.noexec = noexec;
        self
    }

    /// Caches contents of files in a directory, at most `size` bytes. The directory is created if it does not exist; no
    /// other mount may use it at the same time.
    pub fn cache(mut self, directory: PathBuf, size: u64) -> Self {
        self.cache = Some((directory, size));
        self
    }

    /// Allows changes. Written data goes to a spool below the directory `spools`; a later mount with the same
    /// identity ([`MountBuilder::identity`]) finds it again.
    pub fn writable(mut self, spools: impl Into<PathBuf>) -> Self {
        self.spools = Some(spools.into());
        self
    }

    /// Makes `close` return when the upload is done, not when the spool is durable.
    pub const fn sync_close(mut self, sync: bool) -> Self {
        self.sync_close = sync;
        self
    }

    /// Called with warnings that no system call can return.
    pub fn on_warning(mut self, report: impl Fn(&Warning) + Send + Sync + 'static) -> Self {
        self.warnings = Warnings::new(report);
        self
    }

    /// Mounts at `point`. When this returns, processes can use the mount.
    ///
    /// # Errors
    /// If the mount point is unsuitable, the cache or the spool cannot be opened, threads cannot be started, or the
    /// system refuses to mount; with a hint, if one is known.
    pub fn mount(self, point: &Path) -> Result<Mount> {
        let point = checked(point, self.nonempty)?;
        let threads = thread::available_parallelism().map_or(2, usize::from).clamp(2, 4);
        let runtime = OwnRuntime::start(threads)?;
        let cache = self.open_cache(&point)?;
        let spool = self.open_spool(&point)?;
        let read_only = spool.is_none();
        let (view, changes) = self.view(spool, cache.clone(), &runtime)?;
        let options = AttachOptions {
            source: self.source.clone(),
            allow_other: self.allow_other,
            noexec: self.noexec,
            read_only,
        };
        let (attached, device) = attach(&point, &options)?;
        let (shown, root) = (Arc::downgrade(&view), self.root.clone());
        let observer = Observer { view: shown, root, memory: self.memory };
        // From here on, dropping `mount` unmounts.
        let mut mount = Mount { point, attached, session: None, observer, cache, changes, runtime };
        let session = Session::start(device, &view, threads, &mount.runtime.handle);
        let session = session?;
        let notify = session.notifier(&mount.runtime.handle);
        mount.session = Some(session);
        if let Some(changes) = &mount.changes {
            changes.connect(notify);
            changes.resume();
        }
        Ok(mount)
    }

    fn open_cache(&self, point: &Path) -> Result<Option<Arc<Cache>>> {
        let Some((directory, size)) = &self.cache else { return Ok(None) };
        let hidden = || hidden("open cache", directory);
        // Checked before the cache is created: the mount point has to remain empty.
        if will_be_below(point, directory) {
            return Err(hidden());
        }
        let cache = Cache::open(directory, *size)?;
        if cache.directory().starts_with(point) {
            return Err(hidden());
        }
        Ok(Some(cache))
    }

    fn open_spool(&self, point: &Path) -> Result<Option<Spool>> {
        let Some(spools) = &self.spools else { return Ok(None) };
        let hidden = || hidden("open the spool", spools);
        // Its files are opened by their paths, so a link in the mount point must not lead to it either.
        let leads_through = path::absolute(spools).is_ok_and(|spools| spools.starts_with(point));
        // Checked before the spool is created, and again once all links in its path can be resolved.
        if leads_through || will_be_below(point, spools) {
            return Err(hidden());
        }
        let identity = self.identity.as_ref().unwrap_or(&self.source);
        let spool = Spool::open_as(spools, identity, &self.source)?;
        if spools.canonicalize().is_ok_and(|spools| spools.starts_with(point)) {
            return Err(hidden());
        }
        Ok(Some(spool))
    }

    fn view(
        &self,
        spool: Option<Spool>,
        cache: Option<Arc<Cache>>,
        runtime: &OwnRuntime,
    ) -> Result<(Arc<View>, Option<Arc<Changes>>)> {
        // A quarter for bytes in flight in each direction, the rest for held blocks.
        let settings = Settings { memory: self.memory / 4, ..self.settings.clone() };
        let directions = if spool.is_some() { 2 } else { 1 };
        let held = self.memory - directions * settings.memory;
        let share = self.budgets.reader(&self.storage, &settings);
        let identity = self.identity.as_deref().unwrap_or_default().into();
        let options = ReadOptions { memory: held, timeout: self.timeout, cache, identity };
        let context = Context::new(Arc::clone(&self.storage), share, options);
        let files = Arc::new(Files::new(&context, held, &runtime.handle));
        // The task ends with the runtime.
        runtime.handle.spawn(async move { context.watch_link().await });
        let ages = Ages { entry: self.attribute_age, missing: self.missing_age, most: MOST_NAMES };
        let (owner, umask, timeout) = (self.owner, self.umask, self.timeout);
        let shown = Shown { owner, umask, ages, timeout };
        let overlay = spool.is_some().then(|| Arc::new(Overlay::default()));
        let (storage, root) = (Arc::clone(&self.storage), self.root.clone());
        let names = Names::new(storage, root, shown, overlay.clone(), &runtime.handle);
        let changes = match spool.zip(overlay) {
            Some((spool, overlay)) => {
                let share = self.budgets.writer(&self.storage, &settings);
                let warnings = self.warnings.clone();
                let options = WriteOptions { sync_close: self.sync_close, warnings };
                let (shown, local) = ((&names, &files), (&overlay, spool));
                Some(Changes::new(shown, local, share, options, &runtime.handle)?)
            }
            None => None,
        };
        Ok((View::new(names, files, changes.clone()), changes))
    }
}

fn hidden(operation: &'static str, directory: &Path) -> Error {
    Error::new(ErrorKind::InvalidInput, operation)
        .at(directory.display())
        .because("it is below the mount point, which would hide it")
}

/// Whether a directory, which may not exist yet, is below a mount point.
fn will_be_below(point: &Path, directory: &Path) -> bool {
    let Ok(directory) = path::absolute(directory) else { return false };
    let existing = directory.ancestors().find_map(|above| above.canonicalize().ok());
    existing.is_some_and(|existing| existing.starts_with(point))
}
