//! `haul completions` and `haul man`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// Arguments of `haul completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Shell to complete for
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// Arguments of `haul man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Print the page of this command [default: one page with all commands]
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Vec<String>,

    /// Write the pages of all commands to DIR, one file each, instead of printing one
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub(crate) dir: Option<PathBuf>,
}
