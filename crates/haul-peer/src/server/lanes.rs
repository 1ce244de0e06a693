//! The lanes of a session, and when a session without lanes ends.

use std::collections::HashMap;

use bytes::Bytes;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use super::limits;
use crate::wire::messages::code::Refusal;

/// Why a lane cannot join: the code, and the text.
pub(super) type Refused = (Refusal, &'static str);

/// What becomes of a session when one of its lanes has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    /// It has other lanes, or has ended already.
    Continues,
    /// It has no lane, and lost one within the last [`limits::LINGER`]: it waits for another. The number of lanes that
    /// have joined so far, for [`Lanes::end_if_idle`].
    Waits(u64),
    /// It has ended: no lane can join any more.
    Ended,
}

/// An open lane.
#[derive(Debug)]
struct Open {
    messages: UnboundedSender<Bytes>,
    /// The nonce by which the client names it.
    nonce: Bytes,
}

/// The lanes of a session.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    open: HashMap<u64, Open>,
    /// Lanes that have joined so far, which is the number of the next one.
    joined: u64,
    /// When a lane last ended without a Bye.
    lost: Option<Instant>,
    /// When the last lane ended.
    last_ended: Option<Instant>,
    has_ended: bool,
}

impl Lanes {
    /// The number of open lanes.
    pub(super) fn count(&self) -> usize {
        self.open.len()
    }

    /// Adds a lane, whose Hello had this nonce, and returns its number.
    pub(super) fn join(
        &mut self,
        messages: UnboundedSender<Bytes>,
        nonce: Bytes,
    ) -> Result<u64, Refused> {
        if self.has_ended {
            return Err((Refusal::Session, "the session has ended"));
        }
        if self.open.len() >= limits::LANES {
            return Err((Refusal::Busy, "the session has too many lanes"));
        }
        let number = self.joined;
        self.joined += 1;
        self.open.insert(number, Open { messages, nonce });
        Ok(number)
    }

    /// Removes a lane. Returns whether it was the last one.
    pub(super) fn remove(&mut self, number: u64) -> bool {
        let is_last = self.open.remove(&number).is_some() && self.open.is_empty();
        if is_last {
            self.last_ended = Some(Instant::now());
        }
        is_last
    }

    /// Whether no lane can join any more.
    pub(super) const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// When the last lane ended; `None` if there is one, or none has joined yet.
    pub(super) fn without_lanes_since(&self) -> Option<Instant> {
        self.last_ended.filter(|_| self.open.is_empty())
    }

    /// Ends the session if all its lanes have ended. Returns whether they have.
    pub(super) fn end_if_without_lanes(&mut self) -> bool {
        let has_no_lanes = self.without_lanes_since().is_some();
        self.has_ended |= has_no_lanes;
        has_no_lanes
    }

    /// Decides what becomes of the session after a lane was removed, because it was lost or by a Bye.
    pub(super) fn after(&mut self, is_lost: bool) -> After {
        if is_lost {
            self.lost = Some(Instant::now());
        }
        if self.has_ended || !self.open.is_empty() {
            return After::Continues;
        }
        // A client that has just lost a lane may be opening another one.
        if self.lost.is_some_and(|lost| lost.elapsed() < limits::LINGER) {
            return After::Waits(self.joined);
        }
        self.has_ended = true;
        After::Ended
    }

    /// Ends the session if it has no lane, and none has joined beyond the first `joined`. Returns whether it did.
    pub(super) fn end_if_idle(&mut self, joined: u64) -> bool {
        let is_idle = !self.has_ended && self.open.is_empty() && self.joined == joined;
        self.has_ended |= is_idle;
        is_idle
    }

    /// Ends the session. Returns whether it had not ended before.
    pub(super) fn end(&mut self) -> bool {
        if !self.open.is_empty() {
            self.last_ended = Some(Instant::now());
        }
        self.open.clear();
        !std::mem::replace(&mut self.has_ended, true)
    }

    /// The number of the lane whose Hello had this nonce.
    pub(super) fn find(&self, nonce: &Bytes) -> Option<u64> {
        self.open.iter().find(|(_, lane)| lane.nonce == nonce).map(|(number, _)| *number)
    }

    pub(super) fn is_open(&self, number: u64) -> bool {
        self.open.contains_key(&number)
    }

    /// Sends a message on a lane. If that has ended, another one carries the message if it `falls_back`. A part of a
    /// response does not: it must not overtake the parts before it.
    pub(super) fn send(&self, lane: u64, message: &Bytes, falls_back: bool) {
        let sent =
            self.open.get(&lane).is_some_and(|one| one.messages.send(message.clone()).is_ok());
        if !sent && falls_back {
            // Without a lane the response is dropped: the client fails its pending requests when the last lane
            // ends, or repeats them.
            self.open.values().find(|one| one.messages.send(message.clone()).is_ok());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::mpsc::unbounded_channel;
    use tokio::time::advance;

    use super::*;

    fn join(lanes: &mut Lanes) -> Result<u64, Refused> {
        lanes.join(unbounded_channel().0, Bytes::new())
    }

    /// Formerly, the time counted from the first loss.
    #[tokio::test(start_paused = true)]
    async fn a_session_waits_for_its_client_after_each_loss() {
        let mut lanes = Lanes::default();
        let first = join(&mut lanes).unwrap();
        lanes.remove(first);
        let After::Waits(once) = lanes.after(true) else { panic!("the session has ended") };
        advance(limits::LINGER - Duration::from_secs(1)).await;
        let second = join(&mut lanes).unwrap();
        lanes.remove(second);
        let After::Waits(twice) = lanes.after(true) else { panic!("the session has ended") };
        advance(Duration::from_secs(1)).await;
        assert!(!lanes.end_if_idle(once));
        assert!(lanes.end_if_idle(twice));
        assert_eq!(join(&mut lanes).unwrap_err().0, Refusal::Session);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_bye_ends_a_session_unless_a_lane_was_just_lost() {
        for is_lost in [false, true] {
            let mut lanes = Lanes::default();
            let numbers = [join(&mut lanes).unwrap(), join(&mut lanes).unwrap()];
            assert!(!lanes.remove(numbers[0]));
            assert_eq!(lanes.after(is_lost), After::Continues);
            assert!(lanes.remove(numbers[1]));
            assert!(!lanes.remove(numbers[1]));
            let after = lanes.after(false);
            assert_eq!(after, if is_lost { After::Waits(2) } else { After::Ended });
            assert_eq!(join(&mut lanes).is_err(), !is_lost);
        }
    }

    #[test]
    fn one_lane_too_many_is_refused() {
        let mut lanes = Lanes::default();
        for _ in 0..limits::LANES {
            join(&mut lanes).unwrap();
        }
        assert_eq!(join(&mut lanes).unwrap_err().0, Refusal::Busy);
    }
}
