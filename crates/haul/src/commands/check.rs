//! `haul check`: compares two trees.

use std::time::Instant;

use haul_engine::Settings;
use haul_engine::tree::{CompareOptions, Compared, Difference, Side, compare};
use haul_storage::{DigestKind, Entry, Error, RelPath};

use crate::args::CheckArgs;
use crate::backends::{EXPECTED_LANES, Storages};
use crate::config::Config;
use crate::exit::{Exit, Stop};
use crate::options::SplitArg;
use crate::output::{Piece, Printer, ProgressDisplay, human, json};
use crate::signals::Signals;
use crate::units::bytes;

/// Runs `haul check`.
pub(crate) async fn run(
    args: &CheckArgs,
    config: &Config,
    printer: &Printer,
) -> Result<Exit, Stop> {
    let defaults = Settings::default();
    let lanes = if args.checksum { EXPECTED_LANES } else { 0 };
    let storages =
        Storages::new(config, defaults.block_size, SplitArg::Auto, &args.remote, printer, lanes)?;
    let (source, destination) =
        (storages.locate(&args.source)?, storages.locate(&args.destination)?);
    let source = storages.existing(&source).await?;
    let mut copy = storages.existing(&destination).await?;
    if !source.is_directory && copy.is_directory {
        // `haul cp` would have copied the file into that directory.
        copy.path = copy.path.join(source.path.name()).map_err(|error| {
            Error::new(haul_storage::ErrorKind::InvalidInput, "check").because(error.to_string())
        })?;
    }
    let options = CompareOptions {
        checksum: args.checksum.then_some(DigestKind::Blake3),
        filter: args.filter.all_rules().map_err(Stop::Usage)?.filter(),
        reading: super::verify::reading(false)?,
    };
    let signals = Signals::listen(printer, "interrupted");
    let started = Instant::now();
    let mut display = ProgressDisplay::counting(printer);
    let mut read = 0;
    let report = |compared| match compared {
        Compared::Progress(more) => {
            read += more;
            display.count(started.elapsed(), || format!("checked {}", bytes(read)));
        }
        Compared::Failed(error) => printer.failure(&error),
        Compared::Extra(_) if args.one_way => {}
        Compared::Extra(entry) => one_sided(printer, "extra", &entry),
        Compared::Missing(entry) => one_sided(printer, "missing", &entry),
        Compared::Differs(path, how) => differs(printer, &path, &how),
    };
    let sides = (
        Side { storage: &*source.storage, top: &source.path },
        Side { storage: &*copy.storage, top: &copy.path },
    );
    let mut comparison = compare(sides, &options, signals.cancel(), report).await;
    drop(display);
    if args.one_way {
        comparison.extra = 0;
    }
    if printer.is_json() {
        printer.object(&json::Event::compared(&comparison, started.elapsed()));
    } else {
        printer.note(human::comparison(&comparison, started.elapsed()));
    }
    Ok(match signals.exit() {
        Some(exit) => exit,
        None if comparison.is_same() => Exit::Done,
        None => Exit::Failed,
    })
}

/// Prints an entry that only one side has.
fn one_sided(printer: &Printer, word: &'static str, entry: &Entry) {
    if printer.is_json() {
        return printer.object(&json::Event::difference(word, &entry.path, Some(entry), None));
    }
    let word = format!("{word} ");
    let slash = if entry.is_dir() { "/" } else { "" };
    printer.listed(&[Piece::Text(&word), Piece::Name(entry.path.as_bytes()), Piece::Text(slash)]);
}

fn differs(printer: &Printer, path: &RelPath, how: &Difference) {
    if printer.is_json() {
        let word = match how {
            Difference::Kind => "kind",
            Difference::Size(..) => "size",
            Difference::Time => "time",
            Difference::Content => "content",
            Difference::Target => "target",
        };
        return printer.object(&json::Event::difference("differs", path, None, Some(word)));
    }
    let why = match how {
        Difference::Kind => " (kind)".to_owned(),
        Difference::Size(first, second) => format!(" (size: {first} and {second} bytes)"),
        Difference::Time => " (time)".to_owned(),
        Difference::Content => " (content)".to_owned(),
        Difference::Target => " (link target)".to_owned(),
    };
    let name = if path.is_root() { &b"."[..] } else { path.as_bytes() };
    printer.listed(&[Piece::Text("differs "), Piece::Name(name), Piece::Text(&why)]);
}
