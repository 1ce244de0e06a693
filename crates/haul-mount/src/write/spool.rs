//! The spool: files that wait to be uploaded, on this machine's disk.
//!
//! ```text
//! SPOOL/KEY/lock        held while the location is mounted for writing
//! SPOOL/KEY/location    the location, for `haul mount --pending`
//! SPOOL/KEY/NUMBER      a file: the head (see `record`), then the content
//! SPOOL/KEY/NUMBER.MAP  ranges of a record that are too many for its head; MAP is their digest
//! ```
//!
//! KEY is a hash of the identity of the location. A spool file exists from the first open for writing until the upload
//! is done. One without a valid head was never closed.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use haul_storage::{Error, ErrorKind, Range, RelPath, Result, Timestamp, replace_private};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::record::{HEAD, Map, Record};
use crate::lock::{lock, lock_file};

const LOCK: &str = "lock";
const LOCATION: &str = "location";

/// Longest content of which the record has a digest.
const MOST_DIGEST: u64 = 1 << 20;

/// The spool of a location, which this process has locked.
#[derive(Debug)]
pub(crate) struct Spool {
    path: PathBuf,
    directory: File,
    _lock: File,
    next: AtomicU64,
}

/// A file in the spool.
#[derive(Debug)]
pub(super) struct SpoolFile {
    path: PathBuf,
    file: File,
    slots: Mutex<Slots>,
    /// Its name is durable.
    is_named: AtomicBool,
    is_removed: AtomicBool,
}

/// The records of a file.
#[derive(Debug, Default)]
struct Slots {
    /// The number of the next record.
    number: u64,
    /// The digests of the maps that the last two records need, the latest one first.
    needed: [Option<String>; 2],
    /// The digests of the maps that exist.
    maps: Vec<String>,
}

/// A file that waits to be uploaded, for users.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PendingFile {
    /// The mounted location.
    pub location: String,
    /// The path below it.
    pub path: RelPath,
    /// Length in bytes.
    pub size: u64,
    /// Time of modification.
    pub modified: Timestamp,
    /// Why the last upload failed.
    pub failure: Option<String>,
    /// Its spool file: 128 KiB of records, then the content.
    pub spool_file: PathBuf,
}

impl Spool {
    /// The directory of a location in the directory of all spools.
    fn directory_of(spools: &Path, identity: &str) -> PathBuf {
        let mut key = blake3::hash(identity.as_bytes()).to_hex().to_string();
        key.truncate(32);
        spools.join(key)
    }

    /// Opens the spool of a location that its text identifies.
    #[cfg(test)]
    pub(crate) fn open(spools: &Path, location: &str) -> Result<Self> {
        Self::open_as(spools, location, location)
    }

