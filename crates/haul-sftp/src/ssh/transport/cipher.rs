//! Ciphers and MACs of both directions, by aws-lc: from the negotiated names and the derived key
//! material to a [`Cipher`] that seals or opens packets in place.
//!
//! A packet is `length (4) | padding length (1) | payload | padding | tag`. Ciphers differ in what is
//! in the clear, what is authenticated and what has to be a multiple of the block:
//!
//! | | length | tag over |
//! |---|---|---|
//! | AES-GCM (RFC 5647) | clear | length and ciphertext |
//! | ChaCha20-Poly1305 (OpenSSH) | encrypted by a key of its own | the same |
//! | CTR with an `-etm` MAC (OpenSSH) | clear | number, length and ciphertext |
//! | CTR with a MAC (RFC 4253, 6.4) | encrypted | number and plaintext |

use aws_lc_rs::aead::chacha20_poly1305_openssh as chacha;
use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, EncryptionContext, StreamingEncryptingKey, UnboundCipherKey,
};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use aws_lc_rs::iv::FixedLength;
use zeroize::Zeroizing;

use super::end::{End, violation};

/// Bytes of a packet's length field.
pub const LENGTH: usize = 4;

/// Bytes of the tag of both AEADs.
const TAG: usize = 16;

/// Bytes of an AES block. A whole one is decrypted to read an encrypted length field.
const AES_BLOCK: usize = 16;

/// A negotiated cipher with its MAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suite {
    /// The cipher's name.
    pub cipher: &'static str,
    /// The MAC's name; unused with an AEAD.
    pub mac: &'static str,
}

impl Suite {
    /// Whether a cipher is an AEAD, so that no MAC is negotiated.
    pub fn is_aead(cipher: &str) -> bool {
        cipher.contains("gcm") || cipher.starts_with("chacha20")
    }

    /// Bytes of IV, key and MAC key that it needs. A MAC's key is as long as its tag (RFC 4253, 6.4; RFC 6668).
    pub fn material(self) -> Material<usize> {
        let aead = |iv, key| Material { iv, key, mac: 0 };
        let ctr =
            |key| Material { iv: 16, key, mac: mac(self.mac).map_or(0, |(mac, _)| mac.tag_len()) };
        match self.cipher {
            "aes128-gcm@openssh.com" => aead(NONCE_LEN, 16),
            "aes256-gcm@openssh.com" => aead(NONCE_LEN, 32),
            "aes128-ctr" => ctr(16),
            "aes192-ctr" => ctr(24),
            "aes256-ctr" => ctr(32),
            _ => aead(0, chacha::KEY_LEN),
        }
    }
}

/// IV, key and MAC key, or their lengths in bytes.
#[derive(Debug, Clone)]
pub struct Material<T> {
    pub iv: T,
    pub key: T,
    pub mac: T,
}

/// The MAC with this name, and whether it authenticates the ciphertext (`-etm`); `None` if it is not supported.
fn mac(name: &str) -> Option<(hmac::Algorithm, bool)> {
    let (name, is_etm) = match name.strip_suffix("-etm@openssh.com") {
        Some(name) => (name, true),
        None => (name, false),
    };
    let algorithm = match name {
        "hmac-sha2-256" => hmac::HMAC_SHA256,
        "hmac-sha2-512" => hmac::HMAC_SHA512,
        "hmac-sha1" => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        _ => return None,
    };
    Some((algorithm, is_etm))
}

/// One direction's cipher.
pub enum Cipher {
    /// Before the first key exchange.
    Clear,
    Gcm {
        key: Box<LessSafeKey>,
        nonce: [u8; NONCE_LEN],
    },
    ChaCha {
        seal: Box<chacha::SealingKey>,
        open: Box<chacha::OpeningKey>,
    },
    /// CTR is the same in both directions.
    Ctr {
        stream: Box<StreamingEncryptingKey>,
        mac: Box<hmac::Key>,
        over_ciphertext: bool,
    },
}

