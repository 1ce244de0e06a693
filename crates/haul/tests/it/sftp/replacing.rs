//! Files that are replaced on servers whose rename does not replace. Formerly, haul removed the old file before the new
//! one got its name.

use std::fs;
use std::path::PathBuf;

use super::quirks::{Quirk, with_quirks};
use super::sshd::Sshd;
use super::{Running, SftpSession, content, unfinished};

/// Lengths of small and large files, in bytes.
const LENGTHS: [usize; 3] = [100, 1 << 20, 5 << 20];

/// Part files of long and of small uploads.
const PARTS: [Quirk; 2] = [Quirk::KeepsName(".haul-upload"), Quirk::KeepsName(".haul-temp")];
const ASIDE: Quirk = Quirk::KeepsName(".haul-old");

fn no_leftovers(sftp: &SftpSession) {
    assert_eq!(unfinished(&sftp.session.path("far")), Vec::<PathBuf>::new());
}

#[test]
fn a_file_is_replaced_where_a_rename_does_not_replace() {
    for quirks in [&[][..], &[Quirk::AnnouncesReplacing]] {
        let sftp = with_quirks(quirks);
        for (number, length) in LENGTHS.into_iter().enumerate() {
            sftp.session.write(format!("src/f{number}"), content(1, length));
            sftp.session.write(format!("far/dst/f{number}"), "old");
        }
        sftp.haul("cp src/ @/dst").status(0);
        sftp.same("src", "far/dst");
        no_leftovers(&sftp);
    }
}

#[test]
fn an_old_file_stays_where_the_new_one_cannot_be_renamed() {
    for length in LENGTHS {
        let sftp = with_quirks(&PARTS);
        sftp.session.write("src", content(1, length));
        sftp.session.write("far/f", "old");
        let ran = sftp.haul("cp src @/f").status(1);
        assert!(ran.err().contains("far/f: cannot rename"), "{}", ran.err());
        assert_eq!(sftp.session.read("far/f"), "old", "{length} bytes");
        assert!(!sftp.session.has("far/.f.haul-old"), "{length} bytes");
    }
}

#[test]
fn an_old_file_stays_where_no_rename_is_allowed() {
    for length in LENGTHS {
        let command = "/usr/lib/openssh/sftp-server -P posix-rename,rename";
        let line = format!("Subsystem sftp {command}");
        let sftp = SftpSession::on(Sshd::builder().line(&line).start());
        sftp.session.write("src", content(1, length));
        sftp.session.write("far/f", "old");
        let ran = sftp.haul("cp --window 64M src @/f").status(1);
        assert!(ran.err().contains("far/f: cannot rename"), "{}", ran.err());
        assert_eq!(sftp.session.read("far/f"), "old", "{length} bytes");
        // Another server with the same files, on which renaming is allowed. The part file of a long upload stays for a
        // run with the address of the first server.
        let left = unfinished(&sftp.session.path("far"));
        assert!(
            left.iter().all(|path| path.to_string_lossy().ends_with(".haul-upload")),
            "{left:?}"
        );
        let whole = SftpSession { sshd: Sshd::start(), ..sftp };
        whole.haul("cp src @/f").status(0);
        whole.session.tool("cmp src far/f");
        assert_eq!(unfinished(&whole.session.path("far")), left);
    }
}

#[test]
fn both_files_stay_where_neither_gets_the_name() {
    for length in LENGTHS {
        let sftp = with_quirks(&[PARTS[0], PARTS[1], ASIDE]);
        sftp.session.write("src", content(1, length));
        sftp.session.write("far/f", "old");
        let ran = sftp.haul("cp src @/f").status(1);
        assert!(ran.err().contains("the old file is now"), "{}", ran.err());
        assert_eq!(sftp.session.read("far/.f.haul-old"), "old", "{length} bytes");
        let left = unfinished(&sftp.session.path("far"));
        let part = left.iter().find(|path| !path.ends_with(".f.haul-old")).unwrap();
        assert!(fs::read(part).unwrap() == content(1, length));
        assert_eq!(left.len(), 2, "{left:?}");
        assert!(!sftp.session.has("far/f"));
    }
}

/// Formerly, it was an error of the file, which had arrived.
#[test]
fn an_old_file_that_cannot_be_removed_is_a_warning() {
    for length in LENGTHS {
        let sftp = with_quirks(&[Quirk::KeepsFile(".haul-old")]);
        sftp.session.write("src", content(1, length));
        sftp.session.write("far/f", "old");
        let ran = sftp.haul("cp src @/f").status(0);
        assert!(ran.err().contains("haul: warning: "), "{}", ran.err());
        assert!(ran.err().contains("the old version of a replaced file stays as"), "{}", ran.err());
        assert!(ran.err().contains("far/.f.haul-old ("), "{}", ran.err());
        sftp.session.tool("cmp src far/f");
        assert_eq!(sftp.session.read("far/.f.haul-old"), "old", "{length} bytes");
        assert_eq!(unfinished(&sftp.session.path("far")).len(), 1, "{length} bytes");
    }
}

#[test]
fn a_session_that_ends_while_a_file_is_replaced_loses_nothing() {
    for name in ["f", ".haul-upload", ".haul-temp"] {
        for length in LENGTHS {
            let sftp = with_quirks(&[Quirk::EndsAfterRename(name)]);
            sftp.session.write("src", content(1, length));
            sftp.session.write("far/f", "old");
            sftp.haul("cp src @/f").status(0);
            sftp.session.tool("cmp src far/f");
            no_leftovers(&sftp);
        }
    }
}

#[test]
fn an_old_file_that_a_killed_run_left_aside_is_removed() {
    for exists in [false, true] {
        for length in LENGTHS {
            let sftp = with_quirks(&[]);
            sftp.session.write("src", content(1, length));
            sftp.session.write("far/.f.haul-old", "older");
            if exists {
                sftp.session.write("far/f", "old");
            }
            sftp.haul("cp src @/f").status(0);
            sftp.session.tool("cmp src far/f");
            no_leftovers(&sftp);
        }
    }
}

#[test]
fn a_directory_is_not_renamed_aside() {
    for length in LENGTHS {
        let sftp = with_quirks(&[]);
        sftp.session.write("src/f", content(1, length));
        sftp.session.write("far/dst/f/kept", "kept");
        let ran = sftp.haul("cp src/ @/dst").status(1);
        assert!(ran.err().contains("dst/f"), "{}", ran.err());
        assert_eq!(sftp.session.read("far/dst/f/kept"), "kept");
    }
}

/// Formerly, both runs wrote to one part file: the first to finish stored what the other one had written so far.
#[test]
fn two_runs_that_upload_to_one_name_at_once_do_not_mix() {
    let sftp = SftpSession::start();
    sftp.session.write("one", content(1, 8 << 20));
    sftp.session.write("two", content(2, 6 << 20));
    let one = sftp.line("cp --json --bwlimit 2M one @/f");
    for is_killed in [false, true] {
        let mut slow = Running::start(&sftp.session, &one);
        slow.until_moved(2 << 20);
        sftp.haul("cp two @/f").status(0);
        sftp.same("two", "far/f");
        if is_killed {
            slow.kill();
            // The other run has not removed the journal of this one.
            let summary = sftp.haul("cp --json one @/f").status(0).summary();
            assert!(summary["resumed_bytes"].as_u64().unwrap() > 0, "{summary}");
        } else {
            assert!(slow.finish().status.success());
        }
        sftp.same("one", "far/f");
        no_leftovers(&sftp);
        fs::remove_file(sftp.far("f")).unwrap();
    }
}
