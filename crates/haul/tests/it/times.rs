//! File systems and servers whose times have coarser steps or a shorter range than the source's: a rerun
//! copies nothing.

use std::fs::File;
use std::time::{Duration, UNIX_EPOCH};

use crate::dav;
use crate::image::Image;
use crate::session::Session;
use crate::sftp::SftpSession;

fn set(session: &Session, name: &str, seconds: i64, nanos: u32) {
    let file = File::options().write(true).open(session.path(name)).unwrap();
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let time = if seconds < 0 { UNIX_EPOCH - whole } else { UNIX_EPOCH + whole };
    file.set_modified(time + Duration::from_nanos(nanos.into())).unwrap();
}

/// Files with times between the steps of clocks, and beyond the range of some.
fn sources() -> Session {
    let names = ["now", "even", "odd", "1950", "2110"];
    let session = names
        .iter()
        .fold(Session::new(), |session, name| session.file(format!("src/{name}"), *name));
    set(&session, "src/now", 1_700_000_000, 123_456_789);
    set(&session, "src/even", 1_700_000_000, 999_999_999);
    set(&session, "src/odd", 1_700_000_001, 10_000_001);
    set(&session, "src/1950", -618_000_000, 0);
    set(&session, "src/2110", 4_431_000_000, 5);
    session
}

#[test]
fn a_rerun_copies_nothing_to_file_systems_with_coarse_or_short_clocks() {
    let kinds: [(&str, &[&str], &[&str]); 4] = [
        ("ext4-128", &["mkfs.ext4", "-q", "-I", "128"], &["mount"]),
        ("xfs", &["mkfs.xfs", "-q", "-m", "bigtime=0"], &["mount"]),
        ("ntfs", &["mkfs.ntfs", "-q", "-F", "-f"], &["ntfs-3g"]),
        ("exfat", &["mkfs.exfat"], &["mount.exfat-fuse"]),
    ];
    for (name, make, mount) in kinds {
        let session = sources();
        if name == "exfat" {
            // exfat-fuse stores the time of the last write instead of a time that it cannot store.
            for name in ["1950", "2110"] {
                std::fs::remove_file(session.path("src").join(name)).unwrap();
            }
        }
        let all = std::fs::read_dir(session.path("src")).unwrap().count();
        let unchanged = format!("{all} unchanged");
        let Some(_image) = Image::new(&session, name, make, mount) else { continue };
        session.haul(&format!("cp src {name}/")).status(0);
        session.haul(&format!("cp src {name}/")).status(0).stderr_has(&unchanged);
        session.haul(&format!("cp --dry-run src {name}/")).status(0).stderr_has(&unchanged);
        // A changed file must still be recognised.
        session.write("src/now", "new");
        set(&session, "src/now", 1_700_000_002, 0);
        let others = format!("{} unchanged", all - 1);
        session.haul(&format!("cp src {name}/")).status(0).stderr_has(&others);
        assert_eq!(session.read(&format!("{name}/src/now")), "new");
    }
}

/// Formerly, a directory that refuses files was taken for proof of a fine clock, and everything was copied
/// again.
#[test]
fn a_directory_that_refuses_files_proves_nothing_about_the_clock() {
    if !crate::faults::is_root() {
        eprintln!("skipped: mounting needs root");
        return;
    }
    let session = Session::new().file("src/a/f", "x").file("src/b/f", "x").file("src/c/f", "x");
    for name in ["a", "b", "c"] {
        set(&session, &format!("src/{name}/f"), 1_700_000_000, 500_000_000);
    }
    let make: [&str; 4] = ["mkfs.ext4", "-q", "-I", "128"];
    let Some(_image) = Image::new(&session, "ext4", &make, &["mount"]) else { return };
    session.tool("chown -R 65534:65534 src ext4");
    let copy = |line: &str| {
        let ran = crate::faults::as_nobody(&session, line).output().unwrap();
        String::from_utf8_lossy(&ran.stderr).into_owned()
    };
    copy("cp src/ ext4/d");
    session.tool("chown root ext4/d/a");
    for _ in 0..2 {
        let text = copy("cp src/ ext4/d");
        assert!(text.contains("moved 0 B"), "{text}");
    }
}

#[test]
fn a_rerun_copies_nothing_to_servers_with_a_limited_range_of_times() {
    const LOST: &str = "becomes 1970-01-01; this is reported once";
    let session = sources();
    let server = dav::haul(&session);
    session.haul(&format!("cp --files 1 src {}", server.url)).status(0).stderr_has(LOST);
    session.haul(&format!("cp src {}", server.url)).status(0).stderr_has("5 unchanged");
    let sftp = SftpSession::start();
    let source = session.path("src").display().to_string();
    std::fs::remove_file(session.path("src/2110")).unwrap();
    sftp.haul(&format!("cp {source} @/")).status(0).stderr_has(LOST);
    sftp.haul(&format!("cp {source} @/")).status(0).stderr_has("4 unchanged");
}

/// SFTP has unsigned 32-bit seconds, which end in 2106.
#[test]
fn a_rerun_copies_nothing_over_sftp_if_times_are_beyond_32_bits() {
    for (year, seconds, date) in
        [("2110", 4_431_000_000, "2110-05-31"), ("2400", 13_569_465_600, "2400-01-01")]
    {
        let sftp = SftpSession::start();
        sftp.session.write("src/f", year);
        set(&sftp.session, "src/f", seconds, 0);
        let lost = format!(
            "the destination cannot keep its modification time: {date} becomes 2106-02-07; \
             this is reported once"
        );
        for (line, at) in [("cp src/ @/to", "to/f"), ("cp src/f @/alone", "alone")] {
            let first = sftp.haul(line).status(0).stderr_has(&format!("/far/{at}: {lost}"));
            assert_eq!(first.err().matches("reported once").count(), 1, "{}", first.err());
            for line in
                [line, &line.replace("cp", "cp --dry-run"), &line.replace("cp src/ ", "sync src ")]
            {
                let again = sftp.haul(&line.replacen(' ', " --json ", 1)).status(0);
                assert_eq!(again.summary()["moved_bytes"], 0, "{line}: {}", again.out());
                assert_eq!(again.summary()["unchanged"], 1, "{line}: {}", again.out());
            }
        }
        // A changed file must still be recognised.
        sftp.session.write("src/f", "2024");
        sftp.haul("cp -q src/ @/to").status(0);
        assert_eq!(sftp.session.read("far/to/f"), "2024");
    }
}
