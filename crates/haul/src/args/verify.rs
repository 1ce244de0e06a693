//! `haul verify`.

use std::ffi::OsString;

use clap::Args;

use super::RemoteArgs;

/// Arguments of `haul verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// A directory with a SHA256SUMS or B3SUMS (or both), or a manifest file; its names are relative
    /// to the manifest's directory
    #[arg(value_name = "PATH|MANIFEST")]
    pub(crate) target: OsString,

    /// Fail on files that the manifest does not list
    #[arg(long)]
    pub(crate) strict: bool,

    /// Read each folder of parts (see --split of haul cp) as one file
    #[arg(long)]
    pub(crate) join: bool,

    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
}
