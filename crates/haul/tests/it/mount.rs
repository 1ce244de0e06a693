//! `haul mount`: in the foreground and the background, as `mount.haul`, with `--status`, with a cache on disk, and for
//! writing.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use haul_bench::guard::unshare_mounts_once;
use rustix::process::geteuid;

use crate::done::SECRETS;
use crate::serve::Serving;
use crate::session::{Session, isolate};

/// How long `umount` may fail with EBUSY: a child that another thread has forked shares the open files of this process
/// until it executes a program.
const BUSY: Duration = Duration::from_secs(5);

/// Longest wait for the end of a mount in the background, or for an expected status.
const PATIENCE: Duration = Duration::from_secs(60);

fn session() -> Session {
    Session::new().file("data/a/one", "content").file("data/two", "2").directory("mnt")
}

/// Whether this process can mount; prints why not. From then on, only this thread and its children see new mounts, and
/// none is left if the test program is killed.
pub(crate) fn can_mount() -> bool {
    let can =
        geteuid().is_root() && Path::new("/dev/fuse").exists() && unshare_mounts_once().unwrap();
    if !can {
        eprintln!("SKIPPED: mounting takes root with CAP_SYS_ADMIN, and /dev/fuse");
    }
    can
}

#[test]
fn a_directory_is_mounted_until_a_signal() {
    if !can_mount() {
        return;
    }
    let session = session();
    for signal in ["INT", "TERM"] {
        let serving = Serving::start(&session, "mount data mnt", 2);
        assert!(serving.output.starts_with("mounted   "), "{}", serving.output);
        assert!(serving.output.contains("data, read-only\nat        "), "{}", serving.output);
        assert_eq!(session.read("mnt/a/one"), "content");
        assert_eq!(fs::metadata(session.path("mnt/two")).unwrap().len(), 1);
        assert!(fs::write(session.path("mnt/new"), "x").is_err());
        assert_eq!(serving.end(signal), (Some(0), "haul: unmounting\n".to_owned()));
        assert!(!session.has("mnt/two"));
    }
}

/// A mount in the background, which is unmounted when this is dropped, and also if the test program is killed.
struct Background {
    point: PathBuf,
    pid: u64,
    /// A shell that unmounts when its standard input ends.
    guard: Child,
}

impl Background {
    /// The mount at `mnt`, and its status as `--status --json` prints it.
    fn of(session: &Session) -> (Self, serde_json::Value) {
        let point = session.path("mnt");
        let mut guard = Command::new("sh");
        guard.args(["-c", "read -r line; umount -l \"$0\" 2>/dev/null"]).arg(&point);
        let guard = guard.stdin(Stdio::piped()).spawn().unwrap();
        let mut background = Self { point, pid: 0, guard };
        let status = session.haul("mount --status mnt --json").status(0).objects().remove(0);
        background.pid = status["pid"].as_u64().unwrap();
        (background, status)
    }

