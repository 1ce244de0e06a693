//! `metadata` and `set_metadata`.

use super::fixture::{Fixture, Outcome, fresh, write};
use crate::{CommitOptions, ErrorKind, Metadata, RelPath, Timestamp, Xattrs};

/// Times that every current file system can hold, including FAT (1980 to 2107) and SFTP 3 (32 bits).
const TIMES: [(Timestamp, &str); 6] = [
    (Timestamp { seconds: 1_000_000_000, nanos: 0 }, "whole seconds"),
    (Timestamp { seconds: 1_000_000_001, nanos: 0 }, "an odd second: FAT keeps even ones"),
    (Timestamp { seconds: 1_500_000_000, nanos: 123_456_789 }, "down to the nanosecond"),
    (Timestamp { seconds: 1_700_000_000, nanos: 999_999_999 }, "not to be rounded up"),
    (Timestamp { seconds: 1_700_000_000, nanos: 1 }, "one nanosecond"),
    (Timestamp { seconds: 2_200_000_000, nanos: 5 }, "after 2038"),
];

fn at(modified: Timestamp) -> Metadata {
    Metadata { modified: Some(modified), ..Metadata::default() }
}

fn with_mode(mode: u32) -> Metadata {
    Metadata { mode: Some(mode), ..Metadata::default() }
}

pub(super) async fn times_are_preserved_to_the_declared_step(fixture: Fixture) -> Outcome {
    let path = fixture.put("file", b"content").await?;
    check_times(&fixture, &path).await?;
    fixture.has(&path, b"content").await
}

pub(super) async fn times_of_directories_are_preserved(fixture: Fixture) -> Outcome {
    let path = fixture.make_dir("dir").await?;
    check_times(&fixture, &path).await
}

async fn check_times(fixture: &Fixture, path: &RelPath) -> Outcome {
    for (time, why) in TIMES {
        fixture.storage.set_metadata(path, &at(time)).await?;
        let expected = Some(fixture.can().stored_times.stored(time));
        ensure_eq!(fixture.storage.stat(path).await?.modified, expected, "the time ({why})");
        let metadata = fixture.storage.metadata(path).await?;
        ensure_eq!(metadata.modified, expected, "the time in metadata ({why})");
    }
    Ok(())
}

pub(super) async fn modes_are_preserved(fixture: Fixture) -> Outcome {
    let path = fixture.put("file", b"content").await?;
    check_modes(&fixture, &path, &[0o644, 0o600, 0o755, 0o640, 0o444, 0o777, 0o400, 0o600]).await
}

pub(super) async fn modes_of_directories_are_preserved(fixture: Fixture) -> Outcome {
    let path = fixture.make_dir("dir").await?;
    check_modes(&fixture, &path, &[0o700, 0o755, 0o1777, 0o500, 0o755]).await
}

async fn check_modes(fixture: &Fixture, path: &RelPath, modes: &[u32]) -> Outcome {
    for mode in modes {
        fixture.storage.set_metadata(path, &with_mode(*mode)).await?;
        let found = fixture.storage.stat(path).await?.mode;
        ensure!(found == Some(*mode), "mode {mode:o} became {:o}", found.unwrap_or(0o10_000));
    }
    Ok(())
}

pub(super) async fn extended_attributes_are_preserved(fixture: Fixture) -> Outcome {
    let path = fixture.put("file", b"content").await?;
    let attributes: [(&[u8], &[u8]); 3] = [
        (b"user.haul.text", b"some text"),
        (b"user.haul.bytes", b"\0\xff\n=\""),
        (b"user.haul.empty", b""),
    ];
    let given = attributes.map(|(name, value)| (name.to_vec(), value.to_vec()));
    let set = Metadata { xattrs: Some(given.to_vec()), ..Metadata::default() };
    fixture.storage.set_metadata(&path, &set).await?;
    let found = xattrs(fixture.storage.metadata(&path).await?);
    for attribute in &given {
        ensure!(found.contains(attribute), "{attribute:?} is missing in {found:?}");
    }
    let of_reader = xattrs(fixture.storage.open(&path).await?.metadata().await?);
    for attribute in &given {
        ensure!(of_reader.contains(attribute), "a reader lacks {attribute:?}");
    }
    // A second value replaces the first, and attributes that are not given are removed.
    let again = (b"user.haul.text".to_vec(), b"other".to_vec());
    let set = Metadata { xattrs: Some(vec![again.clone()]), ..Metadata::default() };
    fixture.storage.set_metadata(&path, &set).await?;
    let found = xattrs(fixture.storage.metadata(&path).await?);
    ensure!(found.contains(&again), "{found:?} after a change");
    ensure!(!given.iter().any(|given| found.contains(given)), "{found:?} after a removal");
    let nothing = Metadata { xattrs: Some(Vec::new()), ..Metadata::default() };
    fixture.storage.set_metadata(&path, &nothing).await?;
    let found = xattrs(fixture.storage.metadata(&path).await?);
    ensure!(!found.contains(&again), "{found:?} after all were removed");
    fixture.has(&path, b"content").await
}

