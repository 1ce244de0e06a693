//! `--expect-beside`: reads the expected digest of a file from a small file next to it.
//!
//! `NAME.sha256` and `NAME.sha256sum` cover one file, and may give its digest without a name; `SHA256SUMS`
//! covers all files of its directory, and is read once for all of them. Lines have the formats of manifests.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use haul_engine::digest::Digest;
use haul_engine::manifest::{listed_path, parse_line};
use haul_storage::{DigestKind, Error, ErrorKind, Location, Result};
use tokio::sync::Mutex;

use crate::backends::{Storages, written_below};

/// Appended to the name of a file.
const SUFFIXES: [&str; 2] = [".sha256", ".sha256sum"];
const SUMS: &str = "SHA256SUMS";

/// The longest digest file that is read, in bytes.
const LONGEST: u64 = 16 << 20;

const KIND: DigestKind = DigestKind::Sha256;

/// Finds digests, and caches the lists of directories.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    sums: Mutex<HashMap<Location, Arc<Sums>>>,
}

/// The digests in `SHA256SUMS`, by name; `None` if there is no such file.
type Sums = Option<HashMap<Vec<u8>, Digest>>;

impl Beside {
    /// The digest that `location`, a file, should have.
    ///
    /// # Errors
    /// There is none next to it, a digest file cannot be read, or the location has no file name.
    pub(crate) async fn digest(
        &self,
        storages: &Storages<'_>,
        location: &Location,
    ) -> Result<Digest> {
        let refuse = |kind, cause: String| {
            Error::new(kind, "verify")
                .at(location)
                .because(cause)
                .hinting("write --expect sha256:HEX, or omit --expect-beside")
        };
        let Some((directory, name)) = location.split_name() else {
            let cause = "it has no file name to look for".to_owned();
            return Err(refuse(ErrorKind::InvalidInput, cause));
        };
        let mut tried = Vec::new();
        for suffix in SUFFIXES {
            let beside = [&name, suffix.as_bytes()].concat();
            let outcome = match read(storages, &below(&directory, &beside)).await? {
                Some(text) => match of_one(&text, &name) {
                    Ok(digest) => return Ok(digest),
                    Err(why) => why,
                },
                None => "not found",
            };
            tried.push(format!("{} ({outcome})", beside.escape_ascii()));
        }
        let outcome = match &*self.sums(storages, &below(&directory, SUMS.as_bytes())).await? {
            Some(sums) => match sums.get(&name) {
                Some(digest) => return Ok(*digest),
                None => "does not list it",
            },
            None => "not found",
        };
        tried.push(format!("{SUMS} ({outcome})"));
        let cause = format!("no digest found next to it: {}", tried.join(", "));
        Err(refuse(ErrorKind::NotFound, cause))
    }

    async fn sums(&self, storages: &Storages<'_>, location: &Location) -> Result<Arc<Sums>> {
        // The lock is held while reading: most other tasks are about to need the same list.
        let mut known = self.sums.lock().await;
        if let Some(sums) = known.get(location) {
            return Ok(Arc::clone(sums));
        }
        let sums = Arc::new(read(storages, location).await?.map(|text| of_all(&text)));
        known.insert(location.clone(), Arc::clone(&sums));
        Ok(sums)
    }
}

/// The content of a small file; `None` if it does not exist or is a directory.
async fn read(storages: &Storages<'_>, location: &Location) -> Result<Option<Vec<u8>>> {
    // Object stores deny access to files that do not exist (403). Elsewhere a denied file exists, and may have the
    // digest.
    let is_absent = |error: &Error| match error.kind() {
        ErrorKind::NotFound => true,
        ErrorKind::PermissionDenied => location.is_web(),
        _ => false,
    };
    let opened = match storages.existing(location).await {
        Ok(opened) if opened.is_directory => return Ok(None),
        Ok(opened) => opened,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    match opened.storage.read_whole(&opened.path, LONGEST).await {
        Ok(whole) => Ok(Some(whole.bytes.to_vec())),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error.at(location)),
    }
}

/// The digest in a file that covers one file. The listed name may have leading directories, those of the
/// machine that made it.
fn of_one(text: &[u8], name: &[u8]) -> Result<Digest, &'static str> {
    const WRONG_KIND: &str = "lists no SHA-256 digest of it";
    let mut found = "has no SHA-256 digest";
    for line in lines(text) {
        if let Some(digest) = Digest::from_hex(KIND, line) {
            return Ok(digest);
        }
        let Ok(Some(listed)) = parse_line(line, KIND) else { continue };
        let last = listed.name.rsplit(|byte| *byte == b'/').next();
        let is_this = listed.name == b"-" || last == Some(name);
        match is_this {
            true if listed.digest.kind == KIND => return Ok(listed.digest),
            true => found = WRONG_KIND,
            false if found != WRONG_KIND => found = "lists another file",
            false => {}
        }
    }
    Err(found)
}

/// The digests in a list, by path below its directory.
fn of_all(text: &[u8]) -> HashMap<Vec<u8>, Digest> {
    let listed = lines(text).filter_map(|line| parse_line(line, KIND).ok().flatten());
    let listed = listed.filter(|listed| listed.digest.kind == KIND);
    let paths = listed.filter_map(|listed| Some((listed_path(&listed.name).ok()?, listed.digest)));
    paths.map(|(path, digest)| (path.as_bytes().to_vec(), digest)).collect()
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty())
}

/// `name` in a directory.
fn below(directory: &Location, name: &[u8]) -> Location {
    let mut location = directory.clone();
    match &mut location {
        Location::Local(path) => path.push(OsStr::from_bytes(name)),
        Location::Remote { path, written, .. } => {
            path.extend_from_slice(name);
            *written = written_below(written.take(), name);
        }
        Location::Named { path, .. } | Location::Peer { path, .. } => path.extend_from_slice(name),
    }
    location
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    const OTHER: &str = "0000000000000000000000000000000000000000000000000000000000000000";

    fn one(text: &str) -> Result<String, &'static str> {
        let text = text.replace("HEX", HEX);
        of_one(text.as_bytes(), b"a.iso").map(|digest| digest.to_string())
    }

    #[test]
    fn the_digest_file_of_one_file_may_have_any_common_form() {
        for text in [
            "HEX",
            "HEX\r\n",
            "HEX  a.iso\n",
            "HEX *a.iso\n",
            "HEX  ./out/a.iso\n",
            "HEX  -\n",
            "# made today\n\nSHA256 (a.iso) = HEX\n",
            "SHA256(dist/a.iso)= HEX\n",
            "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\nHEX  a.iso\n",
        ] {
            assert_eq!(one(text), Ok(HEX.to_owned()), "{text}");
        }
        assert_eq!(one("HEX  b.iso\n"), Err("lists another file"));
        assert_eq!(one("<html>404</html>"), Err("has no SHA-256 digest"));
        let blake3 = "HEX  b.iso\nBLAKE3 (a.iso) = HEX\nHEX  c.iso\n";
        assert_eq!(one(blake3), Err("lists no SHA-256 digest of it"));
    }

    #[test]
    fn names_in_a_list_are_relative_to_its_directory() {
        let text = format!("{HEX}  a.iso\n{HEX} *./b.iso\n{OTHER}  sub/a.iso\n{OTHER}  ../c\n");
        let all = of_all(text.as_bytes());
        assert_eq!(all.get(&b"a.iso"[..]).unwrap().to_string(), HEX);
        assert_eq!(all.get(&b"b.iso"[..]).unwrap().to_string(), HEX);
        assert!(!all.contains_key(&b"c"[..]));
    }
}
