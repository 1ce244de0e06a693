//! The messages between a bridge and its clients: protobuf, package `haul.bridge.v1`, in frames as between peers. None
//! is longer than 4 KiB.
//!
//! The rules are those of the peer protocol: a field number never changes its meaning, and unknown fields are ignored.
//! Nothing in a decoded message has been checked.

use std::fmt;

use bytes::Bytes;

use crate::wire::messages::Empty;

/// The version of the protocol.
pub const VERSION: u32 = 1;

/// The oldest version that this program speaks.
pub const MIN_VERSION: u32 = 1;

/// Most rooms in a Register.
pub const ROOMS_MAX: usize = 24;

/// Most connections of all kinds in a Join, Connect or Incoming.
pub const CONNECTIONS_MAX: usize = 64;

/// Most candidates in a Join, Connect or Incoming.
pub const CANDIDATES_MAX: usize = 16;

/// Longest candidate in bytes.
pub const CANDIDATE_MAX: usize = 64;

/// The largest number of a spoken code. The smallest is 1.
pub const NUMBER_MAX: u32 = 999_999;

/// A message to the bridge.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ToBridge {
    /// The number of the request, which its response repeats.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// The request. `None` if it is of a later version.
    #[prost(oneof = "to_bridge::Body", tags = "2, 3, 4, 5, 6, 7")]
    pub body: Option<to_bridge::Body>,
}

/// The bodies of [`ToBridge`].
pub mod to_bridge {
    /// A request.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Body {
        /// A sharer registers its rooms, in place of those it had.
        #[prost(message, tag = "2")]
        Register(super::Register),
        /// A client joins a room.
        #[prost(message, tag = "3")]
        Join(super::Join),
        /// A client that has joined opens further data connections.
        #[prost(message, tag = "4")]
        Connect(super::Connect),
        /// Keeps the connection open.
        #[prost(message, tag = "5")]
        Ping(super::Empty),
        /// A sharer requests a number for a spoken code.
        #[prost(message, tag = "6")]
        Offer(super::Offer),
        /// A client wants to meet the sharer of the code with a certain number.
        #[prost(message, tag = "7")]
        Meet(super::Meet),
    }
}

/// A sharer and its rooms.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Register {
    /// The oldest version that the sharer speaks.
    #[prost(uint32, tag = "1")]
    pub min_version: u32,
    /// The latest version that the sharer speaks.
    #[prost(uint32, tag = "2")]
    pub max_version: u32,
    /// Proof that the sharer knows the bridge's token, 32 bytes; empty if it has none.
    #[prost(bytes = "bytes", tag = "3")]
    pub token_proof: Bytes,
    /// At most [`ROOMS_MAX`] rooms.
    #[prost(message, repeated, tag = "4")]
    pub rooms: Vec<RoomOffer>,
}

/// A room of a sharer.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub struct RoomOffer {
    /// Its name, 32 bytes.
    #[prost(bytes = "bytes", tag = "1")]
    pub name: Bytes,
    /// The key with which clients prove that they may join, 32 bytes. Not to be logged.
    #[prost(bytes = "bytes", tag = "2")]
    pub key: Bytes,
}

impl fmt::Debug for RoomOffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoomOffer").finish_non_exhaustive()
    }
}

/// A client that joins a room.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Join {
    /// The oldest version that the client speaks.
    #[prost(uint32, tag = "1")]
    pub min_version: u32,
    /// The latest version that the client speaks.
    #[prost(uint32, tag = "2")]
    pub max_version: u32,
    /// The room's name, 32 bytes.
    #[prost(bytes = "bytes", tag = "3")]
    pub name: Bytes,
    /// Proof that the client knows the room's key, 32 bytes.
    #[prost(bytes = "bytes", tag = "4")]
    pub mac: Bytes,
    /// Addresses at which the client listens, for the sharer.
    #[prost(string, repeated, tag = "5")]
    pub candidates: Vec<String>,
    /// The data connections that the client opens, 32 random bytes each.
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub connections: Vec<Bytes>,
    /// As in [`Connect`].
    #[prost(bytes = "bytes", repeated, tag = "7")]
    pub reverse: Vec<Bytes>,
    /// As in [`Connect`].
    #[prost(bytes = "bytes", repeated, tag = "8")]
    pub crossings: Vec<Bytes>,
}

