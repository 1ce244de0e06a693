//! `haul demo`.

use std::path::PathBuf;

use clap::Args;

use crate::units::SizeIn;

/// Arguments of `haul demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Work in a new directory below this one [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    /// Copy data from this tree [default: the Rust toolchain, or else /usr/lib]
    #[arg(long, value_name = "DIR")]
    pub(crate) source: Option<PathBuf>,

    /// Use the largest directory in the tree with at most this much data
    #[arg(long, value_name = "SIZE", default_value = "2G")]
    pub(crate) size: SizeIn<{ 1 << 20 }, { 1 << 40 }>,
}
