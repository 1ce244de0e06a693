//! `haul bridge`, and how other commands name a bridge.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::str::FromStr;

use clap::Args;
use haul_net::Secret;
use haul_peer::ticket::{BridgeAddress, PeerKey};

use crate::units::{Count, Rate, Size};

/// Arguments of `haul bridge`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct BridgeArgs {
    /// Listen on this address and port; may be given several times [default: port 4181 of every
    /// address of this machine]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Vec<SocketAddr>,

    /// Admit sharers with this token, or with that on the first line of FILE [default:
    /// $HAUL_BRIDGE_TOKEN]
    #[arg(long, value_name = "TOKEN|@FILE", conflicts_with = "open")]
    pub(crate) token: Option<TokenArg>,

    /// Admit all sharers
    #[arg(long)]
    pub(crate) open: bool,

    /// Maximum number of sharers; further ones are refused
    #[arg(long, value_name = "N", default_value = "4096")]
    pub(crate) max_sessions: Count<1, 65_536>,

    /// Forward at most this much per second for each sharer, both directions together
    #[arg(long, value_name = "RATE")]
    pub(crate) max_rate: Option<Rate>,

    /// Forward at most this much per day (UTC) for the sharers of an address
    #[arg(long, value_name = "SIZE")]
    pub(crate) quota: Option<Size>,

    /// Announce the bridge on the local network: for spoken codes, haul uses it there without
    /// --bridge
    #[arg(long)]
    pub(crate) announce: bool,

    /// Serve metrics for Prometheus at http://ADDR/metrics
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics: Option<SocketAddr>,
}

const HELP: &str = "\
A bridge connects machines of which neither can reach the other. haul share --bridge registers
there; receivers find the bridge in the ticket and need no token. The bridge forwards encrypted
data: it learns addresses, times and sizes, but neither names nor content.

Prints a line 'bridge HOST:PORT/KEY' for each address of this machine, for --bridge of haul share.
The key is created on first use and stored as haul/bridge.pem below $XDG_STATE_HOME or
~/.local/state. With --json that is an object: event (bridge), bridges, key, metrics.

With -v it logs sharers, receivers and what was forwarded. With --json these are objects: event
(client), address, action (registered, left, joined, forwarded, refused, failed, rejected), cause,
bytes.";

/// A bridge with its key, as `haul bridge` prints it: `HOST:PORT/KEY`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct BridgeArg(pub(crate) BridgeAddress);

impl FromStr for BridgeArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "write HOST:PORT/KEY, as haul bridge prints it";
        let (address, key) = text.split_once('/').ok_or(form)?;
        let address = address.parse::<BridgeAddress>();
        let address = address.map_err(|cause| format!("{cause}; {form}"))?;
        let key = key.parse::<PeerKey>().map_err(|_| format!("the key is wrong; {form}"))?;
        Ok(Self(address.with_key(Some(key.0))))
    }
}

/// The token of a bridge, or `@` and the name of a file that begins with it.
#[derive(Debug, Clone)]
pub(crate) struct TokenArg(pub(crate) Secret);

impl FromStr for TokenArg {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(Secret::new(text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridge_is_named_by_address_and_key() {
        let key = PeerKey([1; 32]);
        for host in ["bridge.example", "192.0.2.1", "[2001:db8::1]"] {
            let named = format!("{host}:4181/{}", key.to_text()).parse::<BridgeArg>().unwrap();
            let shown = (named.0.to_string(), named.0.key);
            assert_eq!(shown, (format!("{host}:4181"), Some(key.0)));
        }
        for wrong in ["bridge.example:4181", "bridge.example/abc", "bridge.example:1/abc", "/", ""]
        {
            let error = wrong.parse::<BridgeArg>().unwrap_err();
            assert!(error.contains("HOST:PORT/KEY"), "{error}");
        }
    }

    #[test]
    fn debug_output_contains_no_token() {
        let token: TokenArg = "hunter2".parse().unwrap();
        assert!(!format!("{token:?}").contains("hunter2"));
    }
}
