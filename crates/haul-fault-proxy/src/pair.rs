//! Both sockets of an open connection and the bytes between them.
//!
//! `pump` reads a few times while there is room, writes the bytes that are due, and returns the events it waits for.
//! The FIN or RST of a side travels through the same line as its bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::Instant;

use rustix::event::PollFlags;

use crate::Direction;
use crate::flow::{Flow, Intake, Outlet, Room, Step};
use crate::rules::StreamId;
use crate::shared::State;
use crate::socket::Side;

/// Reads of one stream before others get their turn.
const READS_PER_TURN: usize = 4;

/// An open connection: both sockets, and the flows between them.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) client: Side,
    pub(crate) server: Side,
    to_server: Flow,
    to_client: Flow,
}

/// The result of a turn.
#[derive(Debug)]
pub(crate) enum Turn {
    Going(Wants),
    /// Both sides are to be reset once the receiver of this direction has everything.
    Cut(Direction),
    /// Both sides have ended.
    Finished,
}

/// What a connection waits for: poll events of each socket (`None`: it is not polled), and a time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wants {
    pub(crate) client: Option<PollFlags>,
    pub(crate) server: Option<PollFlags>,
    pub(crate) at: Option<Instant>,
}

impl Wants {
    /// Adds a time to wake up at.
    pub(crate) fn wake(&mut self, at: Instant) {
        self.at = Some(self.at.map_or(at, |earlier| earlier.min(at)));
    }
}

impl Pair {
    pub(crate) fn new(connection: u64, client: Side, server: Side) -> Self {
        let flow = |direction| Flow::new(StreamId { connection, direction });
        Self {
            client,
            server,
            to_server: flow(Direction::ToServer),
            to_client: flow(Direction::ToClient),
        }
    }

    /// Resets both sides.
    pub(crate) fn reset(self) {
        self.client.reset();
        self.server.reset();
    }

    pub(crate) const fn receiver(&self, direction: Direction) -> &Side {
        match direction {
            Direction::ToServer => &self.server,
            Direction::ToClient => &self.client,
        }
    }

    pub(crate) fn pump(&mut self, state: &mut State, buffer: &mut [u8]) -> Turn {
        for direction in Direction::BOTH {
            self.pull(direction, state, buffer);
            self.notice_hang_up(direction, state);
            if self.push(direction, state) {
                return Turn::Cut(direction);
            }
        }
        if self.to_server.is_over() && self.to_client.is_over() {
            return Turn::Finished;
        }
        Turn::Going(self.wants(state))
    }

    /// Passes on a reset by a sender that had ended its stream before. No read reports it any more; poll does.
    fn notice_hang_up(&mut self, direction: Direction, state: &mut State) {
        // If the other direction is finished as well, this only shows that both sides have ended.
        let (other, ..) = self.parts(direction.reverse());
        let both_ended = other.outlet() == Outlet::Finished;
        let (flow, sender, _) = self.parts(direction);
        if sender.hung && !sender.gone && !both_ended && flow.intake() == Intake::Ended {
            sender.gone = true;
            flow.end(true, state, Instant::now());
        }
    }

    /// Reads from the sender.
    fn pull(&mut self, direction: Direction, state: &mut State, buffer: &mut [u8]) {
        let (flow, sender, _) = self.parts(direction);
        for _ in 0..READS_PER_TURN {
            if !sender.readable {
                return;
            }
            let Room::Read(most) = flow.room(state, Instant::now()) else { return };
            let Some(space) = buffer.get_mut(..most) else { return };
            match sender.socket.read(space) {
                Ok(count) if count > 0 => {
                    // The time is taken after the read: no byte may seem older than it is.
                    flow.take(space.get(..count).unwrap_or_default(), state, Instant::now());
                    continue;
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    sender.readable = false;
                    return;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // After any other error, this side is gone.
                Err(_) => sender.gone = true,
            }
            flow.end(sender.gone, state, Instant::now());
            return;
        }
    }

    /// Writes the bytes that are due, then the end of the stream. Returns whether both sides are to be reset.
    fn push(&mut self, direction: Direction, state: &mut State) -> bool {
        loop {
            let (flow, _, receiver) = self.parts(direction);
            flow.blocked = false;
            match flow.next(state, Instant::now()) {
                Step::From(_) | Step::Nothing => return false,
                Step::CutHard => return true,
                Step::CutSoft => self.finish_both(),
                Step::Finish => finish(flow, receiver),
                Step::Write(_) if !receiver.writable => {
                    flow.blocked = true;
                    return false;
                }
                Step::Write(count) => {
                    let outgoing = flow.outgoing();
                    match receiver.socket.write(outgoing.get(..count).unwrap_or(outgoing)) {
                        Ok(count) => flow.wrote(count, state),
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {
                            receiver.writable = false;
                        }
                        Err(error) if error.kind() == ErrorKind::Interrupted => {}
                        Err(_) => self.lose_receiver(direction, state),
                    }
                }
            }
        }
    }

    /// Handles a failed write: the receiver is gone. Bytes that it sent before are still read, and its reset is
    /// passed on behind them.
    fn lose_receiver(&mut self, direction: Direction, state: &mut State) {
        let (flow, _, receiver) = self.parts(direction);
        flow.abandon();
        let known = std::mem::replace(&mut receiver.gone, true);
        receiver.readable = true;
        let (other, ..) = self.parts(direction.reverse());
        if !known && other.intake() == Intake::Ended {
            other.end(true, state, Instant::now());
        }
    }

    fn finish_both(&mut self) {
        for direction in Direction::BOTH {
            let (flow, _, receiver) = self.parts(direction);
            finish(flow, receiver);
        }
    }

    fn wants(&mut self, state: &mut State) -> Wants {
        let now = Instant::now();
        let mut wants = Wants::default();
        let mut events = [PollFlags::empty(); 2];
        for direction in Direction::BOTH {
            let (flow, sender, receiver) = self.parts(direction);
            let (from_sender, from_receiver) = match direction {
                Direction::ToServer => (0, 1),
                Direction::ToClient => (1, 0),
            };
            match flow.room(state, now) {
                Room::Read(_) if sender.readable => wants.wake(now),
                Room::Read(_) => events[from_sender] |= PollFlags::IN,
                Room::From(at) => wants.wake(at),
                Room::Closed => {}
            }
            match flow.next(state, now) {
                Step::Write(_) if !receiver.writable => events[from_receiver] |= PollFlags::OUT,
                Step::From(at) => wants.wake(at),
                Step::Nothing => {}
                // It has become due just now.
                Step::Write(_) | Step::Finish | Step::CutHard | Step::CutSoft => wants.wake(now),
            }
        }
        // Even without requested events, poll reports a hangup. After that, a side is polled only for events.
        let watch =
            |side: &Side, events: PollFlags| (!side.hung || !events.is_empty()).then_some(events);
        wants.client = watch(&self.client, events[0]);
        wants.server = watch(&self.server, events[1]);
        wants
    }

    /// A direction with its sender and its receiver.
    const fn parts(&mut self, direction: Direction) -> (&mut Flow, &mut Side, &mut Side) {
        match direction {
            Direction::ToServer => (&mut self.to_server, &mut self.client, &mut self.server),
            Direction::ToClient => (&mut self.to_client, &mut self.server, &mut self.client),
        }
    }
}

/// Ends the stream to a receiver.
fn finish(flow: &mut Flow, receiver: &Side) {
    if flow.outlet() == Outlet::Open {
        flow.finish();
        // This fails if the receiver is gone, which the next read from it reports.
        let _: std::io::Result<()> = receiver.socket.shutdown(Shutdown::Write);
    }
}
