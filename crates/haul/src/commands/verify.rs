//! `haul verify`: checks files against their manifest.
//!
//! Each fault is an error on standard error; the counts are the result, on standard output. With `--json` both are
//! objects on standard output.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use haul_engine::Settings;
use haul_engine::manifest::{DEFAULT_NAMES, ManifestReader, kind_of_name};
use haul_engine::verify::{VerifyEvent, VerifyOptions, VerifySummary, verify};
use haul_storage::{DigestKind, Error, ErrorKind, RelPath, StorageExt, WorkPool};

use crate::args::VerifyArgs;
use crate::backends::{EXPECTED_LANES, OpenedPath, Storages};
use crate::config::Config;
use crate::exit::{Exit, Stop};
use crate::options::SplitArg;
use crate::output::{Printer, ProgressDisplay, human, json};
use crate::signals::Signals;

/// Bytes in flight: enough for two cores to hash while two disks read.
const MEMORY: u64 = 64 << 20;

/// Runs `haul verify`.
pub(crate) async fn run(
    args: &VerifyArgs,
    config: &Config,
    printer: &Printer,
) -> Result<Exit, Stop> {
    let defaults = Settings::default();
    let storages = Storages::new(
        config,
        defaults.block_size,
        if args.join { SplitArg::Join } else { SplitArg::Auto },
        &args.remote,
        printer,
        EXPECTED_LANES,
    )?;
    let location = storages.locate(&args.target)?;
    let opened = storages.existing(&location).await?;
    let manifests = if opened.is_directory {
        manifests_in(&opened).await?
    } else {
        // If its name shows no kind: most manifests list SHA-256, and tagged lines name their own kind.
        let kind = kind_of_name(location.base_name()).unwrap_or(DigestKind::Sha256);
        vec![(opened.path.clone(), kind)]
    };

    let options = reading(args.strict)?;
    let signals = Signals::listen(printer, "interrupted");
    let mut clean = true;
    for (path, kind) in manifests {
        let started = Instant::now();
        let summary = check(&opened, &path, kind, &options, printer, &signals).await?;
        if summary.lists_nothing() {
            let location = opened.storage.location().display(&path).to_string();
            printer.failure(
                &Error::new(ErrorKind::InvalidInput, "use manifest")
                    .at(location)
                    .because("it lists no file with a SHA-256 or BLAKE3 digest"),
            );
        }
        report(&summary, kind, started.elapsed(), printer);
        clean &= summary.is_clean();
    }
    Ok(match signals.exit() {
        Some(exit) => exit,
        None if clean => Exit::Done,
        None => Exit::Failed,
    })
}

/// How files are read and hashed, here and by `haul check`.
pub(super) fn reading(strict: bool) -> Result<VerifyOptions, Error> {
    let defaults = Settings::default();
    let threads = thread::available_parallelism().map_or(2, usize::from).clamp(2, 16);
    let pool =
        WorkPool::new("hash", threads).map_err(|error| Error::from_io("start a thread", error))?;
    Ok(VerifyOptions {
        parallel: threads,
        memory: MEMORY,
        strict,
        retries: defaults.retries,
        retry_pause: defaults.retry_pause,
        scratch: std::env::temp_dir(),
        pool,
    })
}

/// The manifests of a directory that have default names.
async fn manifests_in(opened: &OpenedPath) -> Result<Vec<(RelPath, DigestKind)>, Stop> {
    let mut found = Vec::new();
    for (kind, name) in DEFAULT_NAMES {
        let path = opened.path.join(name).unwrap_or_default();
        if opened.storage.find(&path).await?.is_some_and(|entry| entry.is_file()) {
            found.push((path, kind));
        }
    }
    if found.is_empty() {
        let names = DEFAULT_NAMES.map(|(_, name)| name).join(" or ");
        return Err(Error::new(ErrorKind::NotFound, "verify")
            .at(opened.storage.location().display(&opened.path))
            .because(format!("no {names} in it"))
            .into());
    }
    Ok(found)
}

