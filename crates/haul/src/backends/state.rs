//! Directories for state that outlives a run.

use std::fs;
use std::path::PathBuf;

use crate::directories;

/// The directory of upload journals. `None` if there is no [`directories::state`], or if it cannot be created:
/// uploads are not resumed then.
pub(super) fn journals() -> Option<PathBuf> {
    let directory = state("journals")?;
    fs::create_dir_all(&directory).ok()?;
    Some(directory)
}

/// A directory below [`directories::state`], which need not exist.
pub(super) fn state(name: &str) -> Option<PathBuf> {
    Some(directories::state()?.join(name))
}
