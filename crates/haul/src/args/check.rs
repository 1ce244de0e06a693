//! `haul check`.

use std::ffi::OsString;

use clap::Args;

use super::RemoteArgs;
use super::filters::FilterArgs;

/// Arguments of `haul check`.
#[derive(Debug, Args)]
#[command(after_long_help = MEANING)]
pub(crate) struct CheckArgs {
    /// The original: a directory or a file
    #[arg(value_name = "SOURCE")]
    pub(crate) source: OsString,

    /// Its copy
    #[arg(value_name = "DEST")]
    pub(crate) destination: OsString,

    /// Compare files by content, not by size and time: both sides are read, unless a server
    /// reports digests
    #[arg(short, long)]
    pub(crate) checksum: bool,

    /// Ignore files that only DEST has
    #[arg(long)]
    pub(crate) one_way: bool,

    #[command(flatten)]
    pub(crate) filter: FilterArgs,

    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
}

const MEANING: &str = "\
Compares SOURCE with DEST, by size and time unless --checksum is given, over any two protocols;
a slash at the end makes no difference. Each difference is a line on standard output:
  differs PATH (why)     both have it: size, time, content, kind or link target
  missing PATH           only SOURCE has it
  extra PATH             only DEST has it
A missing or extra directory, written with a slash, stands for everything in it. Times are
compared as precisely as both sides store them; if one side stores none, only sizes are. The exit
status is 0 if nothing differs, and 1 otherwise.";
