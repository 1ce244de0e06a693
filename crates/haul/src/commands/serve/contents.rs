//! The contents of a share: the content of one directory, or files and directories from anywhere, listed in one root.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use haul_local::{LocalOptions, LocalStorage};
use haul_storage::{
    Capabilities, CommitOptions, CreateOptions, Digest, DigestKind, Entry, EntryKind, EntryStream,
    Error, ErrorKind, LinkKind, LinkStatus, Location, Lock, Metadata, Range, ReadAt, RelPath,
    Result, SmallFile, Space, Storage, Whole, WorkPool, WriteAt, part_name, text,
};

/// What is shared.
#[derive(Debug)]
pub(super) struct Contents {
    /// Its root is the root of the share.
    pub(super) storage: Arc<dyn Storage>,
    /// A name for display.
    pub(super) name: String,
    /// Identifies it in later runs: the absolute paths, escaped, a line each. No other share has the same.
    pub(super) label: String,
    /// The same contents, for servers that take paths instead of a storage.
    pub(super) root: ShareRoot,
}

/// What is at the top of a share, by canonical paths.
#[derive(Debug)]
pub(super) enum ShareRoot {
    /// The content of a directory.
    Directory(PathBuf),
    /// Files and directories with their names.
    Items(Vec<(Vec<u8>, PathBuf)>),
}

impl Contents {
    /// Opens the files and directories at `paths`. Links in these paths are followed, those below them are not.
    ///
    /// # Errors
    /// If a path does not exist or is neither file nor directory, or if two have the same name, or one of several has
    /// none (`/`).
    pub(super) fn open(paths: &[PathBuf]) -> Result<Self> {
        let found = paths.iter().map(|path| Found::at(path)).collect::<Result<Vec<_>>>()?;
        let label: Vec<_> = found.iter().map(|one| escaped(&one.path)).collect();
        let label = label.join("\n");
        let names: Vec<_> = found.iter().map(|one| String::from_utf8_lossy(&one.name)).collect();
        let name = match names.as_slice() {
            [only] => only.to_string(),
            [first, rest @ ..] => format!("{first} and {} more", rest.len()),
            [] => String::new(),
        };
        if let [Found { path, is_directory: true, .. }] = found.as_slice() {
            let storage = LocalStorage::open(path, LocalOptions::default())?;
            let root = ShareRoot::Directory(path.clone());
            return Ok(Self { storage, name, label, root });
        }
        let storage = Items::open(&found)?;
        let root = ShareRoot::Items(found.into_iter().map(|one| (one.name, one.path)).collect());
        Ok(Self { storage, name, label, root })
    }
}

/// A test for the labels of shares that contain a path, alone or as one of several. The path need not exist any more.
///
/// # Errors
/// If the path is empty, or the current directory is unknown.
pub(super) fn labels_with(path: &Path) -> Result<impl Fn(&str) -> bool + use<>> {
    let found = path.canonicalize().or_else(|_| std::path::absolute(path));
    let found = found.map_err(|error| Error::from_io("find", error).at(path.display()))?;
    let escaped = escaped(&found);
    Ok(move |label: &str| label.split('\n').any(|line| line == escaped))
}

/// A path as a line of text that no other path has. An ordinary one stays as it is.
fn escaped(path: &Path) -> String {
    let mut line = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => line.push_str("\\\\"),
                '\n' => line.push_str("\\n"),
                _ => line.push(character),
            }
        }
        for byte in chunk.invalid() {
            line.push_str(&format!("\\x{byte:02x}"));
        }
    }
    line
}

/// A file or directory that exists.
#[derive(Debug)]
struct Found {
    /// The path as the user wrote it, for errors.
    written: PathBuf,
    /// The canonical path.
    path: PathBuf,
    /// The last component of the path as written; empty for `/`.
    name: Vec<u8>,
    is_directory: bool,
}

impl Found {
    fn at(written: &Path) -> Result<Self> {
        let failed = |error| Error::from_io("share", error).at(written.display());
        let path = written.canonicalize().map_err(failed)?;
        let metadata = fs::metadata(&path).map_err(failed)?;
        if !metadata.is_dir() && !metadata.is_file() {
            return Err(Error::new(ErrorKind::InvalidInput, "share")
                .at(written.display())
                .because("it is neither a file nor a directory"));
        }
        // `.` and `..` have the names of their directories.
        let name = written.file_name().or_else(|| path.file_name()).unwrap_or_default();
        let name = name.as_bytes().to_vec();
        let is_directory = metadata.is_dir();
        Ok(Self { written: written.to_owned(), path, name, is_directory })
    }

