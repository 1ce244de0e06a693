//! Conformance cases for resuming: part files that outlive their writer.

use std::sync::Arc;

use super::ground::{Failure, Ground, Outcome, block, content, fresh, replacing, write};
use crate::{CreateOptions, ErrorKind, RelPath, WriteAt};

const SIZE: usize = 200_000;
const HALF: usize = 100_000;

pub(super) async fn a_kept_part_file_is_continued(ground: Ground) -> Outcome {
    let path = half_a_file(&ground, true).await?;
    ground.is_free(&path).await?;
    continue_it(&ground, &path).await
}

/// Simulates a killed run within one process: the writer is dropped without commit or abort.
pub(super) async fn a_dropped_writer_leaves_its_part_file(ground: Ground) -> Outcome {
    let path = ground.path("file")?;
    let writer = begin(&ground, &path).await?;
    drop(writer);
    ground.is_free(&path).await?;
    continue_it(&ground, &path).await
}

pub(super) async fn an_old_part_file_is_emptied_unless_resumed(ground: Ground) -> Outcome {
    let path = half_a_file(&ground, true).await?;
    let writer = ground.create(&path).await?;
    ensure!(!writer.resumed(), "it claims to be resumed without being asked to");
    writer.write_at(SIZE as u64 - 1, block(&[1])).await?;
    writer.commit(SIZE as u64, &fresh()).await?;
    let mut expected = vec![0; SIZE];
    expected[SIZE - 1] = 1;
    ground.has(&path, &expected).await
}

pub(super) async fn without_a_part_file_nothing_is_resumed(ground: Ground) -> Outcome {
    let path = ground.path("file")?;
    let writer = ground.resume(&path).await?;
    ensure!(!writer.resumed(), "there was nothing to resume");
    write(&*writer, &content(1000, 1), 1000).await?;
    writer.commit(1000, &fresh()).await?;
    ground.has(&path, &content(1000, 1)).await
}

pub(super) async fn a_part_file_that_was_given_up_is_not_resumed(ground: Ground) -> Outcome {
    let path = half_a_file(&ground, false).await?;
    let names = ground.all_names(&ground.dir).await?;
    ensure!(names.is_empty(), "after giving up there is {names:?}");
    let writer = ground.resume(&path).await?;
    ensure!(!writer.resumed(), "what was given up is resumed");
    writer.abort(false).await?;
    Ok(())
}

pub(super) async fn a_second_writer_is_busy(ground: Ground) -> Outcome {
    let path = ground.path("file")?;
    let first = begin(&ground, &path).await?;
    for resume in [true, false] {
        let options = CreateOptions { resume, ..CreateOptions::default() };
        let second = ground.storage.create(&path, &options).await;
        ensure_error!(second, ErrorKind::Busy, "a second writer (resume: {resume})");
    }
    // Another file is not locked, and the refused attempts do not affect the first writer.
    let other = ground.create(&ground.path("other")?).await?;
    other.abort(false).await?;
    let expected = content(SIZE as u64, 1);
    first.write_at(HALF as u64, block(&expected[HALF..])).await?;
    first.commit(SIZE as u64, &fresh()).await?;
    ground.has(&path, &expected).await?;
    let third = ground.resume(&path).await?;
    ensure!(!third.resumed(), "the name of a finished file has a part file");
    third.abort(false).await?;
    Ok(())
}

pub(super) async fn a_finished_file_is_not_resumed(ground: Ground) -> Outcome {
    let path = ground.put("file", b"finished").await?;
    let writer = ground.resume(&path).await?;
    ensure!(!writer.resumed(), "the finished file is taken for its part file");
    write(&*writer, b"new", 10).await?;
    writer.commit(3, &replacing()).await?;
    ground.has(&path, b"new").await
}

pub(super) async fn what_cannot_resume_does_not_claim_to(ground: Ground) -> Outcome {
    let path = half_a_file(&ground, true).await?;
    let writer = ground.resume(&path).await?;
    ensure!(!writer.resumed(), "it resumes without the capability");
    let expected = content(1000, 2);
    write(&*writer, &expected, 1000).await?;
    writer.commit(1000, &fresh()).await?;
    ground.has(&path, &expected).await
}

/// Writes the first half of a file and aborts the writer; `keep` keeps the part file.
async fn half_a_file(ground: &Ground, keep: bool) -> Outcome<RelPath> {
    let path = ground.path("file")?;
    let writer = begin(ground, &path).await?;
    writer.abort(keep).await?;
    Ok(path)
}

async fn begin(ground: &Ground, path: &RelPath) -> Outcome<Arc<dyn WriteAt>> {
    let writer = ground.create(path).await?;
    write(&*writer, &content(HALF as u64, 1), 30_000).await?;
    if ground.can().sync {
        writer.sync().await?;
    }
    Ok(writer)
}

async fn continue_it(ground: &Ground, path: &RelPath) -> Outcome {
    let writer = ground.resume(path).await?;
    ensure!(writer.resumed(), "the part file is not found");
    let expected = content(SIZE as u64, 1);
    writer.write_at(HALF as u64, block(&expected[HALF..])).await?;
    writer.commit(SIZE as u64, &fresh()).await?;
    ground.has(path, &expected).await.map_err(|failure| {
        Failure::new(format!("after a first half was kept and a second one written: {failure}"))
    })?;
    let names = ground.all_names(&ground.dir).await?;
    ensure_eq!(names, vec![path.name().to_vec()], "all names after it");
    Ok(())
}
