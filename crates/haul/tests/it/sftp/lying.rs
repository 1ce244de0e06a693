//! Servers that violate the protocol: correct results where that is possible, and otherwise a clear
//! error; never wrong bytes, and never an endless wait.

use super::content;
use super::limits::{both_ways, tree};
use super::quirks::{Quirk, with_quirks};

#[test]
fn copies_work_with_a_server_without_quirks() {
    let sftp = with_quirks(&[]);
    tree(&sftp, 5 << 20);
    both_ways(&sftp, "");
}

#[test]
fn short_responses_and_responses_in_any_order_make_no_difference() {
    for quirks in [
        &[Quirk::ShortReads(10_000)][..],
        &[Quirk::Backwards],
        &[Quirk::ShortReads(30_000), Quirk::Backwards],
    ] {
        let sftp = with_quirks(quirks);
        tree(&sftp, 3 << 20);
        both_ways(&sftp, "");
        both_ways(&sftp, "--lanes 3");
    }
}

#[test]
fn limits_that_a_server_announces_are_respected() {
    for limit in [32_768, 5_000] {
        let sftp = with_quirks(&[Quirk::Limits(limit)]);
        tree(&sftp, 2 << 20);
        both_ways(&sftp, "");
    }
}

#[test]
fn impossible_responses_are_errors_and_leave_no_file() {
    for (quirk, text) in [
        (Quirk::WrongIds, "a response to the unknown request"),
        (Quirk::TooMuch, "were requested"),
        (Quirk::Nothing, "neither data nor end-of-file"),
        (Quirk::Oversized, "1073741824 bytes"),
        (Quirk::Forgets(0), "the server returned"),
    ] {
        for length in [1000, 1 << 20, 4 << 20] {
            let sftp = with_quirks(&[quirk]);
            sftp.session.write("far/src/f", content(1, length));
            let ran = sftp.haul("cp --retries 1 @/src dst").status(1);
            // If the file fits into one response, the excess byte makes it longer than the reported size.
            let is_longer = matches!(quirk, Quirk::TooMuch) && length == 1000;
            let text =
                if is_longer { "the server reported 1000 bytes and sent more" } else { text };
            assert!(ran.err().contains(text), "{quirk:?}, {length}: {}", ran.err());
            assert!(!sftp.session.has("dst/src/f"), "{quirk:?}, {length}");
        }
    }
}

/// Formerly, the error was "it changed while being read", with the same size before and after.
#[test]
fn more_bytes_than_a_server_reports_are_an_error_that_names_the_reported_size() {
    let sftp = with_quirks(&[Quirk::TooMuch]);
    sftp.session.write("far/f", content(1, 1000));
    let ran = sftp.haul("cp --retries 1 @/f dst").status(1);
    assert!(ran.err().contains("the server reported 1000 bytes and sent more"), "{}", ran.err());
}

#[test]
fn a_session_that_ends_within_a_response_is_replaced() {
    let sftp = with_quirks(&[Quirk::EndsWithin(20)]);
    sftp.session.write("far/src/f", content(1, 3 << 20));
    sftp.session.write("far/src/g", content(2, 1000));
    sftp.session.tool("cp -r far/src src");
    sftp.haul("cp @/src down").status(0);
    sftp.same("src", "down/src");
}

#[test]
fn a_session_that_never_makes_progress_is_an_error_after_retries() {
    let sftp = with_quirks(&[Quirk::EndsWithin(1)]);
    sftp.session.write("far/f", content(1, 1 << 20));
    let ran = sftp.haul("cp --retries 2 @/f dst").status(1);
    assert!(ran.err().contains("closed the channel within a response"), "{}", ran.err());
    assert!(!sftp.session.has("dst"));
}

#[test]
fn invalid_greetings_are_errors() {
    for (quirk, text) in [
        (Quirk::Version(2), "version 2"),
        (Quirk::Preamble(b"Welcome to this machine!\r\n"), "bytes, when"),
        (Quirk::Preamble(b"\0\0\0\x01\xff"), "packet of type 255"),
        (Quirk::Silent, "closed the channel without a greeting"),
    ] {
        let sftp = with_quirks(&[quirk]);
        sftp.session.write("far/f", "content");
        sftp.session.write("src", "content");
        for line in ["cp @/f dst", "cp src @/g", "ls @/"] {
            let ran = sftp.haul(line).status(1);
            assert!(ran.err().contains(text), "{quirk:?}, {line}: {}", ran.err());
        }
        assert!(!sftp.session.has("dst") && !sftp.session.has("far/g"));
    }
}

#[test]
fn names_that_lead_elsewhere_are_refused_and_the_rest_is_copied() {
    for name in [&b"../evil"[..], b"a/b", b"/etc/evil", b"nul\0", b""] {
        let sftp = with_quirks(&[Quirk::Lists(name)]);
        sftp.session.write("far/src/good", "content");
        sftp.session.write("evil", "untouched");
        let ran = sftp.haul("cp @/src dst").status(1);
        assert!(ran.err().contains("the server lists the name"), "{name:?}: {}", ran.err());
        assert_eq!(sftp.session.read("dst/src/good"), "content");
        let find = sftp.session.tool("find dst -type f");
        assert_eq!(find, "dst/src/good\n");
        assert_eq!(sftp.session.read("evil"), "untouched");
    }
    // Every directory has these names; haul skips them.
    for name in [&b"."[..], b".."] {
        let sftp = with_quirks(&[Quirk::Lists(name)]);
        sftp.session.write("far/src/good", "content");
        sftp.haul("cp @/src dst").status(0);
        assert_eq!(sftp.session.tool("find dst -type f"), "dst/src/good\n");
    }
}

/// `sync --delete` lists directories in which links are being replaced; formerly it failed then.
#[test]
fn a_link_that_is_removed_while_it_is_listed_is_not_an_error() {
    let sftp = with_quirks(&[Quirk::ListsGoneLink]);
    sftp.session.write("far/src/good", "content");
    sftp.haul("cp @/src dst").status(0);
    assert_eq!(sftp.session.tool("find dst -mindepth 1"), "dst/src\ndst/src/good\n");
}

#[test]
fn a_write_that_fails_without_a_reason_fails_the_file_and_leaves_none() {
    let sftp = with_quirks(&[Quirk::Quota(3 << 20)]);
    sftp.session.write("src", content(1, 8 << 20));
    let ran = sftp.haul("cp src @/f").status(1);
    assert!(ran.err().contains("far/f: cannot write (the server returned"), "{}", ran.err());
    assert!(!sftp.session.has("far/f"));
}

#[test]
fn a_close_that_fails_leaves_the_old_file_or_none() {
    for quirks in [&[Quirk::FailsToClose][..], &[Quirk::FailsToClose, Quirk::Replaces]] {
        for length in [1000, 1 << 20, 5 << 20] {
            let sftp = with_quirks(quirks);
            sftp.session.write("src", content(1, length));
            sftp.session.write("far/f", "old");
            sftp.haul("cp src @/f").status(1);
            assert_eq!(sftp.session.read("far/f"), "old", "{length} bytes, {quirks:?}");
            sftp.haul("cp src @/new").status(1);
            assert!(!sftp.session.has("far/new"), "{length} bytes, {quirks:?}");
        }
    }
}