    fn refused(&self, cause: &str) -> Error {
        Error::new(ErrorKind::InvalidInput, "share").at(self.written.display()).because(cause)
    }
}

/// Files and directories from anywhere, in a root that has nothing else.
///
/// Every path is resolved to an item and a path within it, which the item's storage confines. The items themselves
/// are neither renamed nor, if they are directories, removed.
#[derive(Debug)]
struct Items {
    location: Location,
    capabilities: Capabilities,
    items: BTreeMap<Vec<u8>, Item>,
}

/// A file or a directory of a share.
#[derive(Debug)]
struct Item {
    storage: Arc<LocalStorage>,
    /// The file in it; `None` if its root is the directory.
    file: Option<RelPath>,
}

impl Items {
    fn open(found: &[Found]) -> Result<Arc<Self>> {
        let threads = LocalOptions::default().threads;
        let pool = WorkPool::new("haul-disk", threads);
        let pool = pool.map_err(|error| Error::from_io("start a thread", error))?;
        let mut opened: HashMap<&Path, Arc<LocalStorage>> = HashMap::new();
        let mut items = BTreeMap::new();
        for one in found {
            // Only the root has no parent, and it is a directory.
            let above = one.path.parent().unwrap_or(&one.path);
            let root = if one.is_directory { one.path.as_path() } else { above };
            let storage = match opened.get(root) {
                Some(storage) => Arc::clone(storage),
                None => {
                    let pool = Some(pool.clone());
                    LocalStorage::open(root, LocalOptions { pool, ..LocalOptions::default() })?
                }
            };
            opened.insert(root, Arc::clone(&storage));
            let join = |name: &[u8]| RelPath::root().join(name);
            join(&one.name).map_err(|error| one.refused(&format!("its name {error}")))?;
            let file = match one.is_directory {
                true => None,
                false => {
                    let name = one.path.file_name().unwrap_or_default().as_bytes();
                    let file = join(name);
                    Some(file.map_err(|error| one.refused(&format!("its name {error}")))?)
                }
            };
            if items.insert(one.name.clone(), Item { storage, file }).is_some() {
                let name = text::name(&one.name).to_string();
                return Err(one.refused(&format!("another path is also shared as {name}")));
            }
        }
        let capabilities = common(items.values().map(|item| item.storage.capabilities()));
        let location = Location::Local(PathBuf::from("."));
        Ok(Arc::new(Self { location, capabilities, items }))
    }

    /// The item that a path is in, and the path in its storage; `None` for the root.
    fn find(
        &self,
        operation: &'static str,
        path: &RelPath,
    ) -> Result<Option<(&[u8], &Item, RelPath)>> {
        let Some(first) = path.components().next() else { return Ok(None) };
        let refused = |kind| Error::new(kind, operation).at(self.location.display(path));
        let found = self.items.get_key_value(first);
        let (name, item) = found.ok_or_else(|| refused(ErrorKind::NotFound))?;
        let mut rest = RelPath::root();
        for component in path.components().skip(1) {
            rest = rest.join(component).map_err(|_| refused(ErrorKind::InvalidInput))?;
        }
        let inner = match &item.file {
            None => rest,
            Some(file) if rest.is_root() => file.clone(),
            Some(_) => return Err(refused(ErrorKind::NotADirectory)),
        };
        Ok(Some((name.as_slice(), item, inner)))
    }

    /// [`find`](Self::find) for an operation that is impossible on the root.
    fn within(&self, operation: &'static str, path: &RelPath) -> Result<(&Item, RelPath)> {
        match self.find(operation, path)? {
            Some((_, item, inner)) => Ok((item, inner)),
            None => Err(self.refused(ErrorKind::IsADirectory, operation, path)),
        }
    }

    /// [`find`](Self::find) for an operation that creates, changes or removes an entry. Refuses the root, the
    /// directories in it, and new names in it.
    fn changing(&self, operation: &'static str, path: &RelPath) -> Result<(&Item, RelPath)> {
        match self.find(operation, path) {
            Ok(Some((_, item, inner))) if item.file.is_some() || !inner.is_root() => {
                Ok((item, inner))
            }
            Ok(_) => Err(self.fixed(operation, path)),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(self.fixed(operation, path)),
            Err(error) => Err(error),
        }
    }

    /// [`find`](Self::find) for an operation below a directory of the share: no item is replaced by an entry of another
    /// kind.
    fn below(&self, operation: &'static str, path: &RelPath) -> Result<(&Item, RelPath)> {
        let (item, inner) = self.changing(operation, path)?;
        match item.file {
            None => Ok((item, inner)),
            Some(_) => Err(self.fixed(operation, path)),
        }
    }

