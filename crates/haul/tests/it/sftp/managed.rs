//! Servers in front of an object store, and others that can do less than a file system: haul detects
//! that by itself, and never produces a wrong file.

use std::fs;

use haul_fault_proxy::{Connections, Direction, Fault};
use haul_sftp::codec::Status;

use super::limits::{both_ways, tree};
use super::quirks::{Quirk, with_quirks};
use super::{SftpSession, content};

#[test]
fn a_server_that_accepts_writes_in_order_only_gets_them_in_order() {
    for refusal in [Status::Failure, Status::Unsupported, Status::PermissionDenied] {
        let sftp = with_quirks(&[Quirk::InOrder(refusal)]);
        tree(&sftp, 9 << 20);
        sftp.session.write("src/other", content(9, 5 << 20));
        sftp.session.write("far/src/other", content(9, 5 << 20));
        both_ways(&sftp, "");
        // Replacing files, over several lanes, with a digest, and read back.
        sftp.session.write("src/large", content(3, 8 << 20));
        sftp.haul("cp --lanes 4 --digest sha256 --verify src @/up").status(0);
        sftp.same("src", "far/up/src");
    }
}

#[test]
fn a_server_that_always_appends_gets_writes_in_order() {
    let sftp = with_quirks(&[Quirk::Appends]);
    tree(&sftp, 9 << 20);
    both_ways(&sftp, "--lanes 3");
}

#[test]
fn an_upload_in_order_that_is_cut_starts_over_by_itself() {
    for options in ["", "--digest sha256", "--digest blake3 --verify"] {
        let sftp = with_quirks(&[Quirk::InOrder(Status::Failure)]).with_proxy();
        sftp.session.write("src", content(1, 8 << 20));
        sftp.proxy().set(
            Connections::Nth(1),
            Direction::ToServer,
            Fault::CutHard { after: 2 << 20 },
        );
        let ran = sftp.haul(&format!("cp --json {options} src @/f")).status(0);
        let lost = ran.objects().into_iter().filter(|one| one["event"] == "retry").any(|one| {
            one["message"].as_str().unwrap().contains("this server cannot resume an upload")
        });
        assert!(lost, "{}", ran.out());
        assert_eq!(ran.summary()["bytes"], 8 << 20);
        sftp.session.tool("cmp src far/f");
        assert_eq!(fs::read_dir(sftp.far("")).unwrap().count(), 1, "something is left over");
    }
}

#[test]
fn an_upload_in_order_that_is_cut_repeatedly_is_an_error_and_a_rerun_starts_over() {
    let sftp = with_quirks(&[Quirk::InOrder(Status::Failure)]).with_proxy();
    sftp.session.write("src", content(1, 8 << 20));
    let cut = Fault::CutHard { after: 2 << 20 };
    sftp.proxy().set(Connections::All, Direction::ToServer, cut);
    let ran = sftp.haul("cp src @/f").status(1);
    assert!(ran.err().contains("this server cannot resume an upload"), "{}", ran.err());
    assert!(!sftp.session.has("far/f"));
    sftp.proxy().clear();
    sftp.haul("cp src @/f").status(0);
    sftp.session.tool("cmp src far/f");
    assert_eq!(fs::read_dir(sftp.far("")).unwrap().count(), 1, "something is left over");
}

#[test]
fn a_server_that_opens_a_file_once_is_read_and_written_over_one_lane() {
    let sftp = with_quirks(&[Quirk::OneHandleAFile]);
    tree(&sftp, 9 << 20);
    both_ways(&sftp, "--lanes 4");
    sftp.session.write("src/large", content(3, 8 << 20));
    sftp.haul("cp --lanes 4 --verify src @/up").status(0);
    sftp.same("src", "far/up/src");
}

#[test]
fn a_rerun_after_a_kill_is_right_on_a_server_that_opens_a_file_once() {
    let sftp = with_quirks(&[Quirk::OneHandleAFile]);
    sftp.session.write("src", content(1, 12 << 20));
    let running = sftp.spawn("cp --bwlimit 8M --window 1M src @/f");
    super::cuts::wait_for_bytes(&sftp.far(""), 4 << 20);
    running.kill();
    assert!(!sftp.session.has("far/f"), "the transfer had ended before the kill");
    // Time for the server to notice that the client is gone.
    std::thread::sleep(std::time::Duration::from_millis(500));
    sftp.haul("cp --digest sha256 src @/f").status(0);
    sftp.session.tool("cmp src far/f");
}