impl Cipher {
    /// A cipher with derived keys.
    ///
    /// # Errors
    /// An unsupported cipher or MAC, or key material of another length than [`Suite::material`].
    pub fn new(suite: Suite, material: &Material<Zeroizing<Vec<u8>>>) -> Result<Self, End> {
        let key = material.key.as_slice();
        let iv = material.iv.as_slice();
        let wrong = |_| violation("key material of a wrong length");
        let gcm = |algorithm| -> Result<Self, End> {
            let key = Box::new(LessSafeKey::new(UnboundKey::new(algorithm, key)?));
            Ok(Self::Gcm { key, nonce: iv.try_into().map_err(wrong)? })
        };
        let ctr = |algorithm| -> Result<Self, End> {
            let iv: [u8; 16] = iv.try_into().map_err(wrong)?;
            let context = EncryptionContext::Iv128(FixedLength::from(iv));
            let key = UnboundCipherKey::new(algorithm, key)?;
            let (mac, over_ciphertext) = mac(suite.mac)
                .ok_or_else(|| violation(format!("unsupported MAC {}", suite.mac)))?;
            Ok(Self::Ctr {
                // The IV is derived together with the key, and both are used once.
                stream: Box::new(StreamingEncryptingKey::less_safe_ctr(key, context)?),
                mac: Box::new(hmac::Key::new(mac, &material.mac)),
                over_ciphertext,
            })
        };
        match suite.cipher {
            "aes128-gcm@openssh.com" => gcm(&AES_128_GCM),
            "aes256-gcm@openssh.com" => gcm(&AES_256_GCM),
            "aes128-ctr" => ctr(&AES_128),
            "aes192-ctr" => ctr(&AES_192),
            "aes256-ctr" => ctr(&AES_256),
            "chacha20-poly1305@openssh.com" => {
                let key: &[u8; chacha::KEY_LEN] = key.try_into().map_err(wrong)?;
                Ok(Self::ChaCha {
                    seal: Box::new(chacha::SealingKey::new(key)),
                    open: Box::new(chacha::OpeningKey::new(key)),
                })
            }
            other => Err(violation(format!("unsupported cipher {other}"))),
        }
    }

    /// Bytes of the tag behind a packet.
    pub fn tag(&self) -> usize {
        match self {
            Self::Clear => 0,
            Self::Gcm { .. } | Self::ChaCha { .. } => TAG,
            Self::Ctr { mac, .. } => mac.algorithm().tag_len(),
        }
    }

    /// The block size that a packet is padded to, and whether the length field counts towards it.
    pub fn block(&self) -> (usize, bool) {
        match self {
            Self::Clear => (8, true),
            Self::ChaCha { .. } => (8, false),
            Self::Gcm { .. } => (AES_BLOCK, false),
            Self::Ctr { over_ciphertext, .. } => (AES_BLOCK, !over_ciphertext),
        }
    }

    /// Bytes that [`Cipher::length`] needs.
    pub fn head(&self) -> usize {
        match self {
            Self::Ctr { over_ciphertext: false, .. } => AES_BLOCK,
            _ => LENGTH,
        }
    }

    /// The value of a packet's length field. Called exactly once per packet: where the length is part
    /// of the encrypted stream, the head is decrypted in place.
    ///
    /// # Errors
    /// None for a head of the right size.
    pub fn length(&mut self, number: u32, head: &mut [u8]) -> Result<u32, End> {
        let mut length = [0; LENGTH];
        match self {
            Self::Clear | Self::Gcm { .. } | Self::Ctr { over_ciphertext: true, .. } => {
                length.copy_from_slice(&head[..LENGTH]);
            }
            Self::ChaCha { open, .. } => {
                length.copy_from_slice(&head[..LENGTH]);
                length = open.decrypt_packet_length(number, length);
            }
            Self::Ctr { stream, .. } => {
                apply_ctr(stream, &mut head[..AES_BLOCK])?;
                length.copy_from_slice(&head[..LENGTH]);
            }
        }
        Ok(u32::from_be_bytes(length))
    }

