//! Entry points for fuzz targets: the decoders of data from unauthenticated peers. Each takes any bytes and
//! panics if an invariant is broken.

use std::sync::OnceLock;

use bytes::BytesMut;

use super::cipher::{Cipher, Material, Suite};
use super::handshake::parse_auth_response;
use super::host_key::verified;
use super::identification::Identification;
use super::negotiation::Offer;
use super::packet::{Opened, Opener};
use super::wire::PACKET_MAX;
use crate::ssh::algorithms::Algorithms;
use crate::ssh::choice::{CIPHERS_WITH_AES, HOST_KEYS, MACS};
use crate::ssh::config;
use crate::ssh::options::{ConfigFile, SshOptions};

/// A server's first lines: an identification is found no matter how they are split into chunks.
pub fn identification(data: &[u8]) {
    let Some((&size, text)) = data.split_first() else { return };
    let read = |chunks: &mut dyn Iterator<Item = &[u8]>| {
        let (mut state, mut buffer) = (Identification::default(), BytesMut::new());
        for chunk in chunks {
            buffer.extend_from_slice(chunk);
            match state.next(&mut buffer) {
                Ok(None) => {}
                Ok(Some(line)) => return Some(Ok(line)),
                Err(end) => return Some(Err(format!("{end:?}"))),
            }
        }
        None
    };
    let whole = read(&mut std::iter::once(text));
    let pieces = read(&mut text.chunks(usize::from(size).max(1)));
    if let Some(Ok(line)) = &whole {
        assert!(line.starts_with("SSH-") && !line.contains('\n'), "{line:?}");
        assert_eq!(pieces, whole, "an identification depends on its chunks");
    }
}

/// A server's KEXINIT: it contains the agreed key exchange, host key algorithm and outgoing cipher.
pub fn offer(data: &[u8]) {
    static OFFER: OnceLock<Option<Offer>> = OnceLock::new();
    let offer = OFFER.get_or_init(|| {
        let options = SshOptions { config: ConfigFile::None, ..SshOptions::default() };
        let config = config::resolve(None, "h", None, &options).ok()?;
        Some(Offer::new(&Algorithms::choose(&config, &[]).ok()?, true))
    });
    if let Some(Ok(agreed)) = offer.as_ref().map(|offer| offer.agree(data)) {
        let has = |name: &str| data.windows(name.len()).any(|part| part == name.as_bytes());
        assert!(has(agreed.kex) && has(&agreed.host_key) && has(agreed.out.cipher), "{agreed:?}");
        assert!(!agreed.guess_is_right || !agreed.skip, "{agreed:?}");
    }
}

/// Packets in the clear, and packets opened with keys that they were not sealed with.
pub fn packets(data: &[u8]) {
    let Some((&pick, rest)) = data.split_first() else { return };
    let mut opener = Opener::clear();
    let ciphers = CIPHERS_WITH_AES.offered();
    if let Some(&cipher) = ciphers.get(usize::from(pick & 7)) {
        let mac = MACS.offered()[usize::from(pick >> 3) % MACS.offered().len()];
        let suite = Suite { cipher, mac };
        let lengths = suite.material();
        let material = Material {
            iv: vec![1; lengths.iv].into(),
            key: vec![2; lengths.key].into(),
            mac: vec![3; lengths.mac].into(),
        };
        let Ok(cipher) = Cipher::new(suite, &material) else { return };
        opener.renew(cipher, true);
    }
    let mut buffer = BytesMut::from(rest);
    while let Ok(Some(whole)) = opener.packet_length(&mut buffer) {
        // The limit does not include length and tag.
        assert!(whole <= PACKET_MAX + 4 + 64, "{whole}");
        if whole > buffer.len() {
            return;
        }
        let mut packet = buffer.split_to(whole);
        match opener.open(&mut packet) {
            Ok(Opened::Within(message)) => assert!(!packet[message].is_empty()),
            Ok(Opened::Apart(_)) | Err(_) => return,
        }
    }
}

/// Responses to authentication requests.
pub fn authentication(data: &[u8]) {
    // Any input is parsed or refused, without a panic.
    drop(parse_auth_response(data));
}

/// Host keys and certificates: none is accepted without a valid signature.
pub fn certificate(data: &[u8]) {
    for algorithm in HOST_KEYS.offered() {
        for (blob, signature) in [(data, data), data.split_at(data.len() / 2)] {
            assert!(verified(algorithm, blob, signature, &[7; 32]).is_err(), "forged: {algorithm}");
        }
    }
}
