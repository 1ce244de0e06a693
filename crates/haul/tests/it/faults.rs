//! Failures around a copy, as its user sees them: a clear error that names the location and the cause, exit status 1,
//! and nothing lost. Also files that are easily lost or damaged: unusual names, links, holes, overlong paths.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use haul_bench::guard::unshare_mounts_once;
use rustix::fs::{Mode, OFlags};

use crate::session::{Session, isolate};
use crate::sftp::Running;

/// A file system of its own for a test, unmounted when it is dropped. Only the thread of the test sees it, and what the
/// thread starts later: a server that is to see it starts after [`unshare_mounts_once`].
pub(crate) struct Mounted(PathBuf);

impl Mounted {
    /// Mounts a tmpfs. `None`, with the reason printed, without the right to mount.
    pub(crate) fn tmpfs(session: &Session, name: &str, options: &str) -> Option<Self> {
        unshare_mounts_once().unwrap();
        let at = session.path(name);
        fs::create_dir_all(&at).unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "haul-test"])
            .arg(&at)
            .output();
        match mount {
            Ok(output) if output.status.success() => Some(Self(at)),
            _ => {
                eprintln!("skipped: mounting a file system needs root");
                None
            }
        }
    }

    /// An ext4 file system in a file, which can be unmounted and mounted again. `None`, with the reason printed, if it
    /// cannot be created or mounted.
    pub(crate) fn image(session: &Session, name: &str, image: &str) -> Option<Self> {
        unshare_mounts_once().unwrap();
        let (at, image) = (session.path(name), session.path(image));
        fs::create_dir_all(&at).unwrap();
        if !image.exists() {
            fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
            let made = Command::new("mkfs.ext4").arg("-qF").arg(&image).output();
            if !made.is_ok_and(|output| output.status.success()) {
                eprintln!("skipped: there is no mkfs.ext4");
                return None;
            }
        }
        let mount = Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&at).output();
        match mount {
            Ok(output) if output.status.success() => Some(Self(at)),
            _ => {
                eprintln!("skipped: mounting a file system needs root and a loop device");
                None
            }
        }
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        &self.0
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let status = Command::new("umount").arg(&self.0).status();
        assert!(status.is_ok_and(|status| status.success()), "{} stays mounted", self.0.display());
    }
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A command that runs as an ordinary user, who becomes the owner of the session's directory.
pub(crate) fn as_nobody(session: &Session, line: &str) -> Command {
    let command = session.command(line);
    if !is_root() {
        return command;
    }
    let nobody = 65534;
    if !session.has("haul") {
        // Copied by another process: a child of a test that forks at the same moment would keep the file open
        // for writing, and such a file cannot be executed.
        session.tool(&format!("cp {} haul", env!("CARGO_BIN_EXE_haul")));
    }
    fs::set_permissions(session.path(""), fs::Permissions::from_mode(0o777)).unwrap();
    chown(session.path(""), Some(nobody), Some(nobody)).unwrap();
    let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    let mut command = Command::new(session.path("haul"));
    command.args(arguments).current_dir(session.path("")).env("HOME", session.path(""));
    isolate(&mut command);
    command.uid(nobody).gid(nobody);
    command
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 4096) as u8).collect()
}

#[test]
fn a_full_disk_is_reported_and_no_partial_file_has_its_final_name() {
    // The disk becomes full in the middle of the file, and near its end.
    for (digest, length) in [("none", 20 << 20), ("none", (8 << 20) + 1), ("sha256", (8 << 20) + 1)]
    {
        let session = Session::new().file("src/f", content(length)).file("src/a", "small");
        let Some(_disk) = Mounted::tmpfs(&session, "disk", "size=8m") else { return };
        session
            .haul(&format!("cp --no-space-check --digest {digest} src disk"))
            .status(1)
            .stderr_has("disk/src/f: cannot")
            .stderr_has("No space left on device");
        assert!(!session.has("disk/src/f"), "{length} bytes");
        assert_eq!(session.read("disk/src/a"), "small", "the other file is not copied");
    }
}

