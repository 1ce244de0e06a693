//! `haul du`: how much is where.

use haul_engine::tree::{Measured, Totals, measure};
use haul_storage::{Location, RelPath};

use crate::args::DuArgs;
use crate::config::Config;
use crate::exit::{Exit, Stop};
use crate::output::{LongForm, Piece, Printer, json};
use crate::places::Places;
use crate::signals::Signals;

/// Runs it.
pub(crate) async fn run(args: &DuArgs, config: &Config, printer: &Printer) -> Result<Exit, Stop> {
    let places = Places::for_names(config, &args.remote, printer);
    let signals = Signals::listen(printer, "interrupted");
    let form = LongForm::new(args.human_readable);
    let locations = places.expand_all(&args.locations).await?;
    let (mut all, mut failed) = (Totals::default(), false);
    for location in &locations {
        let place = match places.existing(location).await {
            Ok(place) => place,
            Err(error) => {
                failed = true;
                printer.failure(&error);
                continue;
            }
        };
        let top = match place.storage.stat(&place.path).await {
            Ok(top) => top,
            Err(error) => {
                failed = true;
                printer.failure(&error.at(location));
                continue;
            }
        };
        let most = if args.summarize { 0 } else { args.depth.unwrap_or(usize::MAX) };
        let mut lines = Vec::new();
        let clean = measure(&*place.storage, top, signals.cancel(), |measured| match measured {
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
            let name = name_of(location, &place.path, path);
            print(printer, &form, &name, totals);
            if path == &place.path {
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

/// A directory as it would be written on the command line.
fn name_of(location: &Location, top: &RelPath, path: &RelPath) -> Vec<u8> {
    let mut name = match location.as_local() {
        Some(path) => path.as_os_str().as_encoded_bytes().to_vec(),
        None => location.to_string().into_bytes(),
    };
    let below = path.as_bytes()[top.as_bytes().len()..].strip_prefix(b"/");
    let below = below.unwrap_or(&path.as_bytes()[top.as_bytes().len()..]);
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