    /// Opens or creates the spool of the location that `identity` identifies, and locks it. `location` is only shown.
    ///
    /// # Errors
    /// `Busy` if another process has it open, and those of the file system.
    pub(crate) fn open_as(spools: &Path, identity: &str, location: &str) -> Result<Self> {
        let path = Self::directory_of(spools, identity);
        let failed = |error| Error::from_io("open the spool", error).at(path.display());
        DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(failed)?;
        // The name of the spool's directory has to be durable, too.
        File::open(spools).and_then(|above| above.sync_all()).map_err(failed)?;
        let directory = File::open(&path).map_err(failed)?;
        let held = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path.join(LOCK))
            .map_err(failed)?;
        lock_file(&held).map_err(|error| {
            let error = failed(error);
            if error.kind() != ErrorKind::Busy {
                return error;
            }
            error
                .because("this location is already mounted for writing")
                .hinting("use that mount, or mount read-only")
        })?;
        let text = path.join(LOCATION);
        if !text.exists() {
            replace_private(&text, location.as_bytes()).map_err(failed)?;
        }
        let next = numbers(&path).map_err(failed)?.into_iter().max().unwrap_or(0) + 1;
        Ok(Self { path, directory, _lock: held, next: AtomicU64::new(next) })
    }

    /// Creates an empty file, with space for its records: a full disk must not keep it from being recorded.
    ///
    /// # Errors
    /// Of the file system, such as a full disk.
    pub(super) fn create(&self) -> io::Result<SpoolFile> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.path.join(name(number));
        let file =
            File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        if let Err(error) = reserve_head(&file) {
            // If this fails, the next mount removes it.
            drop(fs::remove_file(&path));
            return Err(error);
        }
        Ok(SpoolFile::new(path, file, Slots::default(), false))
    }

    /// The files that an earlier process has left, with their records. Files without one are removed: they were never
    /// closed, and their paths are unknown. Files of another version of haul, and files that have only records whose
    /// maps are missing or damaged, stay.
    pub(super) fn recover(&self) -> io::Result<Vec<(SpoolFile, Record)>> {
        let mut found = Vec::new();
        let mut maps = self.maps()?;
        for number in numbers(&self.path)? {
            let path = self.path.join(name(number));
            let file = File::options().read(true).write(true).open(&path)?;
            let head = read_head(&file)?;
            let failed = Cell::new(None);
            let record = Record::read(&head, |digest| match fs::read(map_path(&path, digest)) {
                Ok(map) => Some(map),
                Err(error) if is_missing(&error) => None,
                Err(error) => {
                    failed.set(Some(error));
                    None
                }
            });
            // It would be an older record, without the last changes.
            if let Some(error) = failed.take() {
                return Err(error);
            }
            match record {
                Some((mut record, number)) => {
                    let needed = [record.map().map(|map| map.digest), None];
                    // Only the map of this record is known to be complete.
                    let mut maps = maps.remove(&path).unwrap_or_default();
                    for map in maps.extract_if(.., |map| Some(&*map) != needed[0].as_ref()) {
                        fs::remove_file(map_path(&path, &map))?;
                    }
                    let slots = Slots { number: number + 1, needed, maps };
                    let file = SpoolFile::new(path, file, slots, true);
                    record.closed &= file.is_as_recorded(&record)?;
                    found.push((file, record));
                }
                None if Record::is_of_other(&head) => {}
                None => fs::remove_file(&path)?,
            }
        }
        Ok(found)
    }

    /// The digests of the maps of each spool file. Those without one, which a process that was killed has left, are
    /// removed.
    fn maps(&self) -> io::Result<HashMap<PathBuf, Vec<String>>> {
        let mut found: HashMap<_, Vec<_>> = HashMap::new();
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            let Some(digest) = path.extension().and_then(OsStr::to_str) else { continue };
            let spool_file = path.with_extension("");
            if spool_file.exists() {
                found.entry(spool_file).or_default().push(digest.to_owned());
            } else {
                fs::remove_file(&path)?;
            }
        }
        Ok(found)
    }

    /// Makes the names of all files durable.
    pub(super) fn sync_names(&self) -> io::Result<()> {
        self.directory.sync_all()
    }
}

/// The files of a location that wait to be uploaded, or those of all locations. The spool may be in use.
///
/// # Errors
/// If a spool cannot be read. A missing one is empty.
pub fn pending_files(spools: &Path, identity: Option<&str>) -> Result<Vec<PendingFile>> {
    let failed = |error| Error::from_io("read the spool", error).at(spools.display());
    let directories = match identity {
        Some(identity) => vec![Spool::directory_of(spools, identity)],
        None => match fs::read_dir(spools) {
            Ok(entries) => {
                let path = |entry: io::Result<fs::DirEntry>| entry.map(|entry| entry.path());
                entries.map(path).collect::<io::Result<Vec<_>>>().map_err(failed)?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed(error)),
        },
    };
    let mut found = Vec::new();
    for directory in directories {
        found.extend(pending_in(&directory).map_err(failed)?);
    }
    found.sort_by(|a, b| (&a.location, &a.path).cmp(&(&b.location, &b.path)));
    Ok(found)
}

