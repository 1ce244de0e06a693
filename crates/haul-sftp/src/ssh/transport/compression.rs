//! zlib@openssh.com: each message ends with a partial flush, so that it can be read at once, and all
//! messages until the next key exchange share one dictionary (RFC 4253, 6.2). Compression begins after
//! authentication.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};

use super::end::{End, violation};
use super::wire::PACKET_MAX;

/// Minimum growth of the output buffer, in bytes.
const STEP: usize = 4096;

/// Compresses messages.
#[derive(Debug)]
pub struct Deflate(Compress);

/// Decompresses messages.
#[derive(Debug)]
pub struct Inflate(Decompress);

impl Deflate {
    pub fn new() -> Self {
        // OpenSSH's level.
        Self(Compress::new(Compression::new(6), true))
    }

    /// Appends a message to `out`, compressed.
    pub fn append(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), End> {
        let start = self.0.total_in();
        let mut was_full = false;
        loop {
            let done = usize::try_from(self.0.total_in() - start).unwrap_or(usize::MAX);
            let rest = message.get(done..).unwrap_or_default();
            out.reserve(STEP);
            self.0
                .compress_vec(rest, out, FlushCompress::Partial)
                .map_err(|error| violation(format!("compression fails: {error}")))?;
            let (all, is_full) =
                (self.0.total_in() - start == message.len() as u64, out.len() == out.capacity());
            // The flush is complete when it leaves room in the buffer. A call after one that filled the buffer only
            // outputs what had no room then: up to 258 bytes may be left, and the flush.
            if all && !is_full && !was_full {
                return Ok(());
            }
            was_full = is_full;
        }
    }
}

impl Inflate {
    pub fn new() -> Self {
        Self(Decompress::new(true))
    }

    /// Decompresses a whole message.
    ///
    /// # Errors
    /// The message is not zlib data, is truncated, or decompresses to more than [`PACKET_MAX`] bytes.
    pub fn all(&mut self, message: &[u8]) -> Result<Vec<u8>, End> {
        let start = self.0.total_in();
        let mut out = Vec::with_capacity(message.len().saturating_mul(2).clamp(STEP, PACKET_MAX));
        loop {
            let (read, written) = (self.0.total_in(), out.len());
            let rest = usize::try_from(read - start).ok().and_then(|done| message.get(done..));
            self.0
                .decompress_vec(rest.unwrap_or_default(), &mut out, FlushDecompress::Sync)
                .map_err(|error| violation(format!("a message cannot be decompressed: {error}")))?;
            if out.len() > PACKET_MAX {
                return Err(violation("a message that is too long when decompressed"));
            }
            if self.0.total_in() == read && out.len() == written {
                let whole = read - start == message.len() as u64;
                return if whole && !out.is_empty() {
                    Ok(out)
                } else {
                    Err(violation("a truncated compressed message"))
                };
            }
            if out.len() == out.capacity() {
                out.reserve(STEP.max(out.len()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_all_sizes_survive_a_round_trip() {
        let (mut deflate, mut inflate) = (Deflate::new(), Inflate::new());
        let mut state = 1_u32;
        for length in [1, 2, 100, 4095, 4096, 4097, 32_768, 200_000, 3] {
            for compressible in [true, false] {
                let message: Vec<u8> = std::iter::repeat_with(|| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    if compressible { b'a' } else { (state >> 24) as u8 }
                })
                .take(length)
                .collect();
                let mut packed = vec![9];
                deflate.append(&message, &mut packed).unwrap();
                assert_eq!(inflate.all(&packed[1..]).unwrap(), message, "{length}");
            }
        }
    }

    /// Formerly, the end of a message of random bytes of these lengths stayed in the compressor, if its first block
    /// filled the buffer: OpenSSH closed the connection ("incomplete message").
    #[test]
    fn a_message_is_complete_however_much_room_its_buffer_has() {
        let (mut deflate, mut inflate) = (Deflate::new(), Inflate::new());
        let mut state = 7_u32;
        for room in [0, 4096, 16 << 10, 31 << 10, 32 << 10] {
            for length in (0..400).map(|more| (31 << 10) - 50 + more) {
                let message: Vec<u8> = std::iter::repeat_with(|| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as u8
                })
                .take(length)
                .collect();
                let mut packed = Vec::with_capacity(room);
                deflate.append(&message, &mut packed).unwrap();
                let inflated = inflate.all(&packed);
                assert!(inflated.is_ok_and(|inflated| inflated == message), "{length} in {room}");
            }
        }
    }

    #[test]
    fn a_message_that_inflates_beyond_the_packet_limit_is_refused() {
        let mut packed = Vec::new();
        Deflate::new().append(&vec![0; 8 << 20], &mut packed).unwrap();
        assert!(packed.len() < PACKET_MAX);
        assert!(Inflate::new().all(&packed).is_err());
        assert!(Inflate::new().all(b"not zlib at all").is_err());
    }
}
