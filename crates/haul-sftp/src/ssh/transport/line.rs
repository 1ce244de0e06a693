//! The state of a channel, which the connection's reader updates, and the messages that are sent on one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, mpsc};

use super::end::{End, violation};
use super::wire::{Put, message};

/// The receive window of a channel, in bytes: enough for 1 Gbit/s at 250 ms. Dropbear stalls above
/// 64 MiB.
pub const WINDOW: u32 = 32 << 20;

/// The maximum packet size that haul announces, in bytes.
pub const PACKET: u32 = 128 << 10;

/// Limit of unread events on a channel; servers send far fewer messages per window.
const EVENTS: usize = 1 << 18;

/// What the far end sends on a channel.
#[derive(Debug)]
pub enum Event {
    Opened,
    /// The channel was opened, under another number than the guessed one.
    WrongGuess,
    Refused {
        reason: u32,
        text: String,
    },
    Data(Bytes),
    Stderr(Bytes),
    /// How the remote program ended. `never`: retrying is pointless.
    Status {
        text: String,
        good: bool,
        never: bool,
    },
    /// A request was refused.
    Failure,
    Close,
}

/// Where the connection's reader puts a channel's events.
pub type Inbox = mpsc::UnboundedSender<Event>;

/// A channel's state, shared by the connection, its reader and the channel's halves.
#[derive(Debug)]
pub struct Line {
    /// Our channel number.
    pub id: u32,
    state: Mutex<LineState>,
    /// Events in the inbox.
    waiting: AtomicUsize,
    /// Notified when the send window opens, and when the channel ends.
    moved: Notify,
}

#[derive(Debug)]
struct LineState {
    /// The far end's channel number, once it has confirmed the channel.
    remote: Option<u32>,
    guess: Option<u32>,
    /// The send window in bytes; negative for data sent before the window was announced.
    window: i64,
    packet: u32,
    /// What is left of the receive window, in bytes.
    receive: u64,
    /// Nothing more is sent on it.
    ended: bool,
    we_closed: bool,
}

/// Room in the send window of a channel.
#[derive(Debug)]
pub(super) enum Room {
    /// The channel has ended.
    Ended,
    None,
    Bytes {
        /// The far end's channel number.
        remote: u32,
        bytes: usize,
    },
}

