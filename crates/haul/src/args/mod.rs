//! The raw arguments of the command line.
//!
//! `settings` merges options with the configuration, `backends` resolves locations. Locations stay text until then,
//! because clap would print a rejected one in full, including its password.

pub(crate) mod accepted;
mod bridge;
mod cat;
mod check;
mod config;
mod cp;
mod demo;
mod du;
mod fetch;
mod filters;
pub(crate) mod foreign;
mod hosts;
mod ls;
mod man;
mod mkdir;
mod mount;
pub(crate) mod mount_helper;
mod mv;
pub(crate) mod order;
mod peers;
mod remote;
mod rm;
mod select;
mod serve;
mod share;
mod ssh;
mod sync;
mod transfer;
mod verify;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use bridge::{BridgeArg, BridgeArgs, TokenArg};
pub(crate) use cat::CatArgs;
pub(crate) use check::CheckArgs;
pub(crate) use config::{
    ConfigAction, ConfigAddArgs, ConfigArgs, ConfigCheckArgs, ConfigRemoveArgs, ConfigShowArgs,
    ProtocolArg,
};
pub(crate) use cp::CpArgs;
pub(crate) use demo::DemoArgs;
pub(crate) use du::DuArgs;
pub(crate) use fetch::{ExpectArg, FetchArgs};
pub(crate) use hosts::HostArgs;
pub(crate) use ls::LsArgs;
pub(crate) use man::{CompletionsArgs, ManArgs};
pub(crate) use mkdir::MkdirArgs;
pub(crate) use mount::MountArgs;
pub(crate) use mv::MvArgs;
pub(crate) use peers::{PeersAction, PeersArgs};
pub(crate) use remote::{RemoteArgs, TlsArgs, WebArgs};
pub(crate) use rm::RmArgs;
pub(crate) use select::SelectArgs;
pub(crate) use serve::{ServeArgs, ServeDavArgs, ServeProtocol, ServeSftpArgs};
pub(crate) use share::ShareArgs;
pub(crate) use ssh::SshArgs;
pub(crate) use sync::SyncArgs;
pub(crate) use transfer::TransferArgs;
pub(crate) use verify::VerifyArgs;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "haul",
    bin_name = "haul",
    version,
    about = "Copy files and trees between local disks, SFTP, HTTP/WebDAV and FTP, fast and resumable",
    after_long_help = MANUAL,
    max_term_width = 100,
    propagate_version = true,
    args_override_self = true,
)]
pub(crate) struct Cli {
    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Options about output.
    #[command(flatten)]
    pub(crate) output: OutputArgs,

    /// Configuration file [default: $HAUL_CONFIG, or haul/config.toml below
    /// $XDG_CONFIG_HOME or ~/.config]
    #[arg(long, value_name = "FILE", global = true, help_heading = "General")]
    pub(crate) config: Option<PathBuf>,

    /// Append all messages and a line per file to FILE, with the time
    #[arg(long, value_name = "FILE", global = true, help_heading = "General")]
    pub(crate) log_file: Option<PathBuf>,
}

/// One command with its arguments.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Copy files and trees
    Cp(Box<CpArgs>),
    /// Make one directory like another
    Sync(Box<SyncArgs>),
    /// Move files and trees: rename, or copy, verify and remove
    Mv(Box<MvArgs>),
    /// List files and directories
    Ls(LsArgs),
    /// Print files to standard output
    Cat(CatArgs),
    /// Print the size of directories
    Du(DuArgs),
    /// Compare two trees by size and time, or by content
    Check(CheckArgs),
    /// Check files against their manifest
    Verify(VerifyArgs),
    /// Remove files and directories
    Rm(RmArgs),
    /// Create directories
    Mkdir(MkdirArgs),
    /// Show a directory from anywhere as a folder, until Ctrl-C
    Mount(Box<MountArgs>),
    /// Serve a directory over SFTP or WebDAV, until Ctrl-C
    Serve(Box<ServeArgs>),
    /// Share files and directories with the holder of the ticket that is printed, until Ctrl-C
    Share(Box<ShareArgs>),
    /// List, name and forget other machines that share with this one
    Peers(PeersArgs),
    /// Connect machines that cannot reach each other, until Ctrl-C
    Bridge(Box<BridgeArgs>),
    /// List, show, check and change the configuration
    Config(ConfigArgs),
    /// Try haul on real data on this machine: copy, kill, resume, verify
    Demo(DemoArgs),
    /// Print the completions of a shell
    Completions(CompletionsArgs),
    /// Print the manual page
    Man(ManArgs),
}