    fn end(&self) {
        let start = Instant::now();
        loop {
            let unmounted = Command::new("umount").arg(&self.point).output().unwrap();
            if unmounted.status.success() {
                break;
            }
            let error = String::from_utf8_lossy(&unmounted.stderr);
            assert!(error.contains("busy") && start.elapsed() < BUSY, "{error}");
            thread::sleep(Duration::from_millis(50));
        }
        while self.is_running() {
            assert!(start.elapsed() < PATIENCE, "the process of the mount still runs");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether its process exists and is not a zombie.
    fn is_running(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        self.guard.wait().unwrap();
    }
}

#[test]
fn a_mount_runs_in_the_background() {
    if !can_mount() {
        return;
    }
    let session = session();
    // The call returns once every process that inherited its standard output or error has closed them.
    session
        .haul("mount --daemon --log-file log data mnt")
        .status(0)
        .stderr("")
        .stdout_has("mounted   ")
        .stdout_has("data, read-only\nat        ");
    let (background, status) = Background::of(&session);
    assert_eq!(session.read("mnt/a/one"), "content");
    assert_eq!(status["event"], "mount");
    assert_eq!(status["read_only"], true);
    assert_eq!(status["mount_point"], "[ROOT]/mnt");
    assert!(background.is_running());
    // The process leads a session of its own.
    let stat = fs::read_to_string(format!("/proc/{}/stat", background.pid)).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    assert_eq!(fields.split(' ').nth(3), Some(&*background.pid.to_string()));
    let stderr = fs::read_link(format!("/proc/{}/fd/2", background.pid)).unwrap();
    assert_eq!(stderr, Path::new("/dev/null"));
    background.end();
    session.haul("mount --status mnt").status(1).stderr_has("no haul mount of this user is there");
}

#[test]
fn a_mount_in_the_background_reports_errors_and_its_process_id() {
    let session = session();
    session.haul("mount --daemon none mnt").status(1).stderr_has("not found").stdout("");
    session.haul("mount --daemon -o nothing data mnt").status(2).stderr_has("unknown option");
    session.haul("mount --daemon -f data mnt").status(2).stderr_has("cannot be used with");
    let failed = session.haul("mount --daemon --json none mnt").status(1).objects();
    assert_eq!(failed[0]["event"], "error");
    if can_mount() {
        let printed = session.haul("mount --daemon --json data mnt").status(0).objects();
        let (background, _) = Background::of(&session);
        assert_eq!(printed[0]["event"], "mounted");
        assert_eq!(printed[0]["pid"], background.pid);
        background.end();
    }
}

/// Runs the program as `mount.haul`, which mount(8) calls for the type `haul`.
fn helper(session: &Session, arguments: &[&str]) -> std::process::Output {
    let name = session.path("mount.haul");
    if !session.has("mount.haul") {
        symlink(env!("CARGO_BIN_EXE_haul"), &name).unwrap();
    }
    let mut command = Command::new(name);
    isolate(&mut command).args(arguments).current_dir("/").env("HOME", session.path("home"));
    command.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn mount_haul_takes_the_arguments_of_mount_and_the_options_of_fstab() {
    let session = session();
    session.write("data/run", "#!/bin/sh\n");
    fs::set_permissions(session.path("data/run"), fs::Permissions::from_mode(0o755)).unwrap();
    let (spec, point) = (session.path("data"), session.path("mnt"));
    let (spec, point) = (spec.to_str().unwrap(), point.to_str().unwrap());
    for (arguments, status, printed) in [
        (&[spec][..], 2, "hint: mount.haul SPEC DIR"),
        (&[spec, point, "-o", "wrong"][..], 2, "unknown option -o wrong"),
        (&[spec, "/none/there", "-o", "ro"][..], 1, "hint: create it first"),
        (&["-f", spec, "/none/there"][..], 0, ""),
    ] {
        let output = helper(&session, arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {text}");
        assert!(text.contains(printed), "{text}");
    }
    if !can_mount() {
        return;
    }
    let options =
        "rw,noauto,_netdev,x-systemd.automount,user,nosuid,nodev,noexec,umask=027,memory=8M";
    let output = helper(&session, &[spec, point, "-sn", "-o", options, "-t", "haul"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let (background, status) = Background::of(&session);
    assert_eq!(status["max_memory_bytes"], 8 << 20);
    let run = session.path("mnt/run");
    assert_eq!(fs::metadata(&run).unwrap().permissions().mode() & 0o777, 0o750);
    let refused = Command::new(&run).status().unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    background.end();
}

#[test]
fn the_status_names_open_files_and_ends_with_the_mount() {
    if !can_mount() {
        return;
    }
    let session = session();
    let serving = Serving::start(&session, "mount data mnt", 2);
    let file = fs::File::open(session.path("mnt/a/one")).unwrap();
    assert_eq!(std::io::read_to_string(&file).unwrap(), "content");
    let text = session.haul("mount --status mnt").status(0).out();
    assert!(text.contains("\n  open        1\n    a/one: 0 B/s, 7 B read of 7 B\n"), "{text}");
    // Without a mount point, all mounts are listed.
    session.haul("mount --status").stdout_has("    a/one: ");
    drop(file);
    assert_eq!(serving.end("INT").0, Some(0));
    session.haul("mount --status mnt").status(1);
    session.haul("mount --status data mnt").status(2).stderr_has("at most one mount point");
}

#[test]
fn the_status_names_the_path_to_a_peer() {
    if !can_mount() {
        return;
    }
    let session = session();
    let (sharing, object) = Serving::json(&session, "share --listen 127.0.0.1:0 data");
    let ticket = object["ticket"].as_str().unwrap();
    let serving = Serving::start(&session, &format!("mount {ticket} mnt"), 2);
    assert_eq!(session.read("mnt/a/one"), "content");
    let start = Instant::now();
    let status = loop {
        // Reading opens a new lane if the last one was closed.
        assert_eq!(session.read("mnt/two"), "2");
        let status = session.haul("mount --status mnt --json").status(0).objects().remove(0);
        if status["link_path"].is_object() {
            break status;
        }
        assert!(start.elapsed() < PATIENCE, "{status}");
    };
    assert_eq!(status["link_path"]["kind"], "direct", "{status}");
    let address = status["link_path"]["address"].as_str().unwrap();
    assert!(address.starts_with("127.0.0.1:"), "{status}");
    let text = session.haul("mount --status mnt").status(0).out();
    assert!(text.contains(&format!(", path {address} (direct)\n")), "{text}");
    assert_eq!(serving.end("INT").0, Some(0));
    sharing.end("INT");
}

#[test]
fn a_cache_serves_one_mount_at_a_time_and_outlives_it() {
    let session = session().directory("mnt2");
    session.haul("mount --cache-size 1G data mnt").status(2).stderr_has("--cache-dir");
    session
        .haul("mount --cache-dir data data mnt")
        .status(1)
        .stderr_has("other files than a cache");
    if !can_mount() {
        return;
    }
    let whole = "0123456789abcdef".repeat(1 << 16);
    session.write("data/file", &whole);
    for is_first in [true, false] {
        let line = "mount --cache-dir cache --cache-size 100M data mnt";
        let serving = Serving::start(&session, line, 2);
        assert!(session.read("mnt/file") == whole);
        let start = Instant::now();
        let status = loop {
            let status = session.haul("mount --status mnt --json").status(0).objects().remove(0);
            if status["cache"]["blocks"] == 16 {
                break status;
            }
            assert!(start.elapsed() < PATIENCE, "{status}");
        };
        assert_eq!(status["disk_hits"] == 16, !is_first, "{status}");
        session
            .haul("mount --cache-dir cache data mnt2")
            .status(1)
            .stderr_has("another mount uses this cache");
        assert_eq!(serving.end("TERM").0, Some(0));
    }
}

#[test]
fn written_files_are_uploaded_before_the_mount_ends() {
    if !can_mount() {
        return;
    }
    let session = session().directory("spools");
    let line = "mount --read-write --spool-dir spools data mnt";
    let serving = Serving::start(&session, line, 2);
    assert!(serving.output.contains("data, read-write\n"), "{}", serving.output);
    fs::write(session.path("mnt/new"), "x".repeat(300_000)).unwrap();
    fs::rename(session.path("mnt/a"), session.path("mnt/b")).unwrap();
    session
        .haul("mount --status mnt")
        .status(0)
        .stdout_has("data, read-write, for ")
        .stdout_has("\n  to upload   ");
    session.haul("mount --pending --daemon").status(2).stderr_has("cannot be used with");
    let other = session.path("other");
    fs::create_dir(&other).unwrap();
    session
        .haul("mount --read-write --spool-dir spools data other")
        .status(1)
        .stderr_has("already mounted for writing");
    assert_eq!(serving.end("INT"), (Some(0), "haul: unmounting\n".to_owned()));
    assert_eq!(session.read("data/new").len(), 300_000);
    assert_eq!(session.read("data/b/one"), "content");
    session.haul("mount --pending --spool-dir spools").status(0).stdout("").stderr("");
}

#[test]
fn files_closed_before_a_kill_are_in_the_next_mount() {
    if !can_mount() {
        return;
    }
    let session = session().directory("spools");
    let line = "mount --read-write --spool-dir spools data mnt";
    let (serving, object) = Serving::json(&session, line);
    assert_eq!(object["read_only"], false);
    // Formerly, the location was recorded as given: a mount of another directory named `data` uploaded this spool.
    let data = session.path("data").canonicalize().unwrap();
    assert_eq!(object["location"].as_str(), data.to_str());
    // The kill may come before or after the upload.
    fs::write(session.path("mnt/new"), "content").unwrap();
    serving.end("KILL");
    let serving = Serving::start(&session, line, 2);
    assert_eq!(session.read("mnt/new"), "content");
    assert_eq!(serving.end("TERM").0, Some(0));
    assert_eq!(session.read("data/new"), "content");
}

#[test]
fn a_mount_ends_with_umount() {
    if !can_mount() {
        return;
    }
    let session = session();
    let (serving, object) = Serving::json(&session, "mount data mnt");
    assert_eq!(object["event"], "mounted");
    assert_eq!(object["read_only"], true);
    assert_eq!(session.read("mnt/two"), "2");
    session.tool("umount mnt");
    assert_eq!(serving.wait(), Some(0));
}

/// Formerly, `fusermount3` inherited passwords and tokens.
#[test]
fn fusermount3_gets_no_secrets_of_the_environment() {
    if !geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED: running haul as a user that may open /dev/fuse takes root");
        return;
    }
    let session = session();
    let seen = session.path("seen").display().to_string();
    let script = format!("#!/bin/sh\nenv > {seen}\necho refused >&2\nexit 1\n");
    session.write("fusermount3.sh", script);
    session.tool("install -D fusermount3.sh bin/fusermount3");
    let path = format!("{}:{}", session.path("bin").display(), std::env::var("PATH").unwrap());
    // Not root, but with access to all files.
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--inh-caps=+dac_override", "--ambient-caps=+dac_override"]);
    command.arg(env!("CARGO_BIN_EXE_haul")).args(["mount", "data", "mnt"]);
    isolate(&mut command).current_dir(session.path("")).env("HOME", session.path(""));
    let output = command.env("PATH", path).envs(SECRETS).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("cannot mount (refused)"), "{error}");
    let seen = session.read("seen");
    assert!(seen.contains("PATH=") && !seen.contains("secret"), "{seen}");
}

/// Formerly, the password was stored for the host without this port, and the mount had none.
#[test]
fn a_mount_with_a_port_uses_the_password_of_the_environment() {
    if !can_mount() {
        return;
    }
    let session = session();
    let line = "serve sftp data --listen 127.0.0.1:0";
    let (server, object) = Serving::json(&session, line);
    let port = object["address"].as_str().unwrap().rsplit(':').next().unwrap();
    for port in [format!("-P {port}"), format!("-o Port={port}")] {
        let line = format!("mount -F none --accept-new-host-keys {port} sftp://me@127.0.0.1/ mnt");
        let mut command = session.command(&line);
        command.env("HAUL_PASSWORD", object["password"].as_str().unwrap());
        let mount = Serving::spawn(command, 2);
        assert!(mount.output.starts_with("mounted   "), "{}", mount.output);
        assert_eq!(session.read("mnt/a/one"), "content");
        assert_eq!(mount.end("INT").0, Some(0));
    }
    assert_eq!(server.end("INT").0, Some(0));
}

#[test]
fn a_mount_point_that_cannot_be_used_is_reported_with_a_hint() {
    let session = session().file("full/file", "x");
    session.haul("mount data none").status(1).stderr_has("hint: create it first: mkdir -p none");
    session.haul("mount data full").status(1).stderr_has("hint: use an empty directory");
    session.haul("mount data data/two").status(1).stderr_has("the mount would contain itself");
    session.haul("mount data full/file").status(1).stderr_has("not a directory");
}

#[test]
fn only_directories_are_mounted() {
    let session = session();
    session.haul("mount data/two mnt").status(1).stderr_has("hint: mount the directory");
    session.haul("mount none mnt").status(1).stderr_has("not found");
}

#[test]
fn options_of_other_mount_tools_get_a_hint() {
    let session = session();
    session.haul("mount -o rw data mnt").status(2).stderr_has("hint: a mount is read-only");
    session
        .haul("mount -o follow_symlinks data mnt")
        .status(2)
        .stderr_has("hint: haul shows links");
}
