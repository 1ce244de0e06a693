//! Names that some file system or server treats as equal.
//!
//! File systems ignore case (exFAT, NTFS, APFS, HFS+, ext4 and tmpfs with `casefold`), normalise (HFS+, APFS,
//! ZFS), ignore characters that have no width (HFS+, ext4), or drop dots and spaces at the end of a name (FAT,
//! NTFS and SMB). [`fold`] does all of this at once: names that differ after it are different everywhere, and
//! names that are equal after it may be equal somewhere.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

use haul_storage::{Entry, RelPath};
use icu_normalizer::DecomposingNormalizerBorrowed;

/// A name as a file system with all of these rules would compare it.
pub fn fold(name: &[u8]) -> Vec<u8> {
    let mut folded = if name.is_ascii() { name.to_ascii_lowercase() } else { fold_text(name) };
    // Last, because ignored characters may follow the dots and spaces.
    let last = folded.iter().rposition(|byte| !matches!(byte, b'.' | b' '));
    folded.truncate(last.map_or(0, |last| last + 1));
    folded
}

/// Folds all characters. Bytes that are not UTF-8 stay as they are.
fn fold_text(name: &[u8]) -> Vec<u8> {
    let folded = fold_characters(name);
    // Where an ignored character was between two such bytes, they may be a character now.
    if folded == name || std::str::from_utf8(name).is_ok() { folded } else { fold_text(&folded) }
}

fn fold_characters(name: &[u8]) -> Vec<u8> {
    let mut folded = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        let normalizer = const { DecomposingNormalizerBorrowed::new_nfd() };
        let decomposed = normalizer.normalize(chunk.valid());
        // To capitals and back, for `ẞ`, `ß` and `ss`, the two small sigmas, the Kelvin sign.
        let letters = decomposed.chars().filter(|letter| !is_ignored(*letter));
        let small = letters
            .flat_map(char::to_lowercase)
            .flat_map(char::to_uppercase)
            .flat_map(char::to_lowercase)
            .map(iota_as_mark);
        let small: String = small.collect();
        folded.extend_from_slice(normalizer.normalize(&small).as_bytes());
        folded.extend_from_slice(chunk.invalid());
    }
    folded
}

/// The iota below a letter (U+0345) is the only combining mark whose capital is a letter of its own, Ι, which ends the
/// sequence of marks that normalisation sorts (canonical ordering). ext4 folds case before it sorts them, others
/// afterwards. As marks, all iotas are sorted behind the other marks.
const fn iota_as_mark(letter: char) -> char {
    if letter == '\u{3b9}' { '\u{345}' } else { letter }
}

/// Characters without a width, which HFS+ and ext4 ignore in comparisons.
const fn is_ignored(letter: char) -> bool {
    matches!(letter,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}')
}

/// The names seen so far in one directory, as hashes.
#[derive(Debug, Default)]
pub struct FoldedNames {
    hasher: RandomState,
    folded: HashSet<u64>,
    /// Names that earlier sources of the run have for the same directory of the destination.
    earlier: HashSet<u64>,
}

impl FoldedNames {
    /// Adds a name that an earlier source of the run has.
    pub fn note_earlier(&mut self, name: &[u8]) {
        self.folded.insert(self.hasher.hash_one(fold(name)));
        self.earlier.insert(self.hasher.hash_one(name));
    }

    /// Adds a batch of a listing. Returns each entry and whether a file system may treat its name as equal
    /// to an earlier one. Such names are sorted within the batch, so that the first of them does not depend
    /// on the order of the listing.
    pub fn admit(&mut self, batch: Vec<Entry>) -> Vec<(Entry, bool)> {
        self.admit_as(batch, |entry| &entry.path)
    }

    /// As [`Self::admit`], for values with the name of the path that `path` returns.
    pub fn admit_as<T>(
        &mut self,
        mut batch: Vec<T>,
        path: impl Fn(&T) -> &RelPath,
    ) -> Vec<(T, bool)> {
        let hash = |one: &T| self.hasher.hash_one(fold(path(one).name()));
        let mut hashes: Vec<u64> = batch.iter().map(hash).collect();
        let mut sorted = hashes.clone();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            batch.sort_by(|one, other| path(one).cmp(path(other)));
            hashes = batch.iter().map(hash).collect();
        }
        let admit = |(one, hash): (T, u64)| {
            let is_new = self.folded.insert(hash);
            let is_twin = !is_new
                && (self.earlier.is_empty()
                    || !self.earlier.contains(&self.hasher.hash_one(path(&one).name())));
            (one, is_twin)
        };
        batch.into_iter().zip(hashes).map(admit).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_storage::EntryKind;
    use proptest::prelude::*;

