//! `haul du`.

use std::ffi::OsString;

use clap::Args;

use super::RemoteArgs;

/// Arguments of `haul du`.
#[derive(Debug, Args)]
#[command(after_long_help = MEANING, disable_help_flag = true)]
pub(crate) struct DuArgs {
    /// Directories and files; in a remote path `*`, `?` and `[a-z]` match names
    #[arg(value_name = "LOCATION", default_value = ".")]
    pub(crate) locations: Vec<OsString>,

    /// Print only the total of each LOCATION
    #[arg(short, long, conflicts_with = "depth")]
    pub(crate) summarize: bool,

    /// Print directories at most N levels below LOCATION
    #[arg(short, long = "max-depth", value_name = "N")]
    pub(crate) depth: Option<usize>,

    /// Print sizes with units: 1.5 MiB
    #[arg(short = 'h', long)]
    pub(crate) human_readable: bool,

    /// Print a total of all LOCATIONs
    #[arg(short = 'c', long)]
    pub(crate) total: bool,

    /// Print help (not -h: that prints sizes with units, as in du)
    #[arg(long, action = clap::ArgAction::HelpLong)]
    pub(crate) help: Option<bool>,

    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
}

const MEANING: &str = "\
Sizes are the lengths of files in bytes (as `du -b` prints them for files): servers do not
report how much a file takes on disk. The bytes of a file with several hard links count once, but
each link counts as a file. A file that lies in several LOCATIONs counts once: `haul du a .`
prints for `.` what is not in `a`, as du does. Each line has the size, the number of files and the
directory, sorted by name.";
