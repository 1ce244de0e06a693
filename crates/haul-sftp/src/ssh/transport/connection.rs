//! State shared by the two tasks of a connection and its users: the output, the channels, and the phase.
//!
//! ```text
//! senders, and the reader's responses → Output: sealed into one buffer → writer task → link
//! ```
//!
//! Senders encrypt into the buffer themselves, while the writer task writes the previous one. The reader task never
//! waits for the writer: it appends its responses even to a full buffer. A peer that sends requests without reading the
//! responses is disconnected.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use super::cipher::Cipher;
use super::end::{End, violation};
use super::kex::Exchange;
use super::line::{Inbox, Line};
use super::negotiation::{Agreed, Guess, Offer};
use super::packet::Sealer;
use super::state::State;
use super::wire::{Put, message};

/// Senders have to wait while this many bytes are queued. Together with the buffer being written, they fit into a
/// processor's cache.
pub const ROOM: usize = 256 << 10;

/// Most bytes of responses that may wait in addition.
const RESPONSES: usize = 1 << 20;

/// A connection.
#[derive(Debug)]
pub struct Connection {
    pub state: State,
    /// The algorithms to offer in every key exchange.
    pub offer: Offer,
    /// Bytes after which keys are renewed.
    pub rekey: u64,
    output: Mutex<Output>,
    channels: Mutex<HashMap<u32, Entry>>,
    /// There is something to write.
    filled: Notify,
    /// There may be room in the output again.
    room: Notify,
    /// Whether the connection closes once the output is written.
    closing: watch::Sender<bool>,
    agreed: OnceLock<Agreed>,
}

/// A channel, as the reader task sees it.
#[derive(Debug)]
pub struct Entry {
    pub line: Arc<Line>,
    pub inbox: Inbox,
}

/// The output of a connection.
#[derive(Debug)]
pub struct Output {
    sealer: Sealer,
    /// Sealed bytes, ready to be written.
    ready: Vec<u8>,
    /// Messages that wait for the end of a key exchange.
    held: Vec<Vec<u8>>,
    held_bytes: usize,
    /// Our KEXINIT, once it is sent and until the reader needs it.
    offered: Option<Vec<u8>>,
    /// Our half of a key exchange, if it was sent before the server's KEXINIT arrived.
    begun: Option<Exchange>,
    /// Our KEXINIT has announced that half (`first_kex_packet_follows`, RFC 4253, 7).
    announced: bool,
    /// Between our KEXINIT and our NEWKEYS, where most messages must not be sent (RFC 4253, 7.1).
    exchanging: bool,
    broken: bool,
}

/// Closes the connection when dropped: pending output is still sent, but nothing is awaited.
#[derive(Debug)]
pub struct CloseOnDrop {
    pub connection: Arc<Connection>,
    pub reader: AbortHandle,
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.reader.abort();
        self.connection.close();
    }
}

impl Connection {
    /// A connection on which nothing has been sent.
    pub fn new(state: State, offer: Offer, rekey: u64) -> Self {
        Self {
            state,
            offer,
            rekey,
            output: Mutex::new(Output {
                sealer: Sealer::clear(),
                ready: Vec::new(),
                held: Vec::new(),
                held_bytes: 0,
                offered: None,
                begun: None,
                announced: false,
                exchanging: false,
                broken: false,
            }),
            channels: Mutex::default(),
            filled: Notify::new(),
            room: Notify::new(),
            closing: watch::Sender::new(false),
            agreed: OnceLock::new(),
        }
    }

    /// The output, for messages that belong together. Call [`Connection::send`] afterwards to have them written.
    pub fn output(&self) -> MutexGuard<'_, Output> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The channels by number.
    pub fn channels(&self) -> MutexGuard<'_, HashMap<u32, Entry>> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the writer task.
    pub fn send(&self) {
        self.filled.notify_one();
    }

    /// Sends a single message.
    pub fn put(&self, message: &[u8]) {
        self.output().put(message);
        self.send();
    }

    /// Sends the identification, our KEXINIT, and if the outcome of the negotiation can be predicted, our half of that
    /// key exchange.
    ///
    /// # Errors
    /// If there is no randomness.
    pub fn greet(&self, identification: &str, expected: Option<&Guess>) -> Result<(), End> {
        let mut output = self.output();
        output.ready.extend_from_slice(identification.as_bytes());
        output.ready.extend_from_slice(b"\r\n");
        let announced = expected.is_some_and(|guess| self.offer.prefers(guess));
        output.begin(&self.offer, announced)?;
        if let Some(guess) = expected {
            output.begun = Some(output.half(guess.kex)?);
            output.announced = announced;
        }
        drop(output);
        self.send();
        Ok(())
    }

