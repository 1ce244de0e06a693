//! Servers that do not set times or modes, or only claim to: the files are copied nevertheless, one warning lists what
//! is not preserved, and a rerun copies nothing. Also read-only directories and part files, set-ID bits, modes of
//! replaced files, and servers that list directories in one packet.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

use haul_sftp::codec::Status;

use super::nobody::Nobody;
use super::quirks::{Quirk, with_quirks};
use super::sshd::Sshd;
use super::{SftpSession, content};
use crate::dav::change_later;
use crate::faults::is_root;
use crate::private::{check_read_only_directories, check_read_only_part_files};

/// A tree of old files, one of them large.
fn old_tree(sftp: &SftpSession) {
    sftp.session.write("src/large", content(1, 1 << 20));
    for n in 0..30 {
        sftp.session.write(format!("src/d{}/small{n}", n % 3), content(n, 50 * n as usize));
    }
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for path in ["src/large".to_owned()]
        .into_iter()
        .chain((0..30).map(|n| format!("src/d{}/small{n}", n % 3)))
    {
        fs::File::options()
            .write(true)
            .open(sftp.session.path(path))
            .unwrap()
            .set_modified(old)
            .unwrap();
    }
}

/// Uploads the tree three times: the first run copies everything, with one warning, and the others nothing.
#[track_caller]
fn copied_once(sftp: &SftpSession, warning: &str) {
    old_tree(sftp);
    let first = sftp.haul("cp src @/up").status(0);
    assert_eq!(first.err().matches(warning).count(), 1, "{}", first.err());
    sftp.same("src", "far/up/src");
    let again = sftp.haul("cp --json src @/up").status(0);
    assert_eq!(again.summary()["moved_bytes"], 0, "{}", again.out());
    // The server has the times of the upload, so no source is newer.
    let again = sftp.haul("cp --overwrite newer --json src @/up").status(0);
    assert_eq!(again.summary()["moved_bytes"], 0, "{}", again.out());
    sftp.same("src", "far/up/src");
}

#[test]
fn a_server_that_refuses_attributes_with_any_status_gets_the_files_and_a_rerun_copies_nothing() {
    for refusal in [Status::Unsupported, Status::PermissionDenied, Status::Failure] {
        let sftp = with_quirks(&[Quirk::NoAttributes(refusal)]);
        copied_once(&sftp, "does not set modes and times; they are not preserved");
    }
}

#[test]
fn an_sshd_that_is_configured_to_refuse_attributes_gets_the_files() {
    let line = "Subsystem sftp internal-sftp -P setstat,fsetstat";
    let sftp = SftpSession::on(Sshd::builder().line(line).start());
    copied_once(&sftp, "does not set modes and times; they are not preserved");
}

#[test]
fn files_that_stay_private_where_modes_are_refused_are_reported() {
    let line = "Subsystem sftp internal-sftp -P setstat,fsetstat";
    let sftp = SftpSession::on(Sshd::builder().line(line).start());
    sftp.session.write("src/d/large", content(2, 2 << 20));
    let ran = sftp.haul("cp src @/up").status(0);
    let message =
        "they are not preserved, and directories and large files stay private (0700, 0600)";
    assert!(ran.err().contains(message), "{}", ran.err());
    for (path, wanted) in [("d/large", 0o600), ("d", 0o700)] {
        let found = fs::metadata(sftp.far("up/src").join(path)).unwrap().permissions().mode();
        assert_eq!(found & 0o7777, wanted, "{path}");
    }
}

