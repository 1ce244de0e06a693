//! Options about servers.

use std::path::PathBuf;

use clap::Args;

use super::SshArgs;

/// Options for servers of any protocol.
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
    /// Trust the certificate authorities in FILE (PEM) instead of the system's; may be repeated
    #[arg(long = "cacert", value_name = "FILE")]
    pub(crate) authorities: Vec<PathBuf>,

    /// Client certificate (PEM), for servers that request one
    #[arg(long = "cert", value_name = "FILE")]
    pub(crate) certificate: Option<PathBuf>,

    /// Private key of --cert (PEM) [default: in the same file]
    #[arg(long = "key", value_name = "FILE", requires = "certificate")]
    pub(crate) key: Option<PathBuf>,

    /// Do not verify the server's certificate: anyone on the path can then read and change everything
    #[arg(long)]
    pub(crate) insecure: bool,
}
