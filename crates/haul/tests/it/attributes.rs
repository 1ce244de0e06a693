//! Extended attributes, modes and owners of copies, new and existing.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::process::Command;

use crate::dav;
use crate::faults::{Slow, as_nobody, is_root};
use crate::ftp::vsftpd::{Tls, Vsftpd};
use crate::image::Image;
use crate::session::Session;

/// `cap_net_raw=ep`, as `setcap` writes it.
const CAPABILITY: &str = "0sAQAAAgAgAAAAAAAAAAAAAAAAAAA=";

fn has_tools() -> bool {
    let has = Command::new("setfattr").arg("--version").output().is_ok();
    if !has {
        eprintln!("skipped: setfattr and getfattr are not installed");
    }
    has
}

fn set(session: &Session, path: &str, name: &str, value: &str) {
    let path = session.path(path);
    let set = Command::new("setfattr").args(["-n", name, "-v", value]).arg(&path).output().unwrap();
    assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
}

/// All attributes of a file, one per string.
fn get(session: &Session, path: &str) -> Vec<String> {
    let get = Command::new("getfattr")
        .args(["--absolute-names", "-d", "-m", "-", "-e", "text"])
        .arg(session.path(path))
        .output()
        .unwrap();
    assert!(get.status.success(), "{}", String::from_utf8_lossy(&get.stderr));
    let text = String::from_utf8_lossy(&get.stdout).into_owned();
    text.lines().skip(1).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn mode(session: &Session, path: &str) -> u32 {
    fs::metadata(session.path(path)).unwrap().mode() & 0o7777
}

fn set_mode(session: &Session, path: &str, mode: u32) {
    fs::set_permissions(session.path(path), fs::Permissions::from_mode(mode)).unwrap();
}

/// Formerly, `-a` ignored the attributes of files whose bytes are the same, and never removed one.
#[test]
fn a_rerun_makes_attributes_those_of_the_source() {
    if !has_tools() {
        return;
    }
    let session = Session::new().file("src/d/f", "x").file("src/d/plain", "x");
    session.haul("cp -q -a src/ dst").status(0);
    for path in ["d", "d/f"] {
        set(&session, &format!("src/{path}"), "user.new", "1");
        set(&session, &format!("src/{path}"), "user.same", "new");
        set(&session, &format!("dst/{path}"), "user.same", "old");
        set(&session, &format!("dst/{path}"), "user.gone", "1");
    }
    set(&session, "dst/d/plain", "user.gone", "1");
    session.haul("cp -q src/ dst").status(0);
    assert_eq!(get(&session, "dst/d/f"), ["user.gone=\"1\"", "user.same=\"old\""]);
    for _ in 0..2 {
        session.haul("cp -a src/ dst").status(0).stderr_has("2 unchanged");
        for path in ["dst/d", "dst/d/f"] {
            assert_eq!(get(&session, path), ["user.new=\"1\"", "user.same=\"new\""], "{path}");
        }
        assert!(get(&session, "dst/d/plain").is_empty());
    }
}

/// An ACL with an entry for user 12345 (`u::rwx,u:12345:rwx,g::r-x,m::rwx`) as `setfattr` takes it. `others` are
/// the rights of others.
fn acl(others: u16) -> String {
    acl_of(7, others)
}

/// The same with other rights of the owner.
fn acl_of(owner: u16, others: u16) -> String {
    let none = u32::MAX;
    let entries =
        [(1, owner, none), (2, 7, 12345), (4, 5, none), (16, 7, none), (32, others, none)];
    let mut acl = vec![2, 0, 0, 0];
    for (tag, rights, id) in entries {
        acl.extend(u16::to_le_bytes(tag));
        acl.extend(u16::to_le_bytes(rights));
        acl.extend(id.to_le_bytes());
    }
    let hex: String = acl.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("0x{hex}")
}

/// Formerly, haul assumed that a small file has the mode it was created with, but the default ACL of its
/// directory reduces it.
#[test]
fn the_mode_of_a_copy_is_that_of_the_source_in_a_directory_with_an_acl() {
    if !has_tools() {
        return;
    }
    let session = Session::new().file("src/small", "x").file("src/large", vec![7; 9 << 20]);
    let session = session.directory("dst");
    for name in ["small", "large"] {
        set_mode(&session, &format!("src/{name}"), 0o644);
    }
    set(&session, "dst", "system.posix_acl_default", &acl(0));
    session.haul("cp -q src/ dst").status(0);
    assert_eq!((mode(&session, "dst/small"), mode(&session, "dst/large")), (0o644, 0o644));
}

/// A new file inherits an ACL from its directory that the source does not have.
#[test]
fn acls_are_those_of_the_source() {
    if !has_tools() {
        return;
    }
    let hex = acl(5);
    let session = Session::new()
        .file("src/small", "x")
        .file("src/large", vec![7; 9 << 20])
        .file("src/shared", "x")
        .file("dst/old", "x");
    for name in ["small", "large", "shared"] {
        set_mode(&session, &format!("src/{name}"), 0o640);
    }
    set(&session, "dst", "system.posix_acl_default", &hex);
    set(&session, "src/shared", "system.posix_acl_access", &hex);
    for _ in 0..2 {
        session.haul("cp -q -a src/ dst").status(0);
        for name in ["dst/small", "dst/large"] {
            assert!(get(&session, name).is_empty(), "{name}: {:?}", get(&session, name));
            assert_eq!(mode(&session, name), 0o640, "{name}");
        }
        assert_eq!(get(&session, "dst/shared"), get(&session, "src/shared"));
        assert_eq!(mode(&session, "dst/shared"), mode(&session, "src/shared"));
        // The rerun has to remove it.
        set(&session, "dst/small", "system.posix_acl_access", &hex);
    }
    session.haul("cp -q -a src/ dst").status(0);
    assert_eq!((get(&session, "dst/small").len(), mode(&session, "dst/small")), (0, 0o640));
    // Once the ACL is removed, the group's mode bits are its ACL entry, not the mask that they showed before.
    set(&session, "dst/small", "system.posix_acl_access", &hex);
    session.haul("cp -q --preserve=times,xattrs src/ dst").status(0);
    assert_eq!((get(&session, "dst/small").len(), mode(&session, "dst/small")), (0, 0o755));
}

/// Formerly, the mode of the replaced file, or that of the directory before it was opened, became the mask.
#[test]
fn without_modes_an_acl_sets_the_mode_of_what_it_is_copied_to() {
    if !has_tools() {
        return;
    }
    let hex = acl(5);
    let large = |byte: u8| vec![byte; 9 << 20];
    let session = Session::new().file("src/d/small", "new").file("src/d/large", large(1));
    let session = session.file("dst/d/small", "x").file("dst/d/large", large(2));
    for name in ["d", "d/small", "d/large"] {
        set(&session, &format!("src/{name}"), "system.posix_acl_access", &hex);
        set_mode(&session, &format!("dst/{name}"), if name == "d" { 0o500 } else { 0o600 });
    }
    session.haul("cp -q --preserve=times,xattrs src/ dst").status(0);
    for name in ["d", "d/small", "d/large"] {
        let [source, copy] = ["src", "dst"].map(|root| format!("{root}/{name}"));
        assert_eq!(get(&session, &copy), get(&session, &source), "{name}");
        assert_eq!(mode(&session, &copy), 0o775, "{name}");
    }
}

/// Formerly, the file's group got the rights of the mask.
#[test]
fn a_copy_that_replaces_a_file_with_an_acl_gives_the_group_no_more_rights() {
    if !has_tools() {
        return;
    }
    let session = Session::new().file("src/small", "new").file("src/large", vec![1; 9 << 20]);
    let session = session.file("dst/small", "x").file("dst/large", vec![2; 9 << 20]);
    for name in ["dst/small", "dst/large"] {
        set(&session, name, "system.posix_acl_access", &acl(0));
    }
    session.haul("cp -q --preserve=times src/ dst").status(0);
    for name in ["dst/small", "dst/large"] {
        assert_eq!((get(&session, name).len(), mode(&session, name)), (0, 0o750), "{name}");
    }
}

/// The kernel clears set-ID bits and capabilities of a file whose owner changes.
#[test]
fn set_id_bits_and_capabilities_that_a_change_of_owner_clears_are_set_again() {
    if !is_root() || !has_tools() {
        eprintln!("skipped: files of other owners need root");
        return;
    }
    let session = Session::new().file("src/f", "x");
    chown(session.path("src/f"), Some(65534), Some(65534)).unwrap();
    set(&session, "src/f", "security.capability", CAPABILITY);
    set_mode(&session, "src/f", 0o4755);
    session.haul("cp -q -a src/ dst").status(0);
    let wanted = get(&session, "src/f");
    assert_eq!((get(&session, "dst/f"), mode(&session, "dst/f")), (wanted.clone(), 0o4755));
    chown(session.path("dst/f"), Some(1), Some(1)).unwrap();
    set_mode(&session, "dst/f", 0o4755);
    set(&session, "dst/f", "security.capability", CAPABILITY);
    session.haul("cp -q -a src/ dst").status(0);
    assert_eq!(fs::metadata(session.path("dst/f")).unwrap().uid(), 65534);
    assert_eq!((get(&session, "dst/f"), mode(&session, "dst/f")), (wanted, 0o4755));
}

/// fusefat returns ENOSYS for changes of mode and owner, and EPERM for a truncation to the current length.
#[test]
fn attributes_that_a_file_system_does_not_support_are_left_out() {
    let session = Session::new().file("src/d/f", "x").file("src/g", vec![7; 100_000]);
    let mount: [&str; 3] = ["fusefat", "-o", "rw+"];
    let make = ["mkfs.vfat", "-F", "32"];
    let Some(_image) = Image::new(&session, "fat", &make, &mount) else { return };
    for line in ["cp --overwrite never src/ fat/a", "cp -a src/ fat/b"] {
        session.haul(line).status(0).without_warnings();
        session.haul(line).status(0).without_warnings();
    }
    for copy in ["fat/a", "fat/b"] {
        session.tool(&format!("diff -r src {copy}"));
    }
}

#[test]
fn an_ordinary_user_updates_attributes_of_files_that_it_may_not_write_to() {
    if !is_root() || !has_tools() {
        eprintln!("skipped: running as another user needs root");
        return;
    }
    let session = Session::new().file("src/d/f", "x");
    set_mode(&session, "src/d/f", 0o444);
    set_mode(&session, "src/d", 0o555);
    for path in ["src", "src/d", "src/d/f"] {
        chown(session.path(path), Some(65534), Some(65534)).unwrap();
    }
    let copy = || {
        let ran = as_nobody(&session, "cp -q -a src/ dst").output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    };
    copy();
    for path in ["src/d", "src/d/f"] {
        set(&session, path, "user.new", "1");
    }
    for _ in 0..2 {
        copy();
        for path in ["dst/d", "dst/d/f"] {
            assert_eq!(get(&session, path), ["user.new=\"1\""], "{path}");
        }
        assert_eq!((mode(&session, "dst/d"), mode(&session, "dst/d/f")), (0o555, 0o444));
        // In the next round even the owner may read neither the file nor its attributes.
        set_mode(&session, "dst/d/f", 0);
    }
}

/// Setting such an ACL first, or inheriting it, denies the owner the `user.*` attributes.
#[test]
fn an_ordinary_user_copies_attributes_with_acls_that_do_not_let_the_owner_write() {
    if !is_root() || !has_tools() {
        eprintln!("skipped: running as another user needs root");
        return;
    }
    let session = Session::new().file("src/d/small", "x").file("src/d/large", vec![7; 9 << 20]);
    let session = session.file("src/d/plain", "x").directory("inherits");
    for name in ["d/small", "d/large", "d/plain", "d"] {
        let path = format!("src/{name}");
        if name != "d/plain" {
            set(&session, &path, "system.posix_acl_access", &acl_of(5, 0));
        }
        set(&session, &path, "user.a", "1");
    }
    set(&session, "inherits", "system.posix_acl_default", &acl_of(5, 0));
    for path in ["src", "src/d", "src/d/small", "src/d/large", "src/d/plain", "inherits"] {
        chown(session.path(path), Some(65534), Some(65534)).unwrap();
    }
    for copy in ["new", "inherits"] {
        for _ in 0..2 {
            let ran = as_nobody(&session, &format!("cp -q -a src/ {copy}")).output().unwrap();
            assert!(ran.status.success(), "{copy}: {}", String::from_utf8_lossy(&ran.stderr));
            for name in ["d/small", "d/large", "d/plain", "d"] {
                let [source, copy] = ["src", copy].map(|root| format!("{root}/{name}"));
                assert_eq!(get(&session, &copy), get(&session, &source), "{copy}");
                assert_eq!(mode(&session, &copy), mode(&session, &source), "{copy}");
            }
        }
    }
}

/// A directory that inherits such an ACL is filled all the same. Without modes, it keeps the mode that it inherited.
#[test]
fn an_ordinary_user_fills_new_directories_whose_acl_does_not_let_the_owner_write() {
    if !is_root() || !has_tools() {
        eprintln!("skipped: running as another user needs root");
        return;
    }
    let session = Session::new().file("src/d/e/f", "x").directory("dst");
    set_mode(&session, "src/d", 0o755);
    set(&session, "dst", "system.posix_acl_default", &acl_of(5, 5));
    for path in ["src", "src/d", "src/d/e", "src/d/e/f", "dst"] {
        chown(session.path(path), Some(65534), Some(65534)).unwrap();
    }
    for (options, wanted) in [("-a", 0o755), ("", 0o755), ("--preserve=times", 0o575)] {
        let ran = as_nobody(&session, &format!("cp -q {options} src/ dst/copy")).output().unwrap();
        let printed = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{options}: {printed}");
        assert_eq!(fs::read(session.path("dst/copy/d/e/f")).unwrap(), b"x");
        assert_eq!(mode(&session, "dst/copy/d"), wanted, "{options}");
        fs::remove_dir_all(session.path("dst/copy")).unwrap();
    }
}

/// Formerly, `-g` made it a warning.
#[test]
fn a_refused_owner_is_a_failure_if_it_is_named_by_preserve() {
    if !is_root() {
        eprintln!("skipped: running as another user needs root");
        return;
    }
    let session = Session::new().file("src/f", "x");
    let all = [
        ("-g", 0),
        ("-a -g", 0),
        ("--preserve=owner", 1),
        ("--preserve=owner -g", 1),
        ("-g --preserve=owner,mode", 1),
    ];
    for (at, (options, status)) in all.into_iter().enumerate() {
        let line = format!("cp -q {options} src/f copy{at}");
        let ran = as_nobody(&session, &line).output().unwrap();
        let printed = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(status), "{options}: {printed}");
    }
}

