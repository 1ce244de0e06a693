//! What the two tasks of a connection and everybody who uses it share: the output, the channels,
//! and the state.
//!
//! ```text
//! senders, and the reader's answers → Output: sealed into one buffer → writer task → link
//! ```
//!
//! Whoever sends encrypts into the buffer himself, while the writer writes what was there before.
//! The reader never waits for the writer: what it has to answer is appended whatever is there, and
//! a far end that asks and asks without taking the answers is cut off.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::{Notify, watch};

use super::channel::Line;
use super::cipher::Cipher;
use super::end::{End, violation};
use super::kex::Exchange;
use super::negotiation::{Agreed, Guess, Offer};
use super::packet::Sealer;
use super::state::State;
use super::wire::{Put, message};

/// Bytes that wait to be written before who sends more has to wait. Together with what is being
/// written it stays within a processor's cache.
pub const ROOM: usize = 256 << 10;

/// Bytes of answers that may wait besides.
const ANSWERS: usize = 1 << 20;

/// A connection.
#[derive(Debug)]
pub struct Connection {
    /// What is known of it.
    pub state: State,
    /// What is offered in every key exchange.
    pub offer: Offer,
    /// Bytes after which keys are exchanged anew.
    pub rekey: u64,
    output: Mutex<Output>,
    channels: Mutex<HashMap<u32, Entry>>,
    /// There is something to write.
    filled: Notify,
    /// There may be room in the output again.
    room: Notify,
    /// What is in the output is the last that is written.
    closing: watch::Sender<bool>,
    agreed: OnceLock<Agreed>,
}

/// A channel as the reader knows it.
#[derive(Debug)]
pub struct Entry {
    pub line: Arc<Line>,
    pub inbox: super::channel::Inbox,
}

/// What goes out.
#[derive(Debug)]
pub struct Output {
    sealer: Sealer,
    ready: Vec<u8>,
    /// Messages that wait for the new keys.
    held: Vec<Vec<u8>>,
    held_bytes: usize,
    /// Our KEXINIT, from when it is sent until the reader needs it.
    offered: Option<Vec<u8>>,
    /// Our half of a key exchange that was sent before the server's offer came.
    begun: Option<Exchange>,
    /// Whether our KEXINIT has said so (RFC 4253, 7).
    announced: bool,
    /// From our KEXINIT to our NEWKEYS, in which nothing else may be sent (RFC 4253, 7.1).
    exchanging: bool,
    broken: bool,
}

impl Connection {
    /// Before anything was sent.
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

    /// The output, for messages that belong together. [`Connection::send`] has them written.
    pub fn output(&self) -> MutexGuard<'_, Output> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The channels by their numbers.
    pub fn channels(&self) -> MutexGuard<'_, HashMap<u32, Entry>> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has written what is in the output.
    pub fn send(&self) {
        self.filled.notify_one();
    }

    /// Sends a message by itself.
    pub fn put(&self, message: &[u8]) {
        self.output().put(message);
        self.send();
    }

    /// Sends the beginning: the identification, what is offered, and our half of the key exchange
    /// that is going to be agreed on, if that is known.
    ///
    /// # Errors
    /// There is no randomness.
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

    /// Waits for room or anything else that lets a sender go on. To be made before looking.
    pub fn room(&self) -> tokio::sync::futures::Notified<'_> {
        self.room.notified()
    }

    /// Somebody who waits may look again.
    pub fn make_room(&self) {
        self.room.notify_waiters();
    }

    /// It is over: everybody is told.
    pub fn finish(&self, end: End) {
        self.state.finish(end);
        self.output().broken = true;
        // Without their inboxes, those who read from channels come to the end.
        for (_, entry) in self.channels().drain() {
            entry.line.look_again();
        }
        self.room.notify_waiters();
        self.filled.notify_one();
    }

    /// Says goodbye; what is in the output is the last that is written.
    pub fn farewell(&self) {
        let mut output = self.output();
        if self.state.end().is_none() {
            let mut goodbye = vec![message::DISCONNECT];
            // By application (RFC 4253, 11.1).
            goodbye.u32(11);
            goodbye.string(b"");
            goodbye.string(b"");
            output.put(&goodbye);
        }
        drop(output);
        self.close();
    }

    /// What is in the output is the last that is written.
    pub fn close(&self) {
        self.closing.send_replace(true);
        self.filled.notify_one();
    }

    /// Waits until nobody wants the connection any more.
    pub async fn closed(&self) {
        // The sender is in self and cannot be gone.
        let _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }

    /// What there is to write, in exchange for an empty buffer. `None` when that was all for ever.
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

    /// Whether the first keys are in use.
    pub fn is_open(&self) -> bool {
        self.state.session_id.get().is_some() && self.state.end().is_none()
    }

    /// Takes note of what was negotiated first.
    pub fn agree(&self, agreed: &Agreed) {
        self.agreed.get_or_init(|| agreed.clone());
    }

    /// Whether what is sent after authentication is compressed.
    pub fn agreed_on_compression(&self) -> bool {
        self.agreed.get().is_some_and(|agreed| agreed.deflate)
    }
}

