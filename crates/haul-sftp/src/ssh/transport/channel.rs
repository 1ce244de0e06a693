//! Channels: their state, which the connection's reader updates, and the two halves that users hold.
//!
//! The receiving half reopens the window as data is read, so a channel that is not read stalls only
//! itself. The sending half encrypts into the connection's output, as much at a time as the far end's
//! window and the output have room for; a lock keeps the packets of one message together.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use haul_storage::{Error, ErrorKind, Result, Retry};
use tokio::sync::{Notify, mpsc};

use super::Session;
use super::end::{End, violation};
use super::state::one_line;
use super::wire::{Put, length, message};
use crate::ssh::STDERR_LIMIT;

/// The receive window of a channel, in bytes: enough for 1 Gbit/s at 250 ms. Dropbear stalls above
/// 64 MiB.
pub const WINDOW: u32 = 32 << 20;

/// Bytes read from a channel before a WINDOW_ADJUST is sent for them.
const ADJUST_AFTER: u32 = WINDOW / 16;

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
    fn overdraw(&self, bytes: usize) {
        self.state().window -= i64::try_from(bytes).unwrap_or(i64::MAX);
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

/// Both directions of a channel. The channel is closed when both are dropped, and the connection
/// lives at least as long as they do.
#[derive(Debug)]
pub struct Channel {
    /// Receives from the far end. It has to be drained, or the far end stalls.
    pub incoming: Incoming,
    /// Sends to the far end.
    pub outgoing: Outgoing,
}

/// The receiving half of a channel.
pub struct Incoming {
    events: mpsc::UnboundedReceiver<Event>,
    shared: Arc<Shared>,
    /// Bytes read since the last WINDOW_ADJUST.
    taken: u32,
    stderr: Vec<u8>,
    status: Option<String>,
    status_is_good: bool,
    never: bool,
    is_closed: bool,
}

/// The sending half of a channel. Cheap to clone; all clones are one half.
#[derive(Clone, Debug)]
pub struct Outgoing {
    shared: Arc<Shared>,
}

struct Shared {
    session: Arc<Session>,
    line: Arc<Line>,
    /// The subsystem's name.
    name: String,
    sending: tokio::sync::Mutex<()>,
    /// Set while a message is sent, and left set if that fails or is abandoned half-way.
    torn: AtomicBool,
}

impl Channel {
    /// The halves of a requested channel, before it is opened.
    pub(super) fn new(
        session: Arc<Session>,
        line: Arc<Line>,
        events: mpsc::UnboundedReceiver<Event>,
        name: &str,
    ) -> Self {
        let shared = Arc::new(Shared {
            session,
            line,
            name: name.to_owned(),
            sending: tokio::sync::Mutex::new(()),
            torn: AtomicBool::new(false),
        });
        let incoming = Incoming {
            events,
            shared: Arc::clone(&shared),
            taken: 0,
            stderr: Vec::new(),
            status: None,
            status_is_good: true,
            never: false,
            is_closed: false,
        };
        Self { incoming, outgoing: Outgoing { shared } }
    }

    /// Waits for the far end's response to CHANNEL_OPEN.
    pub(super) async fn opened(&mut self) -> Event {
        let event = self.incoming.events.recv().await;
        self.incoming.shared.line.waiting.fetch_sub(1, Ordering::Relaxed);
        // The connection is lost; the next operation reports it.
        event.unwrap_or(Event::Close)
    }

    /// Requests a subsystem and sends its first bytes along: all of them if `at_once`, otherwise as
    /// the window has room.
    pub(super) async fn start(&self, first: &[u8], at_once: bool) -> Result<()> {
        let shared = &*self.outgoing.shared;
        let connection = &shared.session.connection;
        let Some(remote) = shared.line.remote() else {
            return Err(connection.state.lost("open a channel"));
        };
        {
            let mut output = connection.output();
            output.put(&subsystem_request(remote, &shared.name));
            if at_once && !first.is_empty() {
                shared.line.overdraw(first.len());
                output.put(&data(remote, first));
            }
        }
        if at_once || first.is_empty() {
            connection.send();
            return Ok(());
        }
        self.outgoing.send_all(&[first]).await
    }
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

impl Incoming {
    /// The next bytes, in pieces as they arrive. `None`: the far end has closed the channel, and the remote
    /// program has not failed.
    ///
    /// # Errors
    /// `Unsupported` if the server has no such subsystem or cannot run its program; `Unreachable` if the
    /// connection was lost or the remote program failed, with its standard error; `Protocol` if the server violated
    /// the protocol.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if self.is_closed {
                return Ok(None);
            }
            let Some(event) = self.events.recv().await else {
                let state = &self.shared.session.connection.state;
                state.ended().await;
                return Err(state.lost("read from the channel"));
            };
            self.shared.line.waiting.fetch_sub(1, Ordering::Relaxed);
            match event {
                Event::Data(data) => {
                    self.consumed(data.len());
                    return Ok(Some(data));
                }
                Event::Stderr(data) => {
                    self.consumed(data.len());
                    let room = STDERR_LIMIT.saturating_sub(self.stderr.len());
                    self.stderr.extend(data.iter().take(room));
                }
                Event::Status { text, good, never } => {
                    self.status = Some(text);
                    self.status_is_good = good;
                    self.never = never;
                }
                Event::Failure => {
                    self.close();
                    return Err(self
                        .error(ErrorKind::Unsupported)
                        .because(format!("the server has no subsystem \"{}\"", self.shared.name)));
                }
                Event::Close => return self.closed(),
                Event::Opened | Event::WrongGuess | Event::Refused { .. } => {}
            }
        }
    }

    /// The first 4 KiB of the remote program's standard error.
    pub fn stderr(&self) -> String {
        one_line(&String::from_utf8_lossy(&self.stderr))
    }

    fn consumed(&mut self, bytes: usize) {
        self.taken = self.taken.saturating_add(length(bytes));
        if self.taken < ADJUST_AFTER {
            return;
        }
        let shared = &*self.shared;
        let taken = std::mem::take(&mut self.taken);
        let remote = {
            let mut state = shared.line.state();
            state.receive += u64::from(taken);
            state.remote.filter(|_| !state.ended)
        };
        if let Some(remote) = remote {
            let mut adjust = to(message::CHANNEL_WINDOW_ADJUST, remote);
            adjust.u32(taken);
            shared.session.connection.put(&adjust);
        }
    }

    fn closed(&mut self) -> Result<Option<Bytes>> {
        self.close();
        let Some(status) = self.status.as_ref().filter(|_| !self.status_is_good) else {
            return Ok(None);
        };
        let mut cause = format!("the server's {} program {status}", self.shared.name);
        if !self.stderr.is_empty() {
            cause = format!("{cause}: {}", self.stderr());
        }
        let kind = if self.never { ErrorKind::Unsupported } else { ErrorKind::Unreachable };
        Err(self.error(kind).because(cause))
    }

    fn close(&mut self) {
        self.is_closed = true;
        self.shared.close();
    }

    fn error(&self, kind: ErrorKind) -> Error {
        self.shared.session.connection.state.error(kind, "read from the channel")
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // A task that waits for room to send would wait for ever.
        self.shared.line.state().ended = true;
        self.shared.line.wake_senders();
        self.shared.session.connection.make_room();
    }
}

