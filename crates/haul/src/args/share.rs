//! `haul share`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use haul_peer::ticket::Address;

use super::bridge::{BridgeArg, TokenArg};
use crate::units::Count;

/// Arguments of `haul share`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct ShareArgs {
    /// A directory, which the other side sees as the top and cannot leave; or files and
    /// directories, which are listed in it; - is standard input, which is read to its end first
    #[arg(value_name = "PATH", required_unless_present = "revoke")]
    pub(crate) paths: Vec<PathBuf>,

    /// Let the holder of the ticket add, change and remove files
    #[arg(long)]
    pub(crate) writable: bool,

    /// Let the holder set owners, set-ID bits and file capabilities, too
    #[arg(long, requires = "writable")]
    pub(crate) owners: bool,

    /// The name of the share that the receiver sees [default: that of PATH]; with -, that of the
    /// file
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Listen on this address and port; may be given several times [default: a free port of every
    /// address of this machine]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Vec<SocketAddr>,

    /// An address and port to print in the ticket, for example that of a router that forwards the
    /// port; may be given several times
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(crate) address: Vec<Address>,

    /// Also use this bridge, for receivers that cannot reach this machine (see haul bridge) [default
    /// with --code: that in the configuration; for the code also one on the local network]
    #[arg(long, value_name = "HOST:PORT/KEY")]
    pub(crate) bridge: Option<BridgeArg>,

    /// The bridge's token, or a file that begins with it [default: $HAUL_BRIDGE_TOKEN]
    #[arg(long, value_name = "TOKEN|@FILE")]
    pub(crate) bridge_token: Option<TokenArg>,

    /// Use only the bridge: the ticket has no address of this machine
    #[arg(long, conflicts_with_all = ["listen", "address"])]
    pub(crate) bridge_only: bool,

    /// Print a spoken code, too, as in 7-orbit-candle: typed in place of the ticket, it works once,
    /// within 10 minutes, for receivers with the same bridge
    #[arg(long)]
    pub(crate) code: bool,

    /// Do not announce the share on the local network, nor look for a bridge there
    #[arg(long)]
    pub(crate) no_lan: bool,

    /// Do not ask the router to forward a port to this machine
    #[arg(long)]
    pub(crate) no_port_mapping: bool,

    /// Also serve the page of haul serve dav, for people without haul: with TLS, and a password made
    /// for this run [without a value: on a free port of every IPv4 address]
    #[arg(
        long,
        value_name = "ADDR",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "0.0.0.0:0",
        conflicts_with_all = ["bridge_only", "one_use"]
    )]
    pub(crate) web: Option<SocketAddr>,

    /// The ticket is valid for this many seconds; then the share ends
    #[arg(long, value_name = "SECONDS")]
    pub(crate) expires: Option<Count<1, 31_536_000>>,

    /// The ticket admits one receiver once
    #[arg(long)]
    pub(crate) one_use: bool,

    /// Print the same ticket in every run with the same PATHs and terms, and listen on the same port
    #[arg(long)]
    pub(crate) keep: bool,

    /// Use a new key for this run, and store nothing
    #[arg(long, conflicts_with = "keep")]
    pub(crate) ephemeral: bool,

    /// Print the ticket as a QR code, too
    #[arg(long)]
    pub(crate) qr: bool,

    /// Share nothing, but make the tickets of --keep for this PATH invalid, or with 'all' those for
    /// all paths
    #[arg(
        long,
        value_name = "PATH|all",
        conflicts_with_all = [
            "paths", "writable", "owners", "name", "listen", "address", "bridge", "bridge_token", "bridge_only", "no_lan",
            "no_port_mapping", "expires", "one_use", "keep", "ephemeral", "qr", "code", "web",
        ]
    )]
    pub(crate) revoke: Option<PathBuf>,
}

/// An address for the ticket.
fn address(text: &str) -> Result<Address, String> {
    let socket: SocketAddr =
        text.parse().map_err(|_| "it is not an address and port, as in 203.0.113.7:4180")?;
    Address::new(socket).map_err(|error| error.to_string())
}

const HELP: &str = "\
Prints a ticket, then serves until Ctrl-C. Anyone who has the ticket has access: on the other
machine it is a location, as in haul cp TICKET/ DIR. A terminal shows the connected clients and
what they transfer. Ctrl-C ends the share: the clients' commands fail at once. A second Ctrl-C ends
haul at once, without notifying them.

On the local network, the share is announced to those who have the ticket, without any name. Behind
a router, haul asks it to forward a port until Ctrl-C (PCP, NAT-PMP, UPnP), and the ticket has the
router's address, too; -v prints whether that works.

The key is haul/identity.pem below $XDG_STATE_HOME or ~/.local/state, created on first use.
Tickets of --keep are in shares.toml there.";
