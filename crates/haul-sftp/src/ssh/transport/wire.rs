//! The data types of SSH (RFC 4251, 5): parsed from untrusted messages, and appended to messages.

use super::end::{End, violation};

/// The longest packet that is accepted, and the longest decompressed message: the limit of OpenSSH.
pub const PACKET_MAX: usize = 256 << 10;

/// Message numbers (RFC 4250, 4.1; RFC 8308).
pub mod message {
    pub const DISCONNECT: u8 = 1;
    pub const IGNORE: u8 = 2;
    pub const UNIMPLEMENTED: u8 = 3;
    pub const DEBUG: u8 = 4;
    pub const SERVICE_REQUEST: u8 = 5;
    pub const SERVICE_ACCEPT: u8 = 6;
    pub const EXT_INFO: u8 = 7;
    pub const KEXINIT: u8 = 20;
    pub const NEWKEYS: u8 = 21;
    /// Used by all methods that haul supports, under different names (RFC 4253, 8; RFC 5656, 7.1).
    pub const KEX_INIT: u8 = 30;
    pub const KEX_REPLY: u8 = 31;
    pub const USERAUTH_REQUEST: u8 = 50;
    pub const USERAUTH_FAILURE: u8 = 51;
    pub const USERAUTH_SUCCESS: u8 = 52;
    pub const USERAUTH_BANNER: u8 = 53;
    /// `PK_OK`, `PASSWD_CHANGEREQ` or `INFO_REQUEST`, depending on the method.
    pub const USERAUTH_60: u8 = 60;
    pub const USERAUTH_INFO_RESPONSE: u8 = 61;
    pub const USERAUTH_LAST: u8 = 79;
    pub const GLOBAL_REQUEST: u8 = 80;
    pub const REQUEST_SUCCESS: u8 = 81;
    pub const REQUEST_FAILURE: u8 = 82;
    pub const CHANNEL_OPEN: u8 = 90;
    pub const CHANNEL_OPEN_CONFIRMATION: u8 = 91;
    pub const CHANNEL_OPEN_FAILURE: u8 = 92;
    pub const CHANNEL_WINDOW_ADJUST: u8 = 93;
    pub const CHANNEL_DATA: u8 = 94;
    pub const CHANNEL_EXTENDED_DATA: u8 = 95;
    pub const CHANNEL_CLOSE: u8 = 97;
    pub const CHANNEL_REQUEST: u8 = 98;
    pub const CHANNEL_SUCCESS: u8 = 99;
    pub const CHANNEL_FAILURE: u8 = 100;
}

/// Reads fields from the front of a message or a blob.
#[derive(Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads a message, with or without its number, or a blob such as a public key.
    pub fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    pub fn byte(&mut self) -> Result<u8, End> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub fn boolean(&mut self) -> Result<bool, End> {
        Ok(self.byte()? != 0)
    }

    pub fn u32(&mut self) -> Result<u32, End> {
        let bytes = self.take(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    pub fn string(&mut self) -> Result<&'a [u8], End> {
        let length = self.u32()?;
        self.take(usize::try_from(length).unwrap_or(usize::MAX))
    }

    /// Human-readable text; invalid UTF-8 in it is replaced.
    pub fn text(&mut self) -> Result<String, End> {
        Ok(String::from_utf8_lossy(self.string()?).into_owned())
    }

    /// A list of names. Names are ASCII; others match none that haul knows.
    pub fn names(&mut self) -> Result<Vec<&'a str>, End> {
        let list = std::str::from_utf8(self.string()?)
            .map_err(|_| violation("a list of names is not text"))?;
        Ok(list.split(',').filter(|name| !name.is_empty()).collect())
    }

    /// The next `length` bytes.
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], End> {
        let (taken, rest) = self
            .0
            .split_at_checked(length)
            .ok_or_else(|| violation("a message ends within a field"))?;
        self.0 = rest;
        Ok(taken)
    }
}

/// Appends to a message.
pub trait Put {
    fn byte(&mut self, value: u8);
    fn boolean(&mut self, value: bool);
    fn u32(&mut self, value: u32);
    fn string(&mut self, value: &[u8]);
    fn names(&mut self, names: &[&str]);
}

impl Put for Vec<u8> {
    fn byte(&mut self, value: u8) {
        self.push(value);
    }

    fn boolean(&mut self, value: bool) {
        self.push(value.into());
    }

    fn u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn string(&mut self, value: &[u8]) {
        self.u32(length(value.len()));
        self.extend_from_slice(value);
    }

    fn names(&mut self, names: &[&str]) {
        self.string(names.join(",").as_bytes());
    }
}

/// A length in its wire encoding. Nothing that haul sends comes near the limit of 32 bits.
pub fn length(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// The bytes of an mpint for a positive number: without leading zeros, except for one where it would
/// look negative.
pub fn positive(number: &[u8]) -> Vec<u8> {
    let start = number.iter().position(|&byte| byte != 0).unwrap_or(number.len());
    let number = &number[start..];
    let mut inside = Vec::with_capacity(number.len() + 1);
    if number.first().is_some_and(|first| first & 0x80 != 0) {
        inside.push(0);
    }
    inside.extend_from_slice(number);
    inside
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mpints_are_encoded_as_in_rfc_4251() {
        let mpint = |number: &[u8]| {
            let mut bytes = Vec::new();
            bytes.string(&positive(number));
            bytes
        };
        assert_eq!(mpint(&[0]), [0, 0, 0, 0]);
        assert_eq!(
            mpint(&[0x09, 0xa3, 0x78, 0xf9, 0xb2, 0xe3, 0x32, 0xa7]),
            [0, 0, 0, 8, 0x09, 0xa3, 0x78, 0xf9, 0xb2, 0xe3, 0x32, 0xa7]
        );
        assert_eq!(mpint(&[0, 0, 0x80]), [0, 0, 0, 2, 0, 0x80]);
    }

    #[test]
    fn a_field_longer_than_its_message_is_an_error() {
        for message in [&[0, 0, 0, 2, b'x'][..], &[255, 255, 255, 255, b'x'], &[0, 0]] {
            assert!(Reader::new(message).string().is_err());
        }
        let mut reader = Reader::new(&[0, 0, 0, 3, b'a', b',', b'b', 7]);
        assert_eq!(reader.names().unwrap(), ["a", "b"]);
        assert_eq!(reader.byte().unwrap(), 7);
        assert!(reader.byte().is_err());
    }
}
