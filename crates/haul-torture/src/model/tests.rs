//! Tests of the rules for entries that an ordinary user may not write to, and helpers for all tests of the model.

mod kept_link;

use std::collections::BTreeSet;

use super::{Runner, Wanted, wanted};
use crate::acl::{ACCESS, DEFAULT};
use crate::chance::Chance;
use crate::compare::{Difference, unexplained};
use crate::filter::{self, Filter};
use crate::options::{Form, Options, Overwrite, Preserve};
use crate::rule::Rule;
use crate::target::Keeps;
use crate::tree::{Attributes, Kind, Node, Time, Tree};

const USER: Runner = Runner { user: 1000, group: 1000 };
const ROOT: Runner = Runner { user: 0, group: 0 };

fn node(kind: Kind, mode: u32, inode: u64, links: u64) -> Node {
    let time = Time { seconds: 1_700_000_000, nanos: 0 };
    Node { kind, mode, owner: (1000, 1000), time, attributes: Attributes::new(), inode, links }
}

/// A file with a single name.
fn file(content: &str, inode: u64) -> Node {
    one_of(content, 0o644, inode, 1)
}

/// One of the `links` names of a file.
fn one_of(content: &str, mode: u32, inode: u64, links: u64) -> Node {
    let bytes = content.as_bytes();
    let kind = Kind::File { size: bytes.len() as u64, digest: blake3::hash(bytes) };
    node(kind, mode, inode, links)
}

fn directory(mode: u32, inode: u64) -> Node {
    node(Kind::Directory, mode, inode, 2)
}

fn link() -> Node {
    link_to("target")
}

fn link_to(target: &str) -> Node {
    node(Kind::Link(target.as_bytes().to_vec()), 0o777, 50, 1)
}

/// A tree with these entries below its root.
fn tree(entries: &[(&str, Node)]) -> Tree {
    let below = entries.iter().map(|(name, node)| (name.as_bytes().to_vec(), node.clone()));
    Tree(below.chain([(Vec::new(), directory(0o755, 1))]).collect())
}

/// `sync --delete --exclude='*.keep'`.
fn options() -> Options {
    let mut options = Options::random(&mut Chance::new(1), false);
    options.form = Form::Sync;
    options.overwrite = Overwrite::Different;
    options.preserve =
        Preserve { mode: true, times: true, owner: false, xattrs: false, links: true };
    options.delete = true;
    options.filter = Filter(vec![filter::Rule { include: false, pattern: "*.keep".to_owned() }]);
    options
}

fn sync(runner: Runner, source: &[(&str, Node)], before: &[(&str, Node)]) -> Wanted {
    wanted(&tree(source), &tree(before), &options(), &Keeps::ALL, runner)
}

fn rules(wanted: &Wanted, name: &str) -> BTreeSet<Rule> {
    wanted.rules.get(name.as_bytes()).cloned().unwrap_or_default()
}

fn mode(wanted: &Wanted, name: &str) -> Option<u32> {
    wanted.tree[name.as_bytes()].mode
}

fn is_explained(wanted: &Wanted, name: &str) -> bool {
    let difference = Difference { name: name.as_bytes().to_vec(), what: String::new() };
    unexplained(vec![difference], wanted).is_empty()
}

/// Seed 910242 on ext4-128.
#[test]
fn a_read_only_directory_in_the_way_that_keeps_something_excluded_is_writable_after_rsync() {
    let source = [("x", file("new", 2))];
    let before =
        [("x", directory(0o555, 3)), ("x/gone", file("1", 4)), ("x/log.keep", file("2", 5))];
    let made = sync(USER, &source, &before);
    assert!(made.failures.contains_key(&b"x"[..]));
    assert_eq!(mode(&made, "x"), Some(0o555), "haul restores it");
    assert!(made.tree.contains_key(&b"x/log.keep"[..]) && !made.tree.contains_key(&b"x/gone"[..]));
    assert_eq!(rules(&made, "x"), BTreeSet::from([Rule::ReadOnlyDirectories]));
    assert!(sync(ROOT, &source, &before).rules.is_empty(), "root needs no permission");
}

