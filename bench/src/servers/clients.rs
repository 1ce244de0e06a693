//! Client configuration that several servers need.

use std::fs;
use std::io;
use std::path::Path;

/// Writes an rclone configuration with one remote, `bench`; returns its path.
pub(super) fn rclone_config(private: &Path, settings: &str) -> io::Result<String> {
    let path = private.join("rclone.conf");
    fs::write(&path, format!("[bench]\n{settings}"))?;
    Ok(path.display().to_string())
}
