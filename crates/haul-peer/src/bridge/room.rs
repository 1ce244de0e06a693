//! Rooms, in which a sharer and the holders of its ticket meet, and the proofs that a bridge requires.
//!
//! ```text
//! name  = HKDF-SHA256(secret of the ticket, "haul bridge room 1" || u64 epoch)      32 bytes
//! key   = HKDF-SHA256(secret of the ticket, "haul bridge key 1"  || u64 epoch)      32 bytes
//! mac   = HMAC-SHA256(key, "haul bridge join" || exporter || client key)            of a joiner
//! proof = HMAC-SHA256(HKDF-SHA256(token, "haul bridge token 1"), exporter || client key)   of a sharer
//! ```
//!
//! HKDF is without salt; the epoch is the number of days since 1970, big-endian. The exporter value and the
//! client's public key are those of the signalling connection, so neither proof is valid on another one. A
//! bridge learns nothing from names and keys themselves: they look random, and those of two days cannot be
//! linked by them. It does see which three days' rooms a sharer registers together ([`epochs`]).

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::{hkdf, hmac};
use haul_storage::{Error, ErrorKind, Result};
use zeroize::Zeroizing;

use crate::ticket::Secret;

/// Seconds of an epoch.
const DAY: u64 = 86_400;

const NAME: &[u8] = b"haul bridge room 1";
const KEY: &[u8] = b"haul bridge key 1";
const TOKEN: &[u8] = b"haul bridge token 1";
const JOIN: &[u8] = b"haul bridge join";

/// The name and the key of a room.
#[derive(Clone)]
pub struct Room {
    /// Its name.
    pub name: [u8; 32],
    /// Proves that a client may join. Never logged.
    pub key: RoomKey,
}

impl Room {
    /// The room of a ticket's secret on a day ([`epoch`]).
    ///
    /// # Errors
    /// If the cryptographic library fails.
    pub fn new(secret: &Secret, epoch: u64) -> Result<Self> {
        let epoch = epoch.to_be_bytes();
        Ok(Self {
            name: *derive(secret.expose(), &[NAME, &epoch])?,
            key: RoomKey(derive(secret.expose(), &[KEY, &epoch])?),
        })
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").finish_non_exhaustive()
    }
}

/// The key of a room. Its memory is wiped when it is dropped, and it is never printed.
#[derive(Clone)]
pub struct RoomKey(Zeroizing<[u8; 32]>);

impl RoomKey {
    /// Takes over the bytes of a key.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes themselves, for the bridge.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }

    /// The proof of a joiner, on a connection with this exporter value and client key.
    pub fn prove(&self, exporter: &[u8; 32], client_key: &[u8; 32]) -> [u8; 32] {
        sign(&self.hmac(), &[JOIN, exporter, client_key])
    }

    /// Whether `mac` is the proof of a joiner, in time independent of its bytes.
    pub fn verify(&self, exporter: &[u8; 32], client_key: &[u8; 32], mac: &[u8]) -> bool {
        verify(&self.hmac(), &[JOIN, exporter, client_key], mac)
    }

    fn hmac(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &*self.0)
    }
}

/// In constant time.
impl PartialEq for RoomKey {
    fn eq(&self, other: &Self) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(&*self.0, &*other.0).is_ok()
    }
}

impl Eq for RoomKey {}

impl fmt::Debug for RoomKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The key derived from the token of a bridge.
#[derive(Clone)]
pub struct TokenKey(hmac::Key);

impl TokenKey {
    /// Derives it from the token's text.
    ///
    /// # Errors
    /// If the cryptographic library fails.
    pub fn new(token: &str) -> Result<Self> {
        let key = derive(token.as_bytes(), &[TOKEN])?;
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &*key)))
    }

    /// The proof of a sharer, on a connection with this exporter value and client key.
    pub fn prove(&self, exporter: &[u8; 32], client_key: &[u8; 32]) -> [u8; 32] {
        sign(&self.0, &[exporter, client_key])
    }

    /// Whether `proof` is the proof of a sharer, in time independent of its bytes.
    pub fn verify(&self, exporter: &[u8; 32], client_key: &[u8; 32], proof: &[u8]) -> bool {
        verify(&self.0, &[exporter, client_key], proof)
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The number of the day (UTC) of a time.
pub fn epoch(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / DAY)
}

/// The days whose rooms a sharer registers: those of clients whose clock differs by up to a day. The first is the
/// day of `time`.
pub fn epochs(time: SystemTime) -> [u64; 3] {
    let today = epoch(time);
    [today, today.saturating_sub(1), today + 1]
}