    fn fixed(&self, operation: &'static str, path: &RelPath) -> Error {
        self.refused(ErrorKind::PermissionDenied, operation, path)
            .because("the share consists of single files and directories, which stay as they are")
    }

    fn refused(&self, kind: ErrorKind, operation: &'static str, path: &RelPath) -> Error {
        Error::new(kind, operation).at(self.location.display(path))
    }

    /// Two paths for one operation, which have to be in the same directory of the share.
    fn both(
        &self,
        operation: &'static str,
        from: &RelPath,
        to: &RelPath,
    ) -> Result<(&Item, RelPath, RelPath)> {
        let (item, inner) = self.below(operation, from)?;
        let (other, target) = self.below(operation, to)?;
        if !std::ptr::eq(item, other) {
            return Err(self
                .refused(ErrorKind::Unsupported, operation, to)
                .because("it is in another directory of the share"));
        }
        Ok((item, inner, target))
    }

    fn root(&self) -> Entry {
        Entry::new(RelPath::root(), EntryKind::Directory, 0)
    }
}

/// The capabilities that all storages have. Range and precision of times (`stored_times`) are those of the first.
fn common<'a>(mut all: impl Iterator<Item = &'a Capabilities>) -> Capabilities {
    // There is at least one.
    let first = all.next().cloned();
    let first = first.unwrap_or_else(|| Capabilities::least(haul_storage::Medium::Disk));
    let mut can = all.fold(first, |one, other| {
        one.with(|can| {
            can.rename &= other.rename;
            can.conditional_commits &= other.conditional_commits;
            can.server_copy &= other.server_copy;
            can.symlinks &= other.symlinks;
            can.hard_links &= other.hard_links;
            can.sync &= other.sync;
            can.resume &= other.resume;
            can.times &= other.times;
            can.mode &= other.mode;
            can.owner &= other.owner;
            can.xattrs &= other.xattrs;
            can.complete_lists &= other.complete_lists;
            can.whole_limit = can.whole_limit.min(other.whole_limit);
            can.max_file_size = match (can.max_file_size, other.max_file_size) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
        })
    });
    can.lock = false;
    can
}

