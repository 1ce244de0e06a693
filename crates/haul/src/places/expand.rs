//! Globs in remote paths: `server:logs/*.gz`.
//!
//! A shell expands local patterns itself, but not those of a server, so haul lists the directories there. As in
//! a shell `*`, `?` and `[a-z]` match within one component, a leading dot has to be written, and matches are
//! sorted. A path that exists as it is written is never taken for a pattern.

use std::ffi::OsString;

use haul_storage::{Entry, EntryKind, Error, ErrorKind, Location, Result, StorageExt as _};

use super::{Places, written_below};
use crate::exit::Stop;
use crate::glob::Glob;

impl Places<'_> {
    /// What the arguments of a command mean, with patterns in remote paths replaced by what matches.
    ///
    /// # Errors
    /// An argument is no location, or nothing matches a pattern.
    pub(crate) async fn expand_all(&self, arguments: &[OsString]) -> Result<Vec<Location>, Stop> {
        let mut all = Vec::new();
        for argument in arguments {
            all.extend(self.expand(self.locate(argument)?).await?);
        }
        Ok(all)
    }

    /// The locations that match, in the order of their names; the location itself if it has no pattern.
    pub(crate) async fn expand(&self, location: Location) -> Result<Vec<Location>> {
        let Location::Remote { path, query: None, .. } = &location else {
            return Ok(vec![location]);
        };
        if !is_pattern(path) {
            return Ok(vec![location]);
        }
        match self.existing(&location).await {
            Ok(_) => return Ok(vec![location]),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let pattern = Pattern::of(&location, path)?;
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
        // A name after the last pattern need not be in all that matched it.
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

    /// What matches in one directory. What is no directory has nothing in it.
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

/// A path with patterns, taken apart.
struct Pattern<'a> {
    /// What stands before the first component that has a pattern.
    base: Location,
    steps: Vec<Step<'a>>,
    /// It ends with a slash.
    directories_only: bool,
}

enum Step<'a> {
    Name(&'a [u8]),
    Glob { glob: Glob, matches_hidden: bool },
}

impl<'a> Pattern<'a> {
    fn of(location: &Location, path: &'a [u8]) -> Result<Self> {
        let components: Vec<_> = path.split(|byte| *byte == b'/').collect();
        let first = components.iter().position(|component| is_pattern(component)).unwrap_or(0);
        let mut base = components[..first].join(&b'/');
        if first > 0 {
            base.push(b'/');
        }
        let mut steps = Vec::new();
        for component in components[first..].iter().filter(|component| !component.is_empty()) {
            steps.push(Step::of(component).map_err(|cause| {
                Error::new(ErrorKind::InvalidInput, "find").at(location).because(cause)
            })?);
        }
        let mut found = location.clone();
        if let Location::Remote { path, written, .. } = &mut found {
            *path = base;
            // A pattern has no slash, so both have the same components.
            if let Some(written) = written {
                let components: Vec<_> = written.split('/').take(first).collect();
                *written = components.join("/") + "/";
            }
        }
        Ok(Self { base: found, steps, directories_only: path.ends_with(b"/") })
    }
}

impl<'a> Step<'a> {
    fn of(component: &'a [u8]) -> Result<Self, String> {
        if !is_pattern(component) {
            return Ok(Self::Name(component));
        }
        let text = std::str::from_utf8(component)
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

fn is_pattern(path: &[u8]) -> bool {
    path.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['))
}

fn is_absence(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// `name` below a location; a slash if it is empty.
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