    /// Authenticates and decrypts a packet in place, after [`Cipher::length`]: `packet` is all of it
    /// with the tag. The plaintext is then between length and tag.
    ///
    /// # Errors
    /// The tag is wrong: the packet was corrupted or forged.
    pub fn open(&mut self, number: u32, packet: &mut [u8]) -> Result<(), End> {
        let forged = |_| violation("a packet whose MAC is wrong");
        let (body, tag) = packet.split_at_mut(packet.len() - self.tag());
        match self {
            Self::Clear => Ok(()),
            Self::Gcm { key, nonce } => {
                let (length, sealed) = body.split_at_mut(LENGTH);
                let once = next_nonce(nonce);
                key.open_in_place_separate_tag(once, Aad::from(&*length), tag, sealed)
                    .map(drop)
                    .map_err(forged)
            }
            Self::ChaCha { open, .. } => {
                let tag: &[u8; TAG] = (&*tag).try_into().map_err(|_| violation("no tag"))?;
                open.open_in_place(number, body, tag).map(drop).map_err(forged)
            }
            Self::Ctr { stream, mac, over_ciphertext: true } => {
                verify_slices_are_equal(sign(mac, number, body).as_ref(), tag).map_err(forged)?;
                apply_ctr(stream, &mut body[LENGTH..])
            }
            Self::Ctr { stream, mac, over_ciphertext: false } => {
                apply_ctr(stream, &mut body[AES_BLOCK..])?;
                verify_slices_are_equal(sign(mac, number, body).as_ref(), tag).map_err(forged)
            }
        }
    }

    /// Encrypts the packet that begins at `start` of `out` with its length, and appends the tag.
    ///
    /// # Errors
    /// None for packets that are padded according to [`Cipher::block`].
    pub fn seal(&mut self, number: u32, out: &mut Vec<u8>, start: usize) -> Result<(), End> {
        let packet = &mut out[start..];
        match self {
            Self::Clear => {}
            Self::Gcm { key, nonce } => {
                let (length, plain) = packet.split_at_mut(LENGTH);
                let once = next_nonce(nonce);
                let tag = key.seal_in_place_separate_tag(once, Aad::from(&*length), plain)?;
                out.extend_from_slice(tag.as_ref());
            }
            Self::ChaCha { seal, .. } => {
                let mut tag = [0; TAG];
                seal.seal_in_place(number, packet, &mut tag);
                out.extend_from_slice(&tag);
            }
            Self::Ctr { stream, mac, over_ciphertext: true } => {
                apply_ctr(stream, &mut packet[LENGTH..])?;
                let tag = sign(mac, number, packet);
                out.extend_from_slice(tag.as_ref());
            }
            Self::Ctr { stream, mac, over_ciphertext: false } => {
                let tag = sign(mac, number, packet);
                apply_ctr(stream, packet)?;
                out.extend_from_slice(tag.as_ref());
            }
        }
        Ok(())
    }
}

/// The nonce of the next packet; its last 8 bytes count packets (RFC 5647, 7.1).
fn next_nonce(nonce: &mut [u8; NONCE_LEN]) -> Nonce {
    let now = Nonce::assume_unique_for_key(*nonce);
    for byte in nonce[4..].iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            break;
        }
    }
    now
}

fn sign(key: &hmac::Key, number: u32, packet: &[u8]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    context.update(&number.to_be_bytes());
    context.update(packet);
    context.sign()
}

/// Applies CTR in place. aws-lc streams from one buffer to another, so the bytes go through a small one.
fn apply_ctr(stream: &mut StreamingEncryptingKey, bytes: &mut [u8]) -> Result<(), End> {
    let mut through = [0; 4096];
    for piece in bytes.chunks_mut(through.len()) {
        let out = &mut through[..piece.len()];
        stream.less_safe_update(piece, out)?;
        piece.copy_from_slice(out);
    }
    Ok(())
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cipher")
    }
}
