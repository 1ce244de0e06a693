//! Conformance cases for resuming: part files that outlive their writer.

use std::sync::Arc;

use bytes::Bytes;

use super::fixture::{Failure, Fixture, Outcome, block, content, fresh, replacing, write};
use crate::{
    CreateOptions, ErrorKind, Held, Identity, Range, RangeSet, RelPath, SourceVersion, Timestamp,
    WriteAt,
};

const SIZE: usize = 200_000;
const HALF: usize = 100_000;

pub(super) async fn a_part_file_is_resumed(fixture: Fixture) -> Outcome {
    let path = half_a_file(&fixture, true).await?;
    fixture.is_free(&path).await?;
    continue_it(&fixture, &path).await
}

/// Simulates a killed run within one process: the writer is dropped without commit or abort.
pub(super) async fn a_dropped_writer_leaves_its_part_file(fixture: Fixture) -> Outcome {
    let path = fixture.path("file")?;
    let writer = begin(&fixture, &path).await?;
    drop(writer);
    fixture.is_free(&path).await?;
    continue_it(&fixture, &path).await
}

pub(super) async fn an_old_part_file_is_emptied_unless_resumed(fixture: Fixture) -> Outcome {
    let path = half_a_file(&fixture, true).await?;
    let writer = fixture.create(&path).await?;
    writer.write_at(SIZE as u64 - 1, block(&[1])).await?;
    writer.commit(SIZE as u64, &fresh()).await?;
    let mut expected = vec![0; SIZE];
    expected[SIZE - 1] = 1;
    fixture.has(&path, &expected).await
}

pub(super) async fn without_a_part_file_nothing_is_resumed(fixture: Fixture) -> Outcome {
    let path = fixture.path("file")?;
    let writer = fixture.resume_from(&path, &source("a", 1000)).await?;
    holds_nothing(&*writer)?;
    write(&*writer, &content(1000, 1), 1000).await?;
    writer.commit(1000, &fresh()).await?;
    fixture.has(&path, &content(1000, 1)).await
}

pub(super) async fn an_aborted_part_file_is_not_resumed(fixture: Fixture) -> Outcome {
    let path = half_a_file(&fixture, false).await?;
    let names = fixture.all_names(&fixture.dir).await?;
    ensure!(names.is_empty(), "after the abort, the directory has {names:?}");
    let writer = fixture.resume_from(&path, &source("a", SIZE as u64)).await?;
    holds_nothing(&*writer)?;
    writer.abort(false).await?;
    Ok(())
}

pub(super) async fn a_second_writer_is_busy(fixture: Fixture) -> Outcome {
    let path = fixture.path("file")?;
    let first = begin(&fixture, &path).await?;
    for resume in [true, false] {
        let options = CreateOptions { resume, ..CreateOptions::default() };
        let second = fixture.storage.create(&path, &options).await;
        ensure_error!(second, ErrorKind::Busy, "a second writer (resume: {resume})");
    }
    // Another file is not locked, and the refused attempts do not affect the first writer.
    let other = fixture.create(&fixture.path("other")?).await?;
    other.abort(false).await?;
    let expected = content(SIZE as u64, 1);
    first.write_at(HALF as u64, block(&expected[HALF..])).await?;
    first.commit(SIZE as u64, &fresh()).await?;
    fixture.has(&path, &expected).await?;
    let third = fixture.resume_from(&path, &source("a", SIZE as u64)).await?;
    holds_nothing(&*third)?;
    third.abort(false).await?;
    Ok(())
}

pub(super) async fn a_finished_file_is_not_resumed(fixture: Fixture) -> Outcome {
    let path = fixture.put("file", b"finished").await?;
    let writer = fixture.resume_from(&path, &source("a", 3)).await?;
    holds_nothing(&*writer)?;
    write(&*writer, b"new", 10).await?;
    writer.commit(3, &replacing()).await?;
    fixture.has(&path, b"new").await
}

pub(super) async fn without_the_capability_nothing_is_held(fixture: Fixture) -> Outcome {
    let path = half_a_file(&fixture, true).await?;
    let writer = fixture.resume_from(&path, &source("a", 1000)).await?;
    ensure_eq!(writer.held(), &Held::Unrecorded, "the ranges held without the capability");
    writer.record(ranges(0, 1)).await?;
    let expected = content(1000, 2);
    write(&*writer, &expected, 1000).await?;
    writer.commit(1000, &fresh()).await?;
    fixture.has(&path, &expected).await
}

pub(super) async fn recorded_ranges_are_held_by_the_next_run(fixture: Fixture) -> Outcome {
    let path = fixture.path("file")?;
    let Some(writer) = recorded_half(&fixture, &path).await? else { return Ok(()) };
    writer.abort(true).await?;
    drop(writer);
    let names = fixture.names(&fixture.dir).await?;
    ensure!(names.is_empty(), "besides part files and journals, the directory has {names:?}");
    let writer = fixture.resume_from(&path, &source("a", SIZE as u64)).await?;
    let expected = Held::Ranges(ranges(0, HALF));
    ensure_eq!(writer.held(), &expected, "the recorded ranges that are held");
    write_from(&fixture, &*writer, &path, HALF).await
}

