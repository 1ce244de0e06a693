//! The response to `check-file-name` (draft-ietf-secsh-filexfer-09, 9.1.2): the hash function used,
//! and the digests.

use bytes::Bytes;

use super::wire::{Fields, Packet};
use super::{CodecError, kind};

/// The response to [`Extended::CheckFileName`](super::Extended::CheckFileName).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHash {
    /// The hash function, by its name in the draft.
    pub algorithm: Bytes,
    /// The concatenated digests of all blocks; a single digest if no block length was requested.
    pub digests: Bytes,
}

impl FileHash {
    /// The draft's name of SHA-256.
    pub const SHA256: &[u8] = b"sha256";

    /// The string that the draft puts before the hash function; ProFTPD omits it.
    const PREFIX: &[u8] = b"check-file";

    /// Decodes the payload of an extended reply.
    ///
    /// # Errors
    /// If it is too short.
    pub fn decode(reply: Bytes) -> Result<Self, CodecError> {
        let mut fields = Fields::new(kind::EXTENDED_REPLY, reply);
        let mut algorithm = fields.string("hash function")?;
        if algorithm == Self::PREFIX {
            algorithm = fields.string("hash function")?;
        }
        Ok(Self { algorithm, digests: fields.rest() })
    }

    /// Encodes the payload of an extended reply.
    pub fn encode(&self) -> Bytes {
        Packet::payload()
            .string(Self::PREFIX)
            .string(&self.algorithm)
            .raw(&self.digests)
            .payload_done()
    }

    /// The digest, if it is a single SHA-256.
    pub fn sha256(&self) -> Option<[u8; 32]> {
        let is_sha256 = self.algorithm.eq_ignore_ascii_case(Self::SHA256);
        is_sha256.then(|| self.digests[..].try_into().ok())?
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_response_of_proftpd_is_decoded_too() {
        let digest = [7; 32];
        let hash = FileHash { algorithm: FileHash::SHA256.into(), digests: digest.to_vec().into() };
        let draft = hash.encode();
        assert!(draft.starts_with(b"\0\0\0\x0acheck-file\0\0\0\x06sha256"));
        assert_eq!(FileHash::decode(draft.clone()).unwrap(), hash);
        // ProFTPD 1.3.8 omits the first string.
        let proftpd = draft.slice(14..);
        assert_eq!(FileHash::decode(proftpd).unwrap().sha256(), Some(digest));
    }

    #[test]
    fn other_functions_and_lengths_are_not_sha256() {
        let sha256 = |algorithm: &'static [u8], length| {
            FileHash { algorithm: algorithm.into(), digests: vec![1; length].into() }.sha256()
        };
        assert_eq!(sha256(b"SHA256", 32), Some([1; 32]));
        assert_eq!(sha256(b"md5", 32), None);
        for length in [0, 31, 33, 64] {
            assert_eq!(sha256(b"sha256", length), None, "{length} bytes");
        }
    }

    proptest! {
        #[test]
        fn any_response_is_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(hash) = FileHash::decode(bytes.into()) {
                prop_assert!(hash.algorithm.len() + hash.digests.len() <= 80);
                prop_assert_eq!(FileHash::decode(hash.encode()).map(|hash| hash.digests).ok(), Some(hash.digests));
            }
        }
    }
}
