//! Finds files that the manifest does not list: sorts both lists, on disk if necessary, and compares them.

use std::cmp::Ordering;
use std::io;
use std::iter::Peekable;

use futures_util::StreamExt;
use haul_storage::{Entry, EntryStream, Error, RelPath, Result, Storage, is_part_name};

use super::event::{Events, VerifyEvent, VerifyOptions};
use crate::manifest::sorter::{Sorted, Sorter};
use crate::manifest::{DEFAULT_NAMES, ManifestReader};

/// The most extra files that are found before they are reported.
const BATCH: usize = 1000;

/// Collects the listed files, then those that exist.
pub(super) struct Extras<'a> {
    storage: &'a dyn Storage,
    options: &'a VerifyOptions,
    events: Events<'a>,
    listed: Sorter,
}

impl<'a> Extras<'a> {
    pub(super) fn new(
        storage: &'a dyn Storage,
        options: &'a VerifyOptions,
        events: Events<'a>,
    ) -> Self {
        Self { storage, options, events, listed: Sorter::new(&options.scratch) }
    }

    /// Adds the file of a check, under the name by which it was found.
    pub(super) async fn add_listed(&mut self, event: &VerifyEvent) -> Result<()> {
        if let VerifyEvent::Matched { path, .. }
        | VerifyEvent::Mismatched { path, .. }
        | VerifyEvent::Unreadable { path, .. } = event
        {
            let listed = std::mem::replace(&mut self.listed, Sorter::new(&self.options.scratch));
            self.listed = self.add(listed, path).await?;
        }
        Ok(())
    }

    /// Walks the tree below `base` and reports every file that was not listed.
    pub(super) async fn find(self, base: &RelPath, manifest: &ManifestReader) -> Result<()> {
        let present = self.walk(base, manifest).await?;
        let listed = self.listed;
        let (options, events) = (self.options, self.events);
        let sort =
            move || Ok((present.into_sorted()?.peekable(), listed.into_sorted()?.peekable()));
        let (mut present, mut listed) =
            options.pool.run(sort).await.map_err(|error| scratch_error(options, error))?;
        loop {
            let next = move || {
                let extra = next_extra(&mut present, &mut listed)?;
                Ok((present, listed, extra))
            };
            let outcome = options.pool.run(next).await;
            let extra;
            (present, listed, extra) = outcome.map_err(|error| scratch_error(options, error))?;
            if extra.is_empty() {
                return Ok(());
            }
            for path in extra {
                events(VerifyEvent::Extra { path });
            }
        }
    }

    /// All files below `base` that may be extra. Memory grows only with the depth: each open directory holds one
    /// batch of its listing.
    async fn walk(&self, base: &RelPath, manifest: &ManifestReader) -> Result<Sorter> {
        let mut present = Sorter::new(&self.options.scratch);
        // Another manifest beside this one lists the same files, and neither lists the other.
        let usual: Vec<_> =
            DEFAULT_NAMES.iter().filter_map(|(_, name)| base.join(name).ok()).collect();
        let mut open: Vec<Level> = Vec::new();
        self.enter(base, &mut open).await;
        while let Some(level) = open.last_mut() {
            let Some(entry) = level.batch.next() else {
                match level.stream.next().await {
                    None => _ = open.pop(),
                    Some(Ok(batch)) => level.batch = batch.into_iter(),
                    Some(Err(error)) => {
                        let path = level.path.clone();
                        (self.events)(VerifyEvent::Unreadable { path, error });
                    }
                }
                continue;
            };
            let is_manifest =
                usual.contains(&entry.path) || manifest.is_at(self.storage, &entry.path);
            if is_part_name(entry.path.name()) || is_manifest {
                continue;
            }
            if entry.is_dir() {
                self.enter(&entry.path, &mut open).await;
            } else if entry.is_file() {
                present = self.add(present, &entry.path).await?;
            }
        }
        Ok(present)
    }

    async fn enter(&self, directory: &RelPath, open: &mut Vec<Level>) {
        let path = directory.clone();
        match self.storage.list(directory).await {
            Ok(stream) => open.push(Level { path, stream, batch: Vec::new().into_iter() }),
            Err(error) => (self.events)(VerifyEvent::Unreadable { path, error }),
        }
    }

    async fn add(&self, mut sorter: Sorter, path: &RelPath) -> Result<Sorter> {
        sorter.add(path.as_bytes().to_vec(), Vec::new());
        if !sorter.is_full() {
            return Ok(sorter);
        }
        let spilled = self.options.pool.run(move || sorter.spill().map(|()| sorter)).await;
        spilled.map_err(|error| scratch_error(self.options, error))
    }
}

/// A directory that is being listed.
struct Level {
    path: RelPath,
    stream: EntryStream,
    batch: std::vec::IntoIter<Entry>,
}

/// The next names that exist and are not listed; empty at the end.
fn next_extra(
    present: &mut Peekable<Sorted>,
    listed: &mut Peekable<Sorted>,
) -> io::Result<Vec<RelPath>> {
    let mut extra = Vec::new();
    while extra.len() < BATCH {
        let Some(name) = present.next().transpose()?.map(|(name, _)| name) else { break };
        let is_listed = loop {
            let order = match listed.peek() {
                None => break false,
                Some(Ok((other, _))) => other.cmp(&name),
                // Taken below, where the error is returned.
                Some(Err(_)) => Ordering::Less,
            };
            match order {
                Ordering::Less => _ = listed.next().transpose()?,
                order => break order.is_eq(),
            }
        };
        if !is_listed {
            extra.push(RelPath::parse(name).map_err(io::Error::other)?);
        }
    }
    Ok(extra)
}

fn scratch_error(options: &VerifyOptions, error: io::Error) -> Error {
    Error::from_io("sort names", error).at(options.scratch.display())
}
