//! Answers on their way out: what takes them, what holds them, and who hands them on.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc::UnboundedReceiver;

/// Small answers are strung together up to this size: one SSH packet of most clients.
const BATCH: usize = 32 << 10;

/// Where a session's answers go.
pub trait Outgoing: Send {
    /// Sends bytes behind those that were sent before. Returns when it takes more.
    ///
    /// # Errors
    /// If nobody takes anything any longer.
    fn send(&mut self, bytes: Bytes) -> impl Future<Output = Result<(), Closed>> + Send;
}

/// The far end takes nothing any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed;

/// Hands answers on, small ones together.
pub(super) async fn hand_on(
    mut unsent: UnboundedReceiver<Bytes>,
    mut outgoing: impl Outgoing,
    unanswered: Arc<AtomicUsize>,
) {
    let mut next = None;
    loop {
        let first = match next.take() {
            Some(packet) => packet,
            None => match unsent.recv().await {
                Some(packet) => packet,
                None => return,
            },
        };
        let mut count = 1;
        let mut batch = BytesMut::new();
        while let Ok(packet) = unsent.try_recv() {
            let length = if batch.is_empty() { first.len() } else { batch.len() };
            if length + packet.len() > BATCH {
                next = Some(packet);
                break;
            }
            if batch.is_empty() {
                batch.extend_from_slice(&first);
            }
            batch.extend_from_slice(&packet);
            count += 1;
        }
        let bytes = if batch.is_empty() { first } else { batch.freeze() };
        let outcome = outgoing.send(bytes).await;
        unanswered.fetch_sub(count, Ordering::Relaxed);
        if outcome.is_err() {
            return;
        }
    }
}
