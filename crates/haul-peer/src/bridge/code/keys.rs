//! SPAKE2 with a code as its password, and the keys derived from its result.
//!
//! ```text
//! K            = SPAKE2(Ed25519; password: the code; A: "haul code 1 receiver" || exporter,
//!                                                    B: "haul code 1 sharer" || exporter)
//! key(label)   = HKDF-SHA256(salt: none, K, info: label, 32 bytes)
//! mac          = HMAC-SHA256(key(label), exporter || message of A || message of B)
//!                with the label "haul code 1 receiver mac" or "haul code 1 sharer mac"
//! ticket       = AES-256-GCM(key("haul code 1 ticket"), nonce: zero, aad: "haul code 1 ticket")
//! ```
//!
//! SPAKE2 gives both sides the same key only if they have the same code and the same TLS connection: a man in the
//! middle has two connections with two exporter values. An exchange tests at most one code: a side that sends its mac
//! lets the other one compare it with a guess. The receiver sends its mac first, so a receiver that guesses learns
//! nothing before the sharer has noticed the guess.
//!
//! The key of the ticket is used for one message, so the nonce may be constant.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use bytes::Bytes;
use haul_storage::{Error, ErrorKind, Result};
use spake2::{Ed25519Group, Identity, Password, Spake2};
use zeroize::Zeroizing;

use super::super::room::{derive, sign, verify};
use super::spoken::Code;

/// Length in bytes of either message of SPAKE2: a byte for the side, and a point.
pub(super) const SHARE_LEN: usize = 33;

const RECEIVER: &[u8] = b"haul code 1 receiver";
const SHARER: &[u8] = b"haul code 1 sharer";
const RECEIVER_MAC: &[u8] = b"haul code 1 receiver mac";
const SHARER_MAC: &[u8] = b"haul code 1 sharer mac";
const TICKET: &[u8] = b"haul code 1 ticket";

/// A side of the exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// Side A.
    Receiver,
    /// Side B.
    Sharer,
}

/// One side of SPAKE2 before the other side's message has arrived.
pub(super) struct Half {
    side: Side,
    state: Spake2<Ed25519Group>,
    share: Bytes,
    exporter: [u8; 32],
}

impl Half {
    /// Starts the exchange on a connection with this exporter value.
    pub(super) fn start(side: Side, code: &Code, exporter: [u8; 32]) -> Self {
        let text = Zeroizing::new(code.to_string());
        let password = Password::new(text.as_bytes());
        let receiver = Identity::new(&[RECEIVER, &exporter[..]].concat());
        let sharer = Identity::new(&[SHARER, &exporter[..]].concat());
        let (state, share) = match side {
            Side::Receiver => Spake2::<Ed25519Group>::start_a(&password, &receiver, &sharer),
            Side::Sharer => Spake2::<Ed25519Group>::start_b(&password, &receiver, &sharer),
        };
        Self { side, state, share: share.into(), exporter }
    }

    /// This side's message.
    pub(super) fn share(&self) -> Bytes {
        self.share.clone()
    }

    /// Derives the keys from `theirs`, the other side's message.
    ///
    /// # Errors
    /// `Protocol` if that is not a valid message of the other side, which reveals nothing about the code; `Other` if
    /// the cryptographic library fails.
    pub(super) fn finish(self, theirs: &[u8]) -> Result<Keys> {
        let invalid =
            || Error::new(ErrorKind::Protocol, "use the code").because("an invalid key exchange");
        if theirs.len() != SHARE_LEN {
            return Err(invalid());
        }
        let key = Zeroizing::new(self.state.finish(theirs).map_err(|_| invalid())?);
        let (of_receiver, of_sharer) = match self.side {
            Side::Receiver => (&self.share[..], theirs),
            Side::Sharer => (theirs, &self.share[..]),
        };
        Keys::new(&key, [&self.exporter[..], of_receiver, of_sharer].concat())
    }
}

/// The keys of an exchange. They are the same on both sides if code and connection are.
pub(super) struct Keys {
    receiver: hmac::Key,
    sharer: hmac::Key,
    ticket: Zeroizing<[u8; 32]>,
    /// What the macs authenticate: exporter, message of A, message of B.
    transcript: Vec<u8>,
}

impl Keys {
    fn new(key: &[u8], transcript: Vec<u8>) -> Result<Self> {
        let of = |label: &[u8]| derive(key, &[label]);
        Ok(Self {
            receiver: hmac::Key::new(hmac::HMAC_SHA256, &*of(RECEIVER_MAC)?),
            sharer: hmac::Key::new(hmac::HMAC_SHA256, &*of(SHARER_MAC)?),
            ticket: of(TICKET)?,
            transcript,
        })
    }

    /// The proof that a side has these keys.
    pub(super) fn mac(&self, side: Side) -> [u8; 32] {
        sign(self.of(side), &[&self.transcript[..]])
    }

    /// Whether `mac` is the proof of `side`, in time independent of its bytes.
    pub(super) fn verify(&self, side: Side, mac: &[u8]) -> bool {
        verify(self.of(side), &[&self.transcript[..]], mac)
    }

    /// Encrypts the ticket.
    ///
    /// # Errors
    /// If the cryptographic library fails.
    pub(super) fn seal(&self, ticket: &str) -> Result<Bytes> {
        // Long enough from the start: a vector that grows leaves a copy behind.
        let mut sealed = Vec::with_capacity(ticket.len() + AES_256_GCM.tag_len());
        sealed.extend_from_slice(ticket.as_bytes());
        let failed = |_| Error::new(ErrorKind::Other, "encrypt the ticket");
        let (nonce, aad) = (Nonce::assume_unique_for_key([0; 12]), Aad::from(TICKET));
        self.cipher()?.seal_in_place_append_tag(nonce, aad, &mut sealed).map_err(failed)?;
        Ok(sealed.into())
    }

