//! The public key that identifies a peer.

use std::fmt;
use std::str::FromStr;

use super::base32;

/// The context of the fingerprint's hash. It must never change.
const FINGERPRINT_CONTEXT: &str = "haul 2025-11 peer key fingerprint v1";

/// Points of small order, with the sign bit cleared, in canonical and other encodings. Anybody can make a signature
/// that such a "key" verifies, so it identifies no machine. The list is libsodium's (`ge25519_has_small_order`).
const SMALL_ORDER: [[u8; 32]; 7] = [
    with_ends(0x00, 0x00, 0x00),
    with_ends(0x01, 0x00, 0x00),
    [
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98,
        0xf0, 0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53,
        0xfc, 0x05,
    ],
    [
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67,
        0x0f, 0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac,
        0x03, 0x7a,
    ],
    with_ends(0xec, 0xff, 0x7f),
    with_ends(0xed, 0xff, 0x7f),
    with_ends(0xee, 0xff, 0x7f),
];

/// An Ed25519 public key (RFC 8032). Displayed as a fingerprint of 16 characters (80 bits) in groups of 4; written
/// in full by [`PeerKey::to_text`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerKey(pub [u8; 32]);

impl PeerKey {
    /// A key that came from outside; `None` if its point has a small order, so that anybody could sign for it.
    pub fn checked(bytes: [u8; 32]) -> Option<Self> {
        let mut point = bytes;
        point[31] &= 0x7f;
        (!SMALL_ORDER.contains(&point)).then_some(Self(bytes))
    }

    /// The key's 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The key in base32: 52 characters. The inverse is [`PeerKey::from_str`].
    pub fn to_text(&self) -> String {
        base32::encode(&self.0).to_string()
    }
}

/// Why a text is not a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not the key of a peer: 52 characters of base32")]
pub struct PeerKeyError;

impl FromStr for PeerKey {
    type Err = PeerKeyError;

    fn from_str(text: &str) -> Result<Self, PeerKeyError> {
        base32::decode_array(text).and_then(Self::checked).ok_or(PeerKeyError)
    }
}

impl fmt::Display for PeerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hash = blake3::derive_key(FINGERPRINT_CONTEXT, &self.0);
        let text = base32::encode(&hash[..10]);
        write!(f, "{}-{}-{}-{}", &text[..4], &text[4..8], &text[8..12], &text[12..])
    }
}

impl fmt::Debug for PeerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerKey({self})")
    }
}

/// 32 bytes: the first, 30 equal ones, the last.
const fn with_ends(first: u8, middle: u8, last: u8) -> [u8; 32] {
    let mut bytes = [middle; 32];
    bytes[0] = first;
    bytes[31] = last;
    bytes
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};

    use super::*;

    #[test]
    fn a_key_is_displayed_as_a_fingerprint_in_groups() {
        let shown = PeerKey([1; 32]).to_string();
        let groups: Vec<_> = shown.split('-').collect();
        assert_eq!(groups.len(), 4);
        assert!(groups.iter().all(|group| group.len() == 4), "{shown}");
        assert_ne!(shown, PeerKey([2; 32]).to_string());
        assert_eq!(format!("{:?}", PeerKey([1; 32])), format!("PeerKey({shown})"));
    }

    #[test]
    fn the_full_text_of_a_key_is_parsed_again() {
        let key = PeerKey([0xa5; 32]);
        assert_eq!(key.to_text().len(), 52);
        assert_eq!(key.to_text().parse(), Ok(key));
        assert_eq!(key.to_text().to_uppercase().parse(), Ok(key));
        let text = key.to_text();
        for wrong in ["", &text[1..], &format!("{text}a"), &text.replace('u', "0")] {
            assert_eq!(wrong.parse::<PeerKey>(), Err(PeerKeyError), "{wrong}");
        }
    }

    /// R = B, S = 1 is a signature of every message by the neutral element: S·B = R + h·A.
    #[test]
    fn a_key_for_which_anybody_can_sign_is_refused() {
        let neutral = with_ends(1, 0, 0);
        let mut signature = [0x66; 64];
        signature[0] = 0x58;
        signature[32..].fill(0);
        signature[32] = 1;
        // The premise: the signature check itself does not refuse it.
        let verified = UnparsedPublicKey::new(&ED25519, neutral).verify(b"any", &signature);
        assert!(verified.is_ok());
        for mut point in SMALL_ORDER {
            assert_eq!(PeerKey::checked(point), None);
            point[31] |= 0x80;
            assert_eq!(PeerKey::checked(point), None);
        }
        assert_eq!(PeerKey::checked([1; 32]), Some(PeerKey([1; 32])));
    }
}