/// Output options of all commands.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct OutputArgs {
    /// Print only errors
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "General")]
    pub(crate) quiet: bool,

    /// Print every file; show connections, window, round-trip time and how long connecting took
    #[arg(short, long, global = true, help_heading = "General")]
    pub(crate) verbose: bool,

    /// Print results as JSON, one object per line
    #[arg(long, global = true, help_heading = "General")]
    pub(crate) json: bool,

    /// Show no progress
    #[arg(long, global = true, help_heading = "General")]
    pub(crate) no_progress: bool,

    /// Colour errors, hints and progress: on a terminal (auto), always, never
    #[arg(
        long,
        value_name = "WHEN",
        global = true,
        default_value = "auto",
        hide_default_value = true,
        help_heading = "General"
    )]
    pub(crate) color: ColorArg,
}

/// `--color`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorArg {
    /// On a terminal, unless NO_COLOR is set or TERM is dumb
    #[default]
    Auto,
    /// In files and pipes too
    Always,
    /// Nowhere
    Never,
}

/// Text about all commands, printed at the end of `haul --help` and in the manual page.
const MANUAL: &str = "\
Locations:
  PATH                    a local path; ./a:b if a colon comes before the first slash
  [USER@]HOST:PATH        SFTP, as scp writes it; below the home unless PATH begins with a slash
  sftp://[USER@]HOST[:PORT]/PATH; the others have the same form:
  http://, https://       a file, or a directory that the server lists; writing takes WebDAV
  dav://, davs://         WebDAV, without and with TLS
  ftp://, ftps://         FTP; ftps:// insists on TLS; /~/PATH is below the login directory
  NAME:PATH               below the url of [remote.NAME] in the configuration
  TICKET, TICKET/PATH     what another machine shares (haul share); @FILE reads the ticket from a file,
                          @- from standard input, ticket: from HAUL_TICKET
  7-orbit-candle[/PATH]   the same by the spoken code that haul share --code prints; needs a bridge
  peer:NAME/PATH          the same with a ticket that haul peers add has stored

Authentication uses the first of these that is set (SSH tries keys first):
  HAUL_TOKEN              a bearer token, for an http, https, dav or davs location
  HAUL_PASSWORD_NAME      the password of [remote.NAME] (in capitals, with _ for all but letters and
                          digits); HAUL_TOKEN_NAME its token
  password-command        of [remote.NAME]: a command that prints the password
  HAUL_PASSWORD           the password of the only host, or of the only one with USER@
  NETRC                   a file with names and passwords [default: ~/.netrc]; for HTTP and WebDAV, also
                          for servers that these redirect to
  the terminal            a prompt for the password of USER
Proxies for HTTP, WebDAV and FTP: --proxy, or http_proxy, https_proxy, ftp_proxy, all_proxy, no_proxy as in curl.

Configuration (TOML; names of options as on the command line, without the dashes):
  [defaults]              options of every transfer: lanes = 4, bwlimit = \"10M\", fsync = true; and
                          bridge = \"HOST:PORT/KEY\", the bridge of spoken codes;
                          lan = false does the same as --no-lan, and port-mapping = false the same
                          as haul share --no-port-mapping
  [profile.NAME]          options of --profile NAME; `profile` in it names the built-in one it extends
  [remote.NAME]           url = \"...\", user = \"...\", port = 22, headers = {...}; used as NAME:PATH
  The command line overrides the profile, and the profile overrides [defaults].
  haul config add NAME adds a remote; haul config show prints where each value comes from.

At the end (--on-done CMD): sh runs CMD, with these variables and without passwords and tokens:
  HAUL_STATUS             the exit status
  HAUL_FILES, HAUL_FAILED how many files are at the destination now, and how many failures there were
  HAUL_BYTES              bytes moved by this run
  HAUL_SECONDS            how long it took

JSON (--json): one object per line on standard output; `event` is its type:
  plan, progress, file, retry, waiting, warning, error, summary; renamed (mv); entry (ls), usage (du),
  removed (rm), difference (check), step (demo), mounted and, with --status, mount, with --pending,
  pending (mount); serving and, with -v, client (serve); sharing, code, revoked and client (share);
  reached and unreached (tickets, with -v); bridge and client (bridge); peer (peers); remote,
  setting, path, fault, connection (config)
  With many hosts most events have `host`, and each host ends with an event `host`.
  Names are in `path`; if a name is not UTF-8, `path_bytes` has it in hexadecimal.

Exit status:
  0    all done
  1    something failed; each failure was printed, everything else was done
  2    usage error; nothing was done
  130  interrupted (143: terminated); run the same command again to continue";
