//! `haul rm`.

use std::ffi::OsString;

use clap::Args;

use super::RemoteArgs;

/// Arguments of `haul rm`.
#[derive(Debug, Args)]
#[command(after_long_help = MEANING)]
pub(crate) struct RmArgs {
    /// Files and directories; in a remote path `*`, `?` and `[a-z]` match names
    #[arg(required = true, value_name = "LOCATION")]
    pub(crate) locations: Vec<OsString>,

    /// Remove directories and everything in them
    #[arg(short, long, short_alias = 'R')]
    pub(crate) recursive: bool,

    /// Ignore files that do not exist
    #[arg(short, long)]
    pub(crate) force: bool,

    /// Print what would be removed, without removing it
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
}

const MEANING: &str = "\
Links are removed, never followed, except on WebDAV, which does not report links. The root of a
server, a share or a file system is never removed. If something cannot be removed, it is reported,
the rest is removed, and the exit status is 1.";
