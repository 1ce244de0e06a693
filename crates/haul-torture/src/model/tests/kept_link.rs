//! Tests of the rules for links and files that `rsync --ignore-existing` keeps in the place of a directory.

use super::{ROOT, directory, file, is_explained, link_to, one_of, options, rules, tree};
use crate::filter::Filter;
use crate::model::{Wanted, wanted};
use crate::options::{Form, Options, Overwrite};
use crate::rule::Rule;
use crate::target::Keeps;
use crate::tree::{Kind, Node};

type Entries<'a> = &'a [(&'a str, Node)];

/// `--overwrite never`, and `sync --delete` or `cp`.
fn never(delete: bool) -> Options {
    let mut options = options();
    options.form = if delete { Form::Sync } else { Form::Content };
    options.overwrite = Overwrite::Never;
    options.delete = delete;
    options.filter = Filter::default();
    options
}

fn run(options: &Options, source: Entries<'_>, before: Entries<'_>) -> Wanted {
    wanted(&tree(source), &tree(before), options, &Keeps::ALL, ROOT)
}

fn is_through(wanted: &Wanted, name: &str) -> bool {
    rules(wanted, name).contains(&Rule::ThroughKeptLink)
}

/// A source with a directory `d/e`, which is a link in [`before`].
fn source() -> Vec<(&'static str, Node)> {
    vec![
        ("a", directory(0o755, 10)),
        ("d", directory(0o755, 11)),
        ("d/e", directory(0o755, 12)),
        ("d/e/both", file("source", 13)),
        ("d/e/deep", directory(0o755, 14)),
        ("d/e/deep/f", file("f", 15)),
        ("d/e/new", file("new", 16)),
        ("d/sib", directory(0o755, 17)),
        ("d/sib/own", file("own", 18)),
        ("later", directory(0o755, 19)),
    ]
}

fn before(target: &str) -> Vec<(&'static str, Node)> {
    vec![
        ("a", directory(0o755, 20)),
        ("d", directory(0o755, 21)),
        ("d/e", link_to(target)),
        ("d/file", file("file", 22)),
        ("d/sib", directory(0o755, 23)),
        ("d/sib/both", file("destination", 24)),
        ("d/sib/deep", link_to("../../a")),
        ("d/sib/extra", file("extra", 25)),
        ("d/sib/own", file("own", 18)),
        ("link", link_to("d/sib/")),
    ]
}

/// Seed 932082 on sftp-openssh.
#[test]
fn rsync_copies_through_a_kept_link_and_haul_does_not() {
    let made = run(&never(false), &source(), &before("sib"));
    assert!(made.failures.contains_key(&b"d/e"[..]));
    assert_eq!(made.tree[&b"d/e"[..]].kind, Some(Kind::Link(b"sib".to_vec())));
    for name in ["d/sib/new", "a/f"] {
        assert!(!made.tree.contains_key(name.as_bytes()), "haul does not make {name}");
        assert!(is_through(&made, name) && is_explained(&made, name), "{name}");
    }
    for name in ["d/sib/own", "d/sib/extra", "d/file", "link"] {
        assert!(!is_explained(&made, name), "{name}");
    }
}

#[test]
fn rsync_deletes_through_a_kept_link_and_haul_does_not() {
    let mut source = source();
    source.push(("d/sib/extra", file("extra", 26)));
    let made = run(&never(true), &source, &before("sib"));
    assert!(made.failures.is_empty());
    assert_eq!(made.tree[&b"d/e"[..]].kind, Some(Kind::Directory));
    assert!(made.tree.contains_key(&b"d/sib/extra"[..]), "it is in the source");
    for name in ["d/sib/extra", "d/sib/own", "d/sib/new", "a/f"] {
        assert!(is_through(&made, name), "{name}");
    }
    for name in ["d", "d/file", "link"] {
        assert!(!is_explained(&made, name), "{name}");
    }
}

#[test]
fn a_kept_link_is_followed_to_directories_of_the_destination_only() {
    let found = |target: &str| {
        let made = run(&never(false), &source(), &before(target));
        let directories = ["", "a/", "d/", "d/sib/", "later/"];
        let is_found = |directory: &&str| is_through(&made, &format!("{directory}new"));
        directories.into_iter().filter(is_found).collect::<Vec<_>>()
    };
    assert_eq!(found("."), ["d/"]);
    assert_eq!(found("./sib/../..//d/sib/"), ["d/sib/"]);
    assert_eq!(found(".."), [""]);
    assert_eq!(found("../link"), ["d/sib/"]);
    assert_eq!(found("../later"), ["later/"], "it may have been copied already");
    for target in ["e", "e/sib", "missing", "file", "../..", "../../d/sib", "/d/sib"] {
        assert!(found(target).is_empty(), "{target}");
    }
}

#[test]
fn a_kept_link_may_lead_to_a_directory_that_rsync_copied_through_another_one() {
    let mut source = source();
    source.extend([("z", directory(0o755, 40)), ("z/last", file("last", 41))]);
    let mut before = before("sib");
    before.push(("z", link_to("d/sib/new-one")));
    assert!(!is_through(&run(&never(false), &source, &before), "d/sib/new-one/last"));
    source.push(("d/e/new-one", directory(0o755, 42)));
    let made = run(&never(false), &source, &before);
    assert!(is_through(&made, "d/sib/new-one") && is_through(&made, "d/sib/new-one/last"));
    // A link that is copied through another one stays in the place of a directory of the source.
    source.pop();
    source.extend([
        ("d/e/other", link_to("../../a")),
        ("d/sib/other", directory(0o755, 42)),
        ("d/sib/other/here", file("here", 43)),
    ]);
    assert!(is_through(&run(&never(false), &source, &before), "a/here"));
}

#[test]
fn only_ignore_existing_makes_rsync_keep_a_link_in_the_place_of_a_directory() {
    for delete in [false, true] {
        for overwrite in [Overwrite::Different, Overwrite::Always, Overwrite::Newer] {
            let mut options = never(delete);
            options.overwrite = overwrite;
            let made = run(&options, &source(), &before("sib"));
            assert!(!is_through(&made, "d/sib/new"), "{overwrite:?}");
        }
    }
}

#[test]
fn other_names_of_a_file_that_rsync_copies_through_a_link_may_be_linked_to_it() {
    let of_one = || one_of("one", 0o644, 30, 2);
    let mut source = source();
    source.extend([("d/e/name", of_one()), ("third", of_one())]);
    let made = run(&never(false), &source, &before("sib"));
    assert!(is_through(&made, "third") && made.rsync_may_hang);
    let mut before = before("sib");
    before[2].1 = file("in the way", 31);
    let made = run(&never(false), &source, &before);
    assert!(!is_through(&made, "third") && made.rsync_may_hang);
    before[2].1 = directory(0o755, 31);
    assert!(!run(&never(false), &source, &before).rsync_may_hang);
}

/// Seed 932037 on tmpfs.
#[test]
fn extra_entries_may_stay_after_rsync_stopped_deletion() {
    let mut made = run(&never(true), &source(), &before("e"));
    let gone = ["d/file", "d/sib/extra", "link"];
    for name in gone {
        assert!(!made.tree.contains_key(name.as_bytes()) && !is_explained(&made, name), "{name}");
    }
    made.deletion_stopped(&tree(&before("e")));
    for name in gone {
        assert!(is_explained(&made, name), "{name}");
    }
    for name in ["d/sib/own", "d/sib/other", "a"] {
        assert!(!is_explained(&made, name), "{name} was not to be deleted");
    }
}
