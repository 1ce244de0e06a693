//! `haul cat`.

use std::ffi::OsString;

use clap::Args;

use super::RemoteArgs;

/// Arguments of `haul cat`.
#[derive(Debug, Args)]
pub(crate) struct CatArgs {
    /// Files, printed one after the other; in a remote path `*`, `?` and `[a-z]` match names
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<OsString>,

    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
}
