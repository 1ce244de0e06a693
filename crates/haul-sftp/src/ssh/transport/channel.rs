//! The two halves of a channel, which users hold.
//!
//! The receiving half reopens the window as data is read, so a channel that is not read stalls only
//! itself. The sending half encrypts into the connection's output, as much at a time as the far end's
//! window and the output have room for; a lock keeps the packets of one message together.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use haul_storage::{Error, ErrorKind, Result, Retry};
use tokio::sync::mpsc;

use super::connection::CloseOnDrop;
use super::line::{Event, Line, Room, WINDOW, data, subsystem_request, to};
use super::state::one_line;
use super::wire::{Put, length, message};
use crate::ssh::STDERR_LIMIT;

/// Bytes read from a channel before a WINDOW_ADJUST is sent for them.
const ADJUST_AFTER: u32 = WINDOW / 16;

/// Both directions of a channel. The channel is closed when both are dropped, and the connection
/// lives at least as long as they do.
#[derive(Debug)]
pub struct Channel {
    /// Receives from the far end. It has to be drained, or the far end stalls. Once it is dropped, nothing more can be
    /// sent.
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
    /// Keeps the connection open.
    open: Arc<CloseOnDrop>,
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
        open: Arc<CloseOnDrop>,
        line: Arc<Line>,
        events: mpsc::UnboundedReceiver<Event>,
        name: &str,
    ) -> Self {
        let shared = Arc::new(Shared {
            open,
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
        self.incoming.shared.line.taken();
        // The connection is lost; the next operation reports it.
        event.unwrap_or(Event::Close)
    }

    /// Requests a subsystem and sends its first bytes along: all of them if `at_once`, otherwise as
    /// the window has room.
    pub(super) async fn start(&self, first: &[u8], at_once: bool) -> Result<()> {
        let shared = &*self.outgoing.shared;
        let connection = &shared.open.connection;
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
                let state = &self.shared.open.connection.state;
                state.ended().await;
                return Err(state.lost("read from the channel"));
            };
            self.shared.line.taken();
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
        if let Some(remote) = shared.line.reopen(taken) {
            let mut adjust = to(message::CHANNEL_WINDOW_ADJUST, remote);
            adjust.u32(taken);
            shared.open.connection.put(&adjust);
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
        self.shared.open.connection.state.error(kind, "read from the channel")
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // A task that waits for room to send would wait for ever.
        self.shared.line.shut();
        self.shared.open.connection.make_room();
    }
}

impl Outgoing {
    /// Sends bytes, all of them before those of another call. Waits while the far end has no room. A
    /// call that is dropped half-way leaves the channel unusable: the far end would take the next
    /// message for the rest of this one.
    ///
    /// # Errors
    /// `Unreachable` if the channel is closed, its [`Incoming`] was dropped, or the connection is lost; `Protocol` if
    /// the server violated the protocol.
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
            let state = &shared.open.connection.state;
            return Err(match state.end() {
                Some(_) => state.lost("write to the channel"),
                None => self.error("a message was truncated"),
            });
        }
        let mut message = Message::new(pieces);
        let result = loop {
            let (room, moved) = (shared.open.connection.room(), shared.line.moved());
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
        self.shared.open.connection.send();
        result
    }

    fn seal(&self, message: &mut Message<'_>) -> Result<Next> {
        let connection = &self.shared.open.connection;
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
            let (remote, bytes) = match self.shared.line.reserve(message.left) {
                Room::Ended => return Err(self.error("the channel is closed")),
                Room::None => return Ok(Next::Window),
                Room::Bytes { remote, bytes } => (remote, bytes),
            };
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
        let state = &self.shared.open.connection.state;
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
        let connection = &self.open.connection;
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
            .field("location", &self.open.connection.state.location())
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
