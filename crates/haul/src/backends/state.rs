//! haul's own directories in the XDG state directory, for state that outlives a run.

use std::path::PathBuf;
use std::{env, fs};

/// The directory of upload journals. `None` without a home directory: uploads are not resumed then.
pub(super) fn journals() -> Option<PathBuf> {
    let directory = state("journals")?;
    fs::create_dir_all(&directory).ok()?;
    Some(directory)
}

/// A directory of haul in the XDG state directory, which need not exist.
pub(super) fn state(name: &str) -> Option<PathBuf> {
    let state = env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".local/state"));
    Some(state.or_else(home)?.join("haul").join(name))
}
