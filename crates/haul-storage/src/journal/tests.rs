//! Tests of journals: what counts after damage, a reboot or a change of the source, and when a journal is removed.

use std::path::Path;

use super::*;
use crate::{CreateOptions, Identity, Timestamp, rewritten_journal_name};

fn at(path: &Path) -> JournalPath {
    path.to_owned().into()
}

fn source(size: u64, name: &str) -> SourceVersion {
    let modified = Some(Timestamp { seconds: 7, nanos: 9 });
    let identity = Identity { size, modified, id: None, tag: None };
    SourceVersion { name: name.to_owned(), identity }
}

fn written(loaded: Loaded) -> Vec<Range> {
    match loaded {
        Loaded::Ranges(ranges) => ranges.iter().collect(),
        other => panic!("no ranges: {other:?}"),
    }
}

#[test]
fn appended_ranges_are_loaded_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut journal = Journal::start(&at(&path), &source(1 << 30, "a"), &RangeSet::new()).unwrap();
    for mebibyte in [0u64, 5, 1, 9] {
        journal.append([Range::new(mebibyte << 20, 1 << 20)]).unwrap();
    }
    let ranges = written(Journal::load(&at(&path), &source(1 << 30, "a")).unwrap());
    assert_eq!(
        ranges,
        [Range::new(0, 2 << 20), Range::new(5 << 20, 1 << 20), Range::new(9 << 20, 1 << 20)]
    );
}

/// Formerly, its header was longer than a record may be, so each run started over.
#[test]
fn a_journal_of_a_source_with_a_long_name_is_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    // Around the longest identity that is stored unchanged, and around and beyond the longest record.
    for length in [15_000, 15_300, 15_400, 16_000, 16_400, 100_000] {
        let name = "\u{e4}".repeat(length / 2);
        let mut journal =
            Journal::start(&at(&path), &source(100, &name), &RangeSet::new()).unwrap();
        journal.append([Range::new(0, 10)]).unwrap();
        let ranges = written(Journal::load(&at(&path), &source(100, &name)).unwrap());
        assert_eq!(ranges, [Range::new(0, 10)], "{length}");
        let other = source(100, &format!("{name}x"));
        let Loaded::Unusable(why) = Journal::load(&at(&path), &other).unwrap() else {
            panic!("{length}");
        };
        assert!(why.starts_with("it belongs to another source"), "{why:.100}");
    }
}

#[test]
fn a_torn_tail_is_ignored_at_every_length() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut journal = Journal::start(&at(&path), &source(100, "a"), &RangeSet::new()).unwrap();
    journal.append([Range::new(0, 10)]).unwrap();
    let whole = std::fs::metadata(&path).unwrap().len();
    journal.append([Range::new(50, 10)]).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    for length in whole..bytes.len() as u64 {
        std::fs::write(&path, &bytes[..length as usize]).unwrap();
        let ranges = written(Journal::load(&at(&path), &source(100, "a")).unwrap());
        assert_eq!(ranges, [Range::new(0, 10)], "cut at {length}");
    }
}

#[test]
fn a_flipped_bit_in_a_record_ends_the_journal_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut journal = Journal::start(&at(&path), &source(100, "a"), &RangeSet::new()).unwrap();
    journal.append([Range::new(0, 10)]).unwrap();
    let second = std::fs::metadata(&path).unwrap().len() as usize;
    journal.append([Range::new(20, 10)]).unwrap();
    journal.append([Range::new(40, 10)]).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[second + 12] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(written(Journal::load(&at(&path), &source(100, "a")).unwrap()), [Range::new(0, 10)]);
}

#[test]
fn a_journal_of_another_source_version_or_with_a_damaged_header_is_unusable() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    drop(Journal::start(&at(&path), &source(100, "a"), &RangeSet::new()).unwrap());
    let unusable = |source: &SourceVersion| match Journal::load(&at(&path), source).unwrap() {
        Loaded::Unusable(why) => why,
        other => panic!("usable: {other:?}"),
    };
    assert!(unusable(&source(101, "a")).contains("another source"));
    assert!(unusable(&source(100, "b")).contains("another source"));
    let mut other_version = Vec::new();
    Record::OtherVersion(9).encode(&mut other_version);
    std::fs::write(&path, other_version).unwrap();
    assert!(unusable(&source(100, "a")).contains("version 9"));
    std::fs::write(&path, b"not a journal at all").unwrap();
    assert!(unusable(&source(100, "a")).contains("damaged"));
    std::fs::write(&path, b"").unwrap();
    assert!(unusable(&source(100, "a")).contains("damaged"));
}

#[test]
fn under_another_boot_id_only_synced_ranges_count() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut bytes = Vec::new();
    let mut old = header(&at(&path), &source(100, "a"));
    old.boot = b"another start".to_vec();
    Record::Header(old).encode(&mut bytes);
    Record::Range(Range::new(0, 10)).encode(&mut bytes);
    Record::Synced.encode(&mut bytes);
    Record::Range(Range::new(20, 10)).encode(&mut bytes);
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(written(Journal::load(&at(&path), &source(100, "a")).unwrap()), [Range::new(0, 10)]);
}

#[test]
fn a_range_beyond_the_end_of_the_source_makes_a_journal_unusable() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut journal = Journal::start(&at(&path), &source(100, "a"), &RangeSet::new()).unwrap();
    journal.append([Range::new(90, 20)]).unwrap();
    assert!(matches!(Journal::load(&at(&path), &source(100, "a")).unwrap(), Loaded::Unusable(_)));
}

