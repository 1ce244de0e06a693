//! Shows that a directory is the copy of a moved one, and not complete: both contain a note with the same content. A
//! rerun of `mv DIR NEW` finds that NEW exists, and continues instead of moving DIR into it.

use bytes::Bytes;
use haul_storage::{
    CommitOptions, Entry, Error, ErrorKind, Metadata, RelPath, Result, Storage, StorageExt as _,
    temporary_name, unique,
};

use crate::marker::is_marker;

/// The longest note, in bytes.
pub(super) const LONGEST: u64 = 128;

/// A directory of a storage.
pub type Place<'a> = (&'a dyn Storage, &'a RelPath);

/// A directory that is being moved, and its new one.
#[derive(Debug, Clone, Copy)]
pub struct UnfinishedMove<'a> {
    /// The directory that is moved.
    pub from: Place<'a>,
    /// The directory that takes its place.
    pub to: Place<'a>,
}

impl UnfinishedMove<'_> {
    /// Whether an earlier run began to move `from` to `to`. A note that must not be read, or is no note, counts as none:
    /// with it, the move could not have begun.
    ///
    /// # Errors
    /// Other failures to read the notes.
    pub async fn is_begun(&self) -> Result<bool> {
        match read(self.from).await? {
            Some(note) => Ok(read(self.to).await? == Some(note)),
            None => Ok(false),
        }
    }

    /// Writes the notes: the move begins. If `to` does not exist, creates it with the permission bits `mode`. If that
    /// fails, no note is left in `from`.
    ///
    /// # Errors
    /// Those of creating and writing; `AlreadyExists` if something else has the name of a note.
    pub async fn begin(&self, mode: Option<u32>) -> Result<()> {
        let note = Bytes::from(unique().into_bytes());
        // First: without it, a rerun would take an empty `to` for a directory to move `from` into.
        write(self.from, note.clone()).await?;
        let begun = self.create(mode, note).await;
        if begun.is_err() {
            // If this fails too, the first failure is the one to report.
            drop(remove(self.from).await);
        }
        begun
    }

    async fn create(&self, mode: Option<u32>, note: Bytes) -> Result<()> {
        let (storage, directory) = self.to;
        if let Some(above) = directory.parent() {
            storage.create_dir_all(&above).await?;
        }
        if storage.capabilities().rename && self.create_noted(mode, &note).await? {
            return Ok(());
        }
        let is_new = match storage.create_dir_as(directory, mode).await {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
            Err(error) => return Err(error),
        };
        let written = write(self.to, note).await;
        if written.is_err() && is_new {
            // A rerun would move `from` into it. If this fails too, the first failure is the one to report.
            drop(storage.remove(directory).await);
        }
        written
    }

    /// Creates `to` with its note in it, under another name first: if haul is killed before `to` has its note, a rerun
    /// would move `from` into it. Returns false if `to` exists, if no directory can be created under that name (it may
    /// be too long where `to` is not), or if the server does not rename the directory.
    async fn create_noted(&self, mode: Option<u32>, note: &Bytes) -> Result<bool> {
        let (storage, directory) = self.to;
        let Ok(None) = storage.find(directory).await else { return Ok(false) };
        let name = temporary_name(directory.name(), "noted");
        let Ok(noted) = directory.with_name(name) else { return Ok(false) };
        if !create_anew((storage, &noted), mode).await {
            return Ok(false);
        }
        let written = write((storage, &noted), note.clone()).await;
        let renamed = match &written {
            Ok(()) => storage.rename(&noted, directory).await.is_ok(),
            Err(_) => false,
        };
        if !renamed {
            // Only what this function creates is removed. If that fails too, the first failure is the one to report.
            drop(storage.remove(&note_in(&noted)?).await);
            drop(storage.remove(&noted).await);
        }
        written.map(|()| renamed)
    }

    /// Removes the note in `to`, once `from` is removed.
    ///
    /// # Errors
    /// Those of removing.
    pub async fn end(&self) -> Result<()> {
        remove(self.to).await
    }
}

/// Creates a directory with the permission bits `mode`. One that a killed run has left there is replaced, not used: it
/// may have other permission bits, or be another user's. Returns false if that fails.
async fn create_anew(place: Place<'_>, mode: Option<u32>) -> bool {
    let (storage, directory) = place;
    match storage.create_dir_as(directory, mode).await {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            remove_noted(place).await.is_ok()
                && storage.create_dir_as(directory, mode).await.is_ok()
        }
        Err(_) => false,
    }
}