/// Formerly, a file system mounted deep in an extra directory was emptied: only mount points in directories that the
/// source has too were spared.
#[test]
fn with_one_file_system_deleting_leaves_mounted_file_systems_alone() {
    let session = Session::new().file("src/kept", "x").file("src/taken/f", "y");
    for name in ["extra/deep/gone", "extra/gone", "taken"] {
        session.write(format!("dst/{name}"), "old");
    }
    let Some(disk) = Mounted::tmpfs(&session, "dst/extra/deep/disk", "size=1m") else { return };
    fs::write(disk.path().join("precious"), "p").unwrap();
    session.haul("sync -x --delete --max-delete 1 src/ dst").status(1).stderr_has("2 of 7 entries");
    session.haul("sync -x --delete --max-delete 2 src/ dst").status(0);
    assert_eq!(session.read("dst/extra/deep/disk/precious"), "p");
    assert!(!session.has("dst/extra/deep/gone") && !session.has("dst/extra/gone"));
    assert_eq!(session.read("dst/taken/f"), "y");
    // The same for a directory in the way of a file.
    fs::write(session.path("src/extra"), "file").unwrap();
    let cause = "cannot write (a directory with a mounted file system is in the way of the file)";
    for options in ["-n", "-q"] {
        let line = format!("sync -x {options} --delete src/ dst");
        session.haul(&line).status(1).stderr_has(&format!("dst/extra: {cause}"));
    }
    assert_eq!(session.read("dst/extra/deep/disk/precious"), "p");
    // Formerly, the error named excluded files, and a dry run reported a copy.
    fs::remove_file(session.path("src/extra")).unwrap();
    session.write("src/extra/deep/disk", "file");
    let cause = "cannot write (a mounted file system is in the way of the file)";
    for options in ["-n", "-q"] {
        let line = format!("sync -x {options} --delete src/ dst");
        session.haul(&line).status(1).stderr_has(&format!("dst/extra/deep/disk: {cause}"));
    }
    assert_eq!(session.read("dst/extra/deep/disk/precious"), "p");
}

#[test]
fn a_read_only_destination_is_an_error_for_every_file() {
    let session = Session::new().file("src/f", "x").file("src/g", "y");
    let Some(disk) = Mounted::tmpfs(&session, "disk", "size=1m") else { return };
    fs::create_dir(session.path("disk/src")).unwrap();
    let remount = Command::new("mount").args(["-o", "remount,ro"]).arg(&disk.0).status();
    assert!(remount.unwrap().success());
    let ran = session.haul("cp src disk").status(1).stderr_has("Read-only file system");
    for name in ["f", "g"] {
        assert!(ran.err().contains(&format!("disk/src/{name}: cannot")), "{}", ran.err());
    }
}

#[test]
fn an_unreadable_file_is_reported_once_and_the_others_are_copied() {
    let session = Session::new().file("src/a", "a").file("src/secret", "s").file("src/z", "z");
    fs::set_permissions(session.path("src/secret"), fs::Permissions::from_mode(0o000)).unwrap();
    // Root may read everything, so this runs as another user.
    let output = as_nobody(&session, "cp src dst").output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    let errors: Vec<_> = text.lines().filter(|line| line.contains("cannot")).collect();
    assert_eq!(errors.len(), 1, "{text}");
    assert!(errors[0].contains("src/secret") && errors[0].contains("permission denied"), "{text}");
    assert_eq!(session.read("dst/src/a"), "a");
    assert_eq!(session.read("dst/src/z"), "z");
    assert!(!session.has("dst/src/secret"));
}

#[test]
fn a_file_where_a_directory_is_needed_and_the_reverse_are_errors() {
    let session = Session::new()
        .file("src/dir/inner", "x")
        .file("src/file", "y")
        .file("src/good", "z")
        .file("dst/src/dir", "a file")
        .file("dst/src/file/inner", "in a directory");
    session
        .haul("cp src dst")
        .status(1)
        .stderr_has("dst/src/dir: cannot create directory (a file is where a directory is needed")
        .stderr_has("dst/src/file: cannot write (a directory is in the way of the file");
    assert_eq!(session.read("dst/src/dir"), "a file");
    assert_eq!(session.read("dst/src/file/inner"), "in a directory");
    assert_eq!(session.read("dst/src/good"), "z");
}

#[test]
fn files_with_unusual_names_are_copied_and_listed_in_the_manifest() {
    let names: [&[u8]; 8] = [
        b"new\nline",
        b"not \xff\xfe text",
        &[b'n'; 255],
        b"-rf",
        b"--help",
        b" leading and trailing ",
        b"back\\slash",
        b"$(reboot);*?",
    ];
    let mut session = Session::new();
    for name in names {
        session = session.file(OsStr::from_bytes(&[b"src/".as_slice(), name].concat()), name);
    }
    session.haul("cp --manifest src dst").status(0);
    session.tool("diff -r src dst/src");
    session.tool("sha256sum --quiet -c dst/SHA256SUMS --strict --ignore-missing");
    session.haul("verify --strict dst").status(0);
    // A name of 255 bytes still has room for its part file.
    session
        .write(OsStr::from_bytes(&[b"src/".as_slice(), &[b'm'; 255]].concat()), content(9 << 20));
    session.haul("cp --manifest src dst").status(0);
    session.tool("diff -r src dst/src");
}

/// A copy so slow that it can be observed while it runs.
pub(crate) struct Slow(Child);