/// Simulates a killed run. A server that takes bytes in order may have lost those in flight.
pub(super) async fn ranges_recorded_by_a_killed_run_are_held(fixture: Fixture) -> Outcome {
    let path = fixture.path("file")?;
    let Some(writer) = recorded_half(&fixture, &path).await? else { return Ok(()) };
    drop(writer);
    let writer = fixture.resume_from(&path, &source("a", SIZE as u64)).await?;
    let Held::Ranges(held) = writer.held() else {
        return Err(Failure::new(format!("it holds {:?}", writer.held())));
    };
    let from = held.prefix();
    let is_right = from == HALF as u64 || !fixture.any_order() && from < HALF as u64;
    ensure!(held.total() == from && is_right, "{HALF} bytes were recorded, and it holds {held:?}");
    let from = usize::try_from(from).unwrap_or(HALF);
    write_from(&fixture, &*writer, &path, from).await
}

pub(super) async fn nothing_is_held_of_another_source(fixture: Fixture) -> Outcome {
    let size = SIZE as u64;
    let mut changed = source("a", size);
    changed.identity.modified = Some(Timestamp { seconds: 8, nanos: 0 });
    for other in [source("b", size), source("a", size + 1), changed] {
        let path = fixture.path("file")?;
        let Some(writer) = recorded_half(&fixture, &path).await? else { return Ok(()) };
        writer.abort(true).await?;
        drop(writer);
        let writer = fixture.resume_from(&path, &other).await?;
        ensure!(
            matches!(writer.held(), Held::StartedOver(_)),
            "of another source it holds {:?}",
            writer.held()
        );
        // The old bytes must be gone.
        let mut expected = vec![0; SIZE];
        expected[SIZE - 1] = 1;
        if fixture.any_order() {
            writer.write_at(size - 1, block(&[1])).await?;
        } else {
            write(&*writer, &expected, SIZE).await?;
        }
        writer.commit(size, &fresh()).await?;
        fixture.has(&path, &expected).await?;
        fixture.storage.remove(&path).await?;
    }
    Ok(())
}

pub(super) async fn a_commit_removes_its_own_records(fixture: Fixture) -> Outcome {
    let path = fixture.path("file")?;
    let Some(writer) = recorded_half(&fixture, &path).await? else { return Ok(()) };
    writer.commit(HALF as u64, &fresh()).await?;
    let names = fixture.all_names(&fixture.dir).await?;
    ensure_eq!(names, vec![path.name().to_vec()], "all names after the commit");
    let writer = fixture.resume_from(&path, &source("a", SIZE as u64)).await?;
    holds_nothing(&*writer)?;
    writer.abort(false).await?;
    let names = fixture.all_names(&fixture.dir).await?;
    ensure_eq!(names, vec![path.name().to_vec()], "all names after another writer was aborted");
    nothing_is_recorded(&fixture, &path).await
}

/// As when an earlier run has begun to copy the file, and this run creates a hard link instead.
pub(super) async fn an_abort_removes_the_records_of_an_earlier_run(fixture: Fixture) -> Outcome {
    let path = fixture.path("file")?;
    let Some(writer) = recorded_half(&fixture, &path).await? else { return Ok(()) };
    writer.abort(true).await?;
    drop(writer);
    let writer = fixture.resume(&path).await?;
    writer.abort(false).await?;
    drop(writer);
    let names = fixture.all_names(&fixture.dir).await?;
    ensure!(names.is_empty(), "after the abort, the directory has {names:?}");
    let writer = fixture.resume_from(&path, &source("a", SIZE as u64)).await?;
    holds_nothing(&*writer)?;
    writer.abort(false).await?;
    nothing_is_recorded(&fixture, &path).await
}

pub(super) async fn a_commit_removes_the_records_of_an_earlier_run(fixture: Fixture) -> Outcome {
    let path = fixture.path("file")?;
    let Some(writer) = recorded_half(&fixture, &path).await? else { return Ok(()) };
    writer.abort(true).await?;
    drop(writer);
    let writer = fixture.resume(&path).await?;
    write_from(&fixture, &*writer, &path, HALF).await?;
    nothing_is_recorded(&fixture, &path).await
}

/// Otherwise a later run would take holes of the part file for data.
pub(super) async fn an_emptied_part_file_loses_its_records(fixture: Fixture) -> Outcome {
    let path = fixture.path("file")?;
    let Some(writer) = recorded_half(&fixture, &path).await? else { return Ok(()) };
    writer.abort(true).await?;
    drop(writer);
    // Another run, which records nothing.
    let writer = fixture.create(&path).await?;
    if fixture.any_order() {
        writer.write_at(SIZE as u64 - 1, block(&[1])).await?;
    } else {
        write(&*writer, &content(SIZE as u64, 2), SIZE).await?;
    }
    writer.abort(true).await?;
    drop(writer);
    holds_none_of_it(&fixture, &path).await
}