/// Further data connections of a client.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Connect {
    /// The data connections that the client opens, 32 random bytes each.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub connections: Vec<Bytes>,
    /// Connections that the sharer is to open to one of the client's candidates, 32 random bytes each.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub reverse: Vec<Bytes>,
    /// Connections to the bridge, 32 random bytes each, from whose ports the client wants to open a connection to the
    /// sharer while the sharer opens it to the client (simultaneous TCP open).
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub crossings: Vec<Bytes>,
    /// Addresses at which the client listens, for `reverse`.
    #[prost(string, repeated, tag = "4")]
    pub candidates: Vec<String>,
}

/// A sharer that offers a spoken code. The connection is for this code only, and the number is released with it.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub struct Offer {
    /// The oldest version that the sharer speaks.
    #[prost(uint32, tag = "1")]
    pub min_version: u32,
    /// The latest version that the sharer speaks.
    #[prost(uint32, tag = "2")]
    pub max_version: u32,
    /// As in [`Register`].
    #[prost(bytes = "bytes", tag = "3")]
    pub token_proof: Bytes,
    /// The number that the sharer had on a connection that it has lost; 0 for any.
    #[prost(uint32, tag = "4")]
    pub number: u32,
    /// Lets the sharer get its number again after a loss: 32 random bytes. Not to be logged.
    #[prost(bytes = "bytes", tag = "5")]
    pub key: Bytes,
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offer").field("number", &self.number).finish_non_exhaustive()
    }
}

/// A client with a spoken code. It proves nothing to the bridge; its attempts per minute are limited instead.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Meet {
    /// The oldest version that the client speaks.
    #[prost(uint32, tag = "1")]
    pub min_version: u32,
    /// The latest version that the client speaks.
    #[prost(uint32, tag = "2")]
    pub max_version: u32,
    /// The number in the code. The words are not sent.
    #[prost(uint32, tag = "3")]
    pub number: u32,
    /// The data connection that the client opens, 32 random bytes.
    #[prost(bytes = "bytes", tag = "4")]
    pub connection: Bytes,
}

/// A message from the bridge.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FromBridge {
    /// The number of the request; 0 if there is none.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// The body. `None` if it is of a later version.
    #[prost(oneof = "from_bridge::Body", tags = "2, 3, 4, 5, 6, 7, 8")]
    pub body: Option<from_bridge::Body>,
}

/// The bodies of [`FromBridge`].
pub mod from_bridge {
    /// A response, or a message without a request.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Body {
        /// The rooms are registered.
        #[prost(message, tag = "2")]
        Registered(super::Registered),
        /// The client has joined, or its further connections have been announced to the sharer.
        #[prost(message, tag = "3")]
        Joined(super::Joined),
        /// The request is refused.
        #[prost(message, tag = "4")]
        Refused(super::Refused),
        /// To a sharer: a client waits on data connections.
        #[prost(message, tag = "5")]
        Incoming(super::Incoming),
        /// The response to a Ping.
        #[prost(message, tag = "6")]
        Pong(super::Empty),
        /// The sharer has the number of a spoken code.
        #[prost(message, tag = "7")]
        Offered(super::Offered),
        /// To both sides: the address of the other side of a crossing.
        #[prost(message, tag = "8")]
        Cross(super::Cross),
    }
}

/// The rooms are registered.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Registered {
    /// Address and port from which the bridge sees the sharer.
    #[prost(string, tag = "1")]
    pub observed: String,
    /// The rooms end when the sharer has sent nothing for this many seconds.
    #[prost(uint32, tag = "2")]
    pub ttl_seconds: u32,
}

/// The number of a sharer's spoken code.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Offered {
    /// The number.
    #[prost(uint32, tag = "1")]
    pub number: u32,
    /// The number is free again when the sharer has sent nothing for this many seconds.
    #[prost(uint32, tag = "2")]
    pub ttl_seconds: u32,
}

/// The client has joined.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Joined {
    /// Address and port from which the bridge sees the client.
    #[prost(string, tag = "1")]
    pub observed: String,
    /// Address and port from which the bridge sees the sharer.
    #[prost(string, tag = "2")]
    pub sharer_observed: String,
}

/// A request is refused.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Refused {
    /// A [`Refusal`], or from a sharer a [`CodeRefusal`](super::code::messages::CodeRefusal).
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// The reason, for display.
    #[prost(string, tag = "2")]
    pub text: String,
}

