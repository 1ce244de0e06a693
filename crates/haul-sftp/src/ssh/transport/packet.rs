//! The binary packet protocol (RFC 4253, 6), without any I/O.
//!
//! ```text
//! message → Sealer → the connection's output, encrypted in place
//! input → Opener → the message, decrypted in place
//! ```
//!
//! Without compression, a payload is copied once when it is sent, and not at all when it is received.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::cipher::{Cipher, LENGTH};
use super::compression::{Deflate, Inflate};
use super::end::{End, violation};
use super::wire::PACKET_MAX;

/// Minimum bytes of padding.
const PADDING: usize = 4;

/// Bytes before the message: packet length and padding length.
const HEAD: usize = LENGTH + 1;

/// Packets after which keys are exchanged again, far below the 2^32 after which packet numbers wrap.
const PACKETS: u32 = 1 << 30;

/// Keys are exchanged again after a day if no other limit is reached before.
const LIFETIME: Duration = Duration::from_secs(86_400);

/// The traffic under one key.
#[derive(Debug)]
struct Use {
    bytes: u64,
    packets: u32,
    since: Instant,
}

impl Use {
    fn new() -> Self {
        Self { bytes: 0, packets: 0, since: Instant::now() }
    }

    fn add(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.packets += 1;
    }

    fn is_over(&self, limit: u64) -> bool {
        self.bytes >= limit || self.packets >= PACKETS || self.since.elapsed() >= LIFETIME
    }
}

/// Encrypts outgoing packets.
#[derive(Debug)]
pub struct Sealer {
    cipher: Cipher,
    number: u32,
    used: Use,
    deflate: Option<Deflate>,
}

impl Sealer {
    /// For the packets before the first key exchange, without encryption.
    pub fn clear() -> Self {
        Self { cipher: Cipher::Clear, number: 0, used: Use::new(), deflate: None }
    }

    /// Switches to new keys. `restart`: packets are counted from 0 again (strict key exchange).
    pub fn renew(&mut self, cipher: Cipher, restart: bool) {
        self.cipher = cipher;
        self.used = Use::new();
        // New keys reset compression at both ends (RFC 4253, 6.2).
        self.deflate = self.deflate.as_ref().map(|_| Deflate::new());
        if restart {
            self.number = 0;
        }
    }

    /// Compresses from here on.
    pub fn compress(&mut self) {
        self.deflate = Some(Deflate::new());
    }

    /// Whether keys should be exchanged again: after `limit` bytes, `PACKETS` or `LIFETIME`.
    pub fn is_used_up(&self, limit: u64) -> bool {
        self.used.is_over(limit)
    }

    /// Appends a packet to `out`. `write` appends the message.
    ///
    /// # Errors
    /// If compression, random padding or encryption fails.
    pub fn seal(&mut self, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), End> {
        let start = out.len();
        out.extend_from_slice(&[0; HEAD]);
        match &mut self.deflate {
            None => write(out),
            Some(deflate) => {
                let mut message = Vec::new();
                write(&mut message);
                deflate.append(&message, out)?;
            }
        }
        let (block, with_length) = self.cipher.block();
        let counted = out.len() - start - if with_length { 0 } else { LENGTH };
        let mut padding = block - counted % block;
        if padding < PADDING {
            padding += block;
        }
        let mut random = [0; 32];
        let random = &mut random[..padding];
        if !matches!(self.cipher, Cipher::Clear) {
            aws_lc_rs::rand::fill(random)?;
        }
        out.extend_from_slice(random);
        let length = super::wire::length(out.len() - start - LENGTH);
        out[start..start + LENGTH].copy_from_slice(&length.to_be_bytes());
        // At most twice a block, so it fits into a byte.
        out[start + LENGTH] = padding.to_le_bytes()[0];
        self.cipher.seal(self.number, out, start)?;
        self.number = self.number.wrapping_add(1);
        self.used.add(out.len() - start);
        Ok(())
    }
}

/// Decrypts incoming packets.
#[derive(Debug)]
pub struct Opener {
    cipher: Cipher,
    number: u32,
    used: Use,
    inflate: Option<Inflate>,
    /// Bytes of the packet at the front of the input, with length and tag.
    packet_length: Option<usize>,
}

/// A decrypted packet.
#[derive(Debug, PartialEq, Eq)]
pub enum Opened {
    /// The message's position in the packet.
    Within(Range<usize>),
    /// The message, decompressed.
    Apart(Vec<u8>),
}

impl Opener {
    /// For the packets before the first key exchange, without encryption.
    pub fn clear() -> Self {
        Self {
            cipher: Cipher::Clear,
            number: 0,
            used: Use::new(),
            inflate: None,
            packet_length: None,
        }
    }

    /// Switches to new keys. `restart`: packets are counted from 0 again (strict key exchange).
    pub fn renew(&mut self, cipher: Cipher, restart: bool) {
        self.cipher = cipher;
        self.used = Use::new();
        self.inflate = self.inflate.as_ref().map(|_| Inflate::new());
        if restart {
            self.number = 0;
        }
    }

    /// Decompresses from here on.
    pub fn decompress(&mut self) {
        self.inflate = Some(Inflate::new());
    }

    /// Whether keys should be exchanged again: after `limit` bytes, `PACKETS` or `LIFETIME`.
    pub fn is_used_up(&self, limit: u64) -> bool {
        self.used.is_over(limit)
    }

