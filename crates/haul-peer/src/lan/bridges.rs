//! The bridges that announce themselves on the local network.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::service::{BRIDGES, Browser, Service};
use crate::ticket::{BridgeAddress, PeerKey};

/// The property with the bridge's key.
pub(super) const KEY: &str = "k";

/// How long to wait for the first bridge, and after it for others.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_millis(500));

/// Maximum number of bridges that are returned.
const MOST: usize = 8;

/// The bridges that announce themselves on the local network, each once. Everyone there can announce one: trust
/// them no more than a hostile bridge. Takes at most 2 s until the first, and half a second after it.
///
/// Must be called within a tokio runtime.
pub async fn bridges() -> Vec<BridgeAddress> {
    let mut found: Vec<BridgeAddress> = Vec::new();
    // If the search fails, there are none.
    let Ok(browser) = Browser::start(BRIDGES) else { return found };
    let mut until = Instant::now() + PATIENCE.0;
    while found.len() < MOST
        && let Ok(Some(service)) = timeout_at(until, browser.next()).await
    {
        let Some(bridge) = bridge(&service) else { continue };
        if found.is_empty() {
            until = Instant::now() + PATIENCE.1;
        }
        if found.iter().all(|known| known.key != bridge.key) {
            found.push(bridge);
        }
    }
    found
}

fn bridge(service: &Service) -> Option<BridgeAddress> {
    let key = service.property(KEY)?.parse::<PeerKey>().ok()?;
    let address = service.addresses.first()?.socket();
    let bridge = BridgeAddress::new(&address.ip().to_string(), address.port()).ok()?;
    Some(bridge.with_key(Some(key.0)))
}
