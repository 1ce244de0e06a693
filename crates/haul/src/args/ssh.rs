//! SSH options, with the same letters as in scp.

use std::path::PathBuf;

use clap::Args;

/// SSH options.
#[derive(Debug, Clone, Default, Hash, Args)]
#[command(next_help_heading = "SSH")]
pub(crate) struct SshArgs {
    /// Port of SSH hosts whose location has none
    #[arg(short = 'P', value_name = "PORT")]
    pub(crate) port: Option<u16>,

    /// Private key to try first, except on jump hosts; may be repeated
    #[arg(short = 'i', value_name = "FILE")]
    pub(crate) identities: Vec<PathBuf>,

    /// Jump hosts, separated by commas, each `[USER@]HOST[:PORT]`
    #[arg(short = 'J', value_name = "HOSTS")]
    pub(crate) jump: Option<String>,

    /// Read FILE instead of ~/.ssh/config and /etc/ssh/ssh_config; `none` reads no file
    #[arg(short = 'F', value_name = "FILE")]
    pub(crate) config_file: Option<String>,

    /// NAME=VALUE as in ssh_config(5), except for jump hosts; may be repeated
    #[arg(short = 'o', value_name = "OPTION")]
    pub(crate) options: Vec<String>,

    /// Compress SSH connections
    #[arg(short = 'C', long, short_alias = 'z')]
    pub(crate) compress: bool,

    /// Accept and remember the keys of unknown SSH hosts; changed keys are still refused
    #[arg(long)]
    pub(crate) accept_new_host_keys: bool,
}
