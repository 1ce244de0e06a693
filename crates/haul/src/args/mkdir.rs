//! `haul mkdir`.

use std::ffi::OsString;

use clap::Args;

use super::RemoteArgs;

/// Arguments of `haul mkdir`.
#[derive(Debug, Args)]
pub(crate) struct MkdirArgs {
    /// Directories to create
    #[arg(required = true, value_name = "LOCATION")]
    pub(crate) locations: Vec<OsString>,

    /// Create missing parents too; do not fail if a directory exists
    #[arg(short, long)]
    pub(crate) parents: bool,

    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
}