    /// The number of the next packet.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Bytes of the packet at the front of `input`, with length and tag. `None` until its length field has
    /// arrived.
    ///
    /// # Errors
    /// An invalid length. Nothing is allocated for it.
    pub fn packet_length(&mut self, input: &mut [u8]) -> Result<Option<usize>, End> {
        if self.packet_length.is_none() && input.len() >= self.cipher.head() {
            let length = self.cipher.length(self.number, input)?;
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            // Padding, its length, and a message of one byte.
            if !(PADDING + 2..=PACKET_MAX).contains(&length) {
                return Err(violation(format!("a packet of {length} bytes")));
            }
            let (block, with_length) = self.cipher.block();
            let counted = length + if with_length { LENGTH } else { 0 };
            if !counted.is_multiple_of(block) {
                return Err(violation(format!(
                    "a packet of {length} bytes, not a multiple of the block size"
                )));
            }
            self.packet_length = Some(LENGTH + length + self.cipher.tag());
        }
        Ok(self.packet_length)
    }

    /// Decrypts a packet of the length that [`Opener::packet_length`] returned.
    ///
    /// # Errors
    /// The packet was forged or is malformed.
    pub fn open(&mut self, packet: &mut [u8]) -> Result<Opened, End> {
        self.packet_length = None;
        self.cipher.open(self.number, packet)?;
        self.number = self.number.wrapping_add(1);
        self.used.add(packet.len());
        let end = packet.len() - self.cipher.tag();
        let padding = usize::from(packet[LENGTH]);
        let message = HEAD..end.saturating_sub(padding);
        if padding < PADDING || message.is_empty() {
            return Err(violation(format!("a packet with {padding} bytes of padding")));
        }
        match &mut self.inflate {
            None => Ok(Opened::Within(message)),
            Some(inflate) => inflate.all(&packet[message]).map(Opened::Apart),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssh::transport::cipher::{Material, Suite};

    const CIPHERS: [&str; 6] = [
        "aes128-gcm@openssh.com",
        "aes256-gcm@openssh.com",
        "chacha20-poly1305@openssh.com",
        "aes128-ctr",
        "aes192-ctr",
        "aes256-ctr",
    ];

    const MACS: [&str; 6] = [
        "hmac-sha2-256-etm@openssh.com",
        "hmac-sha2-512-etm@openssh.com",
        "hmac-sha2-256",
        "hmac-sha2-512",
        "hmac-sha1-etm@openssh.com",
        "hmac-sha1",
    ];

    fn suites() -> impl Iterator<Item = Suite> {
        CIPHERS.iter().flat_map(|&cipher| MACS.iter().map(move |&mac| Suite { cipher, mac }))
    }

    fn pair(suite: Suite) -> (Sealer, Opener) {
        let cipher = || {
            let lengths = suite.material();
            let material = Material {
                iv: vec![1; lengths.iv].into(),
                key: vec![2; lengths.key].into(),
                mac: vec![3; lengths.mac].into(),
            };
            Cipher::new(suite, &material).unwrap()
        };
        let (mut sealer, mut opener) = (Sealer::clear(), Opener::clear());
        sealer.renew(cipher(), true);
        opener.renew(cipher(), true);
        (sealer, opener)
    }

    fn message(length: usize) -> Vec<u8> {
        (0..length).map(|at| at.to_le_bytes()[0]).collect()
    }

    #[test]
    fn every_cipher_decrypts_messages_whose_first_bytes_arrive_one_by_one() {
        for suite in suites() {
            let (mut sealer, mut opener) = pair(suite);
            for length in (1..70).chain([4095, 32_768, 200_000]) {
                let mut wire = Vec::new();
                sealer.seal(&mut wire, |out| out.extend(message(length))).unwrap();
                // One byte at a time past the length and the first block.
                let mut received = Vec::new();
                let mut whole = None;
                for &byte in wire.iter().take(40) {
                    received.push(byte);
                    whole = opener.packet_length(&mut received).unwrap();
                }
                assert_eq!(whole, Some(wire.len()), "{suite:?}");
                received.extend_from_slice(&wire[received.len()..]);
                let opened = opener.open(&mut received).unwrap();
                let Opened::Within(range) = opened else { panic!("nothing is compressed") };
                assert_eq!(received[range], message(length));
            }
        }
    }

    #[test]
    fn every_cipher_refuses_a_packet_with_any_bit_flipped() {
        for suite in suites() {
            let mut wire = Vec::new();
            pair(suite).0.seal(&mut wire, |out| out.extend(message(20))).unwrap();
            for bit in 0..wire.len() * 8 {
                let (_, mut opener) = pair(suite);
                let mut changed = wire.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                let opened = match opener.packet_length(&mut changed) {
                    // The length may have changed: the packet is then incomplete or cut.
                    Ok(Some(whole)) if whole <= changed.len() => {
                        changed.truncate(whole);
                        opener.open(&mut changed).is_ok()
                    }
                    Ok(_) | Err(_) => false,
                };
                assert!(!opened, "{suite:?}, bit {bit}");
            }
        }
    }

    #[test]
    fn reordered_packets_are_refused() {
        for suite in suites() {
            let (mut sealer, mut opener) = pair(suite);
            let mut packets = [Vec::new(), Vec::new()];
            for packet in &mut packets {
                sealer.seal(packet, |out| out.extend(message(20))).unwrap();
            }
            let second = &mut packets[1];
            let refused = match opener.packet_length(second) {
                Ok(Some(whole)) if whole == second.len() => opener.open(second).is_err(),
                Ok(_) | Err(_) => true,
            };
            assert!(refused, "{suite:?}");
        }
    }
}
