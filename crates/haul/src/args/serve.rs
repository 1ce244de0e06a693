//! `haul serve`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::units::Count;

/// Arguments of `haul serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The protocol.
    #[command(subcommand)]
    pub(crate) protocol: ServeProtocol,
}

/// Protocols that a directory can be served over.
#[derive(Debug, Subcommand)]
pub(crate) enum ServeProtocol {
    /// Serve a directory over SFTP
    Sftp(ServeSftpArgs),
    /// Serve a directory over WebDAV and HTTP, for tools and browsers
    Dav(ServeDavArgs),
}

/// Arguments of `haul serve sftp`.
#[derive(Debug, Args)]
#[command(after_long_help = SFTP_HELP)]
pub(crate) struct ServeSftpArgs {
    /// The directory; clients see it as / and cannot leave it, by links or by ..
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,

    /// Listen on this address and port; port 0 lets the system choose
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:2022")]
    pub(crate) listen: String,

    /// User name to log in with [default: that of the user who runs haul]
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,

    /// Accept these public keys (a file in sshd's authorized_keys format)
    #[arg(long, value_name = "FILE")]
    pub(crate) authorized_keys: Option<PathBuf>,

    /// Accept the password that this command prints on its first line
    #[arg(long, value_name = "CMD")]
    pub(crate) password_command: Option<String>,

    /// Read-only: refuse every change
    #[arg(long)]
    pub(crate) read_only: bool,

    /// Private host key [default: haul/sftp_host_ed25519_key below $XDG_STATE_HOME or
    /// ~/.local/state, created on first use]
    #[arg(long, value_name = "FILE")]
    pub(crate) host_key: Option<PathBuf>,

    /// Maximum number of sessions; further ones are refused
    #[arg(long, value_name = "N", default_value = "32")]
    pub(crate) max_sessions: Count<1, 4096>,
}

/// Arguments of `haul serve dav`.
#[derive(Debug, Args)]
#[command(after_long_help = DAV_HELP)]
pub(crate) struct ServeDavArgs {
    /// The directory; clients see it as / and cannot leave it, by links or by ..
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,

    /// Listen on this address and port; port 0 lets the system choose
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub(crate) listen: String,

    /// User name to log in with [default: that of the user who runs haul]
    #[arg(long, value_name = "NAME", requires = "password_command")]
    pub(crate) user: Option<String>,

    /// Require the password that this command prints on its first line
    #[arg(long, value_name = "CMD", conflicts_with = "anonymous")]
    pub(crate) password_command: Option<String>,

    /// Allow access without a password, also from other machines
    #[arg(long)]
    pub(crate) anonymous: bool,

    /// Use TLS with this certificate (PEM, with its chain)
    #[arg(long, value_name = "FILE", requires = "tls_key", conflicts_with = "tls_self_signed")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// Private key of the certificate (PEM, without a passphrase)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Use TLS with a self-signed certificate, created on first use and stored as
    /// haul/dav_self_signed.pem below $XDG_STATE_HOME or ~/.local/state
    #[arg(long)]
    pub(crate) tls_self_signed: bool,

    /// Further host name that clients use, besides localhost, addresses and this machine's name;
    /// may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Vec<String>,

    /// Read-only: refuse every change
    #[arg(long)]
    pub(crate) read_only: bool,

    /// Maximum number of connections; with a password at most three quarters of them may be
    /// unauthenticated
    #[arg(long, value_name = "N", default_value = "256")]
    pub(crate) max_connections: Count<1, 4096>,
}

const SFTP_HELP: &str = "\
Clients log in with a key or a password. On a loopback address neither has to be configured:
haul then generates a password for this run and prints it. Lines of the key file with options
that this server cannot enforce (command=, from=, …) grant no access, and a warning names them.

Prints its address and the fingerprint of its host key, then serves until Ctrl-C. With --json
that is an object: event (serving), protocol, address, url, directory, user, password (if haul
made it), fingerprint, host_key, read_only.

With -v it logs each client that connects, logs in (user and method), is refused, or
disconnects. With --json these are objects: event (client), address, action (connected, logged
in, refused, too late, turned away, left), user, with, seconds.";

const DAV_HELP: &str = "\
On a loopback address everyone on this machine has access, unless there is a password. On an
address that other machines can reach, a password or --anonymous is required. Requests from web pages
of other servers are refused, and without a password so are requests under unknown host names.
Without TLS anyone on the path can read the password and all files; a warning says so.

Prints its address and the fingerprint of its certificate, then serves until Ctrl-C. With
--json that is an object: event (serving), protocol, address, url, directory, user,
fingerprint, read_only.

With -v it logs connections, requests, responses and refused clients. With --json these are objects:
event (client), address, action (connected, request, refused, no tls, turned away, left), user,
method, path, status, received_bytes, sent_bytes, seconds.";