impl Slow {
    /// Starts a command, and waits until a file exists.
    pub(crate) fn start(session: &Session, line: &str, until: &str) -> Self {
        Self::until(session, line, || session.has(until))
    }

    pub(crate) fn until(session: &Session, line: &str, begun: impl Fn() -> bool) -> Self {
        let child = session.command(line).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let slow = Self(child.unwrap());
        let start = Instant::now();
        while !begun() {
            assert!(start.elapsed() < Duration::from_secs(60), "{line}: it has not begun");
            std::thread::sleep(Duration::from_millis(10));
        }
        slow
    }

    fn kill(self) {
        self.end("KILL");
    }

    /// Ends it by a signal.
    pub(crate) fn end(mut self, signal: &str) {
        let process = self.0.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &process]).status().unwrap();
        assert!(sent.success());
        self.0.wait().unwrap();
    }
}

#[test]
fn a_second_run_on_the_same_destination_is_refused_and_does_no_harm() {
    let session = Session::new().file("src/f", content(16 << 20)).file("one", content(16 << 20));
    let slow = Slow::start(&session, "cp --bwlimit 2M src dst", "dst/src/.f.haul-part");
    session.haul("cp src dst").status(1).stderr_has("another run of haul");
    slow.kill();
    session.haul("cp src dst").status(0);
    session.tool("cmp src/f dst/src/f");
    // A single file is guarded by its part file.
    let slow = Slow::start(&session, "cp --bwlimit 2M one two", ".two.haul-part");
    session
        .haul("cp one two")
        .status(1)
        .stderr_has("two: cannot create (another run of haul is writing it");
    slow.kill();
    session.haul("cp one two").status(0);
    session.tool("cmp one two");
}

#[test]
fn a_journal_that_is_damaged_or_of_another_source_is_reported_and_not_used() {
    let journal = ".dst.haul-journal";
    type Damage = fn(&mut Vec<u8>);
    let damage: [(&str, Damage); 4] = [
        ("damaged", |bytes| bytes[20] ^= 1),
        ("damaged", |bytes| bytes.truncate(5)),
        ("damaged", |bytes| *bytes = b"something else".to_vec()),
        ("", |bytes| bytes.truncate(bytes.len() - 3)),
    ];
    for (text, damage) in damage {
        let session = Session::new().file("src", content(16 << 20));
        let mut slow = Running::start(&session, "cp --json --bwlimit 4M src dst");
        slow.until_moved(6 << 20);
        slow.kill();
        let mut bytes = fs::read(session.path(journal)).unwrap();
        damage(&mut bytes);
        fs::write(session.path(journal), bytes).unwrap();
        let ran = session.haul("cp src dst").status(0);
        if text.is_empty() {
            assert!(
                !ran.err().contains("starting over"),
                "a torn tail counts as damage: {}",
                ran.err()
            );
        } else {
            assert!(
                ran.err().contains(text) && ran.err().contains("starting over"),
                "{}",
                ran.err()
            );
        }
        session.tool("cmp src dst");
        assert!(!session.has(journal));
    }
    let session = Session::new().file("src", content(16 << 20));
    let mut slow = Running::start(&session, "cp --json --bwlimit 4M src dst");
    slow.until_moved(6 << 20);
    slow.kill();
    session.write("src", [content(16 << 20), b"more".to_vec()].concat());
    session.haul("cp src dst").status(0).stderr_has("belongs to another source");
    session.tool("cmp src dst");
}

#[test]
fn a_source_that_changes_while_it_is_read_arrives_in_one_version() {
    let session = Session::new().file("src", content(6 << 20));
    let slow = Slow::start(&session, "cp --bwlimit 4M src dst", ".dst.haul-part");
    session.write("src", content((6 << 20) + 12_345));
    let output = slow.0.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    session.tool("cmp src dst");
}

#[test]
fn special_files_are_left_out_with_a_warning() {
    let session = Session::new().file("src/f", "x");
    session.tool("mkfifo src/pipe");
    session.haul("cp src dst").status(0).stderr_has("src/pipe: is a named pipe; not copied");
    assert!(session.has("dst/src/f") && !session.has("dst/src/pipe"));
}

#[test]
fn hard_links_and_holes_are_preserved() {
    let session = Session::new().file("src/one", content(3 << 20));
    fs::hard_link(session.path("src/one"), session.path("src/two")).unwrap();
    let holes = fs::File::create(session.path("src/holes")).unwrap();
    holes.set_len(1 << 40).unwrap();
    rustix::io::pwrite(&holes, b"data", 5 << 30).unwrap();
    session.haul("cp -a src dst").status(0);
    use std::os::unix::fs::MetadataExt;
    let look = |path: &str| fs::metadata(session.path(path)).unwrap();
    assert_eq!(look("dst/src/one").ino(), look("dst/src/two").ino());
    assert_eq!(look("dst/src/holes").len(), 1 << 40);
    let copy = fs::File::open(session.path("dst/src/holes")).unwrap();
    let mut data = [0; 4];
    std::os::unix::fs::FileExt::read_exact_at(&copy, &mut data, 5 << 30).unwrap();
    assert_eq!(&data, b"data");
    assert!(look("dst/src/holes").blocks() < 10_000, "{} blocks", look("dst/src/holes").blocks());
}

