//! Several locations of one file, as one storage.

use haul_engine::mirror::{Mirror, MirrorStorage, too_late, within_grace_unless};
use haul_storage::{Error, ErrorKind, Location, RelPath, Result};

use super::{OpenedPath, Storages};
use crate::output::Printer;
use crate::terminal;

impl Storages<'_> {
    /// Opens all of `locations`, which hold the same file, and returns those that open, in this order. A
    /// single location may be a directory. If one can be opened, those that cannot, or take much longer, are
    /// reported as warnings.
    ///
    /// # Errors
    /// None can be opened, or one of several is a directory.
    pub(crate) async fn existing_each(
        &self,
        locations: &[Location],
        printer: &Printer,
    ) -> Result<Vec<(Location, OpenedPath)>> {
        let opening = locations.iter().map(|location| self.existing(location)).collect();
        let outcomes = within_grace_unless(terminal::is_prompting, opening).await;
        let (mut opened, mut failed) = (Vec::new(), Vec::new());
        for (location, outcome) in locations.iter().zip(outcomes) {
            match outcome {
                Ok(path) if path.is_directory && locations.len() > 1 => {
                    let error = Error::new(ErrorKind::IsADirectory, "read mirror").at(location);
                    return Err(error.because("a mirror is another location of the same file"));
                }
                Ok(path) => opened.push((location.clone(), path)),
                Err(error) => failed.push((location, error)),
            }
        }
        if opened.is_empty() {
            let first = failed.into_iter().find_map(|(location, error)| Some((location, error?)));
            // A location is too late only after another one has opened.
            return Err(match first {
                Some((location, error)) => error.at(location),
                None => Error::new(ErrorKind::Unreachable, "open"),
            });
        }
        for (location, error) in failed {
            let cause = error.map_or_else(too_late, |error| error.cause());
            let message = format!("this mirror is not used: {cause}");
            printer.warning(&location.to_string(), &message);
        }
        Ok(opened)
    }

    /// Combines the opened mirrors of a file into one storage, with the name of `preferred`, which need not be
    /// among them. `is_proven`: a digest will verify the content. `None` without mirrors.
    pub(crate) fn mirrored(
        &self,
        preferred: &Location,
        opened: Vec<(Location, OpenedPath)>,
        is_proven: bool,
        printer: &Printer,
    ) -> Option<OpenedPath> {
        let (_, first) = opened.first()?;
        let named = preferred
            .split_name()
            .and_then(|(directory, name)| Some((directory, RelPath::root().join(&name).ok()?)));
        let (location, path) =
            named.unwrap_or_else(|| (first.storage.location().clone(), first.path.clone()));
        let mirrors = opened.into_iter().map(|(location, opened)| Mirror {
            name: location.to_string(),
            storage: opened.storage,
            path: opened.path,
        });
        let printer = printer.clone();
        let warn = move |name: &str, message: &str| printer.warning(name, message);
        let storage =
            MirrorStorage::new(location, path.clone(), mirrors.collect(), is_proven, warn);
        Some(OpenedPath { storage, path, is_directory: false, exists: true, local: None })
    }
}