    /// Decrypts the ticket.
    ///
    /// # Errors
    /// `Protocol` if it was not encrypted with these keys, or is not UTF-8; `Other` if the cryptographic library fails.
    pub(super) fn open(&self, sealed: &[u8]) -> Result<Zeroizing<String>> {
        let failed = || {
            Error::new(ErrorKind::Protocol, "use the code")
                .because("the ticket cannot be decrypted")
        };
        let mut bytes = Zeroizing::new(sealed.to_vec());
        let (nonce, aad) = (Nonce::assume_unique_for_key([0; 12]), Aad::from(TICKET));
        let opened = self.cipher()?.open_in_place(nonce, aad, &mut bytes[..]);
        let text = opened.map_err(|_| failed())?;
        let text = std::str::from_utf8(text).map_err(|_| failed())?;
        Ok(Zeroizing::new(text.to_owned()))
    }

    fn cipher(&self) -> Result<LessSafeKey> {
        let key = UnboundKey::new(&AES_256_GCM, &self.ticket[..]);
        Ok(LessSafeKey::new(key.map_err(|_| Error::new(ErrorKind::Other, "derive a key"))?))
    }

    const fn of(&self, side: Side) -> &hmac::Key {
        match side {
            Side::Receiver => &self.receiver,
            Side::Sharer => &self.sharer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(codes: [&str; 2], exporters: [u8; 2]) -> (Keys, Keys) {
        let [receiver, sharer] = codes.map(|code| code.parse().unwrap());
        let receiver = Half::start(Side::Receiver, &receiver, [exporters[0]; 32]);
        let sharer = Half::start(Side::Sharer, &sharer, [exporters[1]; 32]);
        let (to_sharer, to_receiver) = (receiver.share(), sharer.share());
        (receiver.finish(&to_receiver).unwrap(), sharer.finish(&to_sharer).unwrap())
    }

    #[test]
    fn sides_with_the_same_code_and_connection_have_the_same_keys() {
        let (receiver, sharer) = keys(["7-orbit-candle"; 2], [1; 2]);
        assert!(sharer.verify(Side::Receiver, &receiver.mac(Side::Receiver)));
        assert!(receiver.verify(Side::Sharer, &sharer.mac(Side::Sharer)));
        let sealed = sharer.seal("haul1ticket").unwrap();
        assert_eq!(*receiver.open(&sealed).unwrap(), "haul1ticket");
        assert!(!sealed.windows(5).any(|part| part == b"haul1"));
    }

    #[test]
    fn another_word_number_or_connection_gives_other_keys() {
        let code = "7-orbit-candle";
        for (other, exporter) in [
            ("7-orbit-orbit", 1),
            ("7-candle-orbit", 1),
            ("8-orbit-candle", 1),
            ("7-orbit-candle", 2),
        ] {
            let (receiver, sharer) = keys([other, code], [exporter, 1]);
            assert!(!sharer.verify(Side::Receiver, &receiver.mac(Side::Receiver)), "{other}");
            assert!(!receiver.verify(Side::Sharer, &sharer.mac(Side::Sharer)), "{other}");
            let error = receiver.open(&sharer.seal("haul1ticket").unwrap()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol);
        }
    }

    #[test]
    fn a_mac_cannot_be_reflected_or_shortened() {
        let (receiver, sharer) = keys(["7-orbit-candle"; 2], [1; 2]);
        let mac = receiver.mac(Side::Receiver);
        assert!(!receiver.verify(Side::Sharer, &mac));
        assert!(!sharer.verify(Side::Receiver, &mac[..31]) && !sharer.verify(Side::Receiver, &[]));
    }

    #[test]
    fn invalid_messages_are_refused() {
        let code = "7-orbit-candle".parse().unwrap();
        let start = |side| Half::start(side, &code, [1; 32]);
        let own = start(Side::Sharer).share();
        assert_eq!(own.len(), SHARE_LEN);
        let long = [&start(Side::Receiver).share()[..], &[0]].concat();
        for theirs in [&own[..], &[], &[b'A'; 5], &[0xff; SHARE_LEN], &long[..]] {
            let error = start(Side::Sharer).finish(theirs).map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol, "{theirs:?}");
        }
    }

    /// Computed with Python's `hmac` and `hashlib`. A change of these values is a change of the protocol.
    #[test]
    fn macs_are_those_of_the_documented_formulas() {
        let exporter: [u8; 32] = std::array::from_fn(|at| at as u8);
        let transcript = [&exporter[..], b"A", &[0xa1; 32], b"B", &[0xb2; 32]].concat();
        let keys = Keys::new(&[0x4b; 32], transcript).unwrap();
        let hex = |mac: [u8; 32]| mac.iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(hex(keys.mac(Side::Receiver)), RECEIVER_HEX);
        assert_eq!(hex(keys.mac(Side::Sharer)), SHARER_HEX);
    }

    const RECEIVER_HEX: &str = "ed254b21a835f09498cd0db1fecec8b140febd6d752bcbaef5e28f3068dc3353";
    const SHARER_HEX: &str = "a8ecf2731acf4a52116b9304a8c30b010e67de6754cc17cbd4e3fa00eb69dbe3";
}
