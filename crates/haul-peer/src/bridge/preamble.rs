//! The first bytes of a connection to a bridge, unless it is TLS: `haulbr1\n` and the connection's number, 32 random
//! bytes. A connection from a sharer to a client begins with `haulrv1\n` and a hash of its number. All bytes after the
//! preamble are the peers' own TLS.

use aws_lc_rs::digest;
use haul_storage::{Error, ErrorKind, Result};

/// The first byte of a data connection. That of a signalling connection is [`TLS`].
pub const FIRST: u8 = MAGIC[0];

/// The first byte of a TLS connection: the type of a handshake record.
pub const TLS: u8 = 0x16;

/// Length of a preamble in bytes.
pub const LEN: usize = MAGIC.len() + 32;

const MAGIC: [u8; 8] = *b"haulbr1\n";

const REVERSE: [u8; 8] = *b"haulrv1\n";

/// Hashed before the number of a connection from a sharer to a client.
const HASH_PREFIX: &[u8] = b"haul reverse 1";

/// The number of a data connection. Another connection with this number could take its place, so it is random, and
/// announced within TLS.
pub type ConnectionId = [u8; 32];

/// A new number.
///
/// # Errors
/// If the system has no random numbers.
pub fn random_id() -> Result<ConnectionId> {
    let mut id = [0; 32];
    aws_lc_rs::rand::fill(&mut id)
        .map_err(|error| Error::new(ErrorKind::Other, "open a connection").with_source(error))?;
    Ok(id)
}

/// The preamble of a connection to a bridge.
pub fn encode(id: &ConnectionId) -> [u8; LEN] {
    behind(MAGIC, id)
}

/// The number in a preamble to a bridge; `None` if these bytes are not one.
pub fn decode(bytes: &[u8; LEN]) -> Option<ConnectionId> {
    bytes.strip_prefix(&MAGIC)?.try_into().ok()
}

/// The hash by which a sharer shows a client that it knows the number of a connection. The client or the bridge chooses
/// that number and the address to which the sharer connects: a hash cannot be a command for a service at that address.
pub fn number_hash(id: &ConnectionId) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(HASH_PREFIX);
    context.update(id);
    let mut hash = [0; 32];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

/// The preamble of a connection from a sharer to a client, with the hash of its number ([`number_hash`]).
pub fn encode_reverse(hash: &[u8; 32]) -> [u8; LEN] {
    behind(REVERSE, hash)
}

/// The hash in a preamble to a client; `None` if these bytes are not one.
pub fn decode_reverse(bytes: &[u8; LEN]) -> Option<[u8; 32]> {
    bytes.strip_prefix(&REVERSE)?.try_into().ok()
}

fn behind(magic: [u8; 8], id: &ConnectionId) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[..magic.len()].copy_from_slice(&magic);
    bytes[magic.len()..].copy_from_slice(id);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preamble_is_decoded_again_and_others_are_refused() {
        let id = random_id().unwrap();
        let mut bytes = encode(&id);
        assert_eq!(decode(&bytes), Some(id));
        assert_eq!(bytes[0], FIRST);
        for at in 0..MAGIC.len() {
            bytes[at] ^= 1;
            assert_eq!(decode(&bytes), None);
            bytes[at] ^= 1;
        }
        assert_ne!(id, random_id().unwrap());
        // A connection of one kind is not taken for one of the other.
        assert_eq!(decode_reverse(&bytes), None);
        assert_eq!(decode(&encode_reverse(&id)), None);
        assert_eq!(decode_reverse(&encode_reverse(&id)), Some(id));
    }

    /// Computed with Python's `hashlib`. A change of this value is a change of the protocol.
    #[test]
    fn the_hash_of_a_number_is_the_documented_one() {
        let hash = number_hash(&std::array::from_fn(|at| at as u8));
        let text: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(text, "948d2f02d410896724993bd0ed059cc675d49e97a025869cca0840dedfd4474b");
    }
}
