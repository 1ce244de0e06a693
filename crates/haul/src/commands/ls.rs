//! `haul ls`: lists files and directories.
//!
//! A directory is printed sorted. One with more entries than a batch holds is printed batch by batch, each sorted
//! separately, so that memory is bounded (except for the paths of directories that `-R` has yet to list). As with `ls`,
//! names are escaped on a terminal and exact elsewhere.

use std::cmp::Ordering;

use futures_util::StreamExt;
use haul_storage::{Entry, EntryKind, Error, ErrorKind, Location, RelPath};

use crate::args::LsArgs;
use crate::backends::{OpenedPath, Storages};
use crate::config::Config;
use crate::exit::{Exit, Stop};
use crate::output::{LongForm, Piece, Printer, json};

/// Once it has this many entries, a batch is sorted and printed.
const BATCH: usize = 100_000;

/// Runs `haul ls`.
pub(crate) async fn run(args: &LsArgs, config: &Config, printer: &Printer) -> Result<Exit, Stop> {
    let storages = Storages::for_names(config, &args.remote, printer)?;
    let form = args.long.then(|| LongForm::new(args.human_readable));
    let mut listing = Listing { printer, args, form, failed: false };
    let mut directories = Vec::new();
    let mut unexpanded = 0;
    let expanded = storages.expand_each(&args.locations, |error| {
        listing.fail(error);
        unexpanded += 1;
    });
    let locations = expanded.await?;
    let are_several = locations.len() + unexpanded > 1;
    for location in &locations {
        // After an error the other locations are still listed.
        match found(&storages, location, args.directory).await {
            Ok((opened, entry)) if entry.is_dir() && !args.directory => {
                directories.push((location, opened));
            }
            // A file is printed with the requested name, even if that is the name of a link.
            Ok((_, entry)) if are_several || entry.is_dir() => {
                listing.print(&entry, &written(location));
            }
            Ok((_, entry)) => listing.print(&entry, location.base_name()),
            Err(error) => listing.fail(&error),
        }
    }
    for (location, opened) in &directories {
        if are_several && !printer.is_json() {
            printer.result(format!("{location}:"));
        }
        listing.tree(opened).await;
    }
    Ok(if listing.failed { Exit::Failed } else { Exit::Done })
}

/// The entry of a location. A link is followed, unless it dangles or the link `itself` is wanted.
async fn found(
    storages: &Storages<'_>,
    location: &Location,
    itself: bool,
) -> Result<(OpenedPath, Entry), Error> {
    if itself {
        return storages.itself(location).await;
    }
    match storages.existing(location).await {
        Ok(opened) => {
            let entry = opened.storage.stat(&opened.path).await?;
            Ok((opened, entry))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            match storages.itself(location).await {
                Ok((opened, entry)) if matches!(entry.kind, EntryKind::Symlink(_)) => {
                    Ok((opened, entry))
                }
                _ => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

/// A location as it is printed; local names that are not UTF-8 keep their bytes.
fn written(location: &Location) -> Vec<u8> {
    match location.as_local() {
        Some(path) => path.as_os_str().as_encoded_bytes().to_vec(),
        None => location.to_string().into_bytes(),
    }
}

struct Listing<'a> {
    printer: &'a Printer,
    args: &'a LsArgs,
    /// The columns before the name, if there are any.
    form: Option<LongForm>,
    failed: bool,
}

impl Listing<'_> {
    /// Prints a directory, and with `-R` all below it; one at a time, top first.
    async fn tree(&mut self, opened: &OpenedPath) {
        let mut pending = vec![opened.path.clone()];
        while let Some(directory) = pending.pop() {
            let first_below = pending.len();
            let below = self.args.recursive.then_some(&mut pending);
            if let Err(error) = self.directory(opened, &directory, below).await {
                self.fail(&error);
            }
            if self.printer.is_closed() {
                return;
            }
            // `pop` returns the last one first.
            pending[first_below..].sort_by(|a, b| b.cmp(a));
        }
    }

    async fn directory(
        &mut self,
        opened: &OpenedPath,
        directory: &RelPath,
        mut below: Option<&mut Vec<RelPath>>,
    ) -> Result<(), Error> {
        let mut stream = opened.storage.list(directory).await?;
        let mut batch = Vec::new();
        loop {
            let next = stream.next().await;
            let at_end = next.is_none();
            match next {
                Some(Ok(entries)) => batch.extend(entries),
                Some(Err(error)) => self.fail(&error),
                None => {}
            }
            if at_end || batch.len() >= BATCH {
                batch.sort_by(|a, b| self.order(a, b));
                for entry in batch.drain(..) {
                    self.print(&entry, entry.path.as_bytes());
                    if let Some(below) = below.as_deref_mut().filter(|_| entry.is_dir()) {
                        below.push(entry.path);
                    }
                }
                if at_end || self.printer.is_closed() {
                    return Ok(());
                }
            }
        }
    }

    fn order(&self, a: &Entry, b: &Entry) -> Ordering {
        let by_key = if self.args.by_time {
            b.modified.cmp(&a.modified)
        } else if self.args.by_size {
            b.known_size().cmp(&a.known_size())
        } else {
            Ordering::Equal
        };
        let order = by_key.then_with(|| a.path.cmp(&b.path));
        if self.args.reverse { order.reverse() } else { order }
    }

    fn fail(&mut self, error: &Error) {
        self.failed = true;
        self.printer.failure(error);
    }

    fn print(&self, entry: &Entry, path: &[u8]) {
        if self.printer.is_json() {
            return self.printer.object(&json::Event::entry(entry, path));
        }
        let long = self.form.as_ref().map_or_else(String::new, |form| form.columns(entry));
        let mut line = vec![Piece::Text(&long), Piece::Name(path)];
        match &entry.kind {
            EntryKind::Directory if !path.ends_with(b"/") => line.push(Piece::Text("/")),
            EntryKind::Symlink(target) if self.args.long => {
                line.extend([Piece::Text(" -> "), Piece::Name(target)]);
            }
            _ => {}
        }
        self.printer.listed(&line);
    }
}