#[test]
fn modes_are_set_where_only_times_are_refused() {
    let sftp = with_quirks(&[Quirk::NoTimes]);
    sftp.session.write("src/d/f", b"content");
    sftp.session.write("src/d/large", content(2, 2 << 20));
    let mode = |path: &str, mode: u32| {
        fs::set_permissions(sftp.session.path(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("src/d/f", 0o640);
    mode("src/d/large", 0o604);
    mode("src/d", 0o711);
    let ran = sftp.haul("cp src @/up").status(0);
    assert!(ran.err().contains("does not set times; they are not preserved"), "{}", ran.err());
    for (path, wanted) in [("d/f", 0o640), ("d/large", 0o604), ("d", 0o711)] {
        let found = fs::metadata(sftp.far("up/src").join(path)).unwrap().permissions().mode();
        assert_eq!(found & 0o7777, wanted, "{path}");
    }
}

#[test]
fn a_server_that_ignores_times_gets_the_files_and_a_rerun_copies_nothing() {
    let sftp = with_quirks(&[Quirk::IgnoresTimes]);
    copied_once(&sftp, "does not set times; they are not preserved");
}

#[test]
fn a_changed_file_of_equal_length_is_sent_to_a_server_that_does_not_set_times() {
    let quirks =
        [Quirk::IgnoresTimes, Quirk::NoTimes, Quirk::NoAttributes(Status::PermissionDenied)];
    for quirk in quirks {
        let sftp = with_quirks(&[quirk]);
        old_tree(&sftp);
        sftp.haul("cp -q src @/up").status(0);
        for name in ["large", "d1/small28"] {
            let copy = sftp.far(&format!("up/src/{name}"));
            change_later(&sftp.session, &format!("src/{name}"), &copy);
        }
        let synced = sftp.haul("sync --json src @/up/src").status(0);
        let changed = (1 << 20) + 50 * 28;
        assert_eq!(synced.summary()["moved_bytes"], changed, "{quirk:?}: {}", synced.out());
        sftp.same("src", "far/up/src");
        for line in ["sync --json src @/up/src", "cp --json src @/up"] {
            let again = sftp.haul(line).status(0);
            assert_eq!(again.summary()["moved_bytes"], 0, "{quirk:?}: {}", again.out());
        }
    }
}

#[test]
fn a_copy_in_read_only_directories_is_updated_by_their_owner_on_a_server() {
    for server in Nobody::all() {
        eprintln!("{}", server.name);
        check_read_only_directories(&server.session, ("@", "far"), |line| server.line(line));
    }
}

/// Formerly, a part file that was to be resumed could not be opened, in any later run.
#[test]
fn a_read_only_part_file_is_completed_by_its_owner_on_a_server() {
    for server in Nobody::all() {
        eprintln!("{}", server.name);
        check_read_only_part_files(&server.session, ("@", "far"), |line| server.line(line));
    }
}

#[test]
fn set_id_bits_are_preserved_only_with_their_owner() {
    if !is_root() {
        eprintln!("SKIPPED: files of other owners need root");
        return;
    }
    let sftp = SftpSession::start();
    sftp.session.write("src/f", b"content");
    let path = sftp.session.path("src/f");
    std::os::unix::fs::chown(&path, Some(12_345), Some(12_345)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
    let of = |path: &str| {
        use std::os::unix::fs::MetadataExt;
        let found = fs::metadata(sftp.far(path)).unwrap();
        (found.uid(), found.mode() & 0o7777)
    };
    // With another owner, the bit would grant the rights of that one.
    sftp.haul("cp src @/plain").status(0);
    assert_eq!(of("plain/src/f"), (0, 0o755));
    sftp.haul("cp --preserve=mode,times,owner src @/owned").status(0);
    assert_eq!(of("owned/src/f"), (12_345, 0o4755));
}

/// AWS Transfer Family lists like this. Formerly, a packet of more than 260 KiB was an error.
#[test]
fn a_directory_that_is_listed_in_one_packet_is_read_whatever_its_length() {
    let sftp = with_quirks(&[Quirk::ListsAtOnce]);
    for n in 0..4000 {
        sftp.session.write(format!("far/many/{n:05}{}", "x".repeat(150)), b"");
    }
    let ran = sftp.haul("ls @/many").status(0);
    assert_eq!(ran.out().lines().count(), 4000);
    sftp.haul("cp @/many down").status(0);
    sftp.same("far/many", "down/many");
}

/// Formerly, a private file became public where modes are not copied.
#[test]
fn a_file_that_is_replaced_keeps_its_mode_where_modes_are_not_copied() {
    let sftp = SftpSession::on(Sshd::builder().start());
    for (name, length) in [("small", 100), ("large", 20 << 20)] {
        sftp.session.write(format!("src/{name}"), content(1, length));
        let path = format!("far/up/{name}");
        sftp.session.write(&path, "older");
        let mode = fs::Permissions::from_mode(0o600);
        fs::set_permissions(sftp.session.path(&path), mode).unwrap();
    }
    sftp.haul("cp --preserve=times --overwrite always src/ @/up").status(0);
    sftp.same("src", "far/up");
    for name in ["small", "large"] {
        let found = fs::metadata(sftp.session.path(format!("far/up/{name}"))).unwrap();
        assert_eq!(found.permissions().mode() & 0o7777, 0o600, "{name}");
    }
}
