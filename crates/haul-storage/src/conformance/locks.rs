//! `lock`.

use std::time::Duration;

use super::fixture::{Failure, Fixture, Outcome, write};
use crate::{ErrorKind, Lock, RelPath};

pub(super) async fn a_second_lock_is_busy(fixture: Fixture) -> Outcome {
    let (one, other) = (fixture.make_dir("one").await?, fixture.make_dir("other").await?);
    let held = fixture.storage.lock(&one).await?;
    ensure_error!(fixture.storage.lock(&one).await, ErrorKind::Busy, "a second lock");
    let neighbour = fixture.storage.lock(&other).await?;
    ensure_error!(fixture.storage.lock(&one).await, ErrorKind::Busy, "a third lock");
    drop(held);
    let again = lock_soon(&fixture, &one).await?;
    ensure_error!(fixture.storage.lock(&other).await, ErrorKind::Busy, "the neighbour's lock");
    drop((again, neighbour));
    lock_soon(&fixture, &other).await?;
    Ok(())
}

pub(super) async fn the_holder_of_a_lock_can_write(fixture: Fixture) -> Outcome {
    let dir = fixture.make_dir("dir").await?;
    let held = fixture.storage.lock(&dir).await?;
    let path = fixture.put("dir/file", b"content").await?;
    fixture.has(&path, b"content").await?;
    let names = fixture.names(&dir).await?;
    ensure_eq!(names, vec![b"file".to_vec()], "the names in a locked directory");

    let file = fixture.path("dir/other")?;
    let lock_of_file = fixture.storage.lock(&file).await?;
    let writer = fixture.create(&file).await?;
    write(&*writer, b"content", 10).await?;
    writer.commit(7, &super::fixture::fresh()).await?;
    fixture.has(&file, b"content").await?;
    drop((held, lock_of_file));
    fixture.storage.remove(&file).await?;
    fixture.storage.remove(&path).await?;
    Ok(())
}

/// Locks, waiting up to 5 s for a dropped lock to be released.
async fn lock_soon(fixture: &Fixture, path: &RelPath) -> Outcome<Lock> {
    for _ in 0..50 {
        match fixture.storage.lock(path).await {
            Err(error) if error.kind() == ErrorKind::Busy => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            other => return Ok(other?),
        }
    }
    Err(Failure::new("the lock is still held 5 s after it was dropped"))
}
