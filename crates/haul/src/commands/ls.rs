//! `haul ls`: lists what is at a location.
//!
//! A directory is printed sorted; one with more entries than fit into a batch is printed batch by
//! batch, each sorted, so that memory does not grow with it. As `ls` does, names are escaped on a
//! terminal and exact elsewhere.

use futures_util::StreamExt;
use haul_storage::{Entry, EntryKind, Error, RelPath};

use crate::args::LsArgs;
use crate::config::Config;
use crate::exit::{Exit, Stop};
use crate::options::SplitArg;
use crate::output::{Piece, Printer, human, json};
use crate::places::{Place, Places};

/// Entries that are sorted together.
const BATCH: usize = 100_000;

/// Runs it.
pub(crate) async fn run(args: &LsArgs, config: &Config, printer: &Printer) -> Result<Exit, Stop> {
    let places = Places::new(
        config,
        haul_engine::Settings::default().block_size,
        SplitArg::Auto,
        &args.remote,
        printer,
        0,
    );
    let location = places.locate(&args.location)?;
    let place = places.existing(&location).await?;
    let mut listing = Listing { printer, long: args.long, failed: false };
    if place.is_directory {
        listing.tree(&place, args.recursive).await;
    } else {
        let entry = place.storage.stat(&place.path).await?;
        // A file is called as it was asked for, even if that is a link's name.
        listing.print(&entry, location.base_name());
    }
    Ok(if listing.failed { Exit::Failed } else { Exit::Done })
}

struct Listing<'a> {
    printer: &'a Printer,
    long: bool,
    failed: bool,
}

impl Listing<'_> {
    /// Prints a directory, and with `recursive` all below it; one at a time, top first.
    async fn tree(&mut self, place: &Place, recursive: bool) {
        let mut pending = vec![place.path.clone()];
        while let Some(directory) = pending.pop() {
            let first_below = pending.len();
            let outcome =
                self.directory(place, &directory, recursive.then_some(&mut pending)).await;
            if let Err(error) = outcome {
                self.fail(&error);
            }
            if self.printer.is_closed() {
                return;
            }
            // The stack gives the last one first.
            pending[first_below..].sort_by(|a, b| b.cmp(a));
        }
    }

    async fn directory(
        &mut self,
        place: &Place,
        directory: &RelPath,
        mut below: Option<&mut Vec<RelPath>>,
    ) -> Result<(), Error> {
        let mut stream = place.storage.list(directory).await?;
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
                batch.sort_by(|a: &Entry, b: &Entry| a.path.cmp(&b.path));
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

    fn fail(&mut self, error: &Error) {
        self.failed = true;
        self.printer.failure(error);
    }

    fn print(&self, entry: &Entry, path: &[u8]) {
        if self.printer.is_json() {
            return self.printer.object(&json::Event::entry(entry, path));
        }
        let long = if self.long { human::long_entry(entry) } else { String::new() };
        let mut line = vec![Piece::Text(&long), Piece::Name(path)];
        match &entry.kind {
            EntryKind::Directory => line.push(Piece::Text("/")),
            EntryKind::Symlink(target) if self.long => {
                line.extend([Piece::Text(" -> "), Piece::Name(target)]);
            }
            _ => {}
        }
        self.printer.listed(&line);
    }
}