impl Outgoing {
    /// Sends bytes, all of them before those of another call. Waits while the far end has no room. A
    /// call that is dropped half-way leaves the channel unusable: the far end would take the next
    /// message for the rest of this one.
    ///
    /// # Errors
    /// `Unreachable` if the channel is closed or the connection lost; `Protocol` if the server violated the protocol.
    pub async fn send(&self, bytes: Bytes) -> Result<()> {
        self.send_all(&[&bytes]).await
    }

    /// Sends pieces as one message, as [`Outgoing::send`] does.
    ///
    /// # Errors
    /// The same.
    pub async fn send_all(&self, pieces: &[&[u8]]) -> Result<()> {
        let shared = &*self.shared;
        let _turn = shared.sending.lock().await;
        if shared.torn.swap(true, Ordering::AcqRel) {
            let state = &shared.session.connection.state;
            return Err(match state.end() {
                Some(_) => state.lost("write to the channel"),
                None => self.error("a message was truncated"),
            });
        }
        let mut message = Message::new(pieces);
        let result = loop {
            let (room, moved) = (shared.session.connection.room(), shared.line.moved.notified());
            tokio::pin!(room, moved);
            // From here on every change wakes them.
            room.as_mut().enable();
            moved.as_mut().enable();
            match self.try_send(&mut message) {
                Ok(Next::Nothing) => break Ok(()),
                Ok(Next::Output) => room.await,
                Ok(Next::Window) => moved.await,
                Err(error) => break Err(error),
            }
        };
        if result.is_ok() {
            shared.torn.store(false, Ordering::Release);
        }
        result
    }

