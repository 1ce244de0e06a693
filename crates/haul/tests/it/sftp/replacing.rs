//! Files that are replaced on servers whose rename does not replace. Formerly, haul removed the old file before the new
//! one got its name.

use std::fs;
use std::path::PathBuf;

use super::sshd::Sshd;
use super::strange::{Habit, far};
use super::{Far, content, unfinished};

/// Lengths of small and large files, in bytes.
const LENGTHS: [usize; 3] = [100, 1 << 20, 5 << 20];

const PART: Habit = Habit::KeepsName(".haul-part");
const ASIDE: Habit = Habit::KeepsName(".haul-old");

fn no_leftovers(far: &Far) {
    assert_eq!(unfinished(&far.session.path("far")), Vec::<PathBuf>::new());
}

#[test]
fn a_file_is_replaced_where_a_rename_does_not_replace() {
    for habits in [&[][..], &[Habit::AnnouncesReplacing]] {
        let far = far(habits);
        for (number, length) in LENGTHS.into_iter().enumerate() {
            far.session.write(format!("src/f{number}"), content(1, length));
            far.session.write(format!("far/dst/f{number}"), "old");
        }
        far.haul("cp src/ @/dst").status(0);
        far.same("src", "far/dst");
        no_leftovers(&far);
    }
}

#[test]
fn an_old_file_stays_where_the_new_one_cannot_be_renamed() {
    for length in LENGTHS {
        let far = far(&[PART]);
        far.session.write("src", content(1, length));
        far.session.write("far/f", "old");
        let ran = far.haul("cp src @/f").status(1);
        assert!(ran.err().contains("far/f: cannot rename"), "{}", ran.err());
        assert_eq!(far.session.read("far/f"), "old", "{length} bytes");
        assert!(!far.session.has("far/.f.haul-old"), "{length} bytes");
    }
}

#[test]
fn an_old_file_stays_where_no_rename_is_allowed() {
    for length in LENGTHS {
        let command = "/usr/lib/openssh/sftp-server -P posix-rename,rename";
        let line = format!("Subsystem sftp {command}");
        let far = Far::on(Sshd::builder().line(&line).start());
        far.session.write("src", content(1, length));
        far.session.write("far/f", "old");
        let ran = far.haul("cp --window 64M src @/f").status(1);
        assert!(ran.err().contains("far/f: cannot rename"), "{}", ran.err());
        assert_eq!(far.session.read("far/f"), "old", "{length} bytes");
        // Another server with the same files, on which renaming is allowed.
        let whole = Far { sshd: Sshd::start(), ..far };
        whole.haul("cp src @/f").status(0);
        whole.session.tool("cmp src far/f");
        no_leftovers(&whole);
    }
}

#[test]
fn both_files_stay_where_neither_gets_the_name() {
    for length in LENGTHS {
        let far = far(&[PART, ASIDE]);
        far.session.write("src", content(1, length));
        far.session.write("far/f", "old");
        let ran = far.haul("cp src @/f").status(1);
        assert!(ran.err().contains("the old file is now"), "{}", ran.err());
        assert_eq!(far.session.read("far/.f.haul-old"), "old", "{length} bytes");
        assert!(fs::read(far.far(".f.haul-part")).unwrap() == content(1, length));
        assert!(!far.session.has("far/f"));
    }
}

#[test]
fn a_session_that_ends_while_a_file_is_replaced_loses_nothing() {
    for name in ["f", ".haul-part"] {
        for length in LENGTHS {
            let far = far(&[Habit::EndsAfterRename(name)]);
            far.session.write("src", content(1, length));
            far.session.write("far/f", "old");
            far.haul("cp src @/f").status(0);
            far.session.tool("cmp src far/f");
            no_leftovers(&far);
        }
    }
}

#[test]
fn an_old_file_that_a_killed_run_left_aside_is_removed() {
    for exists in [false, true] {
        for length in LENGTHS {
            let far = far(&[]);
            far.session.write("src", content(1, length));
            far.session.write("far/.f.haul-old", "older");
            if exists {
                far.session.write("far/f", "old");
            }
            far.haul("cp src @/f").status(0);
            far.session.tool("cmp src far/f");
            no_leftovers(&far);
        }
    }
}

#[test]
fn a_directory_is_not_renamed_aside() {
    for length in LENGTHS {
        let far = far(&[]);
        far.session.write("src/f", content(1, length));
        far.session.write("far/dst/f/kept", "kept");
        let ran = far.haul("cp src/ @/dst").status(1);
        assert!(ran.err().contains("dst/f"), "{}", ran.err());
        assert_eq!(far.session.read("far/dst/f/kept"), "kept");
    }
}
