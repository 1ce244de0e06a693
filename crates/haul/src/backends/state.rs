//! What haul remembers from run to run: directories of its own in the XDG state directory.

use std::path::PathBuf;
use std::{env, fs};

/// Where journals of uploads lie. Without a home there is none, and uploads are not continued.
pub(super) fn journals() -> Option<PathBuf> {
    let directory = state("journals")?;
    fs::create_dir_all(&directory).ok()?;
    Some(directory)
}

/// A directory of haul's in the XDG state directory, which need not be there.
pub(super) fn state(name: &str) -> Option<PathBuf> {
    let state = env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".local/state"));
    Some(state.or_else(home)?.join("haul").join(name))
}
