//! Conformance cases for uploads to one name at the same time.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join;

use super::fixture::{Fixture, Outcome, block, content, replacing};
use crate::{CreateOptions, ErrorKind, RelPath, Storage, WriteAt};

const SIZES: [u64; 2] = [300_000, 200_000];

pub(super) async fn two_uploads_of_one_storage_do_not_mix(fixture: Fixture) -> Outcome {
    let storage = Arc::clone(&fixture.storage);
    let path = fixture.path("locked")?;
    let first = fixture.create(&path).await?;
    let second = storage.create(&path, &CreateOptions::default()).await;
    first.abort(false).await?;
    match second {
        Err(error) if error.kind() == ErrorKind::Busy => Ok(()),
        second => {
            second?.abort(false).await?;
            uploads_do_not_mix(&fixture, &storage).await
        }
    }
}

/// Two machines, or two runs on one, that upload to the same names of a server at the same time: `other` is the same
/// directory as `storage`, with another directory of journals. Formerly, they had the same part files: a mixture of two
/// versions was stored, or one that was incomplete.
///
/// # Panics
/// If a file is not one of the versions that were uploaded, an operation fails, or other files are left.
pub async fn two_machines(storage: Arc<dyn Storage>, other: Arc<dyn Storage>) {
    let outcome = async {
        let fixture = Fixture::prepare(storage, "two_machines").await?;
        let outcome = uploads_do_not_mix(&fixture, &other).await;
        outcome.and(fixture.clean_up().await)
    };
    if let Err(failure) = outcome.await {
        panic!("{failure}");
    }
}

async fn uploads_do_not_mix(fixture: &Fixture, other: &Arc<dyn Storage>) -> Outcome {
    let path = fixture.path("large")?;
    let versions = [content(SIZES[0], 1), content(SIZES[1], 2)];
    let first = begin(&fixture.storage, &path, &versions[0]).await?;
    let second = begin(other, &path, &versions[1]).await?;
    finish(&*first, &versions[0]).await?;
    fixture.has(&path, &versions[0]).await?;
    finish(&*second, &versions[1]).await?;
    fixture.has(&path, &versions[1]).await?;
    // Aborting one upload does not affect the other.
    let first = begin(&fixture.storage, &path, &versions[0]).await?;
    let second = begin(other, &path, &versions[1]).await?;
    second.abort(false).await?;
    finish(&*first, &versions[0]).await?;
    fixture.has(&path, &versions[0]).await?;

    let path = fixture.path("small")?;
    let versions = [vec![1; 5000], vec![2; 3000]];
    // Without a rename that replaces, one of two runs that move the old file aside at once fails.
    let rounds = if fixture.can().rename { 20 } else { 0 };
    for _ in 0..rounds {
        let [one, two] = [0, 1].map(|at| Bytes::from(versions[at].clone()));
        let options = replacing();
        let (one, two) = join(
            fixture.storage.write_whole(&path, one, &options),
            other.write_whole(&path, two, &options),
        )
        .await;
        for outcome in [one, two] {
            match outcome {
                // rclone refuses the second of two renames to one name.
                Err(error) if error.kind() == ErrorKind::Busy => {}
                outcome => outcome?,
            }
        }
        let found = fixture.content(&path).await?;
        ensure!(versions.contains(&found), "{} bytes of neither version", found.len());
    }
    let names = fixture.all_names(&fixture.dir).await?;
    let expected = if rounds > 0 { 2 } else { 1 };
    ensure!(names.len() == expected, "the directory has {names:?}, not {expected} files");
    Ok(())
}

/// Creates a file and writes its first half.
async fn begin(
    storage: &Arc<dyn Storage>,
    path: &RelPath,
    version: &[u8],
) -> Outcome<Arc<dyn WriteAt>> {
    let size = Some(version.len() as u64);
    let writer = storage.create(path, &CreateOptions { size, ..CreateOptions::default() }).await?;
    writer.write_at(0, block(&version[..version.len() / 2])).await?;
    Ok(writer)
}

/// Writes the second half, and commits.
async fn finish(writer: &dyn WriteAt, version: &[u8]) -> Outcome {
    let half = version.len() / 2;
    writer.write_at(half as u64, block(&version[half..])).await?;
    writer.commit(version.len() as u64, &replacing()).await?;
    Ok(())
}