/// HKDF-SHA256 without salt.
///
/// # Errors
/// If the cryptographic library fails.
pub(crate) fn derive(input: &[u8], info: &[&[u8]]) -> Result<Zeroizing<[u8; 32]>> {
    let mut key = Zeroizing::new([0; 32]);
    let extracted = hkdf::Salt::none(hkdf::HKDF_SHA256).extract(input);
    let expanded = extracted.expand(info, hkdf::HKDF_SHA256);
    expanded
        .and_then(|expanded| expanded.fill(&mut key[..]))
        .map_err(|_| Error::new(ErrorKind::Other, "derive a key"))?;
    Ok(key)
}

/// HMAC of the concatenated parts.
pub(crate) fn sign(key: &hmac::Key, parts: &[&[u8]]) -> [u8; 32] {
    let mut tag = [0; 32];
    tag.copy_from_slice(hmac::sign(key, &parts.concat()).as_ref());
    tag
}

/// Whether `tag` is the HMAC of the concatenated parts, in time independent of its bytes.
pub(super) fn verify(key: &hmac::Key, parts: &[&[u8]], tag: &[u8]) -> bool {
    hmac::verify(key, &parts.concat(), tag).is_ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn secret() -> Secret {
        Secret::new(std::array::from_fn(|at| 0x10 + at as u8))
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Computed with Python's `hmac` and `hashlib`. A change of these values is a change of the protocol.
    #[test]
    fn names_keys_and_proofs_are_those_of_the_documented_formulas() {
        let room = Room::new(&secret(), 20_000).unwrap();
        let exporter = std::array::from_fn(|at| at as u8);
        let known = [
            (hex(&room.name), NAME_HEX),
            (hex(room.key.expose()), KEY_HEX),
            (hex(&room.key.prove(&exporter, &[0xc1; 32])), MAC_HEX),
            (hex(&TokenKey::new("token").unwrap().prove(&exporter, &[0xc1; 32])), PROOF_HEX),
        ];
        for (found, expected) in known {
            assert_eq!(found, expected);
        }
    }

    const NAME_HEX: &str = "641583882e92b771a0f225e0e8d25b260e38ca3abb51daa2b1629efad3903a27";
    const KEY_HEX: &str = "eccef4cb45182e4220c7401355670240c5662e64c88818b02465445124ab58bc";
    const MAC_HEX: &str = "2a3f8225aff22393b09d28a0c0ff3f5f1587b945e95aae2e428d056fea3b1746";
    const PROOF_HEX: &str = "c04cb44eaf5730df008306faa3da288385064cae2b5d71bc8fe0b757b18e0522";

    #[test]
    fn rooms_of_other_days_and_secrets_have_other_names_and_keys() {
        let room = Room::new(&secret(), 7).unwrap();
        let other = Secret::new([7; 16]);
        for another in [Room::new(&secret(), 8).unwrap(), Room::new(&other, 7).unwrap()] {
            assert_ne!(room.name, another.name);
            assert_ne!(room.key, another.key);
        }
        assert_ne!(&room.name, room.key.expose());
        assert_eq!(format!("{room:?} {:?}", room.key), "Room { .. } ***");
    }

    #[test]
    fn a_proof_is_valid_for_its_key_and_connection_only() {
        let key = RoomKey::new([1; 32]);
        let token = TokenKey::new("token").unwrap();
        let (mac, proof) = (key.prove(&[2; 32], &[3; 32]), token.prove(&[2; 32], &[3; 32]));
        assert!(key.verify(&[2; 32], &[3; 32], &mac));
        assert!(token.verify(&[2; 32], &[3; 32], &proof));
        for (exporter, client) in [([4; 32], [3; 32]), ([2; 32], [4; 32]), ([3; 32], [2; 32])] {
            assert!(!key.verify(&exporter, &client, &mac));
            assert!(!token.verify(&exporter, &client, &proof));
        }
        assert!(!RoomKey::new([4; 32]).verify(&[2; 32], &[3; 32], &mac));
        assert!(!TokenKey::new("other").unwrap().verify(&[2; 32], &[3; 32], &proof));
        assert!(
            !key.verify(&[2; 32], &[3; 32], &mac[..31]) && !token.verify(&[2; 32], &[3; 32], &[])
        );
    }

    #[test]
    fn clocks_may_differ_by_a_day() {
        let time = UNIX_EPOCH + Duration::from_secs(20_000 * DAY + 5);
        assert_eq!(epochs(time), [20_000, 19_999, 20_001]);
        for clock in [time - Duration::from_secs(DAY), time + Duration::from_secs(DAY)] {
            assert!(epochs(time).contains(&epoch(clock)));
        }
    }
}