fn pending_in(directory: &Path) -> io::Result<Vec<PendingFile>> {
    let location = match fs::read_to_string(directory.join(LOCATION)) {
        Ok(location) => location,
        Err(error) if is_missing(&error) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for number in numbers(directory)? {
        let spool_file = directory.join(name(number));
        let file = match File::open(&spool_file) {
            Ok(file) => file,
            // It was uploaded meanwhile.
            Err(error) if is_missing(&error) => continue,
            Err(error) => return Err(error),
        };
        let Some(record) = Record::without_map(&read_head(&file)?) else { continue };
        let Some(path) = record.rel_path() else { continue };
        let (seconds, nanos) = record.modified;
        found.push(PendingFile {
            location: location.clone(),
            path,
            size: file.metadata()?.len().saturating_sub(HEAD),
            modified: Timestamp { seconds, nanos },
            failure: record.failure,
            spool_file,
        });
    }
    Ok(found)
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The file of a map.
fn map_path(spool_file: &Path, digest: &str) -> PathBuf {
    spool_file.with_extension(digest)
}

fn name(number: u64) -> String {
    format!("{number:012}")
}

fn numbers(directory: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory)? {
        let found = entry?.file_name();
        let number = found.to_str().and_then(|text| text.parse::<u64>().ok());
        numbers.extend(number.filter(|number| found == name(*number).as_str()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Makes a new file as long as the head, with space on the disk for it.
fn reserve_head(file: &File) -> io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), 0, HEAD) {
        // This file system cannot reserve space without writing.
        Err(Errno::OPNOTSUPP) => file.write_all_at(&vec![0; usize::try_from(HEAD).unwrap_or(0)], 0),
        reserved => reserved.map_err(io::Error::from),
    }
}

fn read_head(file: &File) -> io::Result<Vec<u8>> {
    let mut head = read_up_to(file, 0, HEAD)?;
    head.resize(usize::try_from(HEAD).unwrap_or(0), 0);
    Ok(head)
}

/// Reads `length` bytes from an offset; fewer at the end of the file.
fn read_up_to(file: &File, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

impl SpoolFile {
    fn new(path: PathBuf, file: File, slots: Slots, is_named: bool) -> Self {
        let (slots, is_named) = (Mutex::new(slots), AtomicBool::new(is_named));
        Self { path, file, slots, is_named, is_removed: AtomicBool::new(false) }
    }

    /// Length of the content in bytes.
    pub(super) fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len().saturating_sub(HEAD))
    }

    /// Reads a range; shorter at the end of the content.
    pub(super) fn read(&self, range: Range) -> io::Result<Vec<u8>> {
        read_up_to(&self.file, HEAD + range.start(), range.len())
    }

    /// Writes bytes at an offset.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, HEAD + offset)
    }

    /// Sets the length of the content.
    pub(super) fn set_size(&self, size: u64) -> io::Result<()> {
        let length = size.checked_add(HEAD).ok_or(io::ErrorKind::FileTooLarge)?;
        self.file.set_len(length)
    }

    /// Reserves a range, without changing the length.
    pub(super) fn reserve(&self, range: Range) -> io::Result<()> {
        let (start, length) = (HEAD + range.start(), range.len());
        fallocate(&self.file, FallocateFlags::KEEP_SIZE, start, length).map_err(io::Error::from)
    }

    /// Fills a range with zeros, which take no space, without changing the length.
    pub(super) fn punch(&self, range: Range) -> io::Result<()> {
        let flags = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
        fallocate(&self.file, flags, HEAD + range.start(), range.len()).map_err(io::Error::from)
    }

    /// Stores a record. It is durable after [`SpoolFile::sync`].
    pub(super) fn store(&self, record: &Record) -> io::Result<()> {
        let mut slots = lock(&self.slots);
        let slot = record.slot(slots.number).ok_or(io::ErrorKind::InvalidInput)?;
        if let Some(map) = &slot.map {
            self.store_map(&mut slots, map)?;
        }
        self.file.write_all_at(&slot.bytes, slot.offset)?;
        slots.number += 1;
        slots.needed.swap(0, 1);
        slots.needed[0] = slot.map.map(|map| map.digest);
        Ok(())
    }

    /// Stores a map, unless it exists. It is durable afterwards.
    fn store_map(&self, slots: &mut Slots, map: &Map) -> io::Result<()> {
        if slots.maps.contains(&map.digest) {
            return Ok(());
        }
        let path = map_path(&self.path, &map.digest);
        let file =
            File::options().create(true).truncate(true).write(true).mode(0o600).open(path)?;
        file.write_all_at(&map.bytes, 0)?;
        file.sync_data()?;
        let directory = self.path.parent().unwrap_or(Path::new("."));
        File::open(directory)?.sync_all()?;
        slots.maps.push(map.digest.clone());
        Ok(())
    }

    /// Removes the maps that neither of the last two records needs. One that cannot be removed stays until the spool
    /// file is removed, or until the next mount.
    fn remove_old_maps(&self) {
        let mut slots = lock(&self.slots);
        let Slots { needed, maps, .. } = &mut *slots;
        maps.retain(|map| {
            let is_needed = needed.iter().flatten().any(|needed| needed == map);
            is_needed || fs::remove_file(map_path(&self.path, map)).is_err()
        });
    }

    /// Makes content, record and name durable; `store` stores the record. That of a short file gets the digest of its
    /// content, so that both may become durable in any order.
    pub(super) fn sync(
        &self,
        spool: &Spool,
        mut record: Record,
        store: impl FnOnce(Record) -> io::Result<()>,
    ) -> io::Result<()> {
        record.digest = self.digest(&record)?;
        if record.digest.is_none() {
            self.file.sync_data()?;
        }
        if let Some(map) = record.map() {
            // Here, because `store` may be called under a lock for which others wait.
            self.store_map(&mut lock(&self.slots), &map)?;
        }
        store(record)?;
        self.file.sync_data()?;
        self.remove_old_maps();
        if !self.is_named.load(Ordering::Acquire) {
            spool.sync_names()?;
            self.is_named.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// The digest of the content, if it is complete and short.
    fn digest(&self, record: &Record) -> io::Result<Option<String>> {
        let size = self.size()?;
        if record.present.is_some() || size > MOST_DIGEST {
            return Ok(None);
        }
        let content = self.read(Range::new(0, size))?;
        Ok(Some(blake3::hash(&content).to_hex().to_string()))
    }

    /// Whether the content is the one that was recorded; true if the record has no digest.
    fn is_as_recorded(&self, record: &Record) -> io::Result<bool> {
        if record.digest.is_none() {
            return Ok(true);
        }
        Ok(self.digest(record)? == record.digest)
    }

    /// Removes it; open descriptors still read it.
    pub(super) fn remove(&self) {
        if !self.is_removed.swap(true, Ordering::AcqRel) {
            // If that fails, the next mount uploads it again, and finds that it is there already.
            drop(fs::remove_file(&self.path));
            for map in lock(&self.slots).maps.drain(..) {
                drop(fs::remove_file(map_path(&self.path, &map)));
            }
        }
    }

    /// Whether it was removed.
    pub(super) fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use haul_storage::RangeSet;

    use super::super::record::Present;
    use super::*;

    fn record(path: &str) -> Record {
        Record {
            path: path.as_bytes().to_vec(),
            base: None,
            present: None,
            mode: None,
            modified: (5, 6),
            generation: 1,
            closed: true,
            digest: None,
            failure: None,
            attempts: Vec::new(),
            copy: None,
        }
    }

    #[test]
    fn a_closed_file_is_recovered_and_one_without_a_record_is_not() {
        let spools = tempfile::tempdir().unwrap();
        let spool = Spool::open(spools.path(), "sftp://host/a").unwrap();
        let file = spool.create().unwrap();
        file.write(3, b"content").unwrap();
        file.sync(&spool, record("one"), |record| file.store(&record)).unwrap();
        spool.create().unwrap().write(0, b"lost").unwrap();
        let listed = pending_files(spools.path(), Some("sftp://host/a")).unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!((listed[0].size, listed[0].path.to_string()), (10, "one".to_owned()));
        assert_eq!(pending_files(spools.path(), None).unwrap(), listed);
        assert_eq!(pending_files(spools.path(), Some("other")).unwrap(), []);
        assert_eq!(pending_files(&spools.path().join("none"), None).unwrap(), []);
        drop(spool);
        let spool = Spool::open(spools.path(), "sftp://host/a").unwrap();
        let found = spool.recover().unwrap();
        let [(file, found)] = &found[..] else { panic!("{found:?}") };
        assert!(found.closed && found.path == b"one");
        assert_eq!(file.read(Range::new(0, 100)).unwrap(), b"\0\0\0content");
        file.remove();
        assert!(spool.recover().unwrap().is_empty());
    }

    /// Formerly, a disk that was full by then kept a file from being recorded, and so from being uploaded.
    #[test]
    fn a_new_file_has_space_for_its_records() {
        let spools = tempfile::tempdir().unwrap();
        let spool = Spool::open(spools.path(), "x").unwrap();
        let file = spool.create().unwrap();
        assert_eq!(file.size().unwrap(), 0);
        // In units of 512 bytes.
        let blocks = file.file.metadata().unwrap().blocks();
        assert!(blocks * 512 >= HEAD, "{blocks}");
        // The reserved head is not mistaken for a record.
        assert!(spool.recover().unwrap().is_empty());
    }

    #[test]
    fn a_short_file_that_was_changed_after_it_was_closed_does_not_count_as_closed() {
        let spools = tempfile::tempdir().unwrap();
        let spool = Spool::open(spools.path(), "x").unwrap();
        let file = spool.create().unwrap();
        file.write(0, b"content").unwrap();
        file.sync(&spool, record("one"), |record| file.store(&record)).unwrap();
        file.write(0, b"C").unwrap();
        let found = spool.recover().unwrap();
        assert!(!found[0].1.closed);
    }

    /// A record whose ranges are in a map.
    fn mapped(path: &str, first: u64) -> Record {
        let mut ranges = RangeSet::new();
        (0..600).for_each(|at| ranges.insert(Range::new(first + 2 * at, 1)));
        Record { present: Some(Present::of(&ranges, 4000, false)), ..record(path) }
    }

    /// Formerly, it counted as complete when the file got the same ranges again.
    #[test]
    fn a_map_that_was_written_in_part_is_written_again() {
        let spools = tempfile::tempdir().unwrap();
        let spool = Spool::open(spools.path(), "x").unwrap();
        let file = spool.create().unwrap();
        file.sync(&spool, mapped("one", 0), |record| file.store(&record)).unwrap();
        let next = mapped("one", 1);
        fs::write(map_path(&file.path, &next.map().unwrap().digest), "part").unwrap();
        let (file, found) = spool.recover().unwrap().pop().unwrap();
        assert_eq!(found.present, mapped("one", 0).present);
        file.sync(&spool, next.clone(), |record| file.store(&record)).unwrap();
        assert_eq!(spool.recover().unwrap().pop().unwrap().1.present, next.present);
    }

    /// Formerly, the older record was used, so that the last changes were fetched from the server again.
    #[test]
    fn a_map_that_cannot_be_read_is_an_error() {
        let spools = tempfile::tempdir().unwrap();
        let spool = Spool::open(spools.path(), "x").unwrap();
        let file = spool.create().unwrap();
        file.sync(&spool, record("one"), |record| file.store(&record)).unwrap();
        let last = mapped("one", 0);
        file.sync(&spool, last.clone(), |record| file.store(&record)).unwrap();
        let map = map_path(&file.path, &last.map().unwrap().digest);
        let away = spools.path().join("away");
        fs::rename(&map, &away).unwrap();
        // A directory can be opened and not be read.
        fs::create_dir(&map).unwrap();
        assert!(spool.recover().is_err());
        fs::remove_dir(&map).unwrap();
        fs::rename(&away, &map).unwrap();
        assert_eq!(spool.recover().unwrap().pop().unwrap().1.present, last.present);
    }

    #[test]
    fn a_file_of_another_version_of_haul_stays() {
        let spools = tempfile::tempdir().unwrap();
        let spool = Spool::open(spools.path(), "x").unwrap();
        let file = spool.create().unwrap();
        file.file.write_all_at(b"haulspl9 and what it has", 0).unwrap();
        assert!(spool.recover().unwrap().is_empty());
        assert!(file.path.exists());
        // A record that was written only in part.
        file.file.write_all_at(b"haulspl1", 0).unwrap();
        assert!(spool.recover().unwrap().is_empty());
        assert!(!file.path.exists());
    }

    #[test]
    fn a_spool_is_private_and_used_by_one_process_at_a_time() {
        let spools = tempfile::tempdir().unwrap();
        let spool = Spool::open(spools.path(), "x").unwrap();
        let mode = fs::metadata(&spool.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let error = Spool::open(spools.path(), "x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert!(error.hint().is_some());
        assert!(Spool::open(spools.path(), "y").is_ok());
        drop(spool);
        assert!(Spool::open(spools.path(), "x").is_ok());
    }
}
