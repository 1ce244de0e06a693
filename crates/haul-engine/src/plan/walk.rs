//! Walks a source tree, several directories at once, depth first.
//!
//! Only directories and twins are queued, and few of them: when more than [`MAX_PENDING`] directories are pending,
//! listings pause until some have been visited, and twins are settled when [`SETTLE_FROM`] wait. So the memory of a
//! walk does not grow with the tree.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use haul_storage::{
    Entry, EntryKind, Error, ErrorKind, Medium, Metadata, RelPath, Result, Storage, StorageExt,
};
use tokio::sync::{Notify, mpsc};

use super::delete::replace_with_directory;
use super::directory::{Directory, Finish};
use super::folded::{FoldedNames, fold};
use super::item::{Existing, Item};
use super::mount::is_mount;
use super::reserved::{Copied, Leftovers};
use super::settle::{Group, Twin};
use super::target::Target;
use super::top::Top;
use super::writable::{open_new, writable};
use crate::context::Context;
use crate::job::NumberedJob;

/// Maximum of pending directories. Beyond it, listings pause.
const MAX_PENDING: usize = 4096;

/// Maximum number of directories whose destinations are looked up in one disk job.
const LOOKED_AHEAD: usize = 128;

/// When this many twins wait, they are settled while the walk goes on.
const SETTLE_FROM: usize = 4096;

/// Maximum of names remembered of an existing destination, to know which entries are new to it.
const MAX_NAMES: usize = 4096;

/// Permission bits of a directory that is being filled.
const PRIVATE: u32 = 0o700;

/// A directory of the destination that is ready to be filled.
struct Entered {
    /// Whether this run has created it.
    fresh: bool,
    /// Its mode before it was made writable.
    restore: Option<u32>,
}

/// One directory to visit.
struct Visit {
    source: Entry,
    destination: RelPath,
    /// What exists at that path.
    existing: Existing,
    parent: Option<Arc<Directory>>,
    /// Its directory at the destination, if that is ready already.
    entered: Option<Entered>,
    /// Whether a directory that this run creates for it is on the file system whose free space was measured.
    on_volume: bool,
}

struct Walk<'a> {
    context: &'a Context,
    job: &'a Arc<NumberedJob>,
    /// The device to stay on, with `one_file_system`.
    device: Option<u64>,
    items: &'a mpsc::Sender<Item>,
    finishes: &'a mpsc::UnboundedSender<Finish>,
    pending: Mutex<Vec<Visit>>,
    suspended: AtomicUsize,
    /// Notified when `pending` has grown, or a visit was suspended.
    changed: Notify,
    /// Directories of the destination that visits are about to create or look up.
    entering: Mutex<HashSet<RelPath>>,
    /// Notified when `entering` has shrunk.
    entered: Notify,
    /// Notified when `pending` is down to half its maximum.
    drained: Notify,
    /// Entries that wait because the destination may not distinguish their names from others.
    twins: Mutex<Vec<Twin>>,
    settling: tokio::sync::Mutex<()>,
    top: Top<'a>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends an item for each entry below the directory `root`, except directories.
pub async fn walk(
    context: &Context,
    job: &Arc<NumberedJob>,
    root: Entry,
    items: &mpsc::Sender<Item>,
    finishes: &mpsc::UnboundedSender<Finish>,
) -> Result<()> {
    let device = root.id.map(|id| id.device).filter(|_| context.settings.one_file_system);
    if context.settings.one_file_system && device.is_none() {
        let message = "the server does not report mount points; all file systems are entered";
        context.tally.warn(job.source_name(&root.path), message);
    }
    let top = Top::new(context, job, &root);
    let visit = Visit {
        source: root,
        destination: job.job.destination_path.clone(),
        existing: Existing::Unknown,
        parent: None,
        entered: None,
        on_volume: true,
    };
    let walk = Walk {
        context,
        job,
        device,
        items,
        finishes,
        pending: Mutex::new(vec![visit]),
        suspended: AtomicUsize::new(0),
        changed: Notify::new(),
        entering: Mutex::default(),
        entered: Notify::new(),
        drained: Notify::new(),
        twins: Mutex::default(),
        settling: tokio::sync::Mutex::default(),
        top,
    };
    walk.run().await;
    // A twin that is a directory may contain twins.
    while walk.settle(1).await {
        walk.run().await;
    }
    walk.top.end().await
}

