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