#[test]
fn rsync_leaves_a_read_only_directory_writable_only_if_something_excluded_stays_in_it() {
    let before = [
        ("x", directory(0o755, 3)),
        ("x/emptied", directory(0o555, 4)),
        ("x/excluded.keep", directory(0o555, 5)),
        ("x/n", directory(0o555, 6)),
        ("x/n/log.keep", file("2", 7)),
    ];
    for (name, entry) in [("a file", file("new", 2)), ("a link", link())] {
        let made = sync(USER, &[("x", entry)], &before);
        assert_eq!(mode(&made, "x/n"), Some(0o555), "{name}");
        assert_eq!(rules(&made, "x/n"), BTreeSet::from([Rule::ReadOnlyDirectories]), "{name}");
        for other in ["x", "x/emptied", "x/excluded.keep"] {
            assert!(!is_explained(&made, other), "{other} in the way of {name}");
        }
    }
}

#[test]
fn rsync_makes_no_room_for_links_in_the_place_of_a_read_only_directory() {
    let before = [
        ("first", one_of("new", 0o644, 10, 1)),
        ("x", directory(0o555, 3)),
        ("x/n", directory(0o755, 4)),
        ("x/n/deep", file("1", 5)),
        ("x/old", file("2", 6)),
    ];
    let names = [("first", one_of("new", 0o644, 2, 2)), ("x", one_of("new", 0o644, 2, 2))];
    let symbolic = [("first", file("new", 2)), ("x", link())];
    for source in [names.clone(), symbolic] {
        let made = sync(USER, &source, &before);
        assert!(made.failures.is_empty() && !made.tree.contains_key(&b"x/old"[..]));
        assert_eq!(made.tree[&b"x"[..]].kind.as_ref(), Some(&source[1].1.kind), "haul makes room");
        assert_eq!(rules(&made, "x"), BTreeSet::from([Rule::NoRoomForLinks]));
        assert!(is_explained(&made, "x/old") && is_explained(&made, "x/n"));
        assert!(!is_explained(&made, "first"));
    }
    let plain = [("first", file("new", 2)), ("x", file("new", 7))];
    assert!(sync(USER, &plain, &before).rules.is_empty(), "rsync makes room for a file");
    assert!(sync(ROOT, &names, &before).rules.is_empty(), "root needs no permission");
    let empty = [("x", directory(0o555, 3))];
    assert!(sync(USER, &[("x", link())], &empty).rules.is_empty(), "it is empty");
    let mut writable = before;
    writable[1].1.mode = 0o755;
    assert!(sync(USER, &names, &writable).rules.is_empty());
}

#[test]
fn a_read_only_file_in_the_way_of_a_directory_is_writable_under_its_other_names_after_rsync() {
    let of_one = |content| one_of(content, 0o444, 3, 2);
    let before = [("x", of_one("old")), ("y", of_one("old"))];
    let made = sync(USER, &[("x", directory(0o755, 5)), ("y", file("old", 6))], &before);
    assert_eq!(made.tree[&b"x"[..]].kind, Some(Kind::Directory));
    assert!(rules(&made, "y").contains(&Rule::RemovedNamesGetWritable));
    // A link is renamed over it.
    let made = sync(USER, &[("x", link()), ("y", file("old", 6))], &before);
    assert!(made.rules.is_empty());
}

#[test]
fn rsync_may_hang_if_a_directory_stays_in_the_way_of_one_of_a_files_names() {
    let before = [("x", directory(0o755, 3)), ("x/log.keep", file("1", 4))];
    let names = ["x", "y"].map(|name| (name, one_of("new", 0o644, 2, 2)));
    assert!(sync(ROOT, &names, &before).rsync_may_hang);
    assert!(!sync(ROOT, &[("x", file("new", 2))], &before).rsync_may_hang);
    assert!(!sync(ROOT, &names, &before[..1]).rsync_may_hang, "the directory is removed");
}

/// A default ACL of the directory above is that of a new root, too.
#[test]
fn a_copy_inherits_the_acl_of_the_directory_that_it_is_created_in() {
    let source = tree(&[("f", file("new", 2))]);
    for above in [false, true] {
        let mut options = options();
        options.form = Form::Into;
        options.acl_above = above;
        let want = wanted(&source, &Tree::default(), &options, &Keeps::ALL, ROOT);
        for name in ["", "f"] {
            let attributes = &want.tree[name.as_bytes()].attributes;
            assert_eq!(attributes.is_none(), above, "{name}: {attributes:?}");
        }
    }
}

