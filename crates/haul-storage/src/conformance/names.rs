//! Names that software tends to misinterpret.

use bytes::Bytes;

use super::fixture::{Fixture, Outcome, fresh, same};
use crate::{ErrorKind, RelPath, StorageExt};

/// Names that every storage has to accept.
const ORDINARY: [(&[u8], &str); 13] = [
    (b"a", "the shortest"),
    (b" leading space", "trimmed by careless parsers"),
    (b"two  spaces", "collapsed by careless parsers"),
    (b"-rf", "taken for an option"),
    (b"--", "taken for the end of options"),
    (b"~", "taken for the home directory"),
    (b"~user", "taken for a user's home directory"),
    (b"50%", "a '%' that escapes nothing"),
    (b"%41%2f%00", "text that decodes to something else"),
    (b"a+b&c=d;e", "taken apart in a URL"),
    (b"#1", "taken for a fragment of a URL"),
    (b"...", "neither '.' nor '..'"),
    (
        "r\u{e9}sum\u{e9} \u{1f680} \u{65e5}\u{672c}".as_bytes(),
        "UTF-8 of two, three and four bytes",
    ),
];

/// Names that some storages cannot hold: they may be refused, but not altered.
const ODD: [(&[u8], &str); 14] = [
    (b"new\nline", "ends a line of a protocol"),
    (b"carriage\rreturn", "ends a line of a protocol"),
    (b"tab\tand\x1b[31mescape", "steers a terminal"),
    (b"invalid \xff\xfe UTF-8", "is no text"),
    (b"cut \xe2\x82", "a character that is cut off"),
    (b"back\\slash", "a separator elsewhere"),
    (b"C:", "a drive elsewhere"),
    (b"a:b", "taken for a host"),
    (b"question?*\"<>|", "refused by FAT"),
    (b"trailing space ", "trimmed by FAT and parsers"),
    (b"trailing dot.", "trimmed by FAT"),
    (b"{a,b} [c] $d `e`", "expanded by shells"),
    ("e\u{301}".as_bytes(), "two code points that are one character: not to be normalised"),
    (b"CON", "a device elsewhere"),
];

pub(super) async fn ordinary_names_are_preserved_byte_for_byte(fixture: Fixture) -> Outcome {
    for (name, why) in ORDINARY {
        let path = fixture.path(name)?;
        let is_accepted = check(&fixture, &path, name).await?;
        ensure!(is_accepted, "{path} ({why}) is refused");
    }
    all_together(&fixture, &ORDINARY).await
}

pub(super) async fn odd_names_are_preserved_byte_for_byte_or_refused(fixture: Fixture) -> Outcome {
    for (name, _) in ODD {
        check(&fixture, &fixture.path(name)?, name).await?;
    }
    Ok(())
}

pub(super) async fn names_up_to_255_bytes_are_preserved(fixture: Fixture) -> Outcome {
    for length in [
        241, // the name of its journal has 255 bytes
        242, // the name of its journal would be one byte too long
        244, // the name of its part file has 255 bytes
        245, // the name of its part file would be one byte too long
        254, // one less than the limit of every common file system
        255, // that limit
    ] {
        let name = vec![b'n'; length];
        let path = fixture.path(&name)?;
        let is_accepted = check(&fixture, &path, &name).await?;
        ensure!(is_accepted, "a name of {length} bytes is refused");
        let writer = fixture.create(&path).await?;
        writer.write_at(0, super::fixture::block(b"long")).await?;
        writer.commit(4, &fresh()).await?;
        fixture.has(&path, b"long").await?;
        fixture.storage.remove(&path).await?;
    }
    let multibyte = "\u{e9}".repeat(127);
    check(&fixture, &fixture.path(&multibyte)?, multibyte.as_bytes()).await?;
    let too_long = vec![b'n'; 256];
    check(&fixture, &fixture.path(&too_long)?, &too_long).await?;
    Ok(())
}

pub(super) async fn directories_take_the_same_names(fixture: Fixture) -> Outcome {
    for (name, why) in ORDINARY {
        let path = fixture.make_dir(name).await?;
        let below = path.join(name)?;
        let is_accepted = check(&fixture, &below, name).await?;
        ensure!(is_accepted, "{below} ({why}) is refused");
        let listed = fixture.names(&fixture.dir).await?;
        ensure_eq!(listed, vec![name.to_vec()], "the directory's name in a listing");
        fixture.storage.remove(&path).await?;
    }
    Ok(())
}

/// Writes, finds, reads, renames and removes a file with this name; `false` if it is refused.
async fn check(fixture: &Fixture, path: &RelPath, content: &[u8]) -> Outcome<bool> {
    let storage = &fixture.storage;
    let dir = path.parent().unwrap_or_default();
    let bytes = Bytes::copy_from_slice(content);
    if let Err(error) = storage.write_whole(path, bytes, &fresh()).await {
        ensure!(
            !matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::Unreachable),
            "{path} is refused for an unrelated reason: {error:?}"
        );
        let names = fixture.all_names(&dir).await?;
        ensure!(names.is_empty(), "{path} was refused, and left {names:?}");
        return Ok(false);
    }
    let names = fixture.names(&dir).await?;
    ensure_eq!(names, vec![path.name().to_vec()], "the name of {path} in a listing");
    ensure_eq!(&storage.stat(path).await?.path, path, "its path");
    same(&storage.read_whole(path, 1000).await?.bytes, content)?;
    if fixture.can().rename {
        let other = path.with_name("other")?;
        storage.rename(path, &other).await?;
        ensure!(storage.find(path).await?.is_none(), "{path} still exists after a rename");
        storage.rename(&other, path).await?;
    }
    storage.remove(path).await?;
    ensure!(storage.find(path).await?.is_none(), "{path} still exists after its removal");
    Ok(true)
}

/// Creates files with all names side by side: the storage must distinguish them.
async fn all_together(fixture: &Fixture, names: &[(&[u8], &str)]) -> Outcome {
    for (name, _) in names {
        fixture.put(name, name).await?;
    }
    let mut expected: Vec<Vec<u8>> = names.iter().map(|(name, _)| name.to_vec()).collect();
    expected.sort();
    ensure_eq!(fixture.names(&fixture.dir).await?, expected, "all names together");
    for (name, _) in names {
        fixture.has(&fixture.path(name)?, name).await?;
    }
    Ok(())
}
