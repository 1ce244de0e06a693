//! Polling the state of a link, on which the window of its budget depends.

use std::time::Duration;

use haul_engine::budget::LinkShare;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How often the state of the link is polled while bytes are in flight.
const TICK: Duration = Duration::from_millis(25);

/// How long the lanes of a long path may take to open before anything is read.
const OPENING: Duration = Duration::from_secs(10);

/// Polls the link while bytes are in flight; never returns. While nothing is in flight, it sleeps without a timer,
/// until `begun` is notified.
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

/// Opens the lanes that a long path needs. One that is opened during a read begins with TCP's slow start, and delays
/// the blocks that it carries by seconds.
pub(crate) async fn open_lanes(share: &LinkShare) {
    let began = Instant::now();
    while let Some(link) = share.tick() {
        let is_complete = link.rtt.is_some() && link.open >= share.decision().lanes;
        if is_complete || began.elapsed() > OPENING {
            return;
        }
        tokio::time::sleep(TICK).await;
    }
}
