//! Options about servers.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use haul_net::{Family, Reach};

use super::SshArgs;
use super::bridge::BridgeArg;
use crate::units::Count;

/// Options for servers of any protocol.
#[derive(Debug, Clone, Default, Hash, Args)]
pub(crate) struct RemoteArgs {
    #[command(flatten)]
    pub(crate) ssh: SshArgs,

    #[command(flatten)]
    pub(crate) tls: TlsArgs,

    #[command(flatten)]
    pub(crate) web: WebArgs,

    #[command(flatten)]
    pub(crate) network: NetworkArgs,
}

/// Options about HTTP and WebDAV. Values stay text here: clap would print one that it rejects, and it may be a
/// secret.
#[derive(Clone, Default, Hash, Args)]
#[command(next_help_heading = "HTTP and WebDAV")]
pub(crate) struct WebArgs {
    /// Send a header field, or those in FILE, to the servers named in the command; may be repeated
    #[arg(long = "header", value_name = "NAME: VALUE|@FILE")]
    pub(crate) headers: Vec<String>,

    /// Send this User-Agent instead of haul's own
    #[arg(long, value_name = "TEXT")]
    pub(crate) user_agent: Option<String>,

    /// Send this Referer to the servers named in the command
    #[arg(long, value_name = "URL")]
    pub(crate) referer: Option<String>,

    /// Send cookies to the servers named in the command; may be repeated
    #[arg(long = "cookie", value_name = "NAME=VALUE")]
    pub(crate) cookies: Vec<String>,

    /// Read cookies from FILE (cookies.txt, Netscape format) before the first request
    #[arg(long, value_name = "FILE")]
    pub(crate) load_cookies: Option<PathBuf>,

    /// Write all cookies to FILE at the end, in the same format
    #[arg(long, value_name = "FILE", alias = "cookie-jar")]
    pub(crate) save_cookies: Option<PathBuf>,
}

impl fmt::Debug for WebArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebArgs")
    }
}

/// Options about connections of any protocol.
#[derive(Clone, Default, Hash, Args)]
#[command(next_help_heading = "Network")]
pub(crate) struct NetworkArgs {
    /// Use IPv4 only
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    pub(crate) ipv4: bool,

    /// Use IPv6 only
    #[arg(short = '6', long)]
    pub(crate) ipv6: bool,

    /// Close a connection on which the server is silent for SECONDS [default: 60]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout: Option<Count<1, 86_400>>,

    /// Give up connecting after SECONDS [default: 60]
    #[arg(long, value_name = "SECONDS", alias = "connect-timeout")]
    pub(crate) contimeout: Option<Count<1, 86_400>>,

    /// Reach HTTP, WebDAV and FTP servers through a proxy: http://, https://, socks5:// or socks5h://; `none`
    /// uses no proxy
    #[arg(long, value_name = "URL", alias = "all-proxy")]
    pub(crate) proxy: Option<String>,

    /// Use spoken codes, as in 7-orbit-candle, at this bridge [default: that in the configuration, or
    /// the one that announces itself on the local network]
    #[arg(long, value_name = "HOST:PORT/KEY")]
    pub(crate) bridge: Option<BridgeArg>,

    /// Do not look for the sharer of a ticket, nor for a bridge, on the local network
    #[arg(long)]
    pub(crate) no_lan: bool,
}

/// Prints no fields: the URL of a proxy may contain a password.
impl fmt::Debug for NetworkArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NetworkArgs")
    }
}

impl NetworkArgs {
    /// The address family, and the time limit for connecting.
    pub(crate) fn reach(&self) -> Reach {
        let default = Reach::default();
        let limit = self.contimeout.map_or(default.limit, |seconds| Duration::from_secs(seconds.0));
        Reach { family: self.family(), limit }
    }

    /// The address family and the time limit for connecting, as `-o` options of ssh.
    pub(crate) fn ssh_options(&self) -> Vec<String> {
        let family = match self.family() {
            Family::Any => None,
            Family::V4 => Some("AddressFamily=inet".to_owned()),
            Family::V6 => Some("AddressFamily=inet6".to_owned()),
        };
        let limit = self.contimeout.map(|seconds| format!("ConnectTimeout={}", seconds.0));
        family.into_iter().chain(limit).collect()
    }

    const fn family(&self) -> Family {
        match (self.ipv4, self.ipv6) {
            (true, _) => Family::V4,
            (false, true) => Family::V6,
            (false, false) => Family::Any,
        }
    }
}

/// Options about TLS: https, davs, ftps.
#[derive(Debug, Clone, Default, Hash, Args)]
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