/// Data written to a disk before it was unplugged may be missing, whatever a journal lists; data that an
/// interrupted copy has made durable is not.
#[test]
fn on_a_disk_that_was_unmounted_only_durable_data_is_resumed() {
    for (signal, continues) in [("KILL", false), ("INT", true)] {
        let session = Session::new().file("f", content(24 << 20));
        let Some(disk) = Mounted::image(&session, "disk", "image") else { return };
        let mut slow = Running::start(&session, "cp --json --bwlimit 6M f disk/");
        slow.until_moved(9 << 20);
        slow.end(signal);
        drop(disk);
        let Some(_disk) = Mounted::image(&session, "disk", "image") else { return };
        let summary = session.haul("cp --json f disk/").status(0).summary();
        let resumed = summary["resumed_bytes"].as_u64().unwrap();
        assert_eq!(resumed > 0, continues, "{signal}: {resumed} bytes were resumed");
        session.tool("cmp f disk/f");
    }
}

#[test]
fn owners_that_a_user_cannot_set_are_a_warning_with_archive_and_an_error_with_preserve_owner() {
    if !is_root() {
        eprintln!("skipped: making files of other users needs root");
        return;
    }
    let session = Session::new().file("src/a", "a").file("src/b", content(3 << 20));
    let run = |line: &str| {
        let output = as_nobody(&session, line).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for line in ["cp -a src dst", "cp --preserve=all src dst", "cp -a src dst"] {
        let (status, text) = run(line);
        assert_eq!(status, Some(0), "{text}");
        assert_eq!(text.matches("cannot be kept by an ordinary user").count(), 1, "{text}");
        assert_eq!(session.read("dst/src/a"), "a");
    }
    assert!(run("cp -a src dst").1.contains("2 unchanged"));
    let (status, text) = run("cp --preserve=owner src named");
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("cannot set owner"), "{text}");
}

/// No system call takes a path of 4 096 bytes.
#[test]
fn files_below_paths_longer_than_the_system_accepts_are_copied_and_removed() {
    let session = Session::new();
    let names: Vec<String> = (0..20).map(|at| format!("{at:0>240}")).collect();
    // Such files can only be created relative to a directory.
    let directory = |root: &str| {
        let mut directory =
            rustix::fs::open(session.path(root), OFlags::PATH, Mode::empty()).unwrap();
        for name in &names {
            // At the destination it exists already.
            let _ = rustix::fs::mkdirat(&directory, name.as_str(), Mode::RWXU);
            directory =
                rustix::fs::openat(&directory, name.as_str(), OFlags::PATH, Mode::empty()).unwrap();
        }
        directory
    };
    fs::create_dir(session.path("src")).unwrap();
    let source = directory("src");
    let at = |directory: &rustix::fd::OwnedFd, name: &str| {
        let number = std::os::fd::AsRawFd::as_raw_fd(directory);
        PathBuf::from(format!("/proc/self/fd/{number}/{name}"))
    };
    fs::write(at(&source, "small"), "small").unwrap();
    fs::write(at(&source, "large"), content(9 << 20)).unwrap();
    std::os::unix::fs::symlink("small", at(&source, "link")).unwrap();
    fs::hard_link(at(&source, "small"), at(&source, "name")).unwrap();
    session.haul("sync src dst").status(0);
    let copy = directory("dst");
    assert_eq!(fs::read(at(&copy, "small")).unwrap(), b"small");
    assert_eq!(fs::read(at(&copy, "large")).unwrap(), content(9 << 20));
    assert_eq!(fs::read_link(at(&copy, "link")).unwrap(), PathBuf::from("small"));
    let mut names_in_copy: Vec<_> =
        fs::read_dir(at(&copy, "")).unwrap().map(|it| it.unwrap().file_name()).collect();
    names_in_copy.sort();
    assert_eq!(names_in_copy, ["large", "link", "name", "small"], "a file is missing or left over");
    session.haul("sync src dst").status(0).stderr_has("3 unchanged");
    for name in ["small", "large", "link", "name"] {
        fs::remove_file(at(&source, name)).unwrap();
    }
    fs::write(at(&source, "other"), "other").unwrap();
    session.haul("sync --delete src dst").status(0).stderr_has("4 removed");
    let left: Vec<_> =
        fs::read_dir(at(&copy, "")).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left, ["other"]);
}
