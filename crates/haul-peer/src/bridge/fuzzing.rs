//! Entry point of the fuzz target: messages between a bridge and its clients, and between two peers with a code.

use bytes::Bytes;

use super::code::Code;
use super::code::messages::{FromSharer, ToSharer};
use super::messages::{FromBridge, Refusal, ToBridge, from_bridge};
use super::preamble;
use crate::wire::decode;
use crate::wire::fuzzing::survives;

/// Decodes `data` as a message of either direction, a code and a preamble. What is accepted decodes to the same value
/// after it is encoded again.
pub fn received(data: &[u8]) {
    if let Ok(message) = decode::<ToBridge>(Bytes::copy_from_slice(data)) {
        survives(&message);
    }
    if let Ok(message) = decode::<FromBridge>(Bytes::copy_from_slice(data)) {
        survives(&message);
        if let Some(from_bridge::Body::Refused(refused)) = message.body {
            let refusal = Refusal::of(refused.code);
            assert!(refusal.is_none_or(|refusal| refusal.number() == refused.code));
        }
    }
    if let Ok(message) = decode::<ToSharer>(Bytes::copy_from_slice(data)) {
        survives(&message);
    }
    if let Ok(message) = decode::<FromSharer>(Bytes::copy_from_slice(data)) {
        survives(&message);
    }
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(code) = text.parse::<Code>()
    {
        assert!(
            code.to_string().parse::<Code>() == Ok(code),
            "a code does not survive formatting and parsing"
        );
    }
    if let Ok(bytes) = data.try_into()
        && let Some(id) = preamble::decode(bytes)
    {
        assert!(preamble::encode(&id) == *bytes, "a preamble does not survive its encoding");
    }
    if let Ok(bytes) = data.try_into()
        && let Some(hash) = preamble::decode_reverse(bytes)
    {
        assert!(
            preamble::encode_reverse(&hash) == *bytes,
            "a reverse preamble does not survive its encoding"
        );
    }
}
