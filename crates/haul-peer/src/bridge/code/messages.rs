//! The messages between a sharer and a receiver with a spoken code: protobuf, package `haul.code.v1`, in frames as
//! between peers. None is longer than 4 KiB.
//!
//! The rules are those of the peer protocol: a field number never changes its meaning, and unknown fields are ignored.
//! Nothing in a decoded message has been checked.

use bytes::Bytes;

use super::super::messages::Refused;
use crate::wire::messages::Empty;

/// The version of the protocol.
pub const VERSION: u32 = 1;

/// The oldest version that this program speaks.
pub const MIN_VERSION: u32 = 1;

/// A message to the sharer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ToSharer {
    /// The message. `None` if it is of a later version.
    #[prost(oneof = "to_sharer::Body", tags = "1, 2, 3")]
    pub body: Option<to_sharer::Body>,
}

/// The bodies of [`ToSharer`].
pub mod to_sharer {
    /// The messages of the receiver, in the order in which it sends them.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Body {
        /// The receiver's half of SPAKE2.
        #[prost(message, tag = "1")]
        Start(super::Start),
        /// Proof that the receiver knows the code.
        #[prost(message, tag = "2")]
        Confirm(super::Confirm),
        /// The receiver has received the ticket.
        #[prost(message, tag = "3")]
        Received(super::Empty),
    }
}

/// The receiver's half of SPAKE2.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Start {
    /// The oldest version that the receiver speaks.
    #[prost(uint32, tag = "1")]
    pub min_version: u32,
    /// The latest version that the receiver speaks.
    #[prost(uint32, tag = "2")]
    pub max_version: u32,
    /// The message of side A, 33 bytes.
    #[prost(bytes = "bytes", tag = "3")]
    pub share: Bytes,
}

/// Proof that the receiver has the same key.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Confirm {
    /// 32 bytes.
    #[prost(bytes = "bytes", tag = "1")]
    pub mac: Bytes,
}

/// A message from the sharer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FromSharer {
    /// The message. `None` if it is of a later version.
    #[prost(oneof = "from_sharer::Body", tags = "1, 2, 3")]
    pub body: Option<from_sharer::Body>,
}

/// The bodies of [`FromSharer`].
pub mod from_sharer {
    /// A response of the sharer.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Body {
        /// The sharer's half of SPAKE2.
        #[prost(message, tag = "1")]
        Reply(super::Reply),
        /// The ticket, once the receiver has confirmed.
        #[prost(message, tag = "2")]
        Granted(super::Granted),
        /// The receiver gets no ticket.
        #[prost(message, tag = "3")]
        Refused(super::Refused),
    }
}

/// The sharer's half of SPAKE2.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Reply {
    /// The message of side B, 33 bytes.
    #[prost(bytes = "bytes", tag = "1")]
    pub share: Bytes,
}

/// The ticket.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Granted {
    /// Proof that the sharer has the same key, 32 bytes.
    #[prost(bytes = "bytes", tag = "1")]
    pub mac: Bytes,
    /// The text of the ticket, encrypted.
    #[prost(bytes = "bytes", tag = "2")]
    pub ticket: Bytes,
}

/// Why a sharer refuses a receiver. Numbers of later versions have no variant here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CodeRefusal {
    /// Anything else; see the text.
    Other = 1,
    /// No common version.
    Version = 2,
    /// The receiver has another code. The sharer has burned its own.
    Wrong = 3,
    /// The code was used, burned or withdrawn, or has expired.
    Ended = 4,
}

impl CodeRefusal {
    /// All variants.
    pub const ALL: [Self; 4] = [Self::Other, Self::Version, Self::Wrong, Self::Ended];

    /// The number in messages.
    pub const fn number(self) -> i32 {
        self as i32
    }

    /// The variant with this number, if this version knows it.
    pub fn of(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.number() == number)
    }

    /// The reason as text.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Other => "the request is refused",
            Self::Version => "the sharer has an incompatible version of haul",
            Self::Wrong => "the code is wrong",
            Self::Ended => "the code is no longer valid",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ticket::MAX_TEXT;
    use crate::wire::{FRAME_HEADER, Limits, message_frame};

    #[test]
    fn the_longest_ticket_is_within_the_limit_of_a_frame() {
        let granted = Granted { mac: vec![7; 32].into(), ticket: vec![7; MAX_TEXT + 16].into() };
        let message = FromSharer { body: Some(from_sharer::Body::Granted(granted)) };
        let frame = message_frame(&message).unwrap();
        assert!(frame.len() - FRAME_HEADER <= Limits::EARLY.message, "{}", frame.len());
    }

    #[test]
    fn every_refusal_has_a_number_of_its_own() {
        for refusal in CodeRefusal::ALL {
            assert_eq!(CodeRefusal::of(refusal.number()), Some(refusal));
        }
        assert_eq!(CodeRefusal::of(0), None);
    }
}