#[async_trait]
impl Storage for Items {
    fn location(&self) -> &Location {
        &self.location
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn set_lanes(&self, _: usize) {}

    fn link(&self) -> LinkStatus {
        LinkStatus { open: 1, ..LinkStatus::default() }
    }

    async fn stat(&self, path: &RelPath) -> Result<Entry> {
        match self.find("access", path)? {
            Some((_, item, inner)) => Ok(item.storage.stat(&inner).await?.at(path.clone())),
            None => Ok(self.root()),
        }
    }

    async fn stat_many(&self, paths: Vec<RelPath>) -> Vec<Result<Entry>> {
        let mut outcomes = Vec::with_capacity(paths.len());
        for path in &paths {
            outcomes.push(self.stat(path).await);
        }
        outcomes
    }

    async fn list(&self, path: &RelPath) -> Result<EntryStream> {
        let Some((name, item, inner)) = self.find("list", path)? else {
            let names = self.items.keys().filter_map(|name| RelPath::root().join(name).ok());
            let found = self.stat_many(names.collect()).await;
            // Items that were removed in the meantime are left out.
            let is_gone = |error: &Error| error.kind() == ErrorKind::NotFound;
            let found = found.into_iter().filter(|one| !one.as_ref().is_err_and(is_gone));
            let batches: Vec<_> = found.map(|one| one.map(|entry| vec![entry])).collect();
            return Ok(stream::iter(batches).boxed());
        };
        let top = RelPath::root().join(name).unwrap_or_default();
        let inside = item.storage.list(&inner).await?;
        let moved = move |batch: Result<Vec<Entry>>| {
            let moved = |entry: Entry| {
                let path = top.join_path(&entry.path);
                entry.at(path)
            };
            batch.map(|entries| entries.into_iter().map(moved).collect())
        };
        Ok(inside.map(moved).boxed())
    }

    async fn create_dir_as(&self, path: &RelPath, mode: Option<u32>) -> Result<()> {
        match self.find("create directory", path) {
            Ok(Some((_, item, inner))) if item.file.is_none() && !inner.is_root() => {
                item.storage.create_dir_as(&inner, mode).await
            }
            Ok(_) => Err(self.refused(ErrorKind::AlreadyExists, "create directory", path)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(self.fixed("create directory", path))
            }
            Err(error) => Err(error),
        }
    }

    async fn create_link(&self, path: &RelPath, link: &LinkKind, replace: bool) -> Result<()> {
        let (item, inner, link) = match link {
            LinkKind::Symbolic(_) => {
                let (item, inner) = self.below("create link", path)?;
                (item, inner, link.clone())
            }
            LinkKind::Hard(target) => {
                let (item, target, inner) = self.both("create link", target, path)?;
                (item, inner, LinkKind::Hard(target))
            }
        };
        item.storage.create_link(&inner, &link, replace).await
    }

    async fn remove(&self, path: &RelPath) -> Result<()> {
        let (item, inner) = self.changing("remove", path)?;
        item.storage.remove(&inner).await
    }

    async fn rename(&self, from: &RelPath, to: &RelPath) -> Result<()> {
        let (item, from, to) = self.both("rename", from, to)?;
        item.storage.rename(&from, &to).await
    }

    async fn copy(&self, from: &RelPath, to: &RelPath) -> Result<()> {
        let (item, from, to) = self.both("copy", from, to)?;
        item.storage.copy(&from, &to).await
    }

    async fn digest(&self, path: &RelPath, kind: DigestKind) -> Result<Option<Digest>> {
        let (item, inner) = self.within("read the digest", path)?;
        item.storage.digest(&inner, kind).await
    }

    async fn metadata(&self, path: &RelPath) -> Result<Metadata> {
        match self.find("access", path)? {
            Some((_, item, inner)) => item.storage.metadata(&inner).await,
            None => Ok(Metadata::default()),
        }
    }

    async fn set_metadata(&self, path: &RelPath, metadata: &Metadata) -> Result<()> {
        match self.find("set attributes", path)? {
            Some((_, item, inner)) => item.storage.set_metadata(&inner, metadata).await,
            None => Err(self.fixed("set attributes", path)),
        }
    }

    async fn open(&self, path: &RelPath) -> Result<Arc<dyn ReadAt>> {
        let (item, inner) = self.within("open", path)?;
        item.storage.open(&inner).await
    }

    async fn open_reading(&self, path: &RelPath, first: Range) -> Result<Arc<dyn ReadAt>> {
        let (item, inner) = self.within("open", path)?;
        item.storage.open_reading(&inner, first).await
    }

    fn prefetch(&self, path: &RelPath) {
        if let Ok((item, inner)) = self.within("open", path) {
            item.storage.prefetch(&inner);
        }
    }

    fn part_name(&self, path: &RelPath) -> Vec<u8> {
        part_name(path.name())
    }

    async fn create(&self, path: &RelPath, options: &CreateOptions) -> Result<Arc<dyn WriteAt>> {
        let (item, inner) = self.changing("create", path)?;
        item.storage.create(&inner, options).await
    }

    async fn read_whole(&self, path: &RelPath, limit: u64) -> Result<Whole> {
        let (item, inner) = self.within("read", path)?;
        item.storage.read_whole(&inner, limit).await
    }

    async fn write_whole(
        &self,
        path: &RelPath,
        bytes: Bytes,
        options: &CommitOptions,
    ) -> Result<()> {
        let (item, inner) = self.changing("write", path)?;
        item.storage.write_whole(&inner, bytes, options).await
    }

    async fn read_many(&self, paths: Vec<RelPath>, limit: u64) -> Vec<Result<Whole>> {
        let mut outcomes = Vec::with_capacity(paths.len());
        for path in &paths {
            outcomes.push(self.read_whole(path, limit).await);
        }
        outcomes
    }

    async fn write_many(&self, files: Vec<SmallFile>) -> Vec<Result<()>> {
        let mut outcomes = Vec::with_capacity(files.len());
        for file in files {
            outcomes.push(self.write_whole(&file.path, file.bytes, &file.options).await);
        }
        outcomes
    }

    async fn space(&self, path: &RelPath) -> Result<Option<Space>> {
        match self.find("find room", path)? {
            Some((_, item, inner)) => item.storage.space(&inner).await,
            None => Ok(None),
        }
    }

    async fn allocated(&self, path: &RelPath) -> Result<Option<u64>> {
        match self.find("access", path)? {
            Some((_, item, inner)) => item.storage.allocated(&inner).await,
            None => Ok(None),
        }
    }

    async fn lock(&self, path: &RelPath) -> Result<Lock> {
        Err(self.refused(ErrorKind::Unsupported, "lock", path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        if text.is_empty() { RelPath::root() } else { RelPath::parse(text).unwrap() }
    }

    /// Formerly, bytes that are not UTF-8 were all the same, and a line feed in a name began another path.
    #[test]
    fn no_two_shares_have_the_same_label() {
        let paths: [&[u8]; 7] =
            [b"/a", b"/a\n/b", b"/a\\n/b", b"/\xff", b"/\xfe", b"/\\xff", "/\u{fffd}".as_bytes()];
        let paths = paths.map(|path| Path::new(std::ffi::OsStr::from_bytes(path)));
        let mut labels = paths.map(escaped).to_vec();
        assert_eq!(labels[0], "/a");
        assert!(labels.iter().all(|label| !label.contains('\n')), "{labels:?}");
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), paths.len());
    }

    #[tokio::test]
    async fn the_label_of_a_share_matches_each_of_its_paths() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        for name in ["a", "a b", "c\nd"] {
            fs::create_dir(top.join(name)).unwrap();
        }
        let label = |names: &[&str]| {
            let paths: Vec<_> = names.iter().map(|name| top.join(name)).collect();
            Contents::open(&paths).unwrap().label
        };
        let (one, several, other) = (label(&["a"]), label(&["c\nd", "a"]), label(&["a b"]));
        let is_meant = labels_with(&top.join("a")).unwrap();
        assert_eq!([&one, &several, &other].map(|label| is_meant(label)), [true, true, false]);
        let is_meant = labels_with(&top.join("c\nd")).unwrap();
        assert_eq!([&one, &several, &other].map(|label| is_meant(label)), [false, true, false]);
    }

