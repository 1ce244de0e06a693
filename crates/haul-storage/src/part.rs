//! Names of what is not finished.
//!
//! A file `NAME` grows as `.NAME.haul-part` beside its final name, and the ranges it holds are
//! recorded in `.NAME.haul-journal`. Names that would become longer than 255 bytes (the limit of
//! every common file system) are replaced by a digest of themselves.

const PART: &[u8] = b".haul-part";
const JOURNAL: &[u8] = b".haul-journal";
/// A journal that is being rewritten.
const JOURNAL_FRESH: &[u8] = b".haul-journa~";
const NAME_MAX: usize = 255;

/// The name of the part file of `name`.
pub fn part_name(name: &[u8]) -> Vec<u8> {
    decorated(name, PART)
}

/// The name of the journal of `name`.
pub fn journal_name(name: &[u8]) -> Vec<u8> {
    decorated(name, JOURNAL)
}

/// Whether `name` is one that haul gives to what is not finished.
pub fn is_part_name(name: &[u8]) -> bool {
    name.starts_with(b".")
        && [PART, JOURNAL, JOURNAL_FRESH].iter().any(|suffix| name.ends_with(suffix))
}

fn decorated(name: &[u8], suffix: &[u8]) -> Vec<u8> {
    let mut decorated = Vec::with_capacity(1 + name.len() + suffix.len());
    decorated.push(b'.');
    if 1 + name.len() + suffix.len() > NAME_MAX {
        decorated.extend_from_slice(format!("{:016x}", fnv1a(name)).as_bytes());
        // The head of the name, so that a person still recognises it; cut at a byte, as names are.
        decorated.push(b'-');
        let head = NAME_MAX - decorated.len() - suffix.len();
        decorated.extend_from_slice(&name[..head.min(name.len())]);
    } else {
        decorated.extend_from_slice(name);
    }
    decorated.extend_from_slice(suffix);
    decorated
}

/// FNV-1a with 64 bits: stable across versions and machines, which a resume depends on.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_file_is_hidden_and_recognised() {
        assert_eq!(part_name(b"a.iso"), b".a.iso.haul-part");
        assert!(is_part_name(&part_name(b"a.iso")));
        assert!(is_part_name(&journal_name(b"a.iso")));
        assert!(!is_part_name(b"a.haul-part"));
    }

    #[test]
    fn a_name_of_255_bytes_still_has_a_part_file_name_of_its_own() {
        let one = part_name(&[b'a'; 255]);
        let mut other = [b'a'; 255];
        other[254] = b'b';
        assert_eq!(one.len(), 255);
        assert_ne!(one, part_name(&other));
        assert!(is_part_name(&one));
    }
}
