//! One session channel with a subsystem on it, as two halves that work side by side.
//!
//! What comes in is handed on as russh decrypted it. What goes out is cut by russh into packets
//! that fit the far end's window; a lock keeps the packets of one message together.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use haul_storage::{Error, ErrorKind, Result, Retry};
use russh::client::Msg;
use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf};
use tokio::sync::{Mutex, watch};

use super::Session;
use super::events::State;
use crate::ssh::STDERR_KEPT;

/// Both directions of a channel. The channel is closed when both are dropped, and the connection
/// lives at least as long as they do.
#[derive(Debug)]
pub struct Channel {
    /// What the far end sends. It has to be drained all the time: a channel that is not stops
    /// everything on its connection.
    pub incoming: Incoming,
    /// What is sent to the far end.
    pub outgoing: Outgoing,
}

/// The receiving half of a channel.
pub struct Incoming {
    read: ChannelReadHalf,
    shared: Arc<Shared>,
    stderr: Vec<u8>,
    status: Option<String>,
    status_is_good: bool,
    never: bool,
}

/// The sending half of a channel. Cheap to clone; all clones are one half.
#[derive(Clone, Debug)]
pub struct Outgoing {
    shared: Arc<Shared>,
}

struct Shared {
    /// Taken when the channel is closed.
    write: Option<ChannelWriteHalf<Msg>>,
    session: Option<Arc<Session>>,
    state: Arc<State>,
    subsystem: String,
    closed: watch::Sender<bool>,
    sending: Mutex<()>,
    torn: AtomicBool,
}

/// Asks for the subsystem on a channel that was opened.
pub(super) async fn start(
    channel: russh::Channel<Msg>,
    session: Arc<Session>,
    state: Arc<State>,
    subsystem: &str,
) -> Result<Channel> {
    let (read, write) = channel.split();
    let asked = write.request_subsystem(true, subsystem).await;
    asked.map_err(|error| state.failed("open a channel", error))?;
    let shared = Arc::new(Shared {
        write: Some(write),
        session: Some(session),
        state,
        subsystem: subsystem.to_owned(),
        closed: watch::Sender::new(false),
        sending: Mutex::new(()),
        torn: AtomicBool::new(false),
    });
    let incoming = Incoming {
        read,
        shared: Arc::clone(&shared),
        stderr: Vec::new(),
        status: None,
        status_is_good: true,
        never: false,
    };
    Ok(Channel { incoming, outgoing: Outgoing { shared } })
}

impl Incoming {
    /// The next bytes, in pieces as they came. `None`: the far end has closed the channel in order.
    ///
    /// # Errors
    /// `Unsupported` if the server has no such subsystem; `Unreachable` if the connection was lost
    /// or the far end's program failed, with what it said.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            match self.read.wait().await {
                Some(ChannelMsg::Data { data }) => return Ok(Some(data)),
                Some(ChannelMsg::ExtendedData { data, .. }) => {
                    let room = STDERR_KEPT.saturating_sub(self.stderr.len());
                    self.stderr.extend(data.iter().take(room));
                }
                Some(ChannelMsg::ExitStatus { exit_status }) => {
                    self.status = Some(format!("ended with status {exit_status}"));
                    self.status_is_good = exit_status == 0;
                    // What the shell says of a program that is missing or cannot be run.
                    self.never = [126, 127].contains(&exit_status);
                }
                Some(ChannelMsg::ExitSignal { signal_name, .. }) => {
                    self.status = Some(format!("was ended by signal {signal_name:?}"));
                    self.status_is_good = false;
                }
                Some(ChannelMsg::Failure) => {
                    self.shared.closed.send_replace(true);
                    return Err(self.error(ErrorKind::Unsupported).because(format!(
                        "the server has no subsystem \"{}\"",
                        self.shared.subsystem
                    )));
                }
                Some(ChannelMsg::Close) => return self.closed(),
                Some(_) => {}
                None if *self.shared.closed.borrow() => return Ok(None),
                None => {
                    self.shared.state.ended().await;
                    return Err(self.shared.state.lost("read from the channel"));
                }
            }
        }
    }

    /// What the far end has said on its standard error, the first 4 KiB of it.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr).trim().to_owned()
    }

    fn closed(&self) -> Result<Option<Bytes>> {
        self.shared.closed.send_replace(true);
        let Some(status) = self.status.as_ref().filter(|_| !self.status_is_good) else {
            return Ok(None);
        };
        let mut cause = format!("the server's {} program {status}", self.shared.subsystem);
        if !self.stderr.is_empty() {
            cause = format!("{cause}: {}", self.stderr());
        }
        let error = if self.never {
            self.error(ErrorKind::Unsupported)
        } else {
            self.error(ErrorKind::Unreachable)
        };
        Err(error.because(cause))
    }

    fn error(&self, kind: ErrorKind) -> Error {
        self.shared.state.error(kind, "read from the channel")
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // Who waits for room to send would wait for ever.
        self.shared.closed.send_replace(true);
    }
}

impl Outgoing {
    /// Sends bytes, all of them before those of another call. It waits while the far end has no
    /// room. A call that is dropped half-way leaves the channel unusable, for the far end would
    /// take what follows for the rest.
    ///
    /// # Errors
    /// `Unreachable` if the channel is closed or the connection lost.
    pub async fn send(&self, bytes: Bytes) -> Result<()> {
        let shared = &*self.shared;
        let _turn = shared.sending.lock().await;
        let Some(write) = shared.write.as_ref().filter(|_| !shared.torn.load(Ordering::Acquire))
        else {
            return Err(self.error("a message was broken off in the midst"));
        };
        shared.torn.store(true, Ordering::Release);
        let mut closed = shared.closed.subscribe();
        let result = tokio::select! {
            biased;
            result = write.data_bytes(bytes) => {
                result.map_err(|error| shared.state.failed("write to the channel", error))
            }
            _ = closed.wait_for(|closed| *closed) => {
                Err(self.error("the channel is closed"))
            }
            () = shared.state.ended() => Err(shared.state.lost("write to the channel")),
        };
        if result.is_ok() {
            shared.torn.store(false, Ordering::Release);
        }
        result
    }

    fn error(&self, cause: &str) -> Error {
        let error = self.shared.state.error(ErrorKind::Unreachable, "write to the channel");
        error.because(cause).with_retry(Retry::Later)
    }
}

impl Drop for Shared {
    /// The close goes through a queue that may be full, so a task waits for it. Without a runtime
    /// the connection is gone anyway.
    fn drop(&mut self) {
        let (write, session) = (self.write.take(), self.session.take());
        if let (Some(write), Ok(runtime)) = (write, tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move {
                // A connection that is lost needs no close.
                let _ = write.close().await;
                drop(session);
            });
        }
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
            .field("location", &self.state.location())
            .field("subsystem", &self.subsystem)
            .finish_non_exhaustive()
    }
}
