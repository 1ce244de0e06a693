//! The nearest common directory of two locations, so that one can be renamed to the other; and the storage of a
//! manifest, which is never split.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use haul_local::{LocalStorage, SplitMode, SplitStorage};
use haul_storage::{Error, ErrorKind, Location, RelPath, Result, Storage};

use super::{OpenedPath, Storages};
use crate::options::SplitArg;

impl Storages<'_> {
    /// The nearest directory that contains both locations, or is one of them, and their paths below it. `None` if
    /// they are on different servers or behind tickets, if the directory is unknown or cannot be opened, or if what
    /// they have in common is a file.
    pub(crate) async fn common(
        &self,
        first: &Location,
        second: &Location,
    ) -> Result<Option<(OpenedPath, RelPath, RelPath)>> {
        let Some((above, first_below, second_below)) = above(first, second) else {
            return Ok(None);
        };
        let opened = match self.existing(&above).await {
            Ok(opened) if opened.is_directory => opened,
            // Not accessible, or not a directory: the caller copies instead.
            _ => return Ok(None),
        };
        let below = |location: &Location, below: &[u8]| {
            let mut path = opened.path.clone();
            let parts = below.split(|byte| *byte == b'/');
            for component in parts.filter(|part| !matches!(*part, b"" | b".")) {
                path = path.join(component).map_err(|error| {
                    let invalid = Error::new(ErrorKind::InvalidInput, "open").at(location);
                    invalid.because(error.to_string())
                })?;
            }
            Ok::<_, Error>(path)
        };
        let (first_below, second_below) =
            (below(first, &first_below)?, below(second, &second_below)?);
        Ok(Some((opened, first_below, second_below)))
    }

    /// The same storage, without `--split SIZE`: for a manifest, which other tools read as it is.
    ///
    /// # Errors
    /// Those of opening its directory.
    pub(crate) fn unsplit(&self, storage: &Arc<dyn Storage>) -> Result<Arc<dyn Storage>> {
        match (self.split, storage.location()) {
            (SplitArg::Size(_), Location::Local(root)) => {
                let plain = LocalStorage::open(root, self.options(None))?;
                Ok(SplitStorage::new(plain, SplitMode::Auto))
            }
            _ => Ok(Arc::clone(storage)),
        }
    }
}

/// The longest common location, and both paths below it; `None` if the locations do not show one.
fn above(first: &Location, second: &Location) -> Option<(Location, Vec<u8>, Vec<u8>)> {
    match (first, second) {
        (Location::Local(first), Location::Local(second)) => {
            let (first, second) = (first.canonicalize().ok()?, second.canonicalize().ok()?);
            let common = common_path(&first, &second);
            let below = |path: &Path| {
                let below = path.strip_prefix(&common).unwrap_or(path);
                below.as_os_str().as_encoded_bytes().to_vec()
            };
            let (first, second) = (below(&first), below(&second));
            Some((Location::Local(common), first, second))
        }
        (
            Location::Remote { scheme, user, host, port, path, query: None, .. },
            Location::Remote {
                scheme: other_scheme,
                user: other_user,
                host: other_host,
                port: other_port,
                path: other_path,
                query: None,
                ..
            },
        ) => {
            let same = scheme == other_scheme
                && user == other_user
                && host == other_host
                && port == other_port
                && path.starts_with(b"/") == other_path.starts_with(b"/");
            let has_dots = |path: &[u8]| {
                path.split(|byte| *byte == b'/').any(|part| part == b".." || part == b"~")
            };
            if !same || has_dots(path) || has_dots(other_path) {
                return None;
            }
            let length = common_length(path, other_path);
            let mut above = first.clone();
            if let Location::Remote { path, written, .. } = &mut above {
                path.truncate(length);
                *written = None;
            }
            Some((above, path[length..].to_vec(), other_path[length..].to_vec()))
        }
        _ => None,
    }
}

fn common_path(first: &Path, second: &Path) -> PathBuf {
    let pairs = first.components().zip(second.components());
    pairs.take_while(|(a, b)| a == b).map(|(a, _): (Component<'_>, _)| a).collect()
}

/// Length in bytes of the longest common prefix that ends at a component boundary.
fn common_length(first: &[u8], second: &[u8]) -> usize {
    let is_end = |path: &[u8], at: usize| at == path.len() || path[at] == b'/';
    let same = first.iter().zip(second).take_while(|(a, b)| a == b).count();
    if is_end(first, same) && is_end(second, same) {
        return same;
    }
    // Keep the slash: the parent of a top-level name is the root.
    first[..same].iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(first: &str, second: &str) -> Option<(String, String, String)> {
        let location = |text| Location::parse(text).unwrap().as_ssh_host();
        above(&location(first), &location(second)).map(|(above, first, second)| {
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
            (above.to_string(), text(first), text(second))
        })
    }

    #[test]
    fn the_longest_common_location_is_found() {
        let found = |above: &str, first: &str, second: &str| {
            Some((above.to_owned(), first.to_owned(), second.to_owned()))
        };
        assert_eq!(remote("h:/a/b", "h:/a/c"), found("sftp://h/a/", "b", "c"));
        assert_eq!(remote("h:/a/b", "h:/a/b/c"), found("sftp://h/a/b", "", "/c"));
        assert_eq!(remote("h:/ab", "h:/ac/d"), found("sftp://h/", "ab", "ac/d"));
        assert_eq!(remote("h:ab", "h:ac"), found("sftp://h/~/", "ab", "ac"));
        assert_eq!(remote("h:/a", "h:a"), None, "the path of the home is unknown");
        assert_eq!(remote("h:/a/../b", "h:/a/c"), None);
        assert_eq!(remote("h:/a", "g:/a"), None);
    }
}