    /// A future that completes when there is room, or when senders must check again for another reason. Create it
    /// before checking the condition.
    pub fn room(&self) -> tokio::sync::futures::Notified<'_> {
        self.room.notified()
    }

    /// Wakes all senders that wait for [`room`](Self::room).
    pub fn make_room(&self) {
        self.room.notify_waiters();
    }

    /// Ends the connection and wakes all tasks that wait for it.
    pub fn finish(&self, end: End) {
        self.state.finish(end);
        self.output().broken = true;
        // Dropping the inboxes ends the channels for their readers.
        for (_, entry) in self.channels().drain() {
            entry.line.wake_senders();
        }
        self.room.notify_waiters();
        self.filled.notify_one();
    }

    /// Sends DISCONNECT and closes the connection once the output is written.
    pub fn disconnect(&self) {
        let mut output = self.output();
        if self.state.end().is_none() {
            let mut disconnect = vec![message::DISCONNECT];
            // By application (RFC 4253, 11.1).
            disconnect.u32(11);
            disconnect.string(b"");
            disconnect.string(b"");
            output.put(&disconnect);
        }
        drop(output);
        self.close();
    }

    /// Closes the connection once the output is written.
    pub fn close(&self) {
        self.closing.send_replace(true);
        self.filled.notify_one();
    }

    /// Waits until [`close`](Self::close) is called.
    pub async fn closed(&self) {
        // The sender is in self and cannot be gone.
        let _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }

    /// Waits for output and returns it, in exchange for `buffer`. `None` if nothing more is to be written.
    pub async fn next_output(&self, mut buffer: Vec<u8>) -> Option<Vec<u8>> {
        buffer.clear();
        loop {
            {
                let mut output = self.output();
                if output.broken {
                    return None;
                }
                if !output.ready.is_empty() {
                    std::mem::swap(&mut output.ready, &mut buffer);
                    drop(output);
                    self.room.notify_waiters();
                    return Some(buffer);
                }
                if *self.closing.borrow() {
                    return None;
                }
            }
            self.filled.notified().await;
        }
    }

    /// Whether the first key exchange is complete at our end, and the connection has not ended.
    pub fn is_open(&self) -> bool {
        self.state.session_id.get().is_some() && self.state.end().is_none()
    }

    /// Stores the result of the first negotiation.
    pub fn agree(&self, agreed: &Agreed) {
        self.agreed.get_or_init(|| agreed.clone());
    }

    /// Whether our messages are compressed after authentication.
    pub fn agreed_on_compression(&self) -> bool {
        self.agreed.get().is_some_and(|agreed| agreed.deflate)
    }
}

impl Output {
    /// Appends a message, or holds it until the end of a key exchange. Only for messages whose number is limited; data
    /// uses [`Output::seal`].
    pub fn put(&mut self, message: &[u8]) {
        // RFC 4253, 7.1.
        let may_pass = match message.first() {
            Some(&message::SERVICE_REQUEST | &message::SERVICE_ACCEPT) => false,
            Some(number) => *number < 50,
            None => false,
        };
        if self.exchanging && !may_pass {
            self.held_bytes += message.len();
            self.held.push(message.to_vec());
        } else {
            self.seal(|out| out.extend_from_slice(message));
        }
    }

    /// Seals and appends the message that `write` produces.
    pub fn seal(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        // After a failure of the cipher the stream is undefined, so nothing more is sent.
        if self.sealer.seal(&mut self.ready, write).is_err() {
            self.broken = true;
        }
    }

    /// Whether senders have to wait, for the writer or for a key exchange.
    pub fn is_full(&self) -> bool {
        self.exchanging || self.broken || self.ready.len() >= ROOM
    }

    /// Checks that the peer reads our responses.
    ///
    /// # Errors
    /// If too many bytes of responses are waiting.
    pub fn check_responses(&self) -> Result<(), End> {
        if self.ready.len() + self.held_bytes > 2 * ROOM + RESPONSES {
            return Err(violation("it sends requests without reading the responses"));
        }
        Ok(())
    }

    /// Sends our KEXINIT, unless a key exchange is in progress.
    ///
    /// # Errors
    /// If there is no randomness.
    pub fn begin_exchange(&mut self, offer: &Offer) -> Result<(), End> {
        self.begin(offer, false)
    }

    /// Sends our KEXINIT. `guess_follows` announces that our half of the preferred key exchange follows at once.
    fn begin(&mut self, offer: &Offer, guess_follows: bool) -> Result<(), End> {
        if !self.exchanging {
            let message = offer.message(guess_follows)?;
            self.exchanging = true;
            self.put(&message);
            self.offered = Some(message);
        }
        Ok(())
    }

    /// Begins a key exchange if the current keys have been used for `limit` bytes.
    ///
    /// # Errors
    /// If there is no randomness.
    pub fn renew_keys(&mut self, offer: &Offer, limit: u64) -> Result<(), End> {
        if !self.exchanging && self.sealer.is_used_up(limit) {
            self.begin_exchange(offer)?;
        }
        Ok(())
    }

    /// Removes and returns our KEXINIT.
    pub fn take_offered(&mut self) -> Option<Vec<u8>> {
        self.offered.take()
    }

    /// Sends our half of the key exchange `kex`.
    ///
    /// # Errors
    /// If there is no randomness.
    fn half(&mut self, kex: &'static str) -> Result<Exchange, End> {
        let exchange = Exchange::begin(kex)?;
        let mut half = vec![message::KEX_INIT];
        half.string(&exchange.ours);
        self.put(&half);
        Ok(exchange)
    }

    /// The negotiated key exchange. Sends our half, unless it was sent already.
    ///
    /// # Errors
    /// If our half of another key exchange was sent without being announced, or if there is no randomness.
    pub fn take_begun(&mut self, agreed: &Agreed) -> Result<Exchange, End> {
        let announced = std::mem::take(&mut self.announced);
        match self.begun.take() {
            None => self.half(agreed.kex),
            // The peer ignores an announced half if the guess was wrong, even if it is of the right kind.
            Some(_) if announced && !agreed.guess_is_right => self.half(agreed.kex),
            Some(begun) if begun.name == agreed.kex => Ok(begun),
            Some(_) => Err(End::Unexpected),
        }
    }

    /// Sends NEWKEYS, switches to the new keys, and sends the messages held until then.
    pub fn take_keys(&mut self, cipher: Cipher, restart: bool) {
        self.put(&[message::NEWKEYS]);
        self.sealer.renew(cipher, restart);
        self.exchanging = false;
        self.held_bytes = 0;
        for message in std::mem::take(&mut self.held) {
            self.put(&message);
        }
    }

    /// Compresses all further messages.
    pub fn compress(&mut self) {
        self.sealer.compress();
    }
}