    #[tokio::test]
    async fn operations_stay_within_one_item_of_a_share() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path();
        for (above, name) in [("a", "x"), ("b", "y"), ("", "f"), ("", "beside")] {
            fs::create_dir_all(top.join(above)).unwrap();
            fs::write(top.join(above).join(name), name).unwrap();
        }
        let contents = Contents::open(&["a", "b", "f"].map(|name| top.join(name))).unwrap();
        assert_eq!(contents.name, "a and 2 more");
        let share = contents.storage;
        let mut names = Vec::new();
        let mut listing = share.list(&path("")).await.unwrap();
        while let Some(batch) = listing.next().await {
            names.extend(batch.unwrap().into_iter().map(|entry| entry.path));
        }
        assert_eq!(names, ["a", "b", "f"].map(path));
        let mut listing = share.list(&path("b")).await.unwrap();
        let batch = listing.next().await.unwrap().unwrap();
        assert_eq!((batch.len(), &batch[0].path), (1, &path("b/y")));
        assert_eq!(share.read_whole(&path("f"), 10).await.unwrap().bytes, "f");

        let kind = |outcome: Result<()>| outcome.unwrap_err().kind();
        let stat = |text: &'static str| {
            let share = Arc::clone(&share);
            async move { share.stat(&path(text)).await.map(drop) }
        };
        assert_eq!(kind(stat("beside").await), ErrorKind::NotFound);
        assert_eq!(kind(stat("f/x").await), ErrorKind::NotADirectory);
        let rename = |from: &'static str, to: &'static str| {
            let share = Arc::clone(&share);
            async move { share.rename(&path(from), &path(to)).await }
        };
        assert_eq!(kind(rename("a/x", "b/x").await), ErrorKind::Unsupported);
        for (from, to) in [("a/x", "c"), ("a/x", "f"), ("a", "b/a"), ("f", "a/f"), ("a", "c")] {
            assert_eq!(kind(rename(from, to).await), ErrorKind::PermissionDenied, "{from} {to}");
        }
        rename("a/x", "a/z").await.unwrap();
        let link = |link: LinkKind, at: &'static str| {
            let share = Arc::clone(&share);
            async move { share.create_link(&path(at), &link, true).await }
        };
        let symbolic = || LinkKind::Symbolic(b"/etc".to_vec());
        assert_eq!(kind(link(symbolic(), "f").await), ErrorKind::PermissionDenied);
        assert_eq!(kind(link(symbolic(), "c").await), ErrorKind::PermissionDenied);
        let hard = LinkKind::Hard(path("b/y"));
        assert_eq!(kind(link(hard, "a/h").await), ErrorKind::Unsupported);
        assert_eq!(kind(share.remove(&path("a")).await), ErrorKind::PermissionDenied);
        assert_eq!(kind(share.remove(&path("beside")).await), ErrorKind::PermissionDenied);
        assert!(top.join("beside").exists() && top.join("a/z").exists());
    }
}
