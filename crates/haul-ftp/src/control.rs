//! A control connection: sends commands, and receives replies in the same order.
//!
//! Several commands may be sent at once, which costs a single RTT. `owed` are the commands whose replies have not
//! arrived yet; while there are any, the connection is out of step and no other task can use it.
//!
//! Some small servers treat each packet as one command and lose the rest of it. If the first of several commands gets
//! a reply and the second one gets none for a while, the server is assumed to be of this kind: the lane is closed, and
//! from then on commands are sent one at a time. A server that has replied to two of them is merely slow.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use futures_util::FutureExt;
use haul_storage::{Error, Result};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::error::{has_crashed, lost, protocol, wants_resumption};
use crate::learnt::{Learnt, Lesson};
use crate::stream::{Security, Stream};
use crate::wire::{Command, Reply, ReplyParser};

/// The longest line of a reply, in bytes: a path has at most 4 096 bytes on Linux, and a server may double each.
const LONGEST_LINE: usize = 16 << 10;

/// Most replies to one command: preliminary (1xx) ones and the final one.
const MAX_PRELIMINARY: usize = 100;

/// The longest pause between the first and the second reply to commands that were sent together.
const LONGEST_GAP: Duration = Duration::from_secs(5);
/// That pause is also at most the silence timeout divided by this.
const GAP_OF_SILENCE: u32 = 4;

/// A whole reply may take this multiple of the silence timeout, so that a server that sends a byte now and then is not
/// waited for indefinitely.
const SILENCES: u32 = 10;

/// A control connection.
#[derive(Debug)]
pub(crate) struct Control {
    /// `None` once it is broken.
    stream: Option<Stream>,
    received: BytesMut,
    parser: ReplyParser,
    /// The commands whose final replies have not arrived.
    owed: VecDeque<Owed>,
    /// The argument of the last command if its reply was 3xx: the next reply concerns both.
    sequence: Vec<u8>,
    /// The argument of the last successful CWD.
    directory: Vec<u8>,
    /// Number of final replies since commands were sent last.
    replied: usize,
    /// The server is known to accept several commands at once.
    pipelines: bool,
    /// The first command in `owed` got a preliminary reply.
    began: bool,
    learnt: Arc<Learnt>,
}

/// A command whose final reply has not arrived.
#[derive(Debug)]
struct Owed {
    verb: &'static str,
    argument: Vec<u8>,
}

impl Owed {
    fn of(command: &Command) -> Self {
        Self { verb: command.verb(), argument: command.argument().to_vec() }
    }
}

impl Control {
    /// A control connection on which nothing has been read yet: the greeting is owed.
    pub(crate) fn new(stream: Stream, learnt: Arc<Learnt>) -> Self {
        Self {
            stream: Some(stream),
            received: BytesMut::new(),
            parser: ReplyParser::default(),
            owed: VecDeque::from([Owed { verb: GREETING, argument: Vec::new() }]),
            sequence: Vec::new(),
            directory: Vec::new(),
            replied: 0,
            pipelines: false,
            began: false,
            learnt,
        }
    }

    /// Sets that the server accepts several commands at once: a late reply only means that it is slow.
    pub(crate) const fn pipelines(&mut self) {
        self.pipelines = true;
    }

    /// How long the server may be silent.
    pub(crate) fn silence(&self) -> Duration {
        self.stream.as_ref().map_or(Duration::ZERO, Stream::silence)
    }

    /// Sets how long the server may be silent.
    pub(crate) fn set_silence(&mut self, silence: Duration) {
        if let Some(stream) = &mut self.stream {
            stream.set_silence(silence);
        }
    }

    /// Whether several commands may be sent at once.
    pub(crate) fn takes_several(&self) -> bool {
        !self.learnt.knows(Lesson::OneAtATime)
    }

    /// Whether nothing is owed and nothing is broken: the next command gets the next reply.
    pub(crate) fn is_in_step(&self) -> bool {
        self.owed.is_empty() && self.stream.is_some()
    }

    /// Whether it is broken.
    pub(crate) const fn is_broken(&self) -> bool {
        self.stream.is_none()
    }

    /// Closes the connection: its state is unknown.
    pub(crate) fn break_off(&mut self) {
        self.stream = None;
    }

    /// Whether the server has closed the connection, or has sent an unrequested reply (a 421 before it closes).
    pub(crate) fn has_ended(&mut self) -> bool {
        let Some(stream) = &mut self.stream else { return true };
        let unrequested = !self.received.is_empty()
            || stream.read_buf(&mut self.received).now_or_never().is_some();
        if unrequested {
            self.stream = None;
        }
        unrequested
    }

    /// Switches to TLS. Returns false, with the connection closed, if plain text followed the reply to AUTH (an
    /// attacker may have injected it), or if the connection is out of step.
    pub(crate) async fn secure(&mut self, security: &Security) -> std::io::Result<bool> {
        let plain = self.stream.take();
        let Some(plain) = plain.filter(|_| self.received.is_empty() && self.owed.is_empty()) else {
            return Ok(false);
        };
        self.stream = Some(security.secure(plain).await?);
        Ok(true)
    }

    /// Sends commands and returns their final replies.
    pub(crate) async fn exchange(&mut self, commands: &[Command]) -> Result<Vec<Reply>> {
        let mut replies = Vec::with_capacity(commands.len());
        let step = if self.takes_several() { commands.len().max(1) } else { 1 };
        for together in commands.chunks(step) {
            self.send(together).await?;
            for _ in together {
                replies.push(self.last_reply().await?);
            }
        }
        Ok(replies)
    }