    /// Sends as much as there is room for and returns what the rest has to wait for. The writer is
    /// woken once for all packets.
    fn try_send(&self, message: &mut Message<'_>) -> Result<Next> {
        let result = self.seal(message);
        self.shared.session.connection.send();
        result
    }

    fn seal(&self, message: &mut Message<'_>) -> Result<Next> {
        let connection = &self.shared.session.connection;
        while message.left > 0 {
            if connection.state.end().is_some() {
                return Err(connection.state.lost("write to the channel"));
            }
            let mut output = connection.output();
            if let Err(end) = output.renew_keys(&connection.offer, connection.rekey) {
                return Err(end.during(connection.state.location(), "write to the channel"));
            }
            if output.is_full() {
                return Ok(Next::Output);
            }
            let mut state = self.shared.line.state();
            if state.ended {
                return Err(self.error("the channel is closed"));
            }
            let room = usize::try_from(state.window).unwrap_or(0).min(state.packet as usize);
            let (Some(remote), 1..) = (state.remote, room) else { return Ok(Next::Window) };
            let bytes = room.min(message.left);
            state.window -= i64::try_from(bytes).unwrap_or(i64::MAX);
            drop(state);
            output.seal(|out| {
                out.byte(message::CHANNEL_DATA);
                out.u32(remote);
                out.u32(length(bytes));
                message.append(bytes, out);
            });
        }
        Ok(Next::Nothing)
    }

    fn error(&self, cause: &str) -> Error {
        let state = &self.shared.session.connection.state;
        let error = state.error(ErrorKind::Unreachable, "write to the channel");
        error.because(cause).with_retry(Retry::Later)
    }
}

/// What a sender has to wait for.
enum Next {
    Nothing,
    /// Room in the connection's output, or new keys.
    Output,
    /// Room in the far end's window.
    Window,
}

/// The unsent rest of a message.
struct Message<'a> {
    pieces: &'a [&'a [u8]],
    /// Offset in the first piece.
    at: usize,
    left: usize,
}

impl<'a> Message<'a> {
    fn new(pieces: &'a [&'a [u8]]) -> Self {
        Self { pieces, at: 0, left: pieces.iter().map(|piece| piece.len()).sum() }
    }

    fn append(&mut self, mut bytes: usize, out: &mut Vec<u8>) {
        self.left -= bytes;
        while let Some((piece, rest)) = self.pieces.split_first().filter(|_| bytes > 0) {
            let part = &piece[self.at..piece.len().min(self.at + bytes)];
            out.extend_from_slice(part);
            bytes -= part.len();
            self.at += part.len();
            if self.at == piece.len() {
                (self.pieces, self.at) = (rest, 0);
            }
        }
    }
}

impl Shared {
    /// Closes the channel at this end, and sends CHANNEL_CLOSE if it is due.
    fn close(&self) {
        let connection = &self.session.connection;
        if let Some(close) = self.line.end() {
            connection.put(&close);
        }
        connection.make_room();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("location", &self.session.connection.state.location())
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
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