/// The mode that a directory has after an interruption never gives rights to the wrong user or group.
#[test]
fn an_interrupted_directory_has_its_mode_only_together_with_its_owner_and_acl() {
    if !has_tools() || !is_root() {
        eprintln!("skipped: files of other owners need root");
        return;
    }
    for signal in ["INT", "KILL"] {
        let session = Session::new().file("src/sub/f", vec![7; 4 << 20]);
        chown(session.path("src/sub"), Some(65534), Some(65534)).unwrap();
        set_mode(&session, "src/sub", 0o2770);
        set(&session, "src/sub", "system.posix_acl_access", &acl(0));
        let command = "cp -q -a --bwlimit 1M src/ dst";
        Slow::start(&session, command, "dst/sub/.f.haul-journal").end(signal);
        let metadata = fs::metadata(session.path("dst/sub")).unwrap();
        let found = (metadata.mode() & 0o7777, metadata.uid(), get(&session, "dst/sub"));
        let wanted = match signal {
            "KILL" => (0o700, 0, Vec::new()),
            _ => (0o2770, 65534, get(&session, "src/sub")),
        };
        assert_eq!(found, wanted, "{signal}");
        session.haul("cp -q -a src/ dst").status(0);
        assert_eq!(get(&session, "dst/sub"), get(&session, "src/sub"));
        assert_eq!(mode(&session, "dst/sub"), 0o2770);
    }
}

