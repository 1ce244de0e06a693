//! Files of the spool: their content, and what the next process finds of them.

use haul_storage::ErrorKind;
use tempfile::TempDir;

use super::super::sent::Sent;
use super::super::state::Onto;
use super::*;

struct World {
    directory: TempDir,
    spool: Arc<Spool>,
}

impl World {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let spool = Arc::new(Spool::open(directory.path(), "x").unwrap());
        Self { directory, spool }
    }

    fn pending(&self, base: Option<u64>) -> Arc<Pending> {
        let path = RelPath::parse("a/b").unwrap();
        let base = base.map(|size| Entry::new(path.clone(), EntryKind::File, size));
        Pending::new(self.spool.create().unwrap(), path, base.as_ref(), StoredTimes::ALL).unwrap()
    }

    /// What the next process finds.
    async fn recovered(self, pending: Arc<Pending>) -> (Self, Arc<Pending>) {
        pending.settle(&self.spool, &RelPath::root(), true).await.unwrap();
        drop((pending, self.spool));
        let spool = Arc::new(Spool::open(self.directory.path(), "x").unwrap());
        let (file, record) = spool.recover().unwrap().pop().unwrap();
        let path = record.rel_path().unwrap();
        let found = Pending::recovered(file, path, &record, StoredTimes::ALL, &RelPath::root());
        let found = found.unwrap();
        (Self { directory: self.directory, spool }, found)
    }
}

fn read(pending: &Pending, start: u64, length: u64) -> Option<Vec<u8>> {
    pending.read(Range::new(start, length)).map(|read| read.unwrap())
}

#[tokio::test]
async fn written_bytes_are_read_back_also_by_the_next_process() {
    let world = World::new();
    let pending = world.pending(None);
    assert_eq!(pending.write(Some(3), b"abc").unwrap(), 3);
    assert_eq!(pending.write(None, b"def").unwrap(), 6);
    assert_eq!(read(&pending, 0, 100).unwrap(), b"\0\0\0abcdef");
    let (_world, found) = world.recovered(pending).await;
    assert_eq!(read(&found, 0, 100).unwrap(), b"\0\0\0abcdef");
    let entry = found.entry().unwrap();
    assert_eq!((entry.path.to_string(), entry.size), ("a/b".to_owned(), 9));
    assert!(!found.is_uploaded() && found.state().handles.closed);
}

#[tokio::test]
async fn the_rest_of_a_file_is_fetched_around_what_was_written() {
    let world = World::new();
    let pending = world.pending(Some(10));
    assert_eq!(read(&pending, 0, 4), None);
    pending.write(Some(4), b"NEW").unwrap();
    assert_eq!(read(&pending, 4, 3).unwrap(), b"NEW");
    let gaps = [Range::new(0, 4), Range::new(7, 3)];
    assert_eq!(pending.missing(Range::new(0, 100)), gaps);
    let (_world, found) = world.recovered(pending).await;
    assert_eq!(found.missing(Range::new(0, 100)), gaps);
    found.fill(0, b"0123456789").unwrap();
    assert_eq!(read(&found, 0, 100).unwrap(), b"0123NEW789");
}

#[tokio::test]
async fn a_file_that_is_changed_after_it_was_closed_does_not_count_as_closed() {
    let world = World::new();
    let pending = world.pending(None);
    // Too long for a digest in the record.
    pending.write(None, &vec![7; 2 << 20]).unwrap();
    pending.settle(&world.spool, &RelPath::root(), true).await.unwrap();
    pending.write(Some(0), b"new").unwrap();
    let closed = |world: &World| world.spool.recover().unwrap().remove(0).1.closed;
    assert!(!closed(&world));
    pending.settle(&world.spool, &RelPath::root(), true).await.unwrap();
    assert!(closed(&world));
}

/// Formerly the next process counted it as complete, if this one ended before the conflict copy was made.
#[tokio::test]
async fn a_file_that_was_left_open_stays_so_until_it_is_uploaded() {
    let mut world = World::new();
    let mut pending = world.pending(Some(3));
    assert!(pending.begin_writing());
    pending.write(Some(0), b"new").unwrap();
    pending.settle(&world.spool, &RelPath::root(), false).await.unwrap();
    for _ in 0..2 {
        drop((pending, world.spool));
        let spool = Arc::new(Spool::open(world.directory.path(), "x").unwrap());
        world = World { directory: world.directory, spool };
        let (file, record) = world.spool.recover().unwrap().pop().unwrap();
        assert!(!record.closed);
        let path = record.rel_path().unwrap();
        pending =
            Pending::recovered(file, path, &record, StoredTimes::ALL, &RelPath::root()).unwrap();
        assert!(pending.state().handles.was_left_open);
        pending.settle(&world.spool, &RelPath::root(), true).await.unwrap();
    }
    pending.state().complete();
    pending.settle(&world.spool, &RelPath::root(), true).await.unwrap();
    assert!(world.spool.recover().unwrap().remove(0).1.closed);
}

