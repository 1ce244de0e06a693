//! Options about servers.

use std::path::PathBuf;

use clap::Args;

use super::SshArgs;

/// Options about servers, whatever they speak.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RemoteArgs {
    #[command(flatten)]
    pub(crate) ssh: SshArgs,

    #[command(flatten)]
    pub(crate) tls: TlsArgs,
}

/// Options about TLS: https, davs, ftps.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct TlsArgs {
    /// Trust the authorities in this file (PEM) instead of the system's; may be given several times
    #[arg(long = "cacert", value_name = "FILE")]
    pub(crate) authorities: Vec<PathBuf>,

    /// Show this certificate (PEM) to servers that ask who we are
    #[arg(long = "cert", value_name = "FILE")]
    pub(crate) certificate: Option<PathBuf>,

    /// The key of --cert (PEM) [default: in the same file]
    #[arg(long = "key", value_name = "FILE", requires = "certificate")]
    pub(crate) key: Option<PathBuf>,

    /// Do not verify who the server is: whoever is in between reads and changes everything
    #[arg(long)]
    pub(crate) insecure: bool,
}
