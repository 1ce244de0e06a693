//! `haul config`.

use std::ffi::OsString;

use clap::{Args, Subcommand, ValueEnum};

use super::RemoteArgs;

/// Arguments of `haul config`.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) action: ConfigAction,
}

/// What can be done with the configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigAction {
    /// List the remotes with their locations, and the defaults and profiles
    List,
    /// Show each setting of a remote, or of a transfer, and where it comes from
    Show(Box<ConfigShowArgs>),
    /// Print the path of the configuration file
    Path,
    /// Open the file in an editor, and check it afterwards
    Edit,
    /// Print every error in the file
    Check(Box<ConfigCheckArgs>),
    /// Add a remote, after testing the connection
    Add(Box<ConfigAddArgs>),
    /// Remove a remote
    Remove(ConfigRemoveArgs),
}

/// Arguments of `haul config show`.
#[derive(Debug, Args)]
#[command(after_long_help = SHOW)]
pub(crate) struct ConfigShowArgs {
    /// Remote to show [default: what applies to every transfer]
    #[arg(value_name = "REMOTE")]
    pub(crate) remote: Option<String>,

    #[command(flatten)]
    pub(crate) connection: RemoteArgs,
}

/// Arguments of `haul config check`.
#[derive(Debug, Args)]
#[command(after_long_help = CHECK)]
pub(crate) struct ConfigCheckArgs {
    /// Connect to every remote too, and print the result
    #[arg(long)]
    pub(crate) connect: bool,

    #[command(flatten)]
    pub(crate) connection: RemoteArgs,
}

/// Arguments of `haul config add`.
#[derive(Debug, Args)]
#[command(after_long_help = ADD)]
pub(crate) struct ConfigAddArgs {
    /// Name of the remote, which is used as NAME:PATH
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    /// Location of the remote, as in any other command
    #[arg(value_name = "LOCATION", conflicts_with_all = ["protocol", "host", "path"])]
    pub(crate) location: Option<OsString>,

    /// Protocol, instead of LOCATION
    #[arg(long, value_name = "PROTOCOL")]
    pub(crate) protocol: Option<ProtocolArg>,

    /// Host name or address, instead of LOCATION
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,

    /// Port [default: that of the protocol]
    #[arg(long = "port", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) server_port: Option<u16>,

    /// User to log in as
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,

    /// Path on the server [default: the home directory over SFTP, else /]
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Option<String>,

    /// Command that prints the password on its first line
    #[arg(long, value_name = "CMD")]
    pub(crate) password_command: Option<String>,

    /// Add the remote without connecting to it first
    #[arg(long)]
    pub(crate) no_test: bool,

    #[command(flatten)]
    pub(crate) connection: RemoteArgs,
}

/// Arguments of `haul config remove`.
#[derive(Debug, Args)]
pub(crate) struct ConfigRemoveArgs {
    /// Name of the remote
    #[arg(value_name = "REMOTE")]
    pub(crate) name: String,
}

/// Protocols of a remote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProtocolArg {
    Sftp,
    Davs,
    Dav,
    Https,
    Http,
    Ftps,
    Ftp,
    /// A directory of this machine.
    Local,
}

const SHOW: &str = "\
Each line is a setting, its value, and where that comes from: FILE:LINE, a variable of the
environment, an option of this command, or a built-in profile or default. For a remote over SFTP
that includes ssh_config. Secrets are never printed, only where they come from.";

const CHECK: &str = "\
Every error is printed with file, line, section and key, with a hint where haul can suggest a
fix. The exit status is 0 without errors, and 1 otherwise. With --connect it is also 1 if a
remote cannot be reached or rejects the login.";

const ADD: &str = "\
On a terminal, haul prompts for what is missing: protocol, host, port, user, path, and the
command that prints the password. Without a terminal there is no prompt, and LOCATION, or
--protocol and --host (for local: --path), are required.

haul then connects to the remote, and adds it to the end of the file if that succeeds. The rest
of the file stays as it is, and so does its mode; a new file is readable by its owner only. SSH
and TLS options of this command apply to that one connection and are not stored: set SSH options
for the host in ~/.ssh/config.";
