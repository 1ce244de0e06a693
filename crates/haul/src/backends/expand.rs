//! Globs in remote paths: `server:logs/*.gz`.
//!
//! A shell expands local patterns itself, but not those of a server, so haul lists the directories there. As
//! in a shell `*`, `?` and `[a-z]` match within one component, a leading dot must be written explicitly, and
//! matches are sorted. A path that exists literally is never treated as a pattern.

use std::ffi::{OsStr, OsString};

use haul_storage::{Entry, EntryKind, Error, ErrorKind, Location, Result, StorageExt as _};

use super::{Places, written_below};
use crate::exit::Stop;
use crate::glob::Glob;

impl Places<'_> {
    /// The locations of a command's arguments, with patterns in remote paths replaced by their matches.
    ///
    /// # Errors
    /// An argument is not a location, or nothing matches a pattern.
    pub(crate) async fn expand_all(&self, arguments: &[OsString]) -> Result<Vec<Location>, Stop> {
        let mut all = Vec::new();
        for argument in arguments {
            all.extend(self.expand(self.locate(argument)?, argument).await?);
        }
        Ok(all)
    }

    /// The matching locations, sorted by name; the location itself if it has no pattern. `written` is the
    /// argument as typed: in a URL, percent-encoded characters are literal.
    pub(crate) async fn expand(
        &self,
        location: Location,
        written: &OsStr,
    ) -> Result<Vec<Location>> {
        let Location::Remote { path, query: None, .. } = &location else {
            return Ok(vec![location]);
        };
        let globs = globs(path, url_path(written));
        if globs.iter().all(Option::is_none) {
            return Ok(vec![location]);
        }
        match self.existing(&location).await {
            Ok(_) => return Ok(vec![location]),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let pattern = Pattern::of(&location, path, &globs)?;
        let mut found = vec![pattern.base];
        for (at, step) in pattern.steps.iter().enumerate() {
            let is_last = at + 1 == pattern.steps.len();
            let mut next = Vec::new();
            for base in &found {
                match step {
                    Step::Name(name) => next.push(below(base, name)),
                    Step::Glob { .. } => next.extend(self.matches(base, step, is_last).await?),
                }
            }
            found = next;
        }
        if pattern.directories_only {
            found = found.iter().map(|location| below(location, b"")).collect();
        }
        // A literal name after the last pattern may be missing in some of its matches.
        if matches!(pattern.steps.last(), Some(Step::Name(_))) || pattern.directories_only {
            let mut there = Vec::new();
            for location in found {
                match self.existing(&location).await {
                    Ok(_) => there.push(location),
                    Err(error) if is_absence(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            found = there;
        }
        if found.is_empty() {
            return Err(Error::new(ErrorKind::NotFound, "find")
                .at(&location)
                .because("nothing matches this pattern"));
        }
        Ok(found)
    }

    /// The matches in one directory; none if `base` is not a directory.
    async fn matches(
        &self,
        base: &Location,
        step: &Step<'_>,
        is_last: bool,
    ) -> Result<Vec<Location>> {
        let place = match self.existing(base).await {
            Ok(place) if place.is_directory => place,
            Ok(_) => return Ok(Vec::new()),
            Err(error) if is_absence(&error) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let entries = place.storage.list_sorted(&place.path).await?;
        let may_have_more =
            |entry: &Entry| matches!(entry.kind, EntryKind::Directory | EntryKind::Symlink(_));
        Ok(entries
            .iter()
            .filter(|entry| step.is_match(entry.path.name()) && (is_last || may_have_more(entry)))
            .map(|entry| below(base, entry.path.name()))
            .collect())
    }
}

/// A path with patterns, split into components.
struct Pattern<'a> {
    /// The path before the first component with a pattern.
    base: Location,
    steps: Vec<Step<'a>>,
    /// Whether the path ends with a slash.
    directories_only: bool,
}

enum Step<'a> {
    Name(&'a [u8]),
    Glob { glob: Glob, matches_hidden: bool },
}

impl<'a> Pattern<'a> {
    fn of(location: &Location, path: &'a [u8], globs: &[Option<Vec<u8>>]) -> Result<Self> {
        let components: Vec<_> = path.split(|byte| *byte == b'/').collect();
        let first = globs.iter().position(Option::is_some).unwrap_or(0);
        let mut base = components[..first].join(&b'/');
        if first > 0 {
            base.push(b'/');
        }
        let mut steps = Vec::new();
        let rest = components.iter().zip(globs).skip(first);
        for (component, glob) in rest.filter(|(component, _)| !component.is_empty()) {
            steps.push(Step::of(component, glob.as_deref()).map_err(|cause| {
                Error::new(ErrorKind::InvalidInput, "find").at(location).because(cause)
            })?);
        }
        let mut found = location.clone();
        if let Location::Remote { path, written, .. } = &mut found {
            *path = base;
            // Patterns contain no slash, so both paths have the same components.
            if let Some(written) = written {
                let components: Vec<_> = written.split('/').take(first).collect();
                *written = components.join("/") + "/";
            }
        }
        Ok(Self { base: found, steps, directories_only: path.ends_with(b"/") })
    }
}

impl<'a> Step<'a> {
    fn of(component: &'a [u8], glob: Option<&[u8]>) -> Result<Self, String> {
        let Some(glob) = glob else { return Ok(Self::Name(component)) };
        let text = std::str::from_utf8(glob)
            .map_err(|_| "a pattern has to be UTF-8; name the files one by one".to_owned())?;
        Ok(Self::Glob { glob: Glob::new(text)?, matches_hidden: component.starts_with(b".") })
    }

    fn is_match(&self, name: &[u8]) -> bool {
        match self {
            Self::Name(own) => name == *own,
            Self::Glob { glob, matches_hidden } => {
                (*matches_hidden || !name.starts_with(b".")) && glob.is_match(name)
            }
        }
    }
}

/// The path of a URL, as it was written.
fn url_path(argument: &OsStr) -> Option<&[u8]> {
    let argument = argument.as_encoded_bytes();
    let scheme = argument.windows(3).position(|three| three == b"://")?;
    let authority = &argument[scheme + 3..];
    let path = authority.iter().position(|byte| *byte == b'/')?;
    Some(&authority[path..])
}

/// The pattern of each component of `path`, if it is one. `written` is the path of the URL, percent-encoded.
fn globs(path: &[u8], written: Option<&[u8]>) -> Vec<Option<Vec<u8>>> {
    let components = || path.split(|byte| *byte == b'/');
    if let Some(written) = written {
        let written: Vec<_> = written.split(|byte| *byte == b'/').map(url_glob).collect();
        // `path` may lack leading components of `written`: an SFTP URL's path starts after the slash, and
        // `/~/` is the home directory. Those must not be patterns.
        let count = components().count();
        if written.iter().all(Option::is_none) {
            return vec![None; count];
        }
        let extra = written.len().saturating_sub(count);
        if written[..extra].iter().all(Option::is_none) && written.len() >= count {
            return written[extra..].to_vec();
        }
    }
    components().map(|component| is_pattern(component).then(|| escaped(component))).collect()
}

fn is_pattern(component: &[u8]) -> bool {
    component.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['))
}

/// The component as a glob in which braces are literal, as in the glob of a shell.
fn escaped(component: &[u8]) -> Vec<u8> {
    let mut glob = Vec::with_capacity(component.len());
    for byte in component {
        if matches!(byte, b'{' | b'}') {
            glob.push(b'\\');
        }
        glob.push(*byte);
    }
    glob
}

/// The pattern of a component of a URL; percent-encoded characters are literal.
fn url_glob(component: &[u8]) -> Option<Vec<u8>> {
    if !is_pattern(component) {
        return None;
    }
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let (mut glob, mut rest) = (Vec::new(), component);
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        let code = (*byte == b'%')
            .then(|| behind.first().and_then(digit).zip(behind.get(1).and_then(digit)));
        match code.flatten() {
            Some((high, low)) => {
                rest = &behind[2..];
                let byte = u8::try_from(high * 16 + low).unwrap_or(u8::MAX);
                if byte.is_ascii_punctuation() {
                    glob.push(b'\\');
                }
                glob.push(byte);
            }
            None => glob.extend(escaped(&[*byte])),
        }
    }
    Some(glob)
}

fn is_absence(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// `name` below a location; an empty name appends a slash.
fn below(base: &Location, name: &[u8]) -> Location {
    let mut location = base.clone();
    if let Location::Remote { path, written, scheme, .. } = &mut location {
        let at_home = path.is_empty() && *scheme == haul_storage::Scheme::Sftp;
        if !path.ends_with(b"/") && !at_home {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        *written = written_below(written.take(), name);
    }
    location
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(path: &str, written: Option<&str>) -> Vec<Option<String>> {
        let found = globs(path.as_bytes(), written.map(str::as_bytes));
        let text = |glob: Vec<u8>| String::from_utf8(glob).unwrap();
        found.into_iter().map(|glob| glob.map(text)).collect()
    }

    #[test]
    fn percent_encoded_characters_of_a_url_are_literal() {
        let none = || None::<String>;
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(patterns("/g/a*b", Some("/g/a%2Ab")), [none(), none(), none()]);
        assert_eq!(patterns("/x*/*.gz", Some("/x%2A/*.gz")), [none(), none(), some("*.gz")]);
        assert_eq!(patterns("/a*[1]", Some("/a%2A[1]")), [none(), some("a\\*[1]")]);
        assert_eq!(patterns("logs/*.gz", Some("/~/logs/*.gz")), [none(), some("*.gz")]);
        assert_eq!(patterns("{x}*", None), [some("\\{x\\}*")]);
        assert_eq!(patterns("a/b", None), [none(), none()]);
    }

    #[test]
    fn the_path_of_a_url_begins_at_the_slash_after_the_host() {
        let path = |text: &'static str| url_path(OsStr::new(text));
        assert_eq!(path("sftp://ada@h:22/a/*"), Some(&b"/a/*"[..]));
        assert_eq!(path("h:a/*"), None);
        assert_eq!(path("dav://h"), None);
    }
}