impl Output {
    /// Appends a message, or keeps it for after the exchange of keys. It is for messages of which
    /// there cannot be many; data goes through [`Output::seal`].
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

    /// Appends what `write` appends, sealed.
    pub fn seal(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        // A cipher that fails would leave the stream undefined; nothing is sent after it.
        if self.sealer.seal(&mut self.ready, write).is_err() {
            self.broken = true;
        }
    }

    /// Whether a sender has to wait: for the writer, or for new keys.
    pub fn is_full(&self) -> bool {
        self.exchanging || self.broken || self.ready.len() >= ROOM
    }

    /// Whether the far end asks without taking the answers.
    ///
    /// # Errors
    /// It does.
    pub fn check_answers(&self) -> Result<(), End> {
        if self.ready.len() + self.held_bytes > 2 * ROOM + ANSWERS {
            return Err(violation("it sends requests without reading the responses"));
        }
        Ok(())
    }

    /// Sends our KEXINIT, unless that was done.
    ///
    /// # Errors
    /// There is no randomness.
    pub fn begin_exchange(&mut self, offer: &Offer) -> Result<(), End> {
        self.begin(offer, false)
    }

    /// `guess_follows`: our half of the key exchange that both sides prefer is sent next.
    fn begin(&mut self, offer: &Offer, guess_follows: bool) -> Result<(), End> {
        if !self.exchanging {
            let message = offer.message(guess_follows)?;
            self.exchanging = true;
            self.put(&message);
            self.offered = Some(message);
        }
        Ok(())
    }

    /// Begins an exchange if the keys have served long enough.
    ///
    /// # Errors
    /// There is no randomness.
    pub fn renew_keys(&mut self, offer: &Offer, limit: u64) -> Result<(), End> {
        if !self.exchanging && self.sealer.is_used_up(limit) {
            self.begin_exchange(offer)?;
        }
        Ok(())
    }

    /// Our KEXINIT, once.
    pub fn take_offered(&mut self) -> Option<Vec<u8>> {
        self.offered.take()
    }

    /// Sends our half of a key exchange of a name.
    ///
    /// # Errors
    /// There is no randomness.
    fn half(&mut self, kex: &'static str) -> Result<Exchange, End> {
        let exchange = Exchange::begin(kex)?;
        let mut half = vec![message::KEX_INIT];
        half.string(&exchange.ours);
        self.put(&half);
        Ok(exchange)
    }

    /// The key exchange that was agreed on, with our half sent.
    ///
    /// # Errors
    /// Another was expected, and its half was sent.
    pub fn take_begun(&mut self, agreed: &Agreed) -> Result<Exchange, End> {
        let announced = std::mem::take(&mut self.announced);
        match self.begun.take() {
            None => self.half(agreed.kex),
            // What was announced and is wrong is passed over, even if it is of the right kind.
            Some(_) if announced && !agreed.guess_is_right => self.half(agreed.kex),
            Some(begun) if begun.name == agreed.kex => Ok(begun),
            Some(_) => Err(End::Unexpected),
        }
    }

    /// Sends NEWKEYS and what has waited for it.
    pub fn take_keys(&mut self, cipher: Cipher, restart: bool) {
        self.put(&[message::NEWKEYS]);
        self.sealer.renew(cipher, restart);
        self.exchanging = false;
        self.held_bytes = 0;
        for message in std::mem::take(&mut self.held) {
            self.put(&message);
        }
    }

    /// Compresses from here on.
    pub fn compress(&mut self) {
        self.sealer.compress();
    }
}
