//! Base32 (RFC 4648, section 6) in lower case and without padding, as in tickets, fingerprints and the files of
//! the state directory. Upper case is accepted too: QR codes store it in less space.
//!
//! The decoder accepts every length, because a ticket whose end is cut off has to be recognized from the rest, and it
//! writes into memory that is wiped.

use data_encoding::BASE32_NOPAD;
use zeroize::Zeroizing;

/// The bytes that a base32 text encodes.
pub(super) struct Decoded {
    /// All complete bytes.
    pub(super) bytes: Zeroizing<Vec<u8>>,
    /// True if no other text (but for case) encodes these bytes: no character is left over, and the spare bits are 0.
    pub(super) is_exact: bool,
}

/// A character outside the base32 alphabet, and its index in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Foreign {
    pub(super) found: char,
    pub(super) index: usize,
}

/// Encodes bytes in lower case.
pub(crate) fn encode(bytes: &[u8]) -> Zeroizing<String> {
    let mut text = Zeroizing::new(BASE32_NOPAD.encode(bytes));
    text.make_ascii_lowercase();
    text
}

/// Decodes exactly `N` bytes; `None` if the text is anything else.
pub(crate) fn decode_array<const N: usize>(text: &str) -> Option<[u8; N]> {
    let decoded = decode(text).ok().filter(|decoded| decoded.is_exact)?;
    decoded.bytes.as_slice().try_into().ok()
}

/// Decodes a text of any length.
pub(super) fn decode(text: &str) -> Result<Decoded, Foreign> {
    let mut bytes = Zeroizing::new(Vec::<u8>::with_capacity(text.len() * 5 / 8));
    // The last `bits` bits that are not yet part of a byte.
    let (mut buffer, mut bits) = (0_u32, 0_u32);
    for (index, found) in text.chars().enumerate() {
        let value = match found {
            'a'..='z' => u32::from(found) - u32::from('a'),
            'A'..='Z' => u32::from(found) - u32::from('A'),
            '2'..='7' => u32::from(found) - u32::from('2') + 26,
            _ => return Err(Foreign { found, index }),
        };
        buffer = (buffer << 5) | value;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push((buffer >> bits) as u8);
            buffer &= (1 << bits) - 1;
        }
    }
    Ok(Decoded { bytes, is_exact: bits < 5 && buffer == 0 })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The test vectors of RFC 4648, section 10.
    #[test]
    fn the_vectors_of_the_rfc_are_encoded_and_decoded() {
        for (plain, text) in [
            ("", ""),
            ("f", "my"),
            ("fo", "mzxq"),
            ("foo", "mzxw6"),
            ("foob", "mzxw6yq"),
            ("fooba", "mzxw6ytb"),
            ("foobar", "mzxw6ytboi"),
        ] {
            assert_eq!(*encode(plain.as_bytes()), text);
            for text in [text.to_owned(), text.to_uppercase()] {
                let decoded = decode(&text).unwrap();
                assert!(decoded.is_exact, "{text}");
                assert_eq!(*decoded.bytes, plain.as_bytes());
            }
        }
    }

    #[test]
    fn a_second_text_for_the_same_bytes_is_not_exact() {
        // Spare bits that are not 0, and a character that adds no byte.
        for text in ["mz", "mya", "myaaaa", "a"] {
            assert!(!decode(text).unwrap().is_exact, "{text}");
            assert_eq!(decode_array::<1>(text), None);
        }
        assert_eq!(decode_array::<1>("my"), Some(*b"f"));
    }

    #[test]
    fn a_foreign_character_is_reported_with_its_index() {
        for (text, found, index) in
            [("ab0d", '0', 2), ("1", '1', 0), ("üa", 'ü', 0), ("a ", ' ', 1)]
        {
            assert_eq!(decode(text).err(), Some(Foreign { found, index }));
        }
    }

    proptest! {
        #[test]
        fn decoding_reverses_encoding(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let decoded = decode(&encode(&bytes)).unwrap();
            prop_assert!(decoded.is_exact);
            prop_assert_eq!(&*decoded.bytes, &bytes);
        }
    }
}
