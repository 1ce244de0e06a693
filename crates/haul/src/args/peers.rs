//! `haul peers`.

use std::ffi::OsString;

use clap::{Args, Subcommand};

use super::bridge::BridgeArg;

/// Arguments of `haul peers`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct PeersArgs {
    /// What to do; lists the peers without it.
    #[command(subcommand)]
    pub(crate) action: Option<PeersAction>,
}

/// What to do with the known peers.
#[derive(Debug, Subcommand)]
pub(crate) enum PeersAction {
    /// List the known peers
    List,
    /// Store a ticket under a name, or a new ticket of the same peer
    Add {
        /// The name: letters, digits, '-', '_' and '.'
        #[arg(value_name = "NAME")]
        name: String,

        /// The ticket, or a spoken code, which this uses up; better @FILE or - (standard input) than
        /// a ticket, since other users can see arguments
        #[arg(value_name = "TICKET|CODE|@FILE|-")]
        ticket: OsString,

        /// Use the spoken code at this bridge [default: that in the configuration, or the one that
        /// announces itself on the local network]
        #[arg(long, value_name = "HOST:PORT/KEY")]
        bridge: Option<BridgeArg>,

        /// Do not look for a bridge on the local network
        #[arg(long)]
        no_lan: bool,
    },
    /// Remove a peer and its ticket
    Forget {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Give a peer another name
    Rename {
        /// The present name
        #[arg(value_name = "NAME")]
        from: String,

        /// The new name
        #[arg(value_name = "NEW")]
        to: String,
    },
}

const HELP: &str = "\
peer:NAME and peer:NAME/PATH are locations in every command. They work as long as the ticket
does; a ticket of haul share --keep does so in later runs, too. On the local network, the peer is
found even if its address or port has changed.

Peers and their tickets are in haul/peers.toml below $XDG_STATE_HOME or ~/.local/state,
readable only by you.";