/// In a chroot `/proc` may not be mounted: formerly "cannot set mode (not found)".
#[test]
fn modes_and_times_are_preserved_without_proc() {
    if !is_root() {
        eprintln!("skipped: hiding /proc needs root");
        return;
    }
    let session = Session::new().file("src/d/small", "x").file("src/large", vec![7; 5_000_000]);
    set_mode(&session, "src/d", 0o750);
    set_mode(&session, "src/d/small", 0o4711);
    set_mode(&session, "src/large", 0o440);
    session.tool("touch -d 2001-02-03 src/d/small src/large src/d");
    for line in ["cp -q -a src/ dst", "cp -q -a src/ dst", "check -q --checksum src dst"] {
        let haul = session.command(line);
        let mut hidden = Command::new("unshare");
        hidden.args(["-m", "sh", "-c", "mount -t tmpfs none /proc && exec \"$@\"", "sh"]);
        hidden.arg(haul.get_program()).args(haul.get_args()).current_dir(session.path(""));
        session.ran(line, hidden.output().unwrap()).status(0).stderr("");
    }
    for path in ["d", "d/small", "large"] {
        let (source, copy) =
            (session.path(format!("src/{path}")), session.path(format!("dst/{path}")));
        let (source, copy) = (fs::metadata(source).unwrap(), fs::metadata(copy).unwrap());
        assert_eq!((source.mode(), source.mtime()), (copy.mode(), copy.mtime()), "{path}");
    }
}