impl Line {
    /// A channel that is being requested.
    pub fn new(id: u32) -> Self {
        Self {
            id,
            state: Mutex::new(LineState {
                remote: None,
                guess: None,
                window: 0,
                packet: 0,
                receive: WINDOW.into(),
                ended: false,
                we_closed: false,
            }),
            waiting: AtomicUsize::new(0),
            moved: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, LineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that `bytes` were sent before the channel was confirmed, under the number `guess`.
    pub fn guessed(&self, guess: u32, bytes: usize) {
        let mut state = self.state();
        state.guess = Some(guess);
        state.window -= i64::try_from(bytes).unwrap_or(i64::MAX);
    }

    /// Records that `bytes` are sent which the window may not have room for yet.
    pub(super) fn overdraw(&self, bytes: usize) {
        self.state().window -= i64::try_from(bytes).unwrap_or(i64::MAX);
    }

    /// Takes room for one packet out of the send window, for at most `wanted` bytes.
    pub(super) fn reserve(&self, wanted: usize) -> Room {
        let mut state = self.state();
        if state.ended {
            return Room::Ended;
        }
        let room = usize::try_from(state.window).unwrap_or(0).min(state.packet as usize);
        let (Some(remote), 1..) = (state.remote, room) else { return Room::None };
        let bytes = room.min(wanted);
        state.window -= i64::try_from(bytes).unwrap_or(i64::MAX);
        Room::Bytes { remote, bytes }
    }

    /// Completes when the send window may have room, or the channel has ended. Create it before checking the window.
    pub(super) fn moved(&self) -> Notified<'_> {
        self.moved.notified()
    }

    /// Reopens the receive window by `bytes`. Returns the far end's channel number, to which CHANNEL_WINDOW_ADJUST is
    /// to be sent, unless the channel has ended.
    pub(super) fn reopen(&self, bytes: u32) -> Option<u32> {
        let mut state = self.state();
        state.receive += u64::from(bytes);
        state.remote.filter(|_| !state.ended)
    }

    /// An event was taken out of the inbox.
    pub(super) fn taken(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Nothing more is sent on the channel: tasks that wait for room are woken. CHANNEL_CLOSE is still due.
    pub(super) fn shut(&self) {
        self.state().ended = true;
        self.wake_senders();
    }

    /// The far end has confirmed the channel. If it was closed here meanwhile, the second value is
    /// the CHANNEL_CLOSE to send.
    ///
    /// # Errors
    /// The channel was confirmed before, or its maximum packet size is 0.
    pub fn confirm(
        &self,
        remote: u32,
        window: u32,
        packet: u32,
    ) -> Result<(Event, Option<Vec<u8>>), End> {
        let mut state = self.state();
        if state.remote.replace(remote).is_some() {
            return Err(violation("a channel was confirmed twice"));
        }
        // Nothing could ever be sent on it.
        if packet == 0 {
            return Err(violation("a channel with a maximum packet size of 0"));
        }
        state.window += i64::from(window);
        state.packet = packet;
        let event = match state.guess {
            Some(guess) if guess != remote => Event::WrongGuess,
            _ => Event::Opened,
        };
        self.wake_senders();
        let close = state.we_closed.then(|| to(message::CHANNEL_CLOSE, remote));
        Ok((event, close))
    }

    /// The far end has opened its window by `bytes`.
    ///
    /// # Errors
    /// The window exceeds its maximum.
    pub fn adjust(&self, bytes: u32) -> Result<(), End> {
        let mut state = self.state();
        state.window += i64::from(bytes);
        // RFC 4254, 5.2.
        if state.window > i64::from(u32::MAX) {
            return Err(violation("a window of more than 2^32 - 1 bytes"));
        }
        drop(state);
        self.wake_senders();
        Ok(())
    }

    /// The far end has sent `bytes` of data.
    ///
    /// # Errors
    /// The receive window does not allow that many.
    pub fn receive(&self, bytes: usize) -> Result<(), End> {
        let mut state = self.state();
        state.receive = state
            .receive
            .checked_sub(bytes as u64)
            .ok_or_else(|| violation("more data than the window allows"))?;
        Ok(())
    }

    /// Wakes tasks that wait for room in the window.
    pub fn wake_senders(&self) {
        self.moved.notify_waiters();
    }

    /// Puts an event into the inbox.
    ///
    /// # Errors
    /// `EVENTS` are waiting in it already.
    pub fn deliver(&self, inbox: &Inbox, event: Event) -> Result<(), End> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= EVENTS {
            return Err(violation("too many small messages on a channel"));
        }
        // The receiving half may have been dropped.
        let _ = inbox.send(event);
        Ok(())
    }

    /// Ends the channel: it was closed at either end, or refused. Returns the CHANNEL_CLOSE to send, if
    /// one is due.
    pub fn end(&self) -> Option<Vec<u8>> {
        let mut state = self.state();
        state.ended = true;
        self.wake_senders();
        let first = !std::mem::replace(&mut state.we_closed, true);
        state.remote.filter(|_| first).map(|remote| to(message::CHANNEL_CLOSE, remote))
    }

    /// The far end's channel number, which messages are addressed to.
    pub fn remote(&self) -> Option<u32> {
        self.state().remote
    }
}

/// The start of a message: its number and the far end's channel number.
pub fn to(number: u8, remote: u32) -> Vec<u8> {
    let mut message = vec![number];
    message.u32(remote);
    message
}

/// The message that requests a subsystem.
pub fn subsystem_request(remote: u32, name: &str) -> Vec<u8> {
    let mut request = to(message::CHANNEL_REQUEST, remote);
    request.string(b"subsystem");
    request.boolean(true);
    request.string(name.as_bytes());
    request
}

/// A message of data.
pub fn data(remote: u32, bytes: &[u8]) -> Vec<u8> {
    let mut data = to(message::CHANNEL_DATA, remote);
    data.string(bytes);
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_above_the_limit_of_rfc_4254_is_a_violation() {
        let line = Line::new(0);
        line.adjust(u32::MAX).unwrap();
        let end = line.adjust(1).unwrap_err();
        let reason = end.reason();
        assert!(reason.contains("a window of more than 2^32 - 1 bytes"), "{reason}");
    }
}
