//! `haul serve`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::units::Count;

/// Arguments of `haul serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Over which protocol.
    #[command(subcommand)]
    pub(crate) protocol: ServeProtocol,
}

/// What a directory can be served over.
#[derive(Debug, Subcommand)]
pub(crate) enum ServeProtocol {
    /// Serve a directory over SFTP
    Sftp(ServeSftpArgs),
    /// Serve a directory over WebDAV and HTTP, to browsers as well
    Dav(ServeDavArgs),
}

/// Arguments of `haul serve sftp`.
#[derive(Debug, Args)]
#[command(after_long_help = WHO)]
pub(crate) struct ServeSftpArgs {
    /// The directory; clients see it as / and get nowhere else, by no link and no ..
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,

    /// Listen on this address and port; port 0 lets the system choose
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:2022")]
    pub(crate) listen: String,

    /// The name to log in with [default: that of the user who runs this]
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,

    /// Let in who has one of these keys (a file as sshd reads it)
    #[arg(long, value_name = "FILE")]
    pub(crate) authorized_keys: Option<PathBuf>,

    /// Let in who knows the password that this command prints on its first line
    #[arg(long, value_name = "CMD")]
    pub(crate) password_command: Option<String>,

    /// Refuse every change
    #[arg(long)]
    pub(crate) read_only: bool,

    /// Be known by this private key [default: haul/sftp_host_ed25519_key below $XDG_STATE_HOME or
    /// ~/.local/state, made when it is first needed]
    #[arg(long, value_name = "FILE")]
    pub(crate) host_key: Option<PathBuf>,

    /// Refuse more sessions than this at once
    #[arg(long, value_name = "N", default_value = "32")]
    pub(crate) max_sessions: Count<1, 4096>,
}

/// Arguments of `haul serve dav`.
#[derive(Debug, Args)]
#[command(after_long_help = WHO_DAV)]
pub(crate) struct ServeDavArgs {
    /// The directory; clients see it as / and get nowhere else, by no link and no ..
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,

    /// Listen on this address and port; port 0 lets the system choose
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub(crate) listen: String,

    /// The name to come with [default: that of the user who runs this]
    #[arg(long, value_name = "NAME", requires = "password_command")]
    pub(crate) user: Option<String>,

    /// Let in who knows the password that this command prints on its first line, and nobody else
    #[arg(long, value_name = "CMD", conflicts_with = "anonymous")]
    pub(crate) password_command: Option<String>,

    /// Let everybody in, from other machines as well
    #[arg(long)]
    pub(crate) anonymous: bool,

    /// Speak TLS, with this certificate (PEM, with those that vouch for it)
    #[arg(long, value_name = "FILE", requires = "tls_key", conflicts_with = "tls_self_signed")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// The key of the certificate (PEM, without passphrase)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Speak TLS, with a certificate that nobody vouches for, which is made when it is first needed
    /// and kept as haul/dav_self_signed.pem below $XDG_STATE_HOME or ~/.local/state
    #[arg(long)]
    pub(crate) tls_self_signed: bool,

    /// A further name by which clients come, besides localhost, addresses and that of this machine;
    /// may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Vec<String>,

    /// Refuse every change
    #[arg(long)]
    pub(crate) read_only: bool,

    /// Refuse more connections than this at once; where there is a password, those that have not given
    /// it may have three quarters
    #[arg(long, value_name = "N", default_value = "256")]
    pub(crate) max_connections: Count<1, 4096>,
}

const WHO: &str = "\
Who may log in: keys, a password, or both have to be given. Only on a loopback address neither is
needed: then a password is made for this run and printed.
Lines of the key file with options that this server cannot follow (command=, from=, …) let nobody
in; a warning says so.

Prints its address and the fingerprint of its host key, then serves until Ctrl-C. With --json that
is an object: event (serving), protocol, address, url, directory, user, password (if it was made),
fingerprint, host_key, read_only.

With -v it says who connects from where, logs in as whom and with what, is refused, and leaves. With
--json these are objects: event (client), address, action (connected, logged in, refused, too late,
turned away, left), user, with, seconds.";

const WHO_DAV: &str = "\
Who may come: on a loopback address everybody who is on this machine, unless a password is given;
where other machines can reach it a password has to be given, or --anonymous. Web pages of other
servers are refused, and without a password whoever comes by a name that is not known.
Without TLS everybody on the way reads the password and all files; a warning says so.

Prints its address and the fingerprint of its certificate, then serves until Ctrl-C. With --json
that is an object: event (serving), protocol, address, url, directory, user, fingerprint, read_only.

With -v it says who connects, what is asked for and answered, who is refused, and who leaves. With
--json these are objects: event (client), address, action (connected, request, refused, no tls,
turned away, left), user, method, path, status, received_bytes, sent_bytes, seconds.";
