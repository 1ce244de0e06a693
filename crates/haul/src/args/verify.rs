//! `haul verify`.

use std::ffi::OsString;

use clap::Args;

use super::RemoteArgs;

/// Arguments of `haul verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// A directory that has a SHA256SUMS or B3SUMS (or both), or a manifest file, whose names are
    /// below its own directory
    #[arg(value_name = "PATH|MANIFEST")]
    pub(crate) target: OsString,

    /// A file that the manifest does not list is a failure
    #[arg(long)]
    pub(crate) strict: bool,

    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
}
