//! `haul rm`: removes files and trees.

use std::collections::HashMap;
use std::ffi::OsStr;

use haul_engine::tree::{Counted, RemoveEvent, Totals, remove};
use haul_storage::{Error, ErrorKind, Location};

use crate::args::RmArgs;
use crate::backends::Storages;
use crate::config::Config;
use crate::exit::{Exit, Stop};
use crate::output::{Printer, human, json};
use crate::signals::Signals;

/// Runs `haul rm`.
pub(crate) async fn run(args: &RmArgs, config: &Config, printer: &Printer) -> Result<Exit, Stop> {
    let storages = Storages::for_names(config, &args.remote, printer)?;
    // Invalid arguments are reported before anything is removed.
    for argument in &args.locations {
        refuse_top(argument)?;
    }
    let located = args.locations.iter().map(|location| storages.locate(location));
    let located = located.collect::<Result<Vec<_>, _>>()?;
    let signals = Signals::listen(printer, "interrupted");
    let mut run = Run {
        args,
        storages: &storages,
        printer,
        signals: &signals,
        removed: Totals::default(),
        counted: HashMap::new(),
        failed: 0,
    };
    for (location, argument) in located.into_iter().zip(&args.locations) {
        match storages.expand(location, argument).await {
            Ok(locations) => {
                for location in locations {
                    run.remove(&location).await;
                }
            }
            Err(error) => run.fail(&error),
        }
    }
    if printer.is_json() {
        printer.object(&json::Event::removal(&run.removed, run.failed, args.dry_run));
    } else {
        printer.note(human::removal(&run.removed, run.failed, args.dry_run));
    }
    Ok(match signals.exit() {
        Some(exit) => exit,
        None if run.failed > 0 => Exit::Failed,
        None => Exit::Done,
    })
}

/// Refuses `nas:`, the root of a remote or the home directory on a host, which is also what a shell makes of
/// `nas:$UNSET`.
fn refuse_top(argument: &OsStr) -> Result<(), Stop> {
    let Ok(location @ Location::Named { .. }) = Location::parse(argument) else { return Ok(()) };
    if location.path_bytes().iter().any(|byte| *byte != b'/') {
        return Ok(());
    }
    Err(Stop::Usage(format!(
        "{location}: it is a root, '.' or '..'; write the directory's name, or what is in it"
    )))
}

struct Run<'a> {
    args: &'a RmArgs,
    storages: &'a Storages<'a>,
    printer: &'a Printer,
    signals: &'a Signals,
    removed: Totals,
    /// Files with several names that were counted, by the location of their storage; `None` is this machine.
    counted: HashMap<Option<String>, Counted>,
    failed: u64,
}

impl Run<'_> {
    fn fail(&mut self, error: &Error) {
        if self.args.force && error.kind() == ErrorKind::NotFound {
            return;
        }
        self.failed += 1;
        self.printer.failure(error);
    }

    async fn remove(&mut self, location: &Location) {
        if self.signals.cancel().is_cancelled() {
            return;
        }
        let (opened, entry) = match self.storages.itself(location).await {
            Ok(found) => found,
            Err(error) => return self.fail(&error),
        };
        if opened.path.is_root() {
            return self.fail(&Error::new(ErrorKind::InvalidInput, "remove").at(location).because(
                "it is a root, '.' or '..'; write the directory's name, or what is \
                              in it",
            ));
        }
        if entry.is_dir() && !self.args.recursive {
            return self.fail(
                &Error::new(ErrorKind::IsADirectory, "remove")
                    .at(location)
                    .because("it is a directory")
                    .hinting("haul rm -r removes it and everything in it"),
            );
        }
        let (printer, dry_run) = (self.printer, self.args.dry_run);
        let storage = &opened.storage;
        let report = |event: RemoveEvent<'_>| match event {
            RemoveEvent::Failed(error) => printer.failure(&error),
            RemoveEvent::Removed(entry) if printer.is_json() => {
                printer.object(&json::Event::removed(entry, dry_run));
            }
            RemoveEvent::Removed(entry)
                if printer.is_verbose() || dry_run && !printer.is_quiet() =>
            {
                let word = if dry_run { "would remove" } else { "removed" };
                let slash = if entry.is_dir() { "/" } else { "" };
                let name = storage.location().display(&entry.path);
                printer.result(format!("{word} {name}{slash}"));
            }
            RemoveEvent::Removed(_) => {}
        };
        let host = match storage.location() {
            Location::Local(_) => None,
            location => Some(location.to_string()),
        };
        let counted = self.counted.entry(host).or_default();
        let cancel = self.signals.cancel();
        let removal = remove(&**storage, entry, counted, dry_run, cancel, report).await;
        self.removed += removal.removed;
        self.failed += removal.failed;
    }
}