/// Data connections that the sharer is to open.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Incoming {
    /// One for each connection of the client, 32 bytes each.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub connections: Vec<Bytes>,
    /// Address and port from which the bridge sees the client.
    #[prost(string, tag = "2")]
    pub joiner_observed: String,
    /// Addresses on which the client reports to listen.
    #[prost(string, repeated, tag = "3")]
    pub candidates: Vec<String>,
    /// Connections that the sharer is to open to a candidate: the 32 bytes of each are those in the client's request.
    #[prost(bytes = "bytes", repeated, tag = "4")]
    pub reverse: Vec<Bytes>,
    /// Connections to the bridge that the sharer is to open for crossings: one for each of the client's, 32 bytes each.
    #[prost(bytes = "bytes", repeated, tag = "5")]
    pub crossings: Vec<Bytes>,
}

/// Both connections of a crossing have reached the bridge: each side connects to the other one now.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Cross {
    /// The number of the receiver's own connection to the bridge, 32 bytes.
    #[prost(bytes = "bytes", tag = "1")]
    pub connection: Bytes,
    /// Address and port from which the bridge sees the other side's connection.
    #[prost(string, tag = "2")]
    pub peer: String,
    /// Microseconds to wait first: the other side receives this message later.
    #[prost(uint32, tag = "3")]
    pub wait_us: u32,
}

/// Why a bridge refuses a request. Numbers of later versions have no variant here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Anything else; see the text.
    Other = 1,
    /// No common version.
    Version = 2,
    /// The bridge requires a token, and this is not it.
    Token = 3,
    /// No sharer has a room of that name, or a code of that number.
    Room = 4,
    /// The client does not know the room's key. For a sharer: another one has its room, or the number of its code.
    Mac = 5,
    /// Too many sharers, too many connections to the requested sharer or requests that wait for it, or the bridge is
    /// being stopped; a later attempt may succeed.
    Busy = 6,
    /// The sharer's quota of the day is used up.
    Quota = 7,
    /// The message is invalid, or not allowed now.
    Invalid = 8,
    /// The client joins, or uses codes, too often.
    Rate = 9,
}

impl Refusal {
    /// All variants.
    pub const ALL: [Self; 9] = [
        Self::Other,
        Self::Version,
        Self::Token,
        Self::Room,
        Self::Mac,
        Self::Busy,
        Self::Quota,
        Self::Invalid,
        Self::Rate,
    ];

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
            Self::Version => "the bridge has an incompatible version of haul",
            Self::Token => "the bridge requires another token",
            Self::Room => "the sharer is not connected to the bridge",
            Self::Mac => "the ticket is not valid for this sharer",
            Self::Busy => "the bridge has too many connections",
            Self::Quota => "the sharer has used up its daily quota at the bridge",
            Self::Invalid => "the request is invalid",
            Self::Rate => "too many requests from this address",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{FRAME_HEADER, Limits, message_frame};

    #[test]
    fn the_longest_messages_are_within_the_limit_of_a_frame() {
        let id = Bytes::from_static(&[0xff; 32]);
        let rooms = vec![RoomOffer { name: id.clone(), key: id.clone() }; ROOMS_MAX];
        let register = Register { min_version: 1, max_version: 1, token_proof: id.clone(), rooms };
        let join = Join {
            min_version: 1,
            max_version: 1,
            name: id.clone(),
            mac: id.clone(),
            candidates: vec!["x".repeat(CANDIDATE_MAX); CANDIDATES_MAX],
            connections: vec![id.clone(); CONNECTIONS_MAX - 2],
            reverse: vec![id.clone()],
            crossings: vec![id],
        };
        for body in [to_bridge::Body::Register(register), to_bridge::Body::Join(join)] {
            let frame = message_frame(&ToBridge { id: u32::MAX, body: Some(body) }).unwrap();
            assert!(frame.len() - FRAME_HEADER <= Limits::EARLY.message, "{}", frame.len());
        }
    }

    #[test]
    fn debug_output_contains_no_key_of_a_room() {
        let offer =
            RoomOffer { name: Bytes::from_static(b"name"), key: Bytes::from_static(b"key") };
        let register = Register { rooms: vec![offer], ..Register::default() };
        let shown = format!("{register:?}");
        assert!(shown.contains("RoomOffer { .. }") && !shown.contains("key"), "{shown}");
    }

    #[test]
    fn debug_output_contains_no_key_of_a_code() {
        let offer = Offer { number: 7, key: Bytes::from_static(b"key"), ..Offer::default() };
        assert_eq!(format!("{offer:?}"), "Offer { number: 7, .. }");
    }

    #[test]
    fn every_refusal_has_a_number_of_its_own() {
        for refusal in Refusal::ALL {
            assert_eq!(Refusal::of(refusal.number()), Some(refusal));
        }
        assert_eq!(Refusal::of(0), None);
    }
}