    fn same(one: &str, other: &str) -> bool {
        fold(one.as_bytes()) == fold(other.as_bytes())
    }

    #[test]
    fn case_composition_and_dots_at_the_end_are_folded() {
        for (one, other) in [
            ("README", "readme"),
            ("\u{e9}t\u{e9}", "e\u{301}te\u{301}"),
            ("\u{c9}T\u{c9}", "e\u{301}te\u{301}"),
            ("a.", "a"),
            ("a. .", "A"),
            ("\u{39f}\u{3a3}", "\u{3bf}\u{3c2}"),
            ("stra\u{df}e", "STRASSE"),
            ("\u{212a}", "k"),
            ("\u{212b}", "\u{e5}"),
            ("a\u{200d}b", "ab"),
            ("\u{1e9e}", "\u{df}"),
            ("a.\u{200d}", "a"),
            // Found by the test with random names below.
            ("\u{1f80}\u{16af0}", "\u{1f08}\u{399}\u{16af0}"),
            ("\u{1f80}\u{16af0}", "\u{3b1}\u{16af0}\u{313}\u{345}"),
            ("\u{1f80}\u{16af0}", "\u{391}\u{16af0}\u{313}\u{399}"),
        ] {
            assert!(same(one, other), "{one:?} and {other:?}");
        }
        for (one, other) in [
            ("a", "b"),
            ("a.b", "ab"),
            (".a", "a"),
            (" a", "a"),
            ("e", "\u{e9}"),
            ("\u{3b1}\u{3b9}", "\u{3b1}"),
        ] {
            assert!(!same(one, other), "{one:?} and {other:?}");
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_stay_distinct() {
        assert_ne!(fold(b"a\xff"), fold(b"a\xfe"));
        assert_eq!(fold(b"A\xff\xc3\x89"), fold(b"a\xffe\xcc\x81"));
        // Found by the test with random names below.
        assert_eq!(fold(b"\xc3\xd8\x9c\x80"), fold(b"\xc3\x80"));
    }

    proptest! {
        #[test]
        fn folding_twice_is_folding_once(name in proptest::collection::vec(any::<u8>(), 0..20)) {
            let once = fold(&name);
            prop_assert_eq!(fold(&once), once);
        }

        #[test]
        fn small_and_capital_letters_are_the_same(name in "\\PC{0,12}") {
            prop_assert!(same(&name, &name.to_uppercase()), "{:?}", name);
        }
    }

    fn batch(names: &[&str]) -> Vec<Entry> {
        let entry = |name: &&str| Entry::new(RelPath::parse(name).unwrap(), EntryKind::File, 0);
        names.iter().map(entry).collect()
    }

    fn twins(names: &mut FoldedNames, listed: &[&str]) -> Vec<String> {
        let admitted = names.admit(batch(listed));
        let twins = admitted.into_iter().filter(|(_, is_twin)| *is_twin);
        twins.map(|(entry, _)| entry.path.to_string()).collect()
    }

    #[test]
    fn the_first_of_several_equal_names_does_not_depend_on_the_order_of_a_batch() {
        for listed in [["b", "readme", "README"], ["README", "b", "readme"]] {
            assert_eq!(twins(&mut FoldedNames::default(), &listed), ["readme"]);
        }
        let mut names = FoldedNames::default();
        assert!(twins(&mut names, &["a", "b"]).is_empty());
        assert_eq!(twins(&mut names, &["c", "B"]), ["B"]);
    }

    #[test]
    fn the_same_name_in_an_earlier_source_is_no_twin() {
        let mut names = FoldedNames::default();
        names.note_earlier(b"sub");
        assert_eq!(twins(&mut names, &["sub", "SUB"]), ["SUB"]);
    }
}
