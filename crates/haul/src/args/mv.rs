//! `haul mv`.

use std::ffi::OsString;

use clap::Args;

use super::RemoteArgs;
use crate::options::Options;

/// Arguments of `haul mv`.
#[derive(Debug, Args)]
#[command(after_long_help = MEANING)]
pub(crate) struct MvArgs {
    /// Files and directories; in a remote path `*`, `?` and `[a-z]` match names
    #[arg(required = true, value_name = "SOURCE")]
    pub(crate) sources: Vec<OsString>,

    /// A directory to move them into, or the new name of the only SOURCE
    #[arg(required = true, value_name = "DEST")]
    pub(crate) destination: OsString,

    /// Print what would be moved, without moving it
    #[arg(short = 'n', long, help_heading = "Files")]
    pub(crate) dry_run: bool,

    /// Do not ask before files from a ticket are written
    #[arg(short = 'y', long, help_heading = "Files")]
    pub(crate) yes: bool,

    #[command(flatten)]
    pub(crate) options: Options,

    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
}

const MEANING: &str = "\
On one disk or one server SOURCE is renamed, unless the new name exists. Otherwise each file is
copied with all metadata (--preserve=all), read back (--verify), and then removed if it has not
changed and its copy is complete. A file that fails, or changes during the move, stays at SOURCE.
Existing files are replaced. With --overwrite different those of the same size and time are
compared by content. If the destination has the file, it stays at SOURCE with --overwrite never,
and with newer unless it is the newer one. A slash at the end of SOURCE makes no difference.";
