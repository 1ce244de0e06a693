//! `haul sync`.

use std::ffi::OsString;

use clap::Args;

use super::{RemoteArgs, TransferArgs};

/// Arguments of `haul sync`.
#[derive(Debug, Args)]
#[command(after_long_help = MEANING)]
pub(crate) struct SyncArgs {
    /// A directory, with or without a slash at its end
    #[arg(value_name = "SOURCE")]
    pub(crate) source: OsString,

    /// The directory that becomes like it; it is made if it is missing
    #[arg(value_name = "DEST")]
    pub(crate) destination: OsString,

    /// Remove from DEST what SOURCE does not have; what is excluded stays
    #[arg(long, help_heading = "Files")]
    pub(crate) delete: bool,

    #[command(flatten)]
    pub(crate) transfer: TransferArgs,

    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
}

const MEANING: &str = "\
What is in SOURCE becomes what is in DEST: SOURCE/a becomes DEST/a. Nothing is removed from DEST
without --delete, and a manifest that haul writes there stays. See `haul cp --help` for profiles,
sizes and rates.";
