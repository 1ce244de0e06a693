//! `haul ls`.

use std::ffi::OsString;

use clap::Args;

use super::RemoteArgs;

/// Arguments of `haul ls`.
#[derive(Debug, Args)]
#[command(after_long_help = FORM)]
pub(crate) struct LsArgs {
    /// A directory or file
    #[arg(value_name = "LOCATION", default_value = ".")]
    pub(crate) location: OsString,

    /// Print mode, size in bytes, modification time (UTC) and name
    #[arg(short, long)]
    pub(crate) long: bool,

    /// List what is in directories, too
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,

    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
}

const FORM: &str = "\
One entry a line, sorted within its directory; a directory has a slash at its end. On a terminal
names are escaped so that they cannot steer it; anywhere else they are printed as they are.
With --json each line is an object: event (entry), path, kind, size, modified, mode, target.";
