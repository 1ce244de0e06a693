//! Polling the state of a link, on which the window of its budget depends.

use std::time::Duration;

use haul_engine::budget::LinkShare;
use tokio::sync::Notify;

/// How often the state of the link is polled while bytes are in flight.
const TICK: Duration = Duration::from_millis(25);

/// Polls a link while bytes are in flight; never returns. While nothing is in flight, it sleeps without a timer, until
/// `begun` is notified.
pub(crate) async fn watch(share: &LinkShare, begun: &Notify) {
    loop {
        begun.notified().await;
        while share.counted().0 > 0 {
            if share.tick().is_none() {
                // Between disks there is nothing to poll.
                break;
            }
            tokio::time::sleep(TICK).await;
        }
    }
}
