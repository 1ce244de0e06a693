//! Names below a storage's root.
//!
//! Every name from a listing, a manifest or a user becomes a [`RelPath`] before it is opened. The type
//! guarantees that there is no `..`, no `.`, no empty component, no NUL and no leading slash, so joining
//! it to a root cannot leave that root. Backends with symbolic links refuse those in a path.

use std::fmt;

use crate::text;

/// A path below a storage's root: components of bytes joined with `/`. Empty means the root.
///
/// Bytes, not text: file names on Unix need not be UTF-8.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct RelPath {
    bytes: Vec<u8>,
}

/// Why bytes are not a path below a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelPathError {
    /// A component is empty: the path starts or ends with `/` or has `//` in it, or a single name is empty.
    EmptyComponent,
    /// A component is `.` or `..`.
    DotComponent,
    /// It contains a NUL byte.
    Nul,
    /// A single name is required, but it contains `/`.
    Separator,
}

impl fmt::Display for RelPathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EmptyComponent => "has an empty component",
            Self::DotComponent => "has a component '.' or '..'",
            Self::Nul => "has a NUL byte in it",
            Self::Separator => "has a '/' in it",
        })
    }
}

impl std::error::Error for RelPathError {}

impl RelPath {
    /// The root itself.
    pub const fn root() -> Self {
        Self { bytes: Vec::new() }
    }

    /// Parses components joined with `/`; empty input is the root.
    ///
    /// # Errors
    /// If a component is empty, `.` or `..`, or has a NUL.
    pub fn parse(bytes: impl AsRef<[u8]>) -> Result<Self, RelPathError> {
        let bytes = bytes.as_ref();
        if bytes.is_empty() {
            return Ok(Self::root());
        }
        for component in bytes.split(|byte| *byte == b'/') {
            check_name(component)?;
        }
        Ok(Self { bytes: bytes.to_vec() })
    }

    /// The entry `name` in this directory.
    ///
    /// # Errors
    /// If `name` is not a single component.
    pub fn join(&self, name: impl AsRef<[u8]>) -> Result<Self, RelPathError> {
        let name = name.as_ref();
        if name.contains(&b'/') {
            return Err(RelPathError::Separator);
        }
        check_name(name)?;
        let mut bytes = Vec::with_capacity(self.bytes.len() + 1 + name.len());
        bytes.extend_from_slice(&self.bytes);
        if !bytes.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name);
        Ok(Self { bytes })
    }

    /// The path `other` below this one.
    pub fn join_path(&self, other: &Self) -> Self {
        if self.is_root() {
            return other.clone();
        }
        if other.is_root() {
            return self.clone();
        }
        let mut bytes = Vec::with_capacity(self.bytes.len() + 1 + other.bytes.len());
        bytes.extend_from_slice(&self.bytes);
        bytes.push(b'/');
        bytes.extend_from_slice(&other.bytes);
        Self { bytes }
    }

    /// Whether this is the root.
    pub fn is_root(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The last component; empty for the root.
    pub fn name(&self) -> &[u8] {
        match self.bytes.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => &self.bytes[slash + 1..],
            None => &self.bytes,
        }
    }

    /// The parent directory; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        if self.is_root() {
            return None;
        }
        let end = self.bytes.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        Some(Self { bytes: self.bytes[..end].to_vec() })
    }

    /// Another name in the same directory. The root has no directory: for it, this is an entry in the root.
    ///
    /// # Errors
    /// If `name` is not a single component.
    pub fn with_name(&self, name: impl AsRef<[u8]>) -> Result<Self, RelPathError> {
        self.parent().unwrap_or_default().join(name)
    }

    /// All components from the top; none for the root.
    pub fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.split(|byte| *byte == b'/').filter(|component| !component.is_empty())
    }

    /// Whether this is `other` or lies below it.
    pub fn starts_with(&self, other: &Self) -> bool {
        other.is_root()
            || (self.bytes.starts_with(&other.bytes)
                && matches!(self.bytes.get(other.bytes.len()), None | Some(b'/')))
    }

    /// The bytes of this path relative to `directory`: empty if the two are equal, `None` if this path is not below it.
    pub fn strip_prefix(&self, directory: &Self) -> Option<&[u8]> {
        if directory.is_root() {
            return Some(&self.bytes);
        }
        match self.bytes.strip_prefix(&*directory.bytes)? {
            b"" => Some(b""),
            rest => rest.strip_prefix(b"/"),
        }
    }

    /// This path relative to `directory`: the root if the two are equal, `None` if this path is not below it.
    pub fn relative_to(&self, directory: &Self) -> Option<Self> {
        self.strip_prefix(directory).map(|bytes| Self { bytes: bytes.to_vec() })
    }

    /// The bytes, components joined with `/`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

