//! A control connection: commands go out, replies come in, in the same order.
//!
//! Several commands may be sent at once; the server answers them one after another, and a long path is
//! travelled once. `owed` counts the replies that have not come yet, so that whoever takes the
//! connection over knows whether it is in step.

use bytes::{Buf, BytesMut};
use futures_util::FutureExt;
use haul_storage::{Error, Result};
use tokio::io::AsyncReadExt;

use crate::error::{lost, protocol, wants_resumption};
use crate::stream::{Security, Stream};
use crate::wire::{Command, Reply, ReplyParser};

/// The longest line of a reply: a path of Linux has 4 096 bytes, each of which a server may double.
const LONGEST_LINE: usize = 16 << 10;

/// So often a server may say that something begins before it says how that ended.
const MOST_PRELIMINARY: usize = 100;

/// A control connection.
#[derive(Debug)]
pub(crate) struct Control {
    /// `None` once it is broken.
    stream: Option<Stream>,
    received: BytesMut,
    parser: ReplyParser,
    owed: usize,
    /// Whether the server takes several commands at once.
    at_once: bool,
}

impl Control {
    /// Over a connection on which nothing has been read yet: the greeting is owed.
    pub(crate) fn new(stream: Stream) -> Self {
        Self {
            stream: Some(stream),
            received: BytesMut::new(),
            parser: ReplyParser::default(),
            owed: 1,
            at_once: true,
        }
    }

    /// Says that the server gets confused by commands that come before its last answer has gone.
    pub(crate) const fn one_at_a_time(&mut self) {
        self.at_once = false;
    }

    /// Whether several commands may be sent at once.
    pub(crate) const fn takes_several(&self) -> bool {
        self.at_once
    }

    /// Whether nothing is owed and nothing is broken: the next command gets the next reply.
    pub(crate) const fn is_in_step(&self) -> bool {
        self.owed == 0 && self.stream.is_some()
    }

    /// Whether it is broken.
    pub(crate) const fn is_broken(&self) -> bool {
        self.stream.is_none()
    }

    /// Gives it up: nobody knows what comes next.
    pub(crate) fn break_off(&mut self) {
        self.stream = None;
    }

    /// Whether the server has ended it, or said anything that was not asked (a 421 before it does).
    pub(crate) fn has_ended(&mut self) -> bool {
        let Some(stream) = &mut self.stream else { return true };
        let unasked = !self.received.is_empty()
            || stream.read_buf(&mut self.received).now_or_never().is_some();
        if unasked {
            self.stream = None;
        }
        unasked
    }

    /// Goes on with TLS. What came in plain text behind the reply was put there by somebody else.
    pub(crate) async fn secure(&mut self, security: &Security) -> std::io::Result<bool> {
        let plain = self.stream.take();
        let Some(plain) = plain.filter(|_| self.received.is_empty() && self.owed == 0) else {
            return Ok(false);
        };
        self.stream = Some(security.secure(plain).await?);
        Ok(true)
    }

    /// Sends commands and gives their replies, preliminary ones left out.
    pub(crate) async fn exchange(&mut self, commands: &[Command]) -> Result<Vec<Reply>> {
        let mut replies = Vec::with_capacity(commands.len());
        let step = if self.at_once { commands.len().max(1) } else { 1 };
        for together in commands.chunks(step) {
            self.send(together).await?;
            for _ in together {
                replies.push(self.last_reply().await?);
            }
        }
        Ok(replies)
    }

    /// Sends one command and gives its reply.
    pub(crate) async fn ask(&mut self, command: &Command) -> Result<Reply> {
        self.send(std::slice::from_ref(command)).await?;
        self.last_reply().await
    }

    /// Sends commands without waiting.
    pub(crate) async fn send(&mut self, commands: &[Command]) -> Result<()> {
        let lines: Vec<u8> =
            commands.iter().flat_map(|command| command.line().iter().copied()).collect();
        self.owed += commands.len();
        let Some(stream) = &mut self.stream else { return Err(gone()) };
        let outcome = stream.send("send a command", &lines).await;
        self.unless_broken(outcome)
    }

    /// The next reply that is not preliminary.
    pub(crate) async fn last_reply(&mut self) -> Result<Reply> {
        for _ in 0..MOST_PRELIMINARY {
            let reply = self.reply().await?;
            if !reply.is_preliminary() {
                return Ok(reply);
            }
        }
        self.break_off();
        Err(protocol("wait for a reply", "the server says again and again that it begins"))
    }

    /// The next reply. Nothing is lost if the future is dropped.
    pub(crate) async fn reply(&mut self) -> Result<Reply> {
        loop {
            let taken = self.take_reply();
            if let Some(reply) = self.unless_broken(taken)? {
                if !reply.is_preliminary() {
                    self.owed = self.owed.saturating_sub(1);
                }
                if reply.code() == 421 || wants_resumption(&reply) {
                    // It means good-bye, whatever was asked; or there is no ticket left for TLS.
                    self.stream = None;
                }
                return Ok(reply);
            }
            let Some(stream) = &mut self.stream else { return Err(gone()) };
            let outcome = match stream.receive("wait for an answer", &mut self.received).await {
                Ok(0) => Err(lost("wait for an answer", "the server closed the connection")),
                Ok(_) => Ok(()),
                Err(error) => Err(error),
            };
            self.unless_broken(outcome)?;
        }
    }

    fn take_reply(&mut self) -> Result<Option<Reply>> {
        loop {
            let Some(end) = self.received.iter().position(|byte| *byte == b'\n') else {
                if self.received.len() > LONGEST_LINE {
                    let cause = "a line of its reply is longer than 16 KiB";
                    return Err(protocol("read an answer", cause));
                }
                return Ok(None);
            };
            let line = &self.received[..end];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let reply =
                self.parser.line(line).map_err(|cause| protocol("read an answer", cause))?;
            self.received.advance(end + 1);
            if reply.is_some() {
                return Ok(reply);
            }
        }
    }

    fn unless_broken<T>(&mut self, outcome: Result<T>) -> Result<T> {
        if outcome.is_err() {
            self.stream = None;
        }
        outcome
    }
}

fn gone() -> Error {
    lost("send a command", "the connection is lost")
}
