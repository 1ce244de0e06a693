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

    /// Ignore what does not exist
    #[arg(short, long)]
    pub(crate) force: bool,

    /// Print what would be removed, and remove nothing
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
}

const MEANING: &str = "\
Links are removed, never followed, except on WebDAV, which does not show what is a link. The
top of a server, a share or a file system is never removed. What cannot be removed is reported, the rest is removed, and the exit status is 1.";
