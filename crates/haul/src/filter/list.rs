//! `--files-from`: the names to copy, instead of everything.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use haul_storage::{RelPath, io_cause};

/// A list of paths below SOURCE. A directory in it stands for everything in it.
#[derive(Debug)]
pub(crate) struct NameList {
    /// The paths, and whether each was found in the source.
    listed: HashMap<Vec<u8>, AtomicBool>,
    /// The directories above the listed paths.
    above: HashSet<Vec<u8>>,
}

impl NameList {
    /// Reads a list: one path per line or, if the file contains NUL characters, each path terminated by one.
    /// `-` is standard input. Empty paths, and lines that begin with `#` or `;`, are skipped. Slashes at both ends and
    /// `./` at the beginning make no difference.
    pub(crate) fn read(file: &Path) -> Result<Self, String> {
        let unreadable = |error: io::Error| {
            format!("{}: cannot read the list ({})", file.display(), io_cause(&error))
        };
        let text = match file.to_str() {
            Some("-") => {
                let mut text = Vec::new();
                io::stdin().lock().read_to_end(&mut text).map_err(unreadable)?;
                text
            }
            _ => fs::read(file).map_err(unreadable)?,
        };
        Self::parse(&text)
            .map_err(|(number, cause)| format!("{}:{number}: {cause}", file.display()))
    }

    fn parse(text: &[u8]) -> Result<Self, (usize, String)> {
        let end = if text.contains(&0) { 0 } else { b'\n' };
        let (mut listed, mut above) = (HashMap::new(), HashSet::new());
        for (at, line) in text.split(|byte| *byte == end).enumerate() {
            let line = line.strip_suffix(b"\r").filter(|_| end == b'\n').unwrap_or(line);
            if line.is_empty() || end == b'\n' && matches!(line[0], b'#' | b';') {
                continue;
            }
            let components = line.split(|byte| *byte == b'/');
            let names: Vec<_> =
                components.filter(|name| !name.is_empty() && *name != b".").collect();
            let path = names.join(&b'/');
            if path.is_empty() {
                return Err((at + 1, "the list names all of SOURCE; omit --files-from".into()));
            }
            RelPath::parse(&path).map_err(|error| (at + 1, format!("the path {error}")))?;
            for (end, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
                above.insert(path[..end].to_vec());
            }
            listed.insert(path, AtomicBool::new(false));
        }
        Ok(Self { listed, above })
    }

    /// Whether a path below the source takes part. Marks a listed path as found.
    pub(super) fn takes(&self, path: &[u8], is_directory: bool) -> bool {
        if let Some(seen) = self.listed.get(path) {
            seen.store(true, Ordering::Relaxed);
            return true;
        }
        let mut ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        (is_directory && self.above.contains(path))
            || ends.any(|(end, _)| self.listed.contains_key(&path[..end]))
    }

    /// The listed paths that were not found, sorted.
    pub(super) fn missing(&self) -> Vec<&[u8]> {
        let unseen = self.listed.iter().filter(|(_, seen)| !seen.load(Ordering::Relaxed));
        let mut missing: Vec<_> = unseen.map(|(path, _)| path.as_slice()).collect();
        missing.sort_unstable();
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_paths_take_part_with_their_parents_and_their_content() {
        let list = NameList::parse(b"# a list\n./a/b\n/c/\n\nd\r\n").unwrap();
        for (path, is_directory, takes) in [
            ("a", true, true),
            ("a", false, false),
            ("a/b", false, true),
            ("a/x", false, false),
            ("c/deep/er", false, true),
            ("d", false, true),
            ("e", true, false),
        ] {
            assert_eq!(list.takes(path.as_bytes(), is_directory), takes, "{path}");
        }
        assert_eq!(list.missing(), [b"c".as_slice()]);
    }

    /// Formerly, an empty line with a carriage return was refused as the whole of SOURCE.
    #[test]
    fn lines_may_end_with_a_carriage_return() {
        let list = NameList::parse(b"# a list\r\n\r\na/b\r\n;\r\nc\r\n\r\n").unwrap();
        assert_eq!(list.missing(), [b"a/b".as_slice(), b"c"]);
        // Between NUL characters, a carriage return belongs to the name.
        let list = NameList::parse(b"a\r\0\0").unwrap();
        assert_eq!(list.missing(), [b"a\r".as_slice()]);
    }

    #[test]
    fn names_may_be_separated_by_nul() {
        let list = NameList::parse(b"#a\nb\0c\0").unwrap();
        assert!(list.takes(b"#a\nb", false) && list.takes(b"c", false));
    }

    #[test]
    fn a_path_that_leads_out_of_the_source_is_refused() {
        assert_eq!(NameList::parse(b"a\n../b\n").unwrap_err().0, 2);
        assert_eq!(NameList::parse(b"/\n").unwrap_err().0, 1);
    }
}
