//! Servers in front of an object store, and others that can do less than a file system: haul detects
//! that by itself, and never produces a wrong file.

use std::fs;

use haul_fault_proxy::{Connections, Direction, Fault};
use haul_sftp::codec::Status;

use super::limits::{both_ways, tree};
use super::strange::{Habit, far};
use super::{Far, content};

#[test]
fn a_server_that_accepts_writes_in_order_only_gets_them_in_order() {
    for refusal in [Status::Failure, Status::Unsupported, Status::PermissionDenied] {
        let far = far(&[Habit::InOrder(refusal)]);
        tree(&far, 9 << 20);
        far.session.write("src/other", content(9, 5 << 20));
        far.session.write("far/src/other", content(9, 5 << 20));
        both_ways(&far, "");
        // Replacing files, over several lanes, with a digest, and read back.
        far.session.write("src/large", content(3, 8 << 20));
        far.haul("cp --lanes 4 --digest sha256 --verify src @/up").status(0);
        far.same("src", "far/up/src");
    }
}

#[test]
fn a_server_that_always_appends_gets_writes_in_order() {
    let far = far(&[Habit::Appends]);
    tree(&far, 9 << 20);
    both_ways(&far, "--lanes 3");
}

#[test]
fn an_upload_in_order_that_is_cut_starts_over_by_itself() {
    for options in ["", "--digest sha256", "--digest blake3 --verify"] {
        let far = far(&[Habit::InOrder(Status::Failure)]).with_proxy();
        far.session.write("src", content(1, 8 << 20));
        far.proxy().set(
            Connections::Nth(1),
            Direction::ToServer,
            Fault::CutHard { after: 2 << 20 },
        );
        let ran = far.haul(&format!("cp --json {options} src @/f")).status(0);
        let lost = ran.objects().into_iter().filter(|one| one["event"] == "retry").any(|one| {
            one["message"].as_str().unwrap().contains("this server cannot resume an upload")
        });
        assert!(lost, "{}", ran.out());
        assert_eq!(ran.summary()["bytes"], 8 << 20);
        far.session.tool("cmp src far/f");
        assert_eq!(fs::read_dir(far.far("")).unwrap().count(), 1, "nothing is left over");
    }
}

#[test]
fn an_upload_in_order_that_is_cut_repeatedly_is_an_error_and_a_rerun_starts_over() {
    let far = far(&[Habit::InOrder(Status::Failure)]).with_proxy();
    far.session.write("src", content(1, 8 << 20));
    let cut = Fault::CutHard { after: 2 << 20 };
    far.proxy().set(Connections::All, Direction::ToServer, cut);
    let ran = far.haul("cp src @/f").status(1);
    assert!(ran.err().contains("this server cannot resume an upload"), "{}", ran.err());
    assert!(!far.session.has("far/f"));
    far.proxy().clear();
    far.haul("cp src @/f").status(0);
    far.session.tool("cmp src far/f");
    assert_eq!(fs::read_dir(far.far("")).unwrap().count(), 1, "nothing is left over");
}

#[test]
fn a_server_that_opens_a_file_once_is_read_and_written_over_one_lane() {
    let far = far(&[Habit::OneHandleAFile]);
    tree(&far, 9 << 20);
    both_ways(&far, "--lanes 4");
    far.session.write("src/large", content(3, 8 << 20));
    far.haul("cp --lanes 4 --verify src @/up").status(0);
    far.same("src", "far/up/src");
}

#[test]
fn a_server_that_opens_a_file_once_gets_the_whole_file_again_after_a_kill() {
    let far = far(&[Habit::OneHandleAFile]);
    far.session.write("src", content(1, 12 << 20));
    let running = far.spawn("cp --bwlimit 8M --window 1M src @/f");
    super::cuts::wait_for_bytes(&far.far(""), 4 << 20);
    running.kill();
    // Time for the server to notice that the client is gone.
    std::thread::sleep(std::time::Duration::from_millis(500));
    far.haul("cp --digest sha256 src @/f").status(0);
    far.session.tool("cmp src far/f");
}