/// Seed 5315015 on ext4-128.
#[test]
fn rsync_may_hang_if_it_cannot_write_to_the_directory_of_one_of_a_files_names() {
    let source = [
        ("a", one_of("new", 0o644, 2, 2)),
        ("d", directory(0o555, 3)),
        ("d/b", one_of("new", 0o644, 2, 2)),
    ];
    assert!(sync(USER, &source, &[]).rsync_may_hang);
    assert!(!sync(ROOT, &source, &[]).rsync_may_hang);
    assert!(!sync(USER, &source[..1], &[]).rsync_may_hang);
}

/// Seed 5401004 on tmpfs.
#[test]
fn rsync_may_create_a_hard_linked_file_at_a_name_that_haul_skips_in_a_directory_with_an_acl() {
    let source = [
        ("a", one_of("new", 0o644, 2, 2)),
        ("d", directory(0o755, 3)),
        ("d/.x.haul-part", one_of("new", 0o644, 2, 2)),
        ("e", file("new", 4)),
    ];
    let mut with_acl = directory(0o755, 5);
    with_acl.attributes.insert(DEFAULT.into(), Vec::new());
    for (existing, expected) in [(directory(0o755, 5), false), (with_acl, true)] {
        let made = sync(ROOT, &source, &[("d", existing)]);
        assert_eq!(rules(&made, "a").contains(&Rule::InheritedElsewhere), expected);
        assert!(!is_explained(&made, "e"));
    }
}

/// Seed 5404013 on xfs.
#[test]
fn rsync_leaves_the_group_without_rights_if_it_sets_the_sticky_bit_after_the_acl() {
    let mut options = options();
    options.preserve.xattrs = true;
    let entry = |tag: u8, rights: u8| [tag, 0, rights, 0, 255, 255, 255, 255];
    let acl = |group| {
        let entries = [entry(1, 7), entry(4, group), entry(16, 4), entry(32, 1)];
        [vec![2, 0, 0, 0], entries.concat()].concat()
    };
    let rules_of = |mode, group, before: u32| {
        let mut node = directory(mode, 3);
        node.attributes.insert(ACCESS.into(), acl(group));
        let (source, before) = (tree(&[("d", node)]), tree(&[("d", directory(before, 4))]));
        rules(&wanted(&source, &before, &options, &Keeps::ALL, ROOT), "d")
    };
    assert_eq!(rules_of(0o1741, 4, 0o755), BTreeSet::from([Rule::AclBeforeSpecialBits]));
    for (mode, group, before) in [(0o741, 4, 0o755), (0o1741, 0, 0o755), (0o1741, 4, 0o1755)] {
        assert!(rules_of(mode, group, before).is_empty(), "{mode:o} {group} {before:o}");
    }
}

/// Seed 5413005 on btrfs.
#[test]
fn the_mode_of_a_replaced_file_is_open_if_another_name_of_it_gets_an_acl() {
    let mut options = options();
    options.preserve = Preserve { mode: false, xattrs: true, ..options.preserve };
    let before = tree(&[("a", one_of("old", 0o640, 2, 2)), ("b", one_of("old", 0o640, 2, 2))]);
    for (kept, expected) in [("old", None), ("longer", Some(0o640))] {
        let source = tree(&[("a", file("new and long", 3)), ("b", file(kept, 4))]);
        let want = wanted(&source, &before, &options, &Keeps::ALL, ROOT);
        assert_eq!(mode(&want, "a"), expected, "{kept}");
    }
}

/// Seed 5603006 on tmpfs.
#[test]
fn other_names_of_a_file_that_gets_set_id_bits_are_linked_to_the_existing_one_by_rsync() {
    let mut options = options();
    options.preserve.owner = true;
    let of_other = |links| Node { owner: (1, 1), ..one_of("x", 0o644, 4, links) };
    for (set_id, expected) in [(0, false), (0o4000, true)] {
        let names = ["a", "b"].map(|name| (name, one_of("x", 0o755 | set_id, 2, 2)));
        let before = tree(&[("a", of_other(1))]);
        let want = wanted(&tree(&names), &before, &options, &Keeps::ALL, ROOT);
        assert_eq!(rules(&want, "b").contains(&Rule::PrivilegesAreCopied), expected);
    }
}
