//! Servers that violate the protocol: correct results where that is possible, and otherwise a clear
//! error; never wrong bytes, and never an endless wait.

use super::content;
use super::limits::{both_ways, tree};
use super::strange::{Habit, far};

#[test]
fn copies_work_with_a_server_without_quirks() {
    let far = far(&[]);
    tree(&far, 5 << 20);
    both_ways(&far, "");
}

#[test]
fn short_responses_and_responses_in_any_order_make_no_difference() {
    for habits in [
        &[Habit::ShortReads(10_000)][..],
        &[Habit::Backwards],
        &[Habit::ShortReads(30_000), Habit::Backwards],
    ] {
        let far = far(habits);
        tree(&far, 3 << 20);
        both_ways(&far, "");
        both_ways(&far, "--lanes 3");
    }
}

#[test]
fn limits_that_a_server_announces_are_respected() {
    for limit in [32_768, 5_000] {
        let far = far(&[Habit::Limits(limit)]);
        tree(&far, 2 << 20);
        both_ways(&far, "");
    }
}

#[test]
fn impossible_responses_are_errors_and_leave_no_file() {
    for (habit, text) in [
        (Habit::WrongIds, "a response to the unknown request"),
        (Habit::TooMuch, ""),
        (Habit::Nothing, "neither data nor end-of-file"),
        (Habit::Oversized, "1073741824 bytes"),
        (Habit::Forgets(0), "the server returned"),
    ] {
        for length in [1000, 1 << 20, 4 << 20] {
            let far = far(&[habit]);
            far.session.write("far/src/f", content(1, length));
            let ran = far.haul("cp --retries 1 @/src dst").status(1);
            assert!(ran.err().contains(text), "{habit:?}, {length}: {}", ran.err());
            assert!(!far.session.has("dst/src/f"), "{habit:?}, {length}");
        }
    }
}

#[test]
fn a_session_that_ends_within_a_response_is_replaced() {
    let far = far(&[Habit::EndsWithin(20)]);
    far.session.write("far/src/f", content(1, 3 << 20));
    far.session.write("far/src/g", content(2, 1000));
    far.session.tool("cp -r far/src src");
    far.haul("cp @/src down").status(0);
    far.same("src", "down/src");
}

#[test]
fn a_session_that_never_makes_progress_is_an_error_after_retries() {
    let far = far(&[Habit::EndsWithin(1)]);
    far.session.write("far/f", content(1, 1 << 20));
    let ran = far.haul("cp --retries 2 @/f dst").status(1);
    assert!(ran.err().contains("closed the channel within a response"), "{}", ran.err());
    assert!(!far.session.has("dst"));
}

#[test]
fn invalid_greetings_are_errors() {
    for (habit, text) in [
        (Habit::Version(2), "version 2"),
        (Habit::Says(b"Welcome to this machine!\r\n"), "bytes, when"),
        (Habit::Says(b"\0\0\0\x01\xff"), "packet of type 255"),
        (Habit::Silent, "closed the channel without a greeting"),
    ] {
        let far = far(&[habit]);
        far.session.write("far/f", "content");
        far.session.write("src", "content");
        for line in ["cp @/f dst", "cp src @/g", "ls @/"] {
            let ran = far.haul(line).status(1);
            assert!(ran.err().contains(text), "{habit:?}, {line}: {}", ran.err());
        }
        assert!(!far.session.has("dst") && !far.session.has("far/g"));
    }
}

#[test]
fn names_that_lead_elsewhere_are_refused_and_the_rest_is_copied() {
    for name in [&b"../evil"[..], b"a/b", b"/etc/evil", b"nul\0", b""] {
        let far = far(&[Habit::Lists(name)]);
        far.session.write("far/src/good", "content");
        far.session.write("evil", "untouched");
        let ran = far.haul("cp @/src dst").status(1);
        assert!(ran.err().contains("the server lists the name"), "{name:?}: {}", ran.err());
        assert_eq!(far.session.read("dst/src/good"), "content");
        let find = far.session.tool("find dst -type f");
        assert_eq!(find, "dst/src/good\n");
        assert_eq!(far.session.read("evil"), "untouched");
    }
    // Every directory has these names; haul skips them.
    for name in [&b"."[..], b".."] {
        let far = far(&[Habit::Lists(name)]);
        far.session.write("far/src/good", "content");
        far.haul("cp @/src dst").status(0);
        assert_eq!(far.session.tool("find dst -type f"), "dst/src/good\n");
    }
}

/// `sync --delete` lists directories in which links are being replaced; formerly it failed then.
#[test]
fn a_link_that_is_removed_while_it_is_listed_is_not_an_error() {
    let far = far(&[Habit::ListsGoneLink]);
    far.session.write("far/src/good", "content");
    far.haul("cp @/src dst").status(0);
    assert_eq!(far.session.tool("find dst -mindepth 1"), "dst/src\ndst/src/good\n");
}

#[test]
fn a_write_that_fails_without_a_reason_fails_the_file_and_leaves_none() {
    let far = far(&[Habit::Quota(3 << 20)]);
    far.session.write("src", content(1, 8 << 20));
    let ran = far.haul("cp src @/f").status(1);
    assert!(ran.err().contains("far/f: cannot write (the server returned"), "{}", ran.err());
    assert!(!far.session.has("far/f"));
}

#[test]
fn a_close_that_fails_leaves_the_old_file_or_none() {
    for habits in [&[Habit::FailsToClose][..], &[Habit::FailsToClose, Habit::Replaces]] {
        for length in [1000, 1 << 20, 5 << 20] {
            let far = far(habits);
            far.session.write("src", content(1, length));
            far.session.write("far/f", "old");
            far.haul("cp src @/f").status(1);
            assert_eq!(far.session.read("far/f"), "old", "{length} bytes, {habits:?}");
            far.haul("cp src @/new").status(1);
            assert!(!far.session.has("far/new"), "{length} bytes, {habits:?}");
        }
    }
}