fn check_name(name: &[u8]) -> Result<(), RelPathError> {
    match name {
        b"" => Err(RelPathError::EmptyComponent),
        b"." | b".." => Err(RelPathError::DotComponent),
        name if name.contains(&0) => Err(RelPathError::Nul),
        _ => Ok(()),
    }
}

/// Escaped like [`text::name`], so that a name can neither break a line of a report nor control a
/// terminal.
impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            return f.write_str(".");
        }
        text::name(&self.bytes).fmt(f)
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelPath({self})")
    }
}

impl std::str::FromStr for RelPath {
    type Err = RelPathError;

    fn from_str(text: &str) -> Result<Self, RelPathError> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_leave_the_root_are_refused() {
        assert_eq!(RelPath::parse("../etc"), Err(RelPathError::DotComponent));
        assert_eq!(RelPath::parse("a/../../b"), Err(RelPathError::DotComponent));
        assert_eq!(RelPath::parse("/etc"), Err(RelPathError::EmptyComponent));
        assert_eq!(RelPath::parse("a//b"), Err(RelPathError::EmptyComponent));
        assert_eq!(RelPath::parse("a/"), Err(RelPathError::EmptyComponent));
        assert_eq!(RelPath::parse(b"a\0b"), Err(RelPathError::Nul));
        assert_eq!(RelPath::root().join("a/b"), Err(RelPathError::Separator));
    }

    #[test]
    fn a_path_knows_its_name_and_parent() {
        let path = RelPath::parse("a/b/c").unwrap();
        assert_eq!(path.name(), b"c");
        assert_eq!(path.parent(), Some(RelPath::parse("a/b").unwrap()));
        assert_eq!(RelPath::parse("a").unwrap().parent(), Some(RelPath::root()));
        assert_eq!(RelPath::root().parent(), None);
        assert_eq!(path.components().count(), 3);
        assert_eq!(RelPath::root().components().count(), 0);
    }

    #[test]
    fn a_sibling_with_the_same_prefix_is_not_below() {
        let a = RelPath::parse("a").unwrap();
        assert!(RelPath::parse("a/b").unwrap().starts_with(&a));
        assert!(a.starts_with(&a));
        assert!(!RelPath::parse("ab").unwrap().starts_with(&a));
    }

    #[test]
    fn a_path_is_relative_to_the_directories_above_it() {
        let path = |text| RelPath::parse(text).unwrap();
        assert_eq!(path("a/b/c").relative_to(&path("a")), Some(path("b/c")));
        assert_eq!(path("a/b").relative_to(&RelPath::root()), Some(path("a/b")));
        assert_eq!(path("a").relative_to(&path("a")), Some(RelPath::root()));
        assert_eq!(RelPath::root().relative_to(&RelPath::root()), Some(RelPath::root()));
        assert_eq!(path("ab/c").relative_to(&path("a")), None);
        assert_eq!(path("a").relative_to(&path("a/b")), None);
    }

    #[test]
    fn a_name_cannot_break_a_line_of_a_report() {
        let path = RelPath::parse(b"a\nb\x1b[31m\xff").unwrap();
        assert_eq!(path.to_string(), "a\\012b\\033[31m\\377");
    }
}
