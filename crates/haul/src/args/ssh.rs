//! Options about SSH, as scp has them.

use std::path::PathBuf;

use clap::Args;

/// Options about SSH.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "SSH")]
pub(crate) struct SshArgs {
    /// Port of SSH hosts whose location names none
    #[arg(short = 'P', value_name = "PORT")]
    pub(crate) port: Option<u16>,

    /// Private key to try first, not on jump hosts; may be given several times
    #[arg(short = 'i', value_name = "FILE")]
    pub(crate) identities: Vec<PathBuf>,

    /// Hosts to go through, separated by commas, each as `[USER@]HOST[:PORT]`
    #[arg(short = 'J', value_name = "HOSTS")]
    pub(crate) jump: Option<String>,

    /// Read this instead of ~/.ssh/config and /etc/ssh/ssh_config; `none` for no file
    #[arg(short = 'F', value_name = "FILE")]
    pub(crate) config_file: Option<String>,

    /// An option as in ssh_config(5), NAME=VALUE, not for jump hosts; may be given several times
    #[arg(short = 'o', value_name = "OPTION")]
    pub(crate) options: Vec<String>,

    /// Compress what is sent over SSH
    #[arg(short = 'C')]
    pub(crate) compress: bool,

    /// Take and remember the keys of SSH hosts that are not known yet; changed keys stay refused
    #[arg(long)]
    pub(crate) accept_new_host_keys: bool,
}