#[test]
fn a_record_of_an_earlier_generation_is_not_closed() {
    let world = World::new();
    let pending = world.pending(None);
    pending.write(None, &vec![7; 2 << 20]).unwrap();
    let record = pending.state().record(&RelPath::root()).unwrap();
    let (record, generation) =
        (Record { closed: true, ..record }, pending.state().generations.content);
    let closed = || world.spool.recover().unwrap().remove(0).1.closed;
    pending.store(record.clone(), generation, &RelPath::root()).unwrap();
    assert!(closed());
    pending.write(Some(0), b"new").unwrap();
    assert!(!closed());
    // As if the change had come just before the record was stored.
    pending.store(record, generation, &RelPath::root()).unwrap();
    assert!(!closed());
}

#[tokio::test]
async fn a_long_message_of_a_server_does_not_keep_a_file_from_being_recorded() {
    let world = World::new();
    let pending = world.pending(None);
    pending.write(None, b"new").unwrap();
    let error = Error::new(ErrorKind::PermissionDenied, "upload");
    pending.note_failure(&RelPath::root(), error.because("\u{1}".repeat(100_000)));
    pending.settle(&world.spool, &RelPath::root(), true).await.unwrap();
    assert!(world.spool.recover().unwrap().remove(0).1.failure.is_some());
}

/// The longest file that the file system of the spool can hold.
fn longest(file: &SpoolFile) -> u64 {
    let (mut fits, mut fails) = (0, 1 << 63);
    while fails - fits > 1 {
        let middle = fits + (fails - fits) / 2;
        match file.set_size(middle) {
            Ok(()) => fits = middle,
            Err(_) => fails = middle,
        }
    }
    fits
}

#[test]
fn a_write_that_fails_after_a_part_leaves_nothing_behind_the_end() {
    let world = World::new();
    let most = longest(&world.spool.create().unwrap());
    let pending = world.pending(None);
    pending.write(None, b"content").unwrap();
    // The first two bytes fit, unless the file system has no limit of its own.
    pending.write(Some(most - 2), b"long").unwrap_err();
    assert_eq!((pending.file.size().unwrap(), pending.state().size), (7, 7));
}

#[test]
fn bytes_that_were_cut_off_are_not_fetched() {
    let pending = World::new().pending(Some(10));
    pending.set_size(4).unwrap();
    pending.set_size(8).unwrap();
    assert_eq!(pending.missing(Range::new(0, 100)), [Range::new(0, 4)]);
    pending.fill(0, b"0123456789").unwrap();
    assert_eq!(read(&pending, 0, 100).unwrap(), b"0123\0\0\0\0");
    pending.set_size(0).unwrap();
    assert_eq!(read(&pending, 0, 100).unwrap(), b"");
}

#[test]
fn a_hole_is_not_fetched() {
    let pending = World::new().pending(Some(10));
    if pending.punch(Range::new(2, 100)).is_err() {
        // The file system of temporary files has no holes.
        return;
    }
    pending.fill(0, b"0123456789").unwrap();
    assert_eq!(read(&pending, 0, 100).unwrap(), b"01\0\0\0\0\0\0\0\0");
}

/// Formerly, the record that the content had been synced for replaced the one with the attempt.
#[test]
fn an_upload_that_begins_while_the_content_is_synced_stays_in_the_record() {
    let (world, root) = (World::new(), RelPath::root());
    let path = |text| RelPath::parse(text).unwrap();
    let pending = world.pending(None);
    let attempt = |path| {
        let sent = Sent { size: 0, modified: None, digest: None };
        Attempt { path, sent, has_part: true }
    };
    let record = pending.state().record(&root).unwrap();
    pending.begin_upload(&root, attempt(path("a/b")));
    pending.store(record.clone(), 0, &root).unwrap();
    let recorded = || {
        let record = world.spool.recover().unwrap().remove(0).1;
        let at = record.rel_path().unwrap();
        record.attempts.iter().map(|one| one.attempt(&at, &root).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(recorded(), [attempt(path("a/b"))]);
    // The record has the path before a rename.
    pending.state().move_to(path("c"), Onto::default());
    pending.begin_upload(&root, attempt(path("c")));
    let all = [attempt(path("a/b")), attempt(path("c"))];
    assert_eq!(recorded(), all);
    pending.store(record, 0, &root).unwrap();
    assert_eq!(recorded(), all);
}

/// Formerly, a record from before the end of an upload was stored without that upload, so that the next process took
/// the uploaded version for that of another client.
#[test]
fn an_upload_that_ends_while_the_content_is_synced_stays_in_the_record() {
    let (world, root) = (World::new(), RelPath::root());
    let pending = world.pending(Some(3));
    let path = RelPath::parse("a/b").unwrap();
    let sent = Sent { size: 5, modified: None, digest: None };
    let attempt = Attempt { path, sent, has_part: false };
    pending.begin_upload(&root, attempt.clone());
    let record = pending.state().record(&root).unwrap();
    pending.replaces(Identity { size: 5, ..Identity::default() });
    pending.store(record, 0, &root).unwrap();
    let record = world.spool.recover().unwrap().remove(0).1;
    let at = record.rel_path().unwrap();
    let found: Vec<_> =
        record.attempts.iter().map(|one| one.attempt(&at, &root).unwrap()).collect();
    assert_eq!(found, [attempt]);
}
