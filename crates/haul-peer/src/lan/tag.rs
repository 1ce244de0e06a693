//! Tags, by which the holders of a ticket recognize its sharer.
//!
//! ```text
//! key = HKDF-SHA256(secret of the ticket, "haul lan key 1" || u64 epoch)    32 bytes
//! tag = HMAC-SHA256(key, "haul lan share" || salt)                          the first 16 bytes
//! ```
//!
//! HKDF is without salt; epochs are those of [rooms](crate::bridge::room). An announcement has the salt (16 random
//! bytes) and the tag in base32. So to everyone without the ticket, two announcements look unrelated, even of one day.

use aws_lc_rs::hmac;
use haul_storage::{Error, ErrorKind, Result};

use crate::bridge::room::{derive, sign};
use crate::ticket::{Secret, base32};

const KEY: &[u8] = b"haul lan key 1";
const TAG: &[u8] = b"haul lan share";

const SALT_LEN: usize = 16;
const TAG_LEN: usize = 16;

/// Makes and recognizes the tags of a ticket on a day. Never printed.
pub(super) struct TagKey(hmac::Key);

impl TagKey {
    /// The key of a ticket's secret on a day ([`crate::bridge::room::epoch`]).
    ///
    /// # Errors
    /// If the cryptographic library fails.
    pub(super) fn new(secret: &Secret, epoch: u64) -> Result<Self> {
        let key = derive(secret.expose(), &[KEY, &epoch.to_be_bytes()])?;
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &*key)))
    }

    /// A new salt and its tag, as text.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub(super) fn announce(&self) -> Result<String> {
        Ok(self.text(&random()?))
    }

    /// Whether a text was made with this key.
    pub(super) fn matches(&self, text: &str) -> bool {
        let Some(bytes) = base32::decode_array::<{ SALT_LEN + TAG_LEN }>(text) else {
            return false;
        };
        let (salt, tag) = bytes.split_at(SALT_LEN);
        // The announced tag is public, so the comparison need not take constant time.
        self.tag(salt) == tag
    }

    fn text(&self, salt: &[u8; SALT_LEN]) -> String {
        base32::encode(&[&salt[..], &self.tag(salt)].concat()).to_string()
    }

    fn tag(&self, salt: &[u8]) -> [u8; TAG_LEN] {
        let mut tag = [0; TAG_LEN];
        tag.copy_from_slice(&sign(&self.0, &[TAG, salt])[..TAG_LEN]);
        tag
    }
}

/// Random bytes.
///
/// # Errors
/// If the system has none.
pub(super) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes)
        .map_err(|_| Error::new(ErrorKind::Other, "generate random numbers"))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> Secret {
        Secret::new(std::array::from_fn(|at| 0x10 + at as u8))
    }

    /// Computed with Python's `hmac` and `hashlib`. A change of this value is a change of the protocol.
    #[test]
    fn a_tag_matches_the_documented_formula() {
        let salt = std::array::from_fn(|at| at as u8);
        assert_eq!(TagKey::new(&secret(), 20_000).unwrap().text(&salt), KNOWN);
    }

    const KNOWN: &str = "aaaqeayeaudaocajbifqydiob6irw5a54zr5wr4gycg437zi2fca";

    #[test]
    fn only_the_holder_of_the_ticket_recognizes_a_tag_and_only_on_its_day() {
        let key = TagKey::new(&secret(), 7).unwrap();
        let text = key.announce().unwrap();
        assert!(key.matches(&text) && key.matches(&text.to_uppercase()));
        assert!(!TagKey::new(&secret(), 8).unwrap().matches(&text));
        assert!(!TagKey::new(&Secret::new([7; 16]), 7).unwrap().matches(&text));
        for wrong in ["", &text[1..], &format!("{text}a"), "ü", &"a".repeat(text.len())] {
            assert!(!key.matches(wrong), "{wrong}");
        }
    }

    #[test]
    fn two_announcements_have_different_salts_and_tags() {
        let key = TagKey::new(&secret(), 7).unwrap();
        let (one, other) = (key.announce().unwrap(), key.announce().unwrap());
        assert_ne!(one[..25], other[..25], "salt");
        assert_ne!(one[27..], other[27..], "tag");
    }
}
