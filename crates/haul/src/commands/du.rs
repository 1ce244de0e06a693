//! `haul du`: sizes of directories.

use haul_engine::tree::{Counted, Measured, Totals, measure};
use haul_storage::{Location, RelPath};

use crate::args::DuArgs;
use crate::backends::{OpenedPath, Storages};
use crate::config::Config;
use crate::exit::{Exit, Stop};
use crate::output::{LongForm, Piece, Printer, json};
use crate::signals::Signals;

/// Runs `haul du`.
pub(crate) async fn run(args: &DuArgs, config: &Config, printer: &Printer) -> Result<Exit, Stop> {
    let storages = Storages::for_names(config, &args.remote, printer)?;
    let signals = Signals::listen(printer, "interrupted");
    let form = LongForm::new(args.human_readable);
    let (mut all, mut failed) = (Totals::default(), false);
    let expanded = storages.expand_each(&args.locations, |error| {
        failed = true;
        printer.failure(error);
    });
    let locations = expanded.await?;
    let (mut counted, mut measured_before) = (Counted::default(), Vec::new());
    for location in &locations {
        let opened = match storages.existing(location).await {
            Ok(opened) => opened,
            Err(error) => {
                failed = true;
                printer.failure(&error);
                continue;
            }
        };
        let top = match opened.storage.stat(&opened.path).await {
            Ok(top) => top,
            Err(error) => {
                failed = true;
                printer.failure(&error.at(location));
                continue;
            }
        };
        let here = Position::of(&opened);
        if measured_before.iter().any(|before| here.below(before).is_some()) {
            continue;
        }
        let inside = measured_before.iter().filter_map(|before: &Position| before.below(&here));
        counted.leave_out(inside.map(|below| opened.path.join_path(&below)));
        measured_before.push(here);
        let most = if args.summarize { 0 } else { args.depth.unwrap_or(usize::MAX) };
        let mut lines = Vec::new();
        let clean =
            measure(&*opened.storage, top, &counted, signals.cancel(), |found| match found {
                Measured::Entry { entry, depth, totals } => {
                    if depth == 0 || entry.is_dir() && depth <= most {
                        lines.push((entry.path.clone(), totals));
                    }
                }
                Measured::Failed(error) => printer.failure(&error),
            });
        failed |= !clean.await;
        lines.sort_by(|a, b| a.0.cmp(&b.0));
        for (path, totals) in &lines {
            let name = name_of(location, &opened.path, path);
            print(printer, &form, &name, totals);
            if path == &opened.path {
                all += *totals;
            }
        }
    }
    if args.total {
        print(printer, &form, b"total", &all);
    }
    Ok(match signals.exit() {
        Some(exit) => exit,
        None if failed => Exit::Failed,
        None => Exit::Done,
    })
}

/// The position of a location, in a form that can be compared: a location below one that was already measured is not
/// counted again, as in du.
struct Position {
    /// The location of the host's root; `None` on this machine.
    host: Option<Location>,
    path: Vec<u8>,
}

impl Position {
    fn of(opened: &OpenedPath) -> Self {
        let (host, root) = match (&opened.local, opened.storage.location()) {
            (Some(path), _) => {
                let path = path.as_os_str().as_encoded_bytes().to_vec();
                return Self { host: None, path: without_slash(path) };
            }
            (None, other) => (Some(host_of(other)), other.path_bytes().to_vec()),
        };
        let mut path = without_slash(root);
        for name in opened.path.components() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        Self { host, path }
    }

    /// This position relative to `other`: the root if they are equal, `None` if it is not below `other`.
    fn below(&self, other: &Self) -> Option<RelPath> {
        let rest = self.path.strip_prefix(&*other.path).filter(|_| self.host == other.host)?;
        match rest {
            b"" => Some(RelPath::root()),
            _ => RelPath::parse(rest.strip_prefix(b"/")?).ok(),
        }
    }
}

/// A location on a host, without its path.
fn host_of(location: &Location) -> Location {
    let mut host = location.clone();
    match &mut host {
        Location::Remote { path, query, written, .. } => {
            path.clear();
            (*query, *written) = (None, None);
        }
        Location::Peer { path, .. } | Location::Named { path, .. } => path.clear(),
        Location::Local(path) => path.clear(),
    }
    host
}

fn without_slash(mut path: Vec<u8>) -> Vec<u8> {
    while path.last() == Some(&b'/') {
        path.pop();
    }
    path
}

/// An entry at or below `location`, as a user would write it on the command line. `top` is the path of `location` in
/// the storage.
fn name_of(location: &Location, top: &RelPath, path: &RelPath) -> Vec<u8> {
    let mut name = match location.as_local() {
        Some(path) => path.as_os_str().as_encoded_bytes().to_vec(),
        None => location.to_string().into_bytes(),
    };
    let below = path.strip_prefix(top).unwrap_or(path.as_bytes());
    if !below.is_empty() {
        if !name.ends_with(b"/") {
            name.push(b'/');
        }
        name.extend_from_slice(below);
    }
    name
}

fn print(printer: &Printer, form: &LongForm, name: &[u8], totals: &Totals) {
    if printer.is_json() {
        return printer.object(&json::Event::measured(name, totals));
    }
    let columns = format!("{:>14} {:>9} ", form.size(totals.bytes), totals.files);
    printer.listed(&[Piece::Text(&columns), Piece::Name(name)]);
}
