//! `haul sync`.

use std::ffi::OsString;
use std::str::FromStr;

use clap::Args;
use haul_engine::DeleteLimit;

use super::{RemoteArgs, TransferArgs};

/// Arguments of `haul sync`.
#[derive(Debug, Args)]
#[command(after_long_help = MEANING)]
pub(crate) struct SyncArgs {
    /// A directory; a slash at its end makes no difference
    #[arg(value_name = "SOURCE")]
    pub(crate) source: OsString,

    /// The directory to update; created if missing
    #[arg(value_name = "DEST")]
    pub(crate) destination: OsString,

    /// Remove files from DEST that SOURCE does not have; excluded files stay
    #[arg(long, help_heading = "Files")]
    pub(crate) delete: bool,

    /// Remove nothing, and fail, if more than N entries (or N percent of those in DEST) would be removed
    #[arg(long, value_name = "N|N%", requires = "delete", help_heading = "Files")]
    pub(crate) max_delete: Option<DeleteLimitArg>,

    /// Let an empty SOURCE remove everything from DEST
    #[arg(long, requires = "delete", help_heading = "Files")]
    pub(crate) delete_from_empty: bool,

    /// Remove files even if a listing of SOURCE failed
    #[arg(long, requires = "delete", help_heading = "Files")]
    pub(crate) ignore_errors: bool,

    /// Do not ask before files from a ticket are written
    #[arg(short = 'y', long, help_heading = "Files")]
    pub(crate) yes: bool,

    #[command(flatten)]
    pub(crate) transfer: TransferArgs,

    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
}

/// `--max-delete`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DeleteLimitArg(pub(crate) DeleteLimit);

impl FromStr for DeleteLimitArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong =
            || format!("{text:?} is neither a number of entries (100) nor a percentage (10%)");
        if let Some(percent) = text.strip_suffix('%') {
            let percent: f64 = percent.parse().map_err(|_| wrong())?;
            let in_bounds = (0.0..=100.0).contains(&percent);
            return in_bounds.then_some(Self(DeleteLimit::Percent(percent))).ok_or_else(wrong);
        }
        text.parse().map(|most| Self(DeleteLimit::Entries(most))).map_err(|_| wrong())
    }
}

const MEANING: &str = "\
SOURCE/a becomes DEST/a. Without --delete nothing is removed from DEST. With it, files are
removed after all copies are complete, and only if SOURCE could be listed without errors and is
not empty. A manifest that haul writes there stays. `haul cp --help` explains profiles, sizes
and rates.";