#[test]
fn a_server_with_one_handle_per_session_gets_a_session_for_each() {
    let sessions = |quirks: &[Quirk]| {
        let sftp = with_quirks(quirks);
        tree(&sftp, 6 << 20);
        sftp.session.write("src/other", content(9, 5 << 20));
        sftp.session.write("far/src/other", content(9, 5 << 20));
        both_ways(&sftp, "");
        let sessions = sftp.session.read("relay.sessions").lines().count();
        both_ways(&sftp, "--lanes 3 --verify --overwrite always");
        sessions
    };
    let [usual, with_quirk] = [&[][..], &[Quirk::OneHandleASession]].map(sessions);
    assert!(with_quirk > usual, "{with_quirk} sessions, and {usual} otherwise");
}

#[test]
fn a_server_with_many_quirks_is_handled() {
    let sftp = with_quirks(&[
        Quirk::InOrder(Status::Failure),
        Quirk::OneHandleAFile,
        Quirk::OneHandleASession,
        Quirk::NoAttributes(Status::Unsupported),
        Quirk::ShortReads(20_000),
        Quirk::Backwards,
    ]);
    tree(&sftp, 4 << 20);
    both_ways(&sftp, "");
    // And replacing existing files.
    let ran = sftp.haul("cp --json --overwrite always src @/up").status(0);
    assert_eq!(ran.summary()["unchanged"], 0, "{}", ran.out());
    sftp.same("src", "far/up/src");
}

#[test]
fn copies_work_with_a_server_that_refuses_to_resolve_paths_or_to_copy() {
    for refusal in [Status::Unsupported, Status::PermissionDenied, Status::Failure] {
        let sftp = with_quirks(&[Quirk::NoRealpath(refusal), Quirk::NoCopies(refusal)]);
        tree(&sftp, 2 << 20);
        both_ways(&sftp, "");
        sftp.haul("cp @/src @/copy").status(0);
        sftp.same("src", "far/copy/src");
    }
}

#[test]
fn a_copy_within_a_server_with_quirks_is_right() {
    for quirks in [
        &[Quirk::OneHandleASession][..],
        &[Quirk::OneHandleASession, Quirk::InOrder(Status::Failure)],
    ] {
        let sftp = with_quirks(quirks);
        tree(&sftp, 4 << 20);
        sftp.haul("cp @/src @/copy").status(0);
        sftp.same("src", "far/copy/src");
    }
}

#[test]
fn an_existing_directory_that_a_server_creates_again_is_not_taken_for_new() {
    let sftp = with_quirks(&[Quirk::MakesAgain]);
    sftp.session.write("src/d/f", b"new");
    sftp.session.write("far/src/d/f", b"older");
    sftp.haul("cp --overwrite never src @/").status(0);
    assert_eq!(fs::read(sftp.far("src/d/f")).unwrap(), b"older");
    sftp.haul("cp src @/").status(0);
    sftp.same("src", "far/src");
    let again = sftp.haul("cp --json src @/").status(0);
    assert_eq!(again.summary()["moved_bytes"], 0, "{}", again.out());
}

/// sftpgo does this: it handles an FSTAT concurrently with the WRITE before it. Formerly, haul took it for a server
/// that accepts bytes in order only.
#[test]
fn a_resumed_upload_is_right_on_a_server_that_reports_sizes_before_it_has_written() {
    continued(&with_quirks(&[Quirk::LooksEarly]).with_proxy());
}

/// paramiko's server does this. Formerly, a resumed file ended up as zeros only.
#[test]
fn resumed_files_and_trailing_holes_are_right_on_a_server_that_empties_files_to_set_lengths() {
    let sftp = with_quirks(&[Quirk::EmptiesToSetLength]).with_proxy();
    continued(&sftp);
    let hole = fs::File::create(sftp.session.path("hole")).unwrap();
    std::io::Write::write_all(&mut &hole, &content(2, 5 << 20)).unwrap();
    hole.set_len((9 << 20) + 5).unwrap();
    sftp.haul("cp hole @/hole").status(0);
    sftp.session.tool("cmp hole far/hole");
}

/// Asserts that the next run resumes an upload that was cut.
#[track_caller]
fn continued(sftp: &SftpSession) {
    sftp.session.write("src", content(1, 24 << 20));
    let cut = Fault::CutHard { after: 12 << 20 };
    sftp.proxy().set(Connections::All, Direction::ToServer, cut);
    sftp.haul("cp --retries 0 src @/f").status(1);
    sftp.proxy().clear();
    let ran = sftp.haul("cp --json src @/f").status(0);
    assert!(ran.summary()["resumed_bytes"].as_u64().unwrap() > 0, "{}", ran.out());
    sftp.session.tool("cmp src far/f");
}