/// Removes a directory that contains nothing but a note, if that.
async fn remove_noted((storage, directory): Place<'_>) -> Result<()> {
    // Not what a link leads to.
    storage.check_dir(directory).await?;
    let path = note_in(directory)?;
    if storage.find(&path).await?.is_some_and(|existing| is_note(&existing)) {
        storage.remove(&path).await?;
    }
    storage.remove(directory).await
}

/// Whether an entry is a file by which haul recognises directories: it is neither copied nor moved. Something else with
/// such a name may have content that nothing else has.
pub fn is_note(entry: &Entry) -> bool {
    let name = entry.path.name();
    let longest = match is_marker(name) {
        true => 0,
        false if name == note_name() => LONGEST,
        false => return false,
    };
    entry.is_file() && entry.known_size().is_some_and(|size| size <= longest)
}

fn note_name() -> Vec<u8> {
    temporary_name(b"haul", "move")
}

fn note_in(directory: &RelPath) -> Result<RelPath> {
    directory
        .join(note_name())
        .map_err(|error| Error::new(ErrorKind::InvalidInput, "access").because(error.to_string()))
}

async fn read((storage, directory): Place<'_>) -> Result<Option<Bytes>> {
    match storage.read_whole(&note_in(directory)?, LONGEST).await {
        Ok(whole) => Ok(Some(whole.bytes).filter(|note| is_formed(note))),
        Err(error) if is_no_note(error.kind()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a note has the form of those that [`unique`] makes.
fn is_formed(note: &[u8]) -> bool {
    !note.is_empty() && note.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
}

/// Whether reading fails because there is no note, or none of this user. `Changed` is a file that is too long.
const fn is_no_note(kind: ErrorKind) -> bool {
    use ErrorKind::{Changed, IsADirectory, NotADirectory, NotFound, PermissionDenied};
    matches!(kind, NotFound | PermissionDenied | NotADirectory | IsADirectory | Changed)
}

/// Removes the note. The directory keeps its time where times can be set.
async fn remove(place: Place<'_>) -> Result<()> {
    let (storage, directory) = place;
    let modified = storage.stat(directory).await?.modified;
    match storage.remove(&note_in(directory)?).await {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    restore(place, Metadata { modified, ..Metadata::default() }).await;
    Ok(())
}

/// Writes the note. The directory keeps its time where times can be set: a copy of it gets that.
async fn write(place: Place<'_>, note: Bytes) -> Result<()> {
    let (storage, directory) = place;
    let path = note_in(directory)?;
    if storage.find(&path).await?.is_some_and(|existing| !is_note(&existing)) {
        let cause = "haul needs its name, and has not written it";
        let name = storage.location().display(&path);
        return Err(Error::new(ErrorKind::AlreadyExists, "move").at(name).because(cause));
    }
    let modified = storage.stat(directory).await?.modified;
    let options =
        CommitOptions { metadata: Metadata::default(), replace: true, sync: false, expected: None };
    storage.write_whole(&path, note, &options).await?;
    restore(place, Metadata { modified, ..Metadata::default() }).await;
    Ok(())
}

/// Sets the time of a directory. Failures are ignored: a copy then gets the time of the change.
async fn restore((storage, directory): Place<'_>, metadata: Metadata) {
    if metadata.modified.is_some() && storage.capabilities().times {
        drop(storage.set_metadata(directory, &metadata).await);
    }
}

#[cfg(test)]
mod tests {
    use haul_storage::memory::{MemoryStorage, Operation};

    use super::*;

    #[tokio::test]
    async fn a_move_that_cannot_be_noted_leaves_no_new_directory() {
        let (old, new) = (RelPath::parse("old").unwrap(), RelPath::parse("new").unwrap());
        for exists in [false, true] {
            let (near, far) = (MemoryStorage::new(), MemoryStorage::new());
            near.add_file("old/f", "x");
            if exists {
                far.add_dir("new");
            }
            far.faults().on(Operation::WriteWhole).fail(ErrorKind::NoSpace);
            let begun = UnfinishedMove { from: (&*near, &old), to: (&*far, &new) };
            assert_eq!(begun.begin(None).await.unwrap_err().kind(), ErrorKind::NoSpace);
            assert_eq!(near.paths(), ["old/", "old/f"]);
            assert_eq!(far.paths(), if exists { &["new/"][..] } else { &[] });
        }
    }

    /// Formerly, the new directory existed without a note for a moment: a rerun after a kill moved the old one into it.
    #[tokio::test]
    async fn a_new_directory_never_exists_without_its_note() {
        let (old, new) = (RelPath::parse("old").unwrap(), RelPath::parse("new").unwrap());
        let (near, far) = (MemoryStorage::new(), MemoryStorage::new());
        near.add_file("old/f", "x");
        let begun = UnfinishedMove { from: (&*near, &old), to: (&*far, &new) };
        // Like a kill before the note is written, which removes nothing.
        far.faults().on(Operation::WriteWhole).fail(ErrorKind::NoSpace);
        far.faults().on(Operation::Remove).fail(ErrorKind::PermissionDenied);
        begun.begin(None).await.unwrap_err();
        assert!(!far.exists("new"));
        far.faults().clear();
        begun.begin(None).await.unwrap();
        assert!(begun.is_begun().await.unwrap());
        assert_eq!(far.paths(), ["new/", "new/.haul.move.haul-temp"]);
    }

    /// Formerly, the leftover was used as it was: others could read what was moved.
    #[tokio::test]
    async fn what_has_the_temporary_name_of_a_new_directory_is_never_used() {
        const NOTED: &str = ".new.noted.haul-temp";
        let (old, new) = (RelPath::parse("old").unwrap(), RelPath::parse("new").unwrap());
        let readable = Metadata { mode: Some(0o755), ..Metadata::default() };
        let begin = async |far: &MemoryStorage| {
            let near = MemoryStorage::new();
            near.add_file("old/f", "x");
            let begun = UnfinishedMove { from: (&*near, &old), to: (far, &new) };
            begun.begin(Some(0o700)).await.unwrap();
            assert!(begun.is_begun().await.unwrap());
            assert_eq!(far.attributes("new").mode, Some(0o700));
        };
        // What a killed run leaves, before and after the note.
        for note in [false, true] {
            let far = MemoryStorage::new();
            far.add_dir(NOTED);
            far.set(NOTED, &readable);
            if note {
                far.add_file(format!("{NOTED}/.haul.move.haul-temp"), "1-2-3");
            }
            begin(&far).await;
            assert_eq!(far.paths(), ["new/", "new/.haul.move.haul-temp"]);
        }
        // Something else is left alone.
        let file = MemoryStorage::new();
        file.add_file(NOTED, "x");
        let link = MemoryStorage::new();
        link.add_dir("other");
        link.add_symlink(NOTED, "other");
        let full = MemoryStorage::new();
        full.add_file(format!("{NOTED}/f"), "x");
        // Another user's, in a directory with the sticky bit.
        let foreign = MemoryStorage::new();
        foreign.add_dir(NOTED);
        foreign.set(NOTED, &readable);
        foreign.faults().on(Operation::Remove).path(NOTED).fail(ErrorKind::PermissionDenied);
        for far in [file, link, full, foreign] {
            let before = far.paths();
            begin(&far).await;
            let mut after = far.paths();
            after.retain(|path| !path.starts_with("new/"));
            assert_eq!(after, before);
        }
    }

    /// Such as eCryptfs, where names have at most 143 bytes. Formerly, the move failed.
    #[tokio::test]
    async fn a_move_begins_where_the_temporary_name_of_a_new_directory_is_too_long() {
        let (old, new) = (RelPath::parse("old").unwrap(), RelPath::parse("n".repeat(143)).unwrap());
        let (near, far) = (MemoryStorage::new(), MemoryStorage::new());
        near.add_file("old/f", "x");
        let noted = temporary_name(new.name(), "noted");
        far.faults().on(Operation::CreateDir).path(noted).fail(ErrorKind::InvalidInput);
        let begun = UnfinishedMove { from: (&*near, &old), to: (&*far, &new) };
        begun.begin(None).await.unwrap();
        assert!(begun.is_begun().await.unwrap());
        assert_eq!(far.paths(), [format!("{new}/"), format!("{new}/.haul.move.haul-temp")]);
    }

    #[tokio::test]
    async fn a_move_begins_on_a_server_that_does_not_rename_directories() {
        let (old, new) = (RelPath::parse("old").unwrap(), RelPath::parse("new").unwrap());
        let (near, far) = (MemoryStorage::new(), MemoryStorage::new());
        near.add_file("old/f", "x");
        far.faults().on(Operation::Rename).fail(ErrorKind::PermissionDenied);
        let begun = UnfinishedMove { from: (&*near, &old), to: (&*far, &new) };
        begun.begin(None).await.unwrap();
        assert!(begun.is_begun().await.unwrap());
        assert_eq!(far.paths(), ["new/", "new/.haul.move.haul-temp"]);
    }
}
