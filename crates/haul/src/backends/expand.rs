//! Globs in paths on servers and behind tickets: `server:logs/*.gz`.
//!
//! A shell expands local patterns itself, but not those of a server, so haul lists the server's directories. As
//! in a shell, `*`, `?` and `[a-z]` match within one component, a leading dot must be written explicitly, and
//! matches are sorted. A path that exists literally is never treated as a pattern.

use std::ffi::{OsStr, OsString};
use std::iter::repeat_n;

use haul_storage::{Entry, EntryKind, Error, ErrorKind, Location, Result, Scheme, StorageExt as _};

use super::{Storages, written_below};
use crate::exit::Stop;
use crate::glob::Glob;

impl Storages<'_> {
    /// The locations of a command's arguments, with patterns in remote paths replaced by their matches. The command's
    /// other locations have to be located before.
    ///
    /// # Errors
    /// An argument is not a location, nothing matches a pattern, or a pattern cannot be expanded.
    pub(crate) async fn expand_all(&self, arguments: &[OsString]) -> Result<Vec<Location>, Stop> {
        let mut all = Vec::new();
        for (location, argument) in self.locate_all(arguments)?.into_iter().zip(arguments) {
            all.extend(self.expand(location, argument).await?);
        }
        Ok(all)
    }

    /// As [`Self::expand_all`], for a command that handles each argument on its own: the error of a pattern that cannot
    /// be expanded is passed to `fail`, and the others are still expanded.
    ///
    /// # Errors
    /// An argument is not a location.
    pub(crate) async fn expand_each(
        &self,
        arguments: &[OsString],
        mut fail: impl FnMut(&Error),
    ) -> Result<Vec<Location>, Stop> {
        let mut all = Vec::new();
        for (location, argument) in self.locate_all(arguments)?.into_iter().zip(arguments) {
            match self.expand(location, argument).await {
                Ok(found) => all.extend(found),
                Err(error) => fail(&error),
            }
        }
        Ok(all)
    }

    /// All are located before the first one is opened: the secrets of the environment depend on all hosts.
    fn locate_all(&self, arguments: &[OsString]) -> Result<Vec<Location>, Stop> {
        arguments.iter().map(|argument| self.locate(argument)).collect()
    }

    /// The matching locations, sorted by name; the location itself if it has no pattern, or exists. `written` is the
    /// argument as typed: percent-encoded characters of a URL are literal, and so is the path of a remote of the
    /// configuration.
    pub(crate) async fn expand(
        &self,
        location: Location,
        written: &OsStr,
    ) -> Result<Vec<Location>> {
        let (Location::Remote { path, query: None, .. } | Location::Peer { path, .. }) = &location
        else {
            return Ok(vec![location]);
        };
        let globs = aligned(written_globs(written), path);
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
            let mut present = Vec::new();
            for location in found {
                match self.existing(&location).await {
                    Ok(_) => present.push(location),
                    Err(error) if is_absence(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            found = present;
        }
        if found.is_empty() {
            return Err(Error::new(ErrorKind::NotFound, "find")
                .at(&location)
                .because("nothing matches this pattern"));
        }
        Ok(found)
    }

    /// The matches in one directory; none if `base` is not a directory, or does not exist.
    async fn matches(
        &self,
        base: &Location,
        step: &Step<'_>,
        is_last: bool,
    ) -> Result<Vec<Location>> {
        let opened = match self.existing(base).await {
            Ok(opened) if opened.is_directory => opened,
            Ok(_) => return Ok(Vec::new()),
            Err(error) if is_absence(&error) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let entries = opened.storage.list_sorted(&opened.path).await?;
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
    /// The location before the first component with a pattern.
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
        match &mut found {
            Location::Remote { path, written, .. } => {
                *path = base;
                // Web paths keep encoded slashes encoded, so both paths have the same components.
                if let Some(written) = written {
                    let components: Vec<_> = written.split('/').take(first).collect();
                    *written = components.join("/") + "/";
                }
            }
            Location::Peer { path, .. } => *path = base,
            // `expand` passes no others.
            Location::Local(_) | Location::Named { .. } => {}
        }
        Ok(Self { base: found, steps, directories_only: path.ends_with(b"/") })
    }
}

impl<'a> Step<'a> {
    fn of(component: &'a [u8], glob: Option<&[u8]>) -> Result<Self, String> {
        let Some(glob) = glob else { return Ok(Self::Name(component)) };
        let text = std::str::from_utf8(glob)
            .map_err(|_| "a pattern has to be UTF-8; name the files one by one".to_owned())?;
        Ok(Self::Glob {
            glob: Glob::without_alternatives(text)?,
            matches_hidden: component.starts_with(b"."),
        })
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

/// For each component of the path in an argument, its pattern if it is one.
fn written_globs(argument: &OsStr) -> Vec<Option<Vec<u8>>> {
    let Ok(location) = Location::parse(argument) else { return Vec::new() };
    let written = argument.as_encoded_bytes();
    let has_fragment =
        matches!(location, Location::Remote { scheme: Scheme::Http | Scheme::Https, .. });
    let fragment = written.iter().position(|byte| has_fragment && *byte == b'#');
    match url_path(&written[..fragment.unwrap_or(written.len())]) {
        Some(path) => url_globs(path, location.is_web()),
        None => globs(location.path_bytes()),
    }
}

/// The path of a URL, as it was written.
fn url_path(argument: &[u8]) -> Option<&[u8]> {
    let scheme = argument.windows(3).position(|three| three == b"://")?;
    if !argument[..scheme].iter().all(u8::is_ascii_alphanumeric) {
        return None;
    }
    let authority = &argument[scheme + 3..];
    let path = authority.iter().position(|byte| *byte == b'/')?;
    Some(&authority[path..])
}

/// The patterns of a path. Braces are literal: a shell has already expanded those outside quotes.
fn globs(path: &[u8]) -> Vec<Option<Vec<u8>>> {
    let components = path.split(|byte| *byte == b'/');
    components.map(|component| is_pattern(component).then(|| component.to_vec())).collect()
}

/// The patterns of the percent-encoded path of a URL. In the path of a web location an encoded slash stays encoded; in
/// any other, it separates components.
fn url_globs(path: &[u8], is_web: bool) -> Vec<Option<Vec<u8>>> {
    let (mut components, mut rest) = (vec![Vec::new()], path);
    while let Some((first, tail)) = rest.split_first() {
        let is_encoded = !is_web && is_encoded_slash(rest);
        if *first == b'/' || is_encoded {
            components.push(Vec::new());
        } else if let Some(component) = components.last_mut() {
            component.push(*first);
        }
        rest = if is_encoded { &rest[3..] } else { tail };
    }
    components.iter().map(|component| url_glob(component)).collect()
}

/// The patterns of the components of `path`, which ends like the written path. It may lack leading components of the
/// written path: `/~/` in an SFTP URL is the home directory. It may have more: those of a remote in the configuration.
fn aligned(written: Vec<Option<Vec<u8>>>, path: &[u8]) -> Vec<Option<Vec<u8>>> {
    let components: Vec<_> = path.split(|byte| *byte == b'/').collect();
    let missing = repeat_n(None, components.len().saturating_sub(written.len()));
    let extra = written.len().saturating_sub(components.len());
    let all = missing.chain(written.into_iter().skip(extra));
    // `@FILE` (a file with a ticket) has no path: the name of the file is not a pattern.
    all.zip(components).map(|(glob, component)| glob.filter(|_| !component.is_empty())).collect()
}

fn is_pattern(component: &[u8]) -> bool {
    component.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['))
}

/// The pattern of a component of a URL; percent-encoded characters are literal.
fn url_glob(component: &[u8]) -> Option<Vec<u8>> {
    if !is_pattern(component) {
        return None;
    }
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let (mut glob, mut rest) = (Vec::new(), component);
    // Whether a `\` precedes.
    let mut is_escaped = false;
    while let Some((byte, behind)) = rest.split_first() {
        let code = (*byte == b'%' && !is_encoded_slash(rest))
            .then(|| behind.first().and_then(digit).zip(behind.get(1).and_then(digit)));
        rest = behind;
        match code.flatten() {
            Some((high, low)) => {
                rest = &behind[2..];
                let byte = u8::try_from(high * 16 + low).unwrap_or(u8::MAX);
                if byte.is_ascii_punctuation() && !is_escaped {
                    glob.push(b'\\');
                }
                glob.push(byte);
                is_escaped = false;
            }
            None => {
                glob.push(*byte);
                is_escaped = *byte == b'\\' && !is_escaped;
            }
        }
    }
    Some(glob)
}

/// Whether a path begins with a percent-encoded slash.
fn is_encoded_slash(path: &[u8]) -> bool {
    path.get(..3).is_some_and(|three| three.eq_ignore_ascii_case(b"%2f"))
}

fn is_absence(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// `name` below a location; an empty name appends a slash.
fn below(base: &Location, name: &[u8]) -> Location {
    let mut location = base.clone();
    // An empty path is the home directory (SFTP) or the share (a peer); otherwise it is the root.
    let is_base = match &location {
        Location::Remote { path, scheme, .. } => path.is_empty() && *scheme == Scheme::Sftp,
        other => other.path_bytes().is_empty(),
    };
    if let Location::Remote { path, .. } | Location::Peer { path, .. } = &mut location {
        if !path.ends_with(b"/") && !is_base {
            path.push(b'/');
        }
        path.extend_from_slice(name);
    }
    if let Location::Remote { written, .. } = &mut location {
        // For an empty name, `written_below` appends no slash.
        *written = match (written.take(), name) {
            (Some(written), b"") if !written.ends_with('/') => Some(written + "/"),
            (written, name) => written_below(written, name),
        };
    }
    location
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pattern of each component of a path: that of the argument, with `base` before it.
    fn patterns(base: &str, argument: &str) -> Vec<Option<String>> {
        let location = Location::parse(argument).unwrap();
        let path = [base.as_bytes(), location.path_bytes()].concat();
        let text = |glob: Vec<u8>| String::from_utf8(glob).unwrap();
        let found = aligned(written_globs(OsStr::new(argument)), &path);
        assert_eq!(found.len(), path.split(|byte| *byte == b'/').count());
        found.into_iter().map(|glob| glob.map(text)).collect()
    }

    fn none() -> Option<String> {
        None
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn percent_encoded_characters_of_a_url_are_literal() {
        assert_eq!(patterns("", "sftp://h/g/a%2Ab"), [none(), none(), none()]);
        assert_eq!(patterns("", "sftp://h/x%2A/*.gz"), [none(), none(), some("*.gz")]);
        assert_eq!(patterns("", "sftp://h/a%2A[1]"), [none(), some("a\\*[1]")]);
        assert_eq!(patterns("", "sftp://h/~/logs/*.gz"), [none(), some("*.gz")]);
        assert_eq!(patterns("", "sftp://h/a\\%2A*"), [none(), some("a\\**")]);
        assert_eq!(patterns("", "dav://h/{x}*"), [none(), some("{x}*")]);
        assert_eq!(patterns("", "https://h/a%2Fb*#*/x"), [none(), some("a%2Fb*")]);
        assert_eq!(patterns("", "dav://h/a#*"), [none(), some("a#*")]);
        assert_eq!(patterns("", "h:a/b"), [none(), none()]);
        assert_eq!(patterns("", "h:a*/x://y"), [some("a*"), none(), none(), none()]);
    }

    /// Formerly, the slash was missing in the URL that is requested, so that files matched, too.
    #[test]
    fn a_slash_after_a_pattern_is_part_of_the_url() {
        let base = Location::parse("https://h/%7Eada/docs").unwrap();
        let Location::Remote { path, written, .. } = below(&base, b"") else { panic!() };
        assert_eq!((&path[..], written.as_deref()), (&b"/~ada/docs/"[..], Some("/%7Eada/docs/")));
    }

    /// Formerly, an encoded slash shifted the components against the written ones, and each decoded `*` was a pattern.
    #[test]
    fn percent_encoded_characters_are_literal_beside_an_encoded_slash() {
        for url in ["sftp://h/%2Fx%2A/*", "ftp://h/%2fx%2A/*"] {
            assert_eq!(patterns("", url), [none(), none(), none(), some("*")], "{url}");
        }
        assert_eq!(patterns("", "sftp://h/~/%2A%2Fb*"), [none(), some("b*")]);
    }

    /// Formerly, a `*` in the url of a remote was a pattern.
    #[test]
    fn the_path_of_a_remote_is_literal() {
        assert_eq!(patterns("/vol*/", "nas:x/*"), [none(), none(), none(), some("*")]);
        assert_eq!(patterns("/vol*", "nas:/*"), [none(), none(), some("*")]);
        let ticket = "haul1abcdefghijklmnopqrstuvwxyz234567/a*/b";
        assert_eq!(patterns("", ticket), [some("a*"), none()]);
    }

    #[test]
    fn the_path_of_a_url_begins_at_the_slash_after_the_host() {
        let path = |text: &'static str| url_path(text.as_bytes());
        assert_eq!(path("sftp://ada@h:22/a/*"), Some(&b"/a/*"[..]));
        assert_eq!(path("h:a/*"), None);
        assert_eq!(path("dav://h"), None);
        assert_eq!(path("h:a/x://y/*"), None);
    }
}