/// Formerly, such options had no effect, and nothing was printed.
#[test]
fn options_that_a_server_does_not_support_are_reported_once() {
    let session = Session::new().file("s/a", "a").file("s/b", "b");
    let server = dav::haul(&session);
    let ran = session.haul(&format!("cp --xattrs --owner --fsync s {}", server.url)).status(0);
    let printed = ran.err();
    let warnings: Vec<_> = printed.lines().filter(|line| line.contains("warning")).collect();
    assert_eq!(warnings.len(), 1, "{printed}");
    let expected = format!(
        "haul: warning: {}: this destination does not support --owner (owners), --xattrs \
         (extended attributes), --fsync (durable writes)",
        server.url
    );
    assert_eq!(warnings[0].trim_end_matches('/'), expected, "{printed}");
    // Defaults cause no warning, nor do options that the destination supports.
    for line in [format!("cp s {}again", server.url), "cp -a --fsync s local".to_owned()] {
        session.haul(&line).status(0).without_warnings();
    }
    session.haul(&format!("mv s/b {}", server.url)).status(0).without_warnings();
    let ran = session.haul(&format!("cp -n --json --chmod u+x s {}", server.url)).status(0);
    let warnings = ran.objects().into_iter().filter(|object| object["event"] == "warning");
    let messages: Vec<_> = warnings.map(|object| object["message"].clone()).collect();
    assert_eq!(messages, ["this destination does not support --chmod (modes)"]);
    let Some(server) = Vsftpd::start(Tls::None, &[]) else { return };
    let line = format!("cp -a s ftp://127.0.0.1:{}/up/", server.port());
    session.haul(&line).status(0).stderr_has(
        "this destination does not support --archive (modes, owners, extended attributes, hard links)",
    );
}
