//! Names that the file system of the destination treats as equal, since it ignores case.

use std::fs;

use crate::image::Image;
use crate::session::Session;

/// File systems that ignore case: name, mkfs command, mount command.
pub(crate) const KINDS: [(&str, &[&str], &[&str]); 2] = [
    ("ntfs", &["mkfs.ntfs", "-q", "-F", "-f"], &["lowntfs-3g", "-o", "ignore_case"]),
    ("exfat", &["mkfs.exfat"], &["mount.exfat-fuse"]),
];

#[test]
fn the_second_of_two_names_that_differ_in_case_is_an_error() {
    for (name, make, mount) in KINDS {
        let session = Session::new()
            .file("s/README", "upper")
            .file("s/readme", "lower")
            .file("s/D/x", "in D")
            .file("s/d/y", "in d")
            .file("s/other", "other");
        let Some(_image) = Image::new(&session, name, make, mount) else { continue };
        let (one, other) = ("treats this name as README", "treats this name as D");
        for _ in 0..3 {
            let ran = session.haul(&format!("cp s/ {name}/to"));
            ran.status(1).stderr_has(one).stderr_has(other).stderr_has("s/README");
            assert_eq!(session.read(&format!("{name}/to/README")), "upper", "{name}");
            assert_eq!(session.read(&format!("{name}/to/other")), "other", "{name}");
            assert_eq!(session.read(&format!("{name}/to/D/x")), "in D", "{name}");
            assert!(!session.has(&format!("{name}/to/d/y")), "{name}");
        }
        session.haul(&format!("sync --delete s/ {name}/to")).status(1);
        assert_eq!(fs::read_dir(session.path(name).join("to")).unwrap().count(), 3, "{name}");
        session.haul(&format!("cp s/README s/readme {name}/")).status(1).stderr_has(one);
        assert_eq!(session.read(&format!("{name}/README")), "upper", "{name}");
    }
}

/// exfat-fuse reports two inode numbers for one file. Formerly, `--delete` therefore took the copy of a source file for
/// an extra file and removed it.
#[test]
fn delete_spares_a_file_whose_name_differs_in_case() {
    for (name, make, mount) in KINDS {
        let session = Session::new().file("s/readme", "kept").file("s/other", "other");
        let Some(_image) = Image::new(&session, name, make, mount) else { continue };
        session.haul(&format!("cp s/readme {name}/to/README")).status(0);
        session.write(format!("{name}/to/extra"), "extra");
        session.haul(&format!("sync --delete s/ {name}/to")).status(0).stderr_has("1 unchanged");
        assert_eq!(session.read(&format!("{name}/to/readme")), "kept", "{name}");
        assert_eq!(fs::read_dir(session.path(name).join("to")).unwrap().count(), 2, "{name}");
    }
}