impl Walk<'_> {
    async fn run(&self) {
        let source = &self.job.job.source;
        let is_disk = source.capabilities().medium == Medium::Disk;
        let mut running = FuturesUnordered::new();
        loop {
            let at_once = match self.context.roots.was_fresh(self.job.index) {
                _ if !is_disk => 16,
                // Most files exist already: one directory is listed while another is compared.
                Some(false) => 2,
                // One at a time, so that the files of a directory come together, in as few batches as
                // possible: two threads that create files in the same directory wait for each other.
                _ => 1,
            };
            while running.len() < at_once + self.suspended.load(Ordering::Relaxed) {
                self.look_ahead().await;
                let Some(visit) = self.pop() else { break };
                running.push(Box::pin(async move {
                    let source = visit.source.path.clone();
                    if let Err(error) = self.visit(visit).await {
                        self.context.tally.fail(error.at(self.job.source_name(&source)));
                    }
                }));
            }
            if running.is_empty() || self.context.cancel.is_cancelled() {
                return;
            }
            tokio::select! {
                _ = running.next() => {}
                () = self.changed.notified() => {}
            }
        }
    }

    /// Looks up the destinations of the directories that are visited next, many in one disk job.
    async fn look_ahead(&self) {
        let storage = &self.job.job.destination;
        if storage.capabilities().medium != Medium::Disk {
            return;
        }
        let is_unknown = |visit: &Visit| matches!(visit.existing, Existing::Unknown);
        let paths: Vec<RelPath> = {
            let pending = lock(&self.pending);
            if pending.last().is_none_or(|next| !is_unknown(next)) {
                return;
            }
            let next =
                pending.iter().rev().take(LOOKED_AHEAD).take_while(|visit| is_unknown(visit));
            next.map(|visit| visit.destination.clone()).collect()
        };
        let outcomes = storage.stat_many(paths.clone()).await;
        // Further directories may have been added meanwhile.
        let mut found: HashMap<_, _> = paths.into_iter().zip(outcomes).collect();
        for visit in lock(&self.pending).iter_mut().rev().take(2 * LOOKED_AHEAD) {
            if let Some(outcome) = found.remove(&visit.destination)
                && is_unknown(visit)
            {
                visit.existing = Existing::from(outcome);
            }
        }
    }

    fn pop(&self) -> Option<Visit> {
        if self.context.roots.overlaps.is_inside(self.job.index) {
            return None;
        }
        let mut pending = lock(&self.pending);
        let visit = pending.pop();
        if let Some(visit) = &visit {
            lock(&self.entering).insert(visit.destination.clone());
        }
        if pending.len() <= MAX_PENDING / 2 {
            self.drained.notify_waiters();
        }
        visit
    }

    fn pending_len(&self) -> usize {
        lock(&self.pending).len()
    }

    async fn visit(&self, visit: Visit) -> Result<()> {
        let Visit { source, destination, existing, parent, entered, on_volume } = visit;
        let source_path = source.path.clone();
        let is_mount = is_mount(self.device, &source);
        let entered = match entered {
            Some(entered) => Ok(Some(entered)),
            None => self.enter(&destination, existing, source.mode).await,
        };
        lock(&self.entering).remove(&destination);
        self.entered.notify_waiters();
        let Some(Entered { fresh, restore }) = entered? else { return Ok(()) };
        let metadata = source.metadata();
        let directory = Directory::new(
            self.context,
            Finish {
                job: Arc::clone(self.job),
                source: source.path,
                destination: destination.clone(),
                metadata,
                restore,
                parent,
            },
            self.finishes.clone(),
        );
        let is_root = self.job.job.destination_path == destination;
        if is_root {
            if !self.context.settings.dry_run {
                self.top.begin(fresh, &directory).await?;
            }
            // Nothing is deleted in a destination that this run could not begin, such as one that another run works in.
            self.context.roots.note_reached(self.job.index, fresh);
        }
        let (on_volume, names) = match fresh {
            true => (on_volume, None),
            false if is_root => self.existing_names(&destination).await,
            false => (false, None),
        };
        let target =
            Target { destination: &destination, fresh, directory: &directory, on_volume, names };
        if is_mount {
            // As with rsync: the directory is created, but nothing of the mounted file system is copied.
            return Ok(());
        }
        let mut listing = match self.job.job.source.list(&source_path).await {
            Ok(listing) => listing,
            Err(error) => {
                self.context.note_failed_listing();
                return Err(error);
            }
        };
        let mut names = FoldedNames::default();
        let filter = &self.context.settings.filter;
        let earlier = |_: &dyn Storage, _: &RelPath, name: &[u8], _| {
            names.note_earlier(name);
            Ok(())
        };
        self.context.roots.destinations.earlier(self.job, &destination, filter, earlier).await?;
        let mut leftovers = Leftovers::default();
        while let Some(batch) = listing.next().await {
            match batch {
                Ok(entries) => {
                    if entries.iter().any(|entry| self.top.is_met(entry)) {
                        return Ok(());
                    }
                    let copied = leftovers.keep(self.context, self.job, entries);
                    if !self.take_all(copied, &mut names, &target).await {
                        return Ok(());
                    }
                }
                Err(error) => {
                    self.context.note_failed_listing();
                    self.context.tally.fail(error.at(self.job.source_name(&source_path)));
                }
            }
            self.hold_back().await;
        }
        let leftovers = leftovers.copied(self.context, self.job).await;
        self.take_all(leftovers, &mut names, &target).await;
        Ok(())
    }

    /// Whether the destination of a job, which existed before, is on the file system whose free space was
    /// measured, and the folded names in it. Not looked up on servers: the count lists the directory later.
    async fn existing_names(&self, destination: &RelPath) -> (bool, Option<HashSet<Vec<u8>>>) {
        let storage = &self.job.job.destination;
        let room = &self.context.room;
        if storage.capabilities().medium != Medium::Disk
            || room.started().await.is_err()
            || !room.compares()
            || !room.holds(destination).await
        {
            return (false, None);
        }
        let mut names = HashSet::new();
        // Errors are ignored: the copy encounters and reports them.
        let Ok(mut listing) = storage.list(destination).await else { return (true, None) };
        while let Some(batch) = listing.next().await {
            let Ok(batch) = batch else { return (true, None) };
            names.extend(batch.iter().map(|entry| fold(entry.path.name())));
            if names.len() > MAX_NAMES {
                return (true, None);
            }
        }
        (true, Some(names))
    }

    /// Creates a directory of the destination, or prepares an existing one. `None` if it does not exist, with
    /// `existing_only`; otherwise a dry run returns it as new, and does not create it.
    async fn enter(
        &self,
        destination: &RelPath,
        existing: Existing,
        mode: Option<u32>,
    ) -> Result<Option<Entered>> {
        let storage = &self.job.job.destination;
        // Private while it is filled: what other users may not access in the source is never accessible to
        // them, not even after an interruption. It gets its mode when it is finished.
        let gets_mode = self.context.settings.preserve.mode && storage.capabilities().mode;
        let private = mode.filter(|_| gets_mode).map(|_| PRIVATE);
        let made = |restore| Entered { fresh: true, restore };
        let settings = &self.context.settings;
        let makes_none = settings.existing_only || settings.dry_run;
        let found = match existing {
            Existing::Found(entry) => Some(*entry),
            Existing::Nothing if makes_none => None,
            Existing::Unknown if makes_none => storage.find(destination).await?,
            Existing::Nothing | Existing::Unknown => {
                match storage.create_dir_as(destination, private).await {
                    Ok(()) => {
                        self.context.tally.directory();
                        return Ok(Some(made(open_new(self.job, destination, private).await)));
                    }
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                        Some(storage.stat(destination).await?)
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        match found {
            None if settings.existing_only => Ok(None),
            None => Ok(Some(made(None))),
            Some(entry) if entry.is_dir() => Ok(Some(self.open_up(&entry).await)),
            Some(entry) if settings.delete && !settings.existing_only => {
                // Removing it frees space, so the need is unknown.
                self.context.room.stop_comparing();
                replace_with_directory(self.context, self.job, &entry, private).await?;
                let restore = match settings.dry_run {
                    true => None,
                    false => open_new(self.job, destination, private).await,
                };
                Ok(Some(made(restore)))
            }
            Some(entry) => {
                let what = match entry.kind {
                    EntryKind::Symlink(_) => "a symbolic link, which is not followed,",
                    _ => "a file",
                };
                Err(Error::new(ErrorKind::NotADirectory, "create directory")
                    .at(self.job.destination_name(destination))
                    .because(format!("{what} is where a directory is needed")))
            }
        }
    }

    /// Lets the owner of an existing directory change its entries, as rsync does. A failure is ignored: the
    /// operations in it then report their own.
    async fn open_up(&self, entry: &Entry) -> Entered {
        let unchanged = Entered { fresh: false, restore: None };
        let storage = &self.job.job.destination;
        let may = !self.context.settings.dry_run && storage.capabilities().mode;
        let Some(mode) = writable(entry).filter(|_| may) else { return unchanged };
        let metadata = Metadata { mode: Some(mode), ..Metadata::default() };
        match storage.set_metadata(&entry.path, &metadata).await {
            Ok(()) => Entered { fresh: false, restore: entry.mode },
            Err(_) => unchanged,
        }
    }

    /// Handles entries of a listing. Returns false if the walk has to end.
    async fn take_all(
        &self,
        copied: Vec<Copied>,
        names: &mut FoldedNames,
        target: &Target<'_>,
    ) -> bool {
        for (copied, is_twin) in names.admit_as(copied, Copied::path) {
            if !self.take(copied, target, is_twin).await {
                return false;
            }
        }
        true
    }

    /// Handles one entry of a listing. Returns false if the walk has to end.
    async fn take(&self, copied: Copied, target: &Target<'_>, is_twin: bool) -> bool {
        let context = self.context;
        let (entry, path) = (&copied.entry, copied.path());
        let below = path.strip_prefix(&self.job.job.source_path).unwrap_or(path.as_bytes());
        if !context.settings.filter.takes_in(&self.job.job, below, entry.is_dir()) {
            return true;
        }
        if !context.settings.selection.takes(entry) {
            return true;
        }
        let destination = match target.destination.join(path.name()) {
            Ok(destination) => destination,
            Err(error) => {
                self.context.note_failed_listing();
                let error = Error::new(ErrorKind::InvalidInput, "copy")
                    .at(self.job.source_name(&entry.path))
                    .with_source(error);
                context.tally.fail(error);
                return true;
            }
        };
        let entry = copied.entry;
        if is_twin {
            let folded = fold(destination.name());
            let directory = Arc::clone(target.directory);
            let twin = Twin { source: entry, destination, folded, directory };
            lock(&self.twins).push(twin);
            return true;
        }
        let part_name = self.job.job.destination.part_name(&destination);
        let is_new = target.lacks(destination.name(), &part_name);
        self.send(entry, destination, target.fresh, target.directory, is_new).await
    }

    /// Queues a directory, or sends an item. Returns false if the walk has to end. `is_new`: nothing exists
    /// at its destination, and it needs space there.
    async fn send(
        &self,
        entry: Entry,
        destination: RelPath,
        fresh: bool,
        directory: &Arc<Directory>,
        is_new: bool,
    ) -> bool {
        let context = self.context;
        if entry.is_dir() {
            if self.job.is_local() && context.roots.ends.is_destination(&entry) {
                context.note_failed_listing();
                context.tally.fail(
                    Error::new(ErrorKind::InvalidInput, "copy")
                        .at(self.job.source_name(&entry.path))
                        .because("it is the destination of this run, under another path"),
                );
                return true;
            }
            let (parent, existing) = (Some(Arc::clone(directory)), Existing::in_directory(fresh));
            let (entered, on_volume) = (None, is_new);
            let visit = Visit { source: entry, destination, existing, parent, entered, on_volume };
            lock(&self.pending).push(visit);
            return true;
        }
        let others = &context.roots.destinations;
        if let Err(error) = others.refuse_twice(self.job, &destination, &context.settings).await {
            context.tally.fail(error.at(self.job.source_name(&entry.path)));
            return true;
        }
        if entry.is_file() {
            context.tally.plan_file(entry.known_size().unwrap_or(0));
            if is_new && !context.settings.existing_only {
                context.room.plan(&self.job.job, &entry).await;
            } else {
                context.room.plan_unclear();
            }
        }
        let item = Item {
            job: Arc::clone(self.job),
            source: entry,
            destination,
            existing: Existing::in_directory(fresh),
            directory: Some(Arc::clone(directory)),
            ticket: context.ticket(),
        };
        self.items.send(item).await.is_ok()
    }

    /// If at least `from` twins wait: waits until everything planned before is done, sends those that the
    /// destination distinguishes from existing names, and reports the others. False if fewer wait, or if cancelled.
    async fn settle(&self, from: usize) -> bool {
        let _alone = self.settling.lock().await;
        let mut groups = {
            let mut waiting = lock(&self.twins);
            if waiting.len() < from {
                return false;
            }
            Group::all(std::mem::take(&mut waiting))
        };
        while !groups.is_empty() {
            self.context.planned_done().await;
            for group in &mut groups {
                if self.context.cancel.is_cancelled() {
                    return false;
                }
                if let Err(error) = self.settle_directory(group).await {
                    self.context.note_failed_listing();
                    self.context.tally.fail(error.at(self.job.destination_name(&group.directory)));
                    let left = group.abandon(self.job);
                    left.into_iter().for_each(|error| self.context.tally.fail(error));
                }
            }
            groups.retain(|group| !group.is_empty());
        }
        true
    }

    async fn settle_directory(&self, group: &mut Group) -> Result<()> {
        self.enter_siblings(&group.siblings(self.context, self.job).await?).await;
        let verdicts = group.verdicts(self.job, self.context.settings.remove_source).await?;
        for Twin { source, destination, directory, .. } in verdicts.copied {
            self.send(source, destination, false, &directory, false).await;
        }
        verdicts.refused.into_iter().for_each(|error| self.context.tally.fail(error));
        Ok(())
    }

    /// Creates the directories among `siblings` that are still pending, so that lookups at the destination find them.
    async fn enter_siblings(&self, siblings: &HashSet<&RelPath>) {
        loop {
            let entered = self.entered.notified();
            if !lock(&self.entering).iter().any(|path| siblings.contains(path)) {
                break;
            }
            entered.await;
        }
        let waiting: Vec<Visit> = {
            let mut pending = lock(&self.pending);
            let is_new = |visit: &mut Visit| {
                visit.entered.is_none() && siblings.contains(&visit.destination)
            };
            pending.extract_if(.., is_new).collect()
        };
        for mut visit in waiting {
            let existing = std::mem::replace(&mut visit.existing, Existing::Unknown);
            match self.enter(&visit.destination, existing, visit.source.mode).await {
                Ok(None) => {}
                Ok(entered) => {
                    visit.entered = entered;
                    lock(&self.pending).push(visit);
                }
                Err(error) => {
                    self.context.tally.fail(error.at(self.job.source_name(&visit.source.path)));
                }
            }
        }
    }

    /// Settles twins if many wait, and pauses while too many directories are pending.
    async fn hold_back(&self) {
        self.changed.notify_one();
        self.settle(SETTLE_FROM).await;
        if self.pending_len() <= MAX_PENDING {
            return;
        }
        self.suspended.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_one();
        loop {
            let drained = self.drained.notified();
            if self.pending_len() <= MAX_PENDING / 2 {
                break;
            }
            drained.await;
        }
        self.suspended.fetch_sub(1, Ordering::Relaxed);
    }
}