fn xattrs(metadata: Metadata) -> Xattrs {
    metadata.xattrs.unwrap_or_default()
}

/// Setting another owner needs privileges, so the case sets the present one.
pub(super) async fn the_present_owner_can_be_set(fixture: Fixture) -> Outcome {
    let path = fixture.put("file", b"content").await?;
    let owner = fixture.storage.stat(&path).await?.owner;
    ensure!(owner.is_some(), "stat returns no owner");
    fixture.storage.set_metadata(&path, &Metadata { owner, ..Metadata::default() }).await?;
    ensure_eq!(fixture.storage.stat(&path).await?.owner, owner, "the owner");
    Ok(())
}

pub(super) async fn omitted_metadata_stays_unchanged(fixture: Fixture) -> Outcome {
    let path = fixture.put("file", b"content").await?;
    let time = Timestamp { seconds: 1_000_000_000, nanos: 0 };
    fixture.storage.set_metadata(&path, &Metadata { mode: Some(0o640), ..at(time) }).await?;
    let before = fixture.storage.metadata(&path).await?;
    fixture.storage.set_metadata(&path, &Metadata::default()).await?;
    ensure_eq!(fixture.storage.metadata(&path).await?, before, "after setting nothing");
    fixture.storage.set_metadata(&path, &with_mode(0o600)).await?;
    let after = fixture.storage.metadata(&path).await?;
    ensure_eq!(after.modified, before.modified, "the time after the mode was set");
    fixture
        .storage
        .set_metadata(&path, &at(Timestamp { seconds: 1_100_000_000, nanos: 0 }))
        .await?;
    let after = fixture.storage.metadata(&path).await?;
    ensure_eq!(after.mode, Some(0o600), "the mode after the time was set");
    Ok(())
}

pub(super) async fn a_commit_sets_the_given_metadata(fixture: Fixture) -> Outcome {
    let time = Timestamp { seconds: 1_234_567_890, nanos: 500_000_000 };
    let given = (b"user.haul.test".to_vec(), b"value".to_vec());
    let xattrs = Some(vec![given.clone()]);
    let metadata = Metadata { mode: Some(0o640), modified: Some(time), owner: None, xattrs };
    let options = CommitOptions { metadata: metadata.clone(), ..fresh() };
    let whole = fixture.path("whole")?;
    fixture.storage.write_whole(&whole, b"content".as_slice().into(), &options).await?;
    let parts = fixture.path("parts")?;
    let writer = fixture.create(&parts).await?;
    write(&*writer, b"content", 3).await?;
    writer.commit(7, &options).await?;
    for path in [&whole, &parts] {
        fixture.has(path, b"content").await?;
        let found = fixture.storage.metadata(path).await?;
        if fixture.can().times {
            let expected = Some(fixture.can().stored_times.stored(time));
            ensure_eq!(found.modified, expected, "the time of {path}");
        }
        if fixture.can().mode {
            ensure_eq!(found.mode, Some(0o640), "the mode of {path}");
        }
        if fixture.can().xattrs {
            let found = self::xattrs(found);
            ensure!(found.contains(&given), "{path} has {found:?}");
        }
    }
    Ok(())
}

pub(super) async fn unsupported_metadata_is_ignored(fixture: Fixture) -> Outcome {
    let can = fixture.can();
    let path = fixture.put("file", b"content").await?;
    let before = fixture.storage.metadata(&path).await?;
    let xattrs = vec![(b"user.haul.test".to_vec(), b"value".to_vec())];
    let impossible = Metadata {
        mode: (!can.mode).then_some(0o600),
        modified: (!can.times).then_some(Timestamp { seconds: 1_000_000_000, nanos: 0 }),
        owner: (!can.owner).then_some((12_345, 12_345)),
        xattrs: (!can.xattrs).then_some(xattrs),
    };
    fixture.storage.set_metadata(&path, &impossible).await?;
    ensure_eq!(fixture.storage.metadata(&path).await?, before, "the metadata afterwards");
    let options = CommitOptions { metadata: impossible, ..fresh() };
    let other = fixture.path("other")?;
    fixture.storage.write_whole(&other, b"content".as_slice().into(), &options).await?;
    fixture.has(&other, b"content").await?;
    ensure!(can.xattrs || before.xattrs.is_none(), "it has undeclared extended attributes");
    Ok(())
}

pub(super) async fn metadata_of_a_missing_path_is_not_found(fixture: Fixture) -> Outcome {
    let path = fixture.path("nothing")?;
    ensure_error!(fixture.storage.metadata(&path).await, ErrorKind::NotFound, "metadata");
    let can = fixture.can();
    if can.times || can.mode {
        let time = Timestamp { seconds: 1_000_000_000, nanos: 0 };
        let set = Metadata { mode: Some(0o600), ..at(time) };
        let result = fixture.storage.set_metadata(&path, &set).await;
        ensure_error!(result, ErrorKind::NotFound, "set_metadata");
    }
    fixture.is_free(&path).await
}