    /// Sends one command and returns its final reply.
    pub(crate) async fn request(&mut self, command: &Command) -> Result<Reply> {
        self.send(std::slice::from_ref(command)).await?;
        self.last_reply().await
    }

    /// Sends commands without waiting for their replies.
    pub(crate) async fn send(&mut self, commands: &[Command]) -> Result<()> {
        let lines: Vec<u8> =
            commands.iter().flat_map(|command| command.line().iter().copied()).collect();
        self.owed.extend(commands.iter().map(Owed::of));
        self.replied = 0;
        let Some(stream) = &mut self.stream else { return Err(gone()) };
        let outcome = stream.send("send a command", &lines).await;
        self.unless_broken(outcome)
    }

    /// The next reply that is not preliminary.
    pub(crate) async fn last_reply(&mut self) -> Result<Reply> {
        let limit = self.limit();
        let outcome = timeout(limit, self.not_preliminary()).await;
        outcome.unwrap_or_else(|_| Err(self.endless(limit)))
    }

    async fn not_preliminary(&mut self) -> Result<Reply> {
        for _ in 0..MAX_PRELIMINARY {
            let reply = self.any_reply().await?;
            if !reply.is_preliminary() {
                return Ok(reply);
            }
        }
        self.break_off();
        Err(protocol("read the reply", "too many preliminary (1xx) replies"))
    }

    /// The next reply, preliminary or final. Cancel safe.
    pub(crate) async fn reply(&mut self) -> Result<Reply> {
        let limit = self.limit();
        let outcome = timeout(limit, self.any_reply()).await;
        outcome.unwrap_or_else(|_| Err(self.endless(limit)))
    }

    async fn any_reply(&mut self) -> Result<Reply> {
        loop {
            let taken = self.take_reply();
            if let Some(reply) = self.unless_broken(taken)? {
                let (verb, reply) = self.attributed(reply);
                if !reply.is_preliminary() {
                    self.replied += 1;
                    self.pipelines |= self.replied > 1;
                }
                self.began = reply.is_preliminary();
                if reply.code() == 421 || wants_resumption(&reply) {
                    // 421 means that the server closes the connection, whatever the command. A lane
                    // whose data connections cannot resume its TLS session is of no use either; a new
                    // lane has a new session.
                    self.stream = None;
                }
                if has_crashed(&reply) && ![GREETING, "USER", "PASS"].contains(&verb) {
                    self.stream = None;
                    return Err(lost(WAIT, format!("the server replied: {reply}")));
                }
                return Ok(reply);
            }
            let outcome = self.receive().await;
            self.unless_broken(outcome)?;
        }
    }

    /// The verb of the command that a reply belongs to, and the reply with the names that it may quote. The
    /// command is no longer owed if the reply is final.
    fn attributed(&mut self, reply: Reply) -> (&'static str, Reply) {
        let Some(Owed { verb, argument }) = self.owed.front() else { return (GREETING, reply) };
        let verb = *verb;
        let sent = [&self.directory[..], &self.sequence, argument].join(&b'/');
        let reply = reply.about(sent);
        if !reply.is_preliminary() {
            let argument = self.owed.pop_front().map(|owed| owed.argument).unwrap_or_default();
            if verb == "CWD" && reply.is_done() {
                self.directory.clone_from(&argument);
            }
            self.sequence = if reply.is_pending() { argument } else { Vec::new() };
        }
        (verb, reply)
    }

    async fn receive(&mut self) -> Result<()> {
        let awaited = self.awaited();
        let Some(stream) = &mut self.stream else { return Err(gone()) };
        let gap = (stream.silence() / GAP_OF_SILENCE).min(LONGEST_GAP);
        let receiving = stream.receive_reply(WAIT, &awaited, &mut self.received);
        let maybe_lost = self.replied == 1 && !self.owed.is_empty() && !self.began;
        let received = match maybe_lost && !self.pipelines {
            false => receiving.await,
            true => match timeout(gap, receiving).await {
                Ok(received) => received,
                Err(_) => {
                    self.learnt.learn(Lesson::OneAtATime);
                    let cause =
                        format!("no {awaited}, which was sent in one packet with other commands");
                    return Err(lost(WAIT, cause));
                }
            },
        };
        match received {
            Ok(0) => Err(lost(WAIT, "the server closed the connection")),
            Ok(_) => Ok(()),
            Err(error) => {
                let cause = format!("{} while waiting for the {awaited}", error.cause());
                Err(lost(WAIT, cause))
            }
        }
    }

    /// How long a whole reply may take.
    fn limit(&self) -> Duration {
        self.silence() * SILENCES
    }

    fn endless(&mut self, limit: Duration) -> Error {
        let cause =
            format!("the {} is still incomplete after {} s", self.awaited(), limit.as_secs());
        self.break_off();
        lost(WAIT, cause)
    }

    /// For messages: the reply that is due next.
    fn awaited(&self) -> String {
        match self.owed.front() {
            Some(Owed { verb, .. }) if *verb != GREETING => format!("reply to {verb}"),
            _ => "greeting".to_owned(),
        }
    }

    fn take_reply(&mut self) -> Result<Option<Reply>> {
        loop {
            let Some(end) = self.received.iter().position(|byte| *byte == b'\n') else {
                if self.received.len() > LONGEST_LINE {
                    let cause = "a line of its reply is longer than 16 KiB";
                    return Err(protocol("read a reply", cause));
                }
                return Ok(None);
            };
            let line = &self.received[..end];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let reply = self.parser.line(line).map_err(|cause| protocol("read a reply", cause))?;
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

/// Stands for the greeting in `owed`, which is due before any reply.
const GREETING: &str = "";

const WAIT: &str = "read the reply";

fn gone() -> Error {
    lost("send a command", "the connection is lost")
}