pub(super) async fn records_of_several_files_do_not_mix(fixture: Fixture) -> Outcome {
    let long = "n".repeat(255);
    let other_long = format!("{}m", &long[1..]);
    fixture.make_dir("dir").await?;
    let files = || ["one", "two", "dir/one", &long, &other_long].into_iter().zip(1000..);
    for (name, length) in files() {
        let path = fixture.path(name)?;
        let writer = fixture.resume_from(&path, &source("a", SIZE as u64)).await?;
        write(&*writer, &content(length as u64, 1), length).await?;
        writer.record(ranges(0, length)).await?;
        writer.abort(true).await?;
    }
    for (name, length) in files() {
        let path = fixture.path(name)?;
        let writer = fixture.resume_from(&path, &source("a", SIZE as u64)).await?;
        if writer.held().is_recorded() {
            let expected = Held::Ranges(ranges(0, length));
            ensure_eq!(writer.held(), &expected, "the ranges held of {name}");
        }
        writer.abort(false).await?;
    }
    Ok(())
}

fn source(name: &str, size: u64) -> SourceVersion {
    let modified = Some(Timestamp { seconds: 7, nanos: 9 });
    let identity = Identity { size, modified, ..Identity::default() };
    SourceVersion { name: name.to_owned(), identity }
}

fn ranges(start: usize, end: usize) -> RangeSet {
    let mut ranges = RangeSet::new();
    ranges.insert(Range::between(start as u64, end as u64));
    ranges
}

/// Creates a part file without records, and fails if those of an earlier run are found for it.
async fn nothing_is_recorded(fixture: &Fixture, path: &RelPath) -> Outcome {
    let part = path.with_name(fixture.storage.part_name(path))?;
    let bytes = Bytes::from(content(SIZE as u64, 2));
    fixture.storage.write_whole(&part, bytes, &replacing()).await?;
    holds_none_of_it(fixture, path).await
}

/// Resumes a part file that has no records, and fails if any ranges are held.
async fn holds_none_of_it(fixture: &Fixture, path: &RelPath) -> Outcome {
    let writer = fixture.resume_from(path, &source("a", SIZE as u64)).await?;
    let held = writer.held();
    ensure!(held.ranges().is_empty(), "without records it holds {held:?}");
    writer.abort(false).await?;
    Ok(())
}

fn holds_nothing(writer: &dyn WriteAt) -> Outcome {
    let is_nothing = match writer.held() {
        Held::Unrecorded => true,
        Held::Ranges(ranges) => ranges.is_empty(),
        Held::StartedOver(_) => false,
    };
    ensure!(is_nothing, "there was nothing to resume, and it holds {:?}", writer.held());
    Ok(())
}

/// Writes and records the first half of a file. `None` if the storage keeps no records.
async fn recorded_half(fixture: &Fixture, path: &RelPath) -> Outcome<Option<Arc<dyn WriteAt>>> {
    let writer = fixture.resume_from(path, &source("a", SIZE as u64)).await?;
    holds_nothing(&*writer)?;
    if !writer.held().is_recorded() {
        writer.abort(false).await?;
        return Ok(None);
    }
    write(&*writer, &content(HALF as u64, 1), 30_000).await?;
    writer.record(ranges(0, HALF / 2)).await?;
    if fixture.can().sync {
        writer.sync().await?;
    }
    writer.record(ranges(HALF / 2, HALF)).await?;
    Ok(Some(writer))
}

/// Writes the file from offset `from`, commits it, and checks content and names.
async fn write_from(
    fixture: &Fixture,
    writer: &dyn WriteAt,
    path: &RelPath,
    from: usize,
) -> Outcome {
    let expected = content(SIZE as u64, 1);
    writer.write_at(from as u64, block(&expected[from..])).await?;
    writer.commit(SIZE as u64, &fresh()).await?;
    fixture.has(path, &expected).await?;
    let names = fixture.all_names(&fixture.dir).await?;
    ensure_eq!(names, vec![path.name().to_vec()], "all names after the commit");
    Ok(())
}

/// Writes the first half of a file and aborts the writer; `keep` keeps the part file.
async fn half_a_file(fixture: &Fixture, keep: bool) -> Outcome<RelPath> {
    let path = fixture.path("file")?;
    let writer = begin(fixture, &path).await?;
    writer.abort(keep).await?;
    Ok(path)
}

async fn begin(fixture: &Fixture, path: &RelPath) -> Outcome<Arc<dyn WriteAt>> {
    let writer = fixture.create(path).await?;
    write(&*writer, &content(HALF as u64, 1), 30_000).await?;
    if fixture.can().sync {
        writer.sync().await?;
    }
    Ok(writer)
}

async fn continue_it(fixture: &Fixture, path: &RelPath) -> Outcome {
    let writer = fixture.resume(path).await?;
    write_from(fixture, &*writer, path, HALF).await.map_err(|failure| {
        Failure::new(format!("after a first half was kept and a second one written: {failure}"))
    })
}
