//! `lock`.

use std::time::Duration;

use super::ground::{Failure, Ground, Outcome, write};
use crate::{ErrorKind, Lock, RelPath};

pub(super) async fn a_lock_keeps_a_second_one_out(ground: Ground) -> Outcome {
    let (one, other) = (ground.make_dir("one").await?, ground.make_dir("other").await?);
    let held = ground.storage.lock(&one).await?;
    ensure_error!(ground.storage.lock(&one).await, ErrorKind::Busy, "a second lock");
    let neighbour = ground.storage.lock(&other).await?;
    ensure_error!(ground.storage.lock(&one).await, ErrorKind::Busy, "a third lock");
    drop(held);
    let again = lock_soon(&ground, &one).await?;
    ensure_error!(ground.storage.lock(&other).await, ErrorKind::Busy, "the neighbour's lock");
    drop((again, neighbour));
    lock_soon(&ground, &other).await?;
    Ok(())
}

pub(super) async fn a_lock_lets_its_holder_work(ground: Ground) -> Outcome {
    let dir = ground.make_dir("dir").await?;
    let held = ground.storage.lock(&dir).await?;
    let path = ground.put("dir/file", b"content").await?;
    ground.has(&path, b"content").await?;
    let names = ground.names(&dir).await?;
    ensure_eq!(names, vec![b"file".to_vec()], "what is in a locked directory");

    let file = ground.path("dir/other")?;
    let lock_of_file = ground.storage.lock(&file).await?;
    let writer = ground.create(&file).await?;
    write(&*writer, b"content", 10).await?;
    writer.commit(7, &super::ground::fresh()).await?;
    ground.has(&file, b"content").await?;
    drop((held, lock_of_file));
    ground.storage.remove(&file).await?;
    ground.storage.remove(&path).await?;
    Ok(())
}

/// Locks, waiting up to 5 s for a dropped lock to be released.
async fn lock_soon(ground: &Ground, path: &RelPath) -> Outcome<Lock> {
    for _ in 0..50 {
        match ground.storage.lock(path).await {
            Err(error) if error.kind() == ErrorKind::Busy => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            other => return Ok(other?),
        }
    }
    Err(Failure::new("the lock is still held 5 s after it was dropped"))
}