async fn check(
    opened: &OpenedPath,
    path: &RelPath,
    kind: DigestKind,
    options: &VerifyOptions,
    printer: &Printer,
    signals: &Signals,
) -> Result<VerifySummary, Stop> {
    let manifest = ManifestReader::open(&*opened.storage, path, kind).await?;
    let base = path.parent().unwrap_or_default();
    let found = Found {
        opened,
        printer,
        started: Instant::now(),
        progress: Mutex::new((ProgressDisplay::counting(printer), 0, 0)),
    };
    let storage = Arc::clone(&opened.storage);
    let on_event = |event| found.on_event(&event);
    Ok(verify(storage, &base, manifest, options, on_event, signals.cancel()).await?)
}

/// Prints events and progress.
struct Found<'a> {
    opened: &'a OpenedPath,
    printer: &'a Printer,
    started: Instant,
    /// The display, files and bytes so far.
    progress: Mutex<(ProgressDisplay, u64, u64)>,
}

impl Found<'_> {
    fn on_event(&self, event: &VerifyEvent) {
        match event {
            VerifyEvent::Progress { bytes } => self.count(0, *bytes),
            VerifyEvent::Matched { path, bytes, .. } => {
                self.count(1, 0);
                self.object(|| json::Event::check(path, "matched", Some(*bytes)));
                if self.printer.is_verbose() && !self.printer.is_json() {
                    self.printer.result(format!("matched {path}"));
                }
            }
            VerifyEvent::Mismatched { path, expected, actual } => {
                let kind = expected.kind.name();
                let cause = format!("its {kind} is {actual}, and should be {expected}");
                self.fail(path, "mismatched", ErrorKind::Corrupt, &cause);
            }
            VerifyEvent::Missing { path } => {
                self.fail(
                    path,
                    "missing",
                    ErrorKind::NotFound,
                    "listed in the manifest, but missing",
                );
            }
            VerifyEvent::Extra { path } => {
                self.fail(path, "extra", ErrorKind::Other, "the manifest does not list it");
            }
            VerifyEvent::Unreadable { path, error } => {
                self.object(|| json::Event::check(path, "unreadable", None));
                self.printer.failure(error);
            }
            VerifyEvent::Malformed { error, .. } => self.printer.failure(error),
            VerifyEvent::Retry { error, attempt, pause, .. } => {
                if self.printer.is_json() {
                    self.object(|| json::Event::retry(error, *attempt, *pause));
                } else {
                    self.printer.note(human::retry(None, error, *attempt, *pause));
                }
            }
            // `VerifyEvent` is non-exhaustive; events unknown to this version are not printed.
            _ => {}
        }
    }

    fn fail(&self, path: &RelPath, word: &'static str, kind: ErrorKind, cause: &str) {
        self.object(|| json::Event::check(path, word, None));
        let location = self.opened.storage.location().display(path).to_string();
        self.printer.failure(&Error::new(kind, "verify").at(location).because(cause));
    }

    fn object<'a>(&self, object: impl FnOnce() -> json::Event<'a>) {
        if self.printer.is_json() && !self.printer.is_quiet() {
            self.printer.object(&object());
        }
    }

    fn count(&self, files: u64, bytes: u64) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let (display, all_files, all_bytes) = &mut *progress;
        *all_files += files;
        *all_bytes += bytes;
        let elapsed = self.started.elapsed();
        display.count(elapsed, || human::counted(*all_files, *all_bytes, elapsed));
    }
}

fn report(summary: &VerifySummary, kind: DigestKind, elapsed: Duration, printer: &Printer) {
    if printer.is_json() {
        printer.object(&json::Event::verified(summary, kind, elapsed));
    } else if !printer.is_quiet() {
        printer.result(human::verified(summary, elapsed));
    }
}