#[test]
fn a_rewritten_journal_keeps_its_ranges() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut ranges = RangeSet::new();
    ranges.insert(Range::new(10, 20));
    let mut journal = Journal::start(&at(&path), &source(100, "a"), &ranges).unwrap();
    journal.append([Range::new(30, 5)]).unwrap();
    assert_eq!(
        written(Journal::load(&at(&path), &source(100, "a")).unwrap()),
        [Range::new(10, 25)]
    );
    journal.remove().unwrap();
    assert_eq!(Journal::load(&at(&path), &source(100, "a")).unwrap(), Loaded::Nothing);
}

/// Formerly, the journal stayed behind if the next run created a hard link instead of copying the file.
#[tokio::test]
async fn the_journal_of_a_part_file_that_is_resumed_without_a_source_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    for found in [Some(50), None] {
        drop(Journal::start(&at(&path), &source(100, "a"), &RangeSet::new()).unwrap());
        let options = CreateOptions { resume: true, ..CreateOptions::default() };
        let look = PartJournal::look(Some(path.clone()), &options, found, Writes::AnyOrder);
        let journal = look.await.unwrap();
        assert_eq!((journal.resumes(), journal.held()), (found.is_some(), &Held::Unrecorded));
        journal.remove().await.unwrap();
        // Without a part file, the journal may belong to another run.
        assert_eq!(path.exists(), found.is_none());
        // A second removal succeeds.
        journal.remove().await.unwrap();
    }
}

#[test]
fn a_journal_longer_than_the_read_buffer_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut journal = Journal::start(&at(&path), &source(1 << 40, "a"), &RangeSet::new()).unwrap();
    for number in 0..20_000u64 {
        journal.append([Range::new(number * 3, 1)]).unwrap();
    }
    assert_eq!(written(Journal::load(&at(&path), &source(1 << 40, "a")).unwrap()).len(), 20_000);
}

#[test]
fn a_link_in_place_of_a_new_journal_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let [path, other] = ["j", "other"].map(|name| dir.path().join(name));
    std::fs::write(&other, "mine").unwrap();
    let fresh = String::from_utf8(rewritten_journal_name(b"j")).unwrap();
    std::os::unix::fs::symlink(&other, dir.path().join(fresh)).unwrap();
    Journal::start(&at(&path), &source(100, "a"), &RangeSet::new()).unwrap();
    assert_eq!(std::fs::read(&other).unwrap(), b"mine");
    assert!(matches!(Journal::load(&at(&path), &source(100, "a")).unwrap(), Loaded::Ranges(_)));
}

/// Formerly, the journal was opened by its path: a link was followed, and a pipe blocked until it had a writer.
#[test]
fn a_link_or_a_pipe_in_place_of_a_journal_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let [path, other] = ["j", "other"].map(|name| dir.path().join(name));
    let source = source(100, "a");
    Journal::start(&at(&other), &source, &RangeSet::new()).unwrap();
    std::os::unix::fs::symlink(&other, &path).unwrap();
    let error = Journal::load(&at(&path), &source).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::LOOP.raw_os_error()), "{error}");
    std::fs::remove_file(&path).unwrap();
    let (pipe, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &path, pipe, mode, 0).unwrap();
    assert!(matches!(Journal::load(&at(&path), &source).unwrap(), Loaded::Unusable(_)));
    // A new journal replaces either.
    Journal::start(&at(&path), &source, &RangeSet::new()).unwrap();
    assert!(matches!(Journal::load(&at(&path), &source).unwrap(), Loaded::Ranges(_)));
}

#[test]
fn ranges_appended_after_a_sync_do_not_survive_a_reboot() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let source = source(100, "a");
    let mut journal = Journal::start(&at(&path), &source, &RangeSet::new()).unwrap();
    journal.append([Range::new(0, 10)]).unwrap();
    journal.mark_synced().unwrap();
    journal.append([Range::new(20, 10)]).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let (_, length) = Record::decode(&bytes).unwrap();
    let mut restarted = Vec::new();
    let boot = b"another start".to_vec();
    Record::Header(Header { boot, ..header(&at(&path), &source) }).encode(&mut restarted);
    restarted.extend_from_slice(&bytes[length..]);
    std::fs::write(&path, restarted).unwrap();
    assert_eq!(written(Journal::load(&at(&path), &source).unwrap()), [Range::new(0, 10)]);
}

/// Otherwise files started by an earlier version of haul could not be resumed.
#[test]
fn the_text_of_the_source_in_a_header_does_not_change() {
    let mut source = source(100, "/a/b");
    source.identity.tag = Some("\"v1\"".to_owned());
    let header = header(&at(Path::new("j")), &source);
    assert_eq!(header.source, b"/a/b, size 100, modified 7.000000009, tag \"v1\"");
}

#[test]
fn a_part_file_written_in_order_holds_its_recorded_ranges_up_to_its_length() {
    let mut ranges = RangeSet::new();
    ranges.insert(Range::new(0, 10));
    let held = |length, writes| Held::of(ranges.clone(), length, writes);
    let cut = |end| {
        let mut cut = RangeSet::new();
        cut.insert(Range::new(0, end));
        Held::Ranges(cut)
    };
    assert_eq!(held(10, Writes::AnyOrder), cut(10));
    assert!(matches!(held(7, Writes::AnyOrder), Held::StartedOver(_)));
    assert_eq!(held(7, Writes::InOrder), cut(7));
    assert_eq!(held(30, Writes::InOrder), cut(10));
}
