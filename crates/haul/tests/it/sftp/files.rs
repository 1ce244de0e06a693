//! Files that cannot be read or written, change during the copy, or have unusual names; and repeated copies of a
//! directory.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use haul_bench::guard::unshare_mounts_once;

use super::sshd::Sshd;
use super::{SftpSession, content, unfinished};
use crate::faults::{Mounted, is_root};

const SERVER: &str = "/usr/lib/openssh/sftp-server";

fn with_server(command: &str) -> Sshd {
    Sshd::builder().line(&format!("Subsystem sftp {command}")).start()
}

#[test]
fn a_full_disk_at_the_far_end_is_reported_and_with_more_space_a_rerun_succeeds() {
    // The server sees the mount.
    unshare_mounts_once().unwrap();
    for length in [20 << 20, (8 << 20) + 1, 200 << 10] {
        let sftp = SftpSession::start();
        let size = if length < 1 << 20 { "size=100k" } else { "size=8m" };
        let Some(disk) = Mounted::tmpfs(&sftp.session, "far/disk", size) else { return };
        sftp.session.write("src", content(1, length));
        let ran = sftp.haul("cp --no-space-check src @/disk/f").status(1);
        assert!(ran.err().contains("disk/f: cannot write ("), "{}", ran.err());
        // SFTP version 3 has no status for a full disk; haul requests the free space to report it.
        assert!(ran.err().contains("no space left"), "{}", ran.err());
        assert!(!sftp.session.has("far/disk/f"), "{length} bytes");
        let room = Command::new("mount").args(["-o", "remount,size=30m"]).arg(disk.path()).status();
        assert!(room.unwrap().success());
        sftp.haul("cp src @/disk/f").status(0);
        sftp.session.tool("cmp src far/disk/f");
    }
}

#[test]
fn a_file_that_may_not_be_read_or_written_does_not_affect_the_others() {
    if !is_root() {
        eprintln!("skipped: acting as another user on the server needs root");
        return;
    }
    let unprivileged = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    let sftp = SftpSession::on(with_server(&format!("{unprivileged} {SERVER}")));
    let allow = |path: &str, mode: u32| {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(sftp.session.path(path), mode).unwrap();
    };
    allow("", 0o755);
    for n in 0..20 {
        sftp.session.write(format!("far/src/f{n}"), content(n, 1000 * n as usize));
    }
    sftp.session.write("far/src/large", content(1, 3 << 20));
    sftp.session.tool("cp -r far/src src");
    allow("far/src/f7", 0o000);
    allow("far/src/large", 0o000);
    let ran = sftp.haul("cp @/src down").status(1);
    for name in ["f7", "large"] {
        assert!(ran.err().contains(&format!("src/{name}: cannot")), "{}", ran.err());
        assert!(!sftp.session.has(&format!("down/src/{name}")));
    }
    assert!(ran.err().to_lowercase().contains("permission denied"), "{}", ran.err());
    assert_eq!(fs::read_dir(sftp.session.path("down/src")).unwrap().count(), 19);
    // A directory that the user may not write to.
    fs::create_dir_all(sftp.far("up/src/closed")).unwrap();
    sftp.session.write("src/closed/in", "x");
    for path in ["far/up", "far/up/src"] {
        allow(path, 0o777);
    }
    let ran = sftp.haul("cp src @/up").status(1);
    assert!(ran.err().contains("up/src/closed/in: cannot"), "{}", ran.err());
    sftp.session.tool("cmp src/large far/up/src/large");
    assert_eq!(fs::read_dir(sftp.far("up/src")).unwrap().count(), 22);
}

#[test]
fn a_source_that_changes_while_it_is_read_arrives_in_one_version() {
    arrives_in_one_version(&SftpSession::start());
}

pub(super) fn arrives_in_one_version(sftp: &SftpSession) {
    type Change = fn(&SftpSession);
    let changes: [(&str, Change); 3] = [
        ("grows", |sftp| sftp.session.write("far/f", content(1, 7 << 20))),
        ("shrinks", |sftp| sftp.session.write("far/f", content(1, 3 << 20))),
        ("rewritten", |sftp| sftp.session.write("far/f", content(2, 6 << 20))),
    ];
    for (name, change) in changes {
        sftp.session.write("far/f", content(1, 6 << 20));
        // SFTP version 3 has times in whole seconds, so the change must not come within the same second.
        let earlier = SystemTime::now() - Duration::from_secs(100);
        fs::File::options().write(true).open(sftp.far("f")).unwrap().set_modified(earlier).unwrap();
        let running = sftp.spawn(&format!("cp --bwlimit 4M @/f to/{name}/dst"));
        let begun = Instant::now();
        while unfinished(&sftp.session.path("")).is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(200));
        change(sftp);
        let output = running.finish();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{name}: {text}");
        assert!(text.contains("changed") || text.contains("ends at byte"), "{name}: {text}");
        sftp.session.tool(&format!("cmp far/f to/{name}/dst"));
    }
}

#[test]
fn files_with_unusual_names_are_copied_both_ways() {
    let names: [&[u8]; 6] =
        [b"new\nline", b"not \xff\xfe text", &[b'n'; 255], b"-rf", b" spaces ", b"*?[x]\\"];
    let sftp = SftpSession::start();
    for (n, name) in names.iter().enumerate() {
        let path = [b"src/", *name].concat();
        sftp.session.write(OsStr::from_bytes(&path), name);
        let path = [b"src/large/", *name].concat();
        sftp.session.write(OsStr::from_bytes(&path), content(n as u64, 700_000));
    }
    sftp.haul("cp src @/up").status(0);
    sftp.same("src", "far/up/src");
    sftp.haul("cp @/up/src down").status(0);
    sftp.same("src", "down/src");
    // As arguments, too.
    for name in names {
        let to = [sftp.location().as_bytes(), b"one/", name].concat();
        sftp.session.haul_with(&sftp.line("cp src/-rf"), &to).status(0);
        assert_eq!(fs::read(sftp.far("one").join(OsStr::from_bytes(name))).unwrap(), b"-rf");
    }
}

#[test]
fn a_rerun_never_nests_a_directory_in_itself() {
    for exists in [false, true] {
        for (from, to) in [
            ("src", "@/dst"),
            ("src/", "@/dst"),
            ("src", "@/dst/"),
            ("src/", "@/dst/"),
            ("src", "@/src"),
            ("@/src", "dst"),
            ("@/src/", "dst"),
            ("@/src", "dst/"),
            ("@/src/", "dst/"),
            ("@/src", "src"),
        ] {
            let sftp = SftpSession::start();
            let down = from.starts_with('@');
            let source = if down { "far/src" } else { "src" };
            sftp.session.write(format!("{source}/d/f"), "content");
            let destination = to.trim_end_matches('/').replace("@/", "far/");
            if exists {
                fs::create_dir_all(sftp.session.path(&destination)).unwrap();
            }
            let line = format!("cp -r {from} {to}");
            let list = || {
                let find = format!("find {destination} -type f");
                sftp.session.tool(&find).lines().map(ToOwned::to_owned).collect::<Vec<_>>()
            };
            sftp.haul(&line).status(0);
            let first = list();
            assert_eq!(first.len(), 1, "{line}: {first:?}");
            sftp.haul(&line).status(0);
            assert_eq!(list(), first, "{line}");
            let output = Command::new("cmp")
                .args([sftp.session.path(source).join("d/f"), sftp.session.path(&first[0])])
                .status();
            assert!(output.unwrap().success(), "{line}");
        }
    }
}