#[test]
fn a_server_with_one_handle_per_session_gets_a_session_for_each() {
    let far = far(&[Habit::OneHandleASession]);
    tree(&far, 6 << 20);
    far.session.write("src/other", content(9, 5 << 20));
    far.session.write("far/src/other", content(9, 5 << 20));
    both_ways(&far, "");
    both_ways(&far, "--lanes 3 --verify --overwrite always");
}

#[test]
fn a_server_with_many_quirks_is_handled() {
    let far = far(&[
        Habit::InOrder(Status::Failure),
        Habit::OneHandleAFile,
        Habit::OneHandleASession,
        Habit::NoAttributes(Status::Unsupported),
        Habit::ShortReads(20_000),
        Habit::Backwards,
    ]);
    tree(&far, 4 << 20);
    both_ways(&far, "");
    // And replacing existing files.
    far.haul("cp src @/up").status(0);
    far.same("src", "far/up/src");
}

#[test]
fn copies_work_with_a_server_that_refuses_to_resolve_paths_or_to_copy() {
    for refusal in [Status::Unsupported, Status::PermissionDenied, Status::Failure] {
        let far = far(&[Habit::NoRealpath(refusal), Habit::NoCopies(refusal)]);
        tree(&far, 2 << 20);
        both_ways(&far, "");
        far.haul("cp @/src @/copy").status(0);
        far.same("src", "far/copy/src");
    }
}

#[test]
fn a_copy_within_a_server_with_quirks_is_right() {
    for habits in [
        &[Habit::OneHandleASession][..],
        &[Habit::OneHandleASession, Habit::InOrder(Status::Failure)],
    ] {
        let far = far(habits);
        tree(&far, 4 << 20);
        far.haul("cp @/src @/copy").status(0);
        far.same("src", "far/copy/src");
    }
}

#[test]
fn an_existing_directory_that_a_server_creates_again_is_not_taken_for_new() {
    let far = far(&[Habit::MakesAgain]);
    far.session.write("src/d/f", b"new");
    far.session.write("far/src/d/f", b"older");
    far.haul("cp --overwrite never src @/").status(0);
    assert_eq!(fs::read(far.far("src/d/f")).unwrap(), b"older");
    far.haul("cp src @/").status(0);
    far.same("src", "far/src");
    let again = far.haul("cp --json src @/").status(0);
    assert_eq!(again.summary()["moved_bytes"], 0, "{}", again.out());
}

/// sftpgo does this: it handles an FSTAT concurrently with the WRITE before it. Formerly, haul took it for a server
/// that accepts bytes in order only.
#[test]
fn a_resumed_upload_is_right_on_a_server_that_reports_sizes_before_it_has_written() {
    continued(&far(&[Habit::LooksEarly]).with_proxy());
}

/// paramiko's server does this. Formerly, a resumed file ended up as zeros only.
#[test]
fn resumed_files_and_trailing_holes_are_right_on_a_server_that_empties_files_to_set_lengths() {
    let far = far(&[Habit::EmptiesToSetLength]).with_proxy();
    continued(&far);
    let hole = fs::File::create(far.session.path("hole")).unwrap();
    std::io::Write::write_all(&mut &hole, &content(2, 5 << 20)).unwrap();
    hole.set_len((9 << 20) + 5).unwrap();
    far.haul("cp hole @/hole").status(0);
    far.session.tool("cmp hole far/hole");
}

/// Asserts that the next run resumes an upload that was cut.
#[track_caller]
fn continued(far: &Far) {
    far.session.write("src", content(1, 24 << 20));
    let cut = Fault::CutHard { after: 12 << 20 };
    far.proxy().set(Connections::All, Direction::ToServer, cut);
    far.haul("cp --retries 0 src @/f").status(1);
    far.proxy().clear();
    let ran = far.haul("cp --json src @/f").status(0);
    assert!(ran.summary()["resumed_bytes"].as_u64().unwrap() > 0, "{}", ran.out());
    far.session.tool("cmp src far/f");
}
