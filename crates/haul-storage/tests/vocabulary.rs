//! Properties of paths and ranges.

use std::path::{Component, Path};

use haul_storage::{Range, RelPath};
use proptest::prelude::*;

/// Bytes with many separators, dots and NULs.
fn nearly_a_path() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        3 => Just(b'/'), 3 => Just(b'.'), 1 => Just(0), 1 => Just(b'\\'), 4 => any::<u8>(),
        4 => Just(b'a'),
    ];
    prop::collection::vec(byte, 0..24)
}

fn range() -> impl Strategy<Value = Range> {
    let edge = prop_oneof![0..50u64, Just(u64::MAX), (u64::MAX - 50)..=u64::MAX, any::<u64>()];
    (edge.clone(), edge).prop_map(|(start, length)| Range::new(start, length))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    #[cfg(unix)]
    fn no_accepted_path_leaves_the_root(bytes in nearly_a_path()) {
        use std::os::unix::ffi::OsStrExt;

        if let Ok(path) = RelPath::parse(&bytes) {
            let root = Path::new("/the/root");
            let joined = root.join(std::ffi::OsStr::from_bytes(path.as_bytes()));
            prop_assert!(joined.starts_with(root));
            for component in joined.strip_prefix(root).unwrap().components() {
                prop_assert!(matches!(component, Component::Normal(_)), "{component:?}");
            }
            prop_assert_eq!(path.as_bytes(), &bytes[..], "parsing does not change the bytes");
        }
    }

    #[test]
    fn a_path_can_be_rebuilt_from_its_components(bytes in nearly_a_path()) {
        let Ok(path) = RelPath::parse(&bytes) else { return Ok(()) };
        let mut again = RelPath::root();
        for name in path.components() {
            let parent = again.clone();
            again = again.join(name).unwrap();
            prop_assert_eq!(again.parent(), Some(parent.clone()));
            prop_assert_eq!(again.name(), name);
            prop_assert!(again.starts_with(&parent) && path.starts_with(&again));
        }
        prop_assert_eq!(&again, &path);
        prop_assert_eq!(path.is_root(), path.components().count() == 0);
        prop_assert!(path.parent().is_none_or(|parent| !parent.starts_with(&path)));
    }

    #[test]
    fn no_name_adds_more_than_one_component(name in nearly_a_path(), bytes in nearly_a_path()) {
        let Ok(path) = RelPath::parse(&bytes) else { return Ok(()) };
        if let Ok(below) = path.join(&name) {
            prop_assert_eq!(below.components().count(), path.components().count() + 1);
            let parent = below.parent();
            prop_assert_eq!(parent.as_ref(), Some(&path));
            prop_assert_eq!(RelPath::parse(below.as_bytes()), Ok(below));
        }
        if let Ok(sibling) = path.with_name(&name) {
            prop_assert_eq!(sibling.parent(), Some(path.parent().unwrap_or_default()));
        }
    }

    #[test]
    fn a_joined_path_contains_both_paths(one in nearly_a_path(), two in nearly_a_path()) {
        let (Ok(one), Ok(two)) = (RelPath::parse(one), RelPath::parse(two)) else { return Ok(()) };
        let both = one.join_path(&two);
        prop_assert!(both.starts_with(&one));
        prop_assert!(both.as_bytes().ends_with(two.as_bytes()));
        prop_assert_eq!(RelPath::parse(both.as_bytes()), Ok(both));
    }

    #[test]
    fn a_printed_path_has_no_control_characters(bytes in nearly_a_path()) {
        if let Ok(path) = RelPath::parse(bytes) {
            prop_assert!(!path.to_string().chars().any(char::is_control));
        }
    }

    #[test]
    fn a_range_is_split_without_gap_or_overlap(range in range(), at in any::<u64>()) {
        let (head, rest) = range.split_at(at);
        prop_assert_eq!((head.start(), head.end(), rest.end()), (range.start(), rest.start(), range.end()));
        prop_assert_eq!(head.len(), at.min(range.len()));
        prop_assert!(head.intersection(rest).is_empty());
    }

    #[test]
    fn an_intersection_lies_in_both_ranges(one in range(), two in range()) {
        let common = one.intersection(two);
        prop_assert!(common.start() <= common.end());
        prop_assert_eq!(common.len(), two.intersection(one).len());
        if !common.is_empty() {
            prop_assert_eq!(common, two.intersection(one));
            prop_assert!(common.start() >= one.start().max(two.start()));
            prop_assert!(common.end() <= one.end().min(two.end()));
        }
        prop_assert_eq!(one.intersection(one), one);
    }

    #[test]
    fn range_between_never_ends_before_it_starts(start in any::<u64>(), end in any::<u64>()) {
        let range = Range::between(start, end);
        prop_assert_eq!(range.start(), start);
        prop_assert_eq!(range.is_empty(), end <= start);
        prop_assert_eq!(Range::new(range.start(), range.len()), range);
    }
}
