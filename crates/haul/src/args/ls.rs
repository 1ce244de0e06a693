//! `haul ls`.

use std::ffi::OsString;

use clap::{ArgAction, Args};

use super::RemoteArgs;

/// Arguments of `haul ls`.
#[derive(Debug, Args)]
#[command(after_long_help = FORM, disable_help_flag = true)]
pub(crate) struct LsArgs {
    /// Directories and files; in a remote path `*`, `?` and `[a-z]` match names
    #[arg(value_name = "LOCATION", default_value = ".")]
    pub(crate) locations: Vec<OsString>,

    /// Print mode, size in bytes, modification time (local) and name
    #[arg(short, long)]
    pub(crate) long: bool,

    /// Print sizes with units: 1.5 MiB
    #[arg(short = 'h', long)]
    pub(crate) human_readable: bool,

    /// Sort by modification time, newest first
    #[arg(short = 't', conflicts_with = "by_size")]
    pub(crate) by_time: bool,

    /// Sort by size, largest first
    #[arg(short = 'S')]
    pub(crate) by_size: bool,

    /// Reverse the order
    #[arg(short, long)]
    pub(crate) reverse: bool,

    /// List a directory itself, not its entries
    #[arg(short, long, conflicts_with = "recursive")]
    pub(crate) directory: bool,

    /// List subdirectories too
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,

    /// Accepted for compatibility: names that begin with a dot are always listed
    #[arg(short, long, short_alias = 'A')]
    pub(crate) all: bool,

    /// Accepted for compatibility: haul always prints one entry per line
    #[arg(short = '1')]
    pub(crate) one: bool,

    /// Print help (not -h: that prints sizes with units, as in ls)
    #[arg(long, action = ArgAction::HelpLong)]
    pub(crate) help: Option<bool>,

    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
}

const FORM: &str = "\
One entry per line, sorted within its directory, or within batches of about 100 000 entries of a
larger directory; the name of a directory ends with a slash.
Names are escaped on a terminal and printed as they are everywhere else. Times are local;
TZ=UTC haul ls -l prints UTC. With --json each line is an object with event (entry), path,
kind, size, modified (UTC), mode and target.";
