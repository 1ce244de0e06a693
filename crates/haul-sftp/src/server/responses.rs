//! Sends responses to the client, small ones in batches.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc::UnboundedReceiver;

/// Small responses are joined up to this size in bytes: the longest SSH packet of most clients.
const BATCH: usize = 32 << 10;

/// Carries a session's responses to the client.
pub trait Outgoing: Send {
    /// Sends bytes after those of earlier calls. Returns when more can be sent.
    ///
    /// # Errors
    /// If the client no longer accepts data.
    fn send(&mut self, bytes: Bytes) -> impl Future<Output = Result<(), Closed>> + Send;

    /// Invalid once the client has disconnected; long work then stops.
    fn client(&self) -> Weak<()>;
}

/// The client no longer accepts data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed;

/// Sends queued responses, small ones joined, until the queue is closed or sending fails. Decrements `unanswered`
/// for each response.
pub(super) async fn send_responses(
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
