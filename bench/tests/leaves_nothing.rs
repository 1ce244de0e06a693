//! However a benchmark ends, nothing of it is left: no process, no namespace, no mount, no file.
//!
//! The real program runs a real sshd over an emulated link; where that is impossible the test is skipped
//! with a message.
//!
//! Other programs of the machine start processes and mount file systems meanwhile. So each test runs in a network and a
//! mount namespace of its own, and each benchmark in an IPC namespace of its own, which all its processes inherit.
#![expect(
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a failed expectation is the failure of the test, and a skipped test prints that"
)]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use haul_bench::guard::unshare_mounts;
use haul_bench::link::{LinkSpec, Means, Namespace, Network};
use rustix::process::{Pid, Signal, kill_process};

/// Tests run one at a time: they count descriptors of this process before and after, and benchmarks need the processor.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs `test` while no other one runs, on a thread with a network and a mount namespace of its own.
fn alone(test: impl FnOnce() + Send) {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let space = match Namespace::new() {
        Ok(space) => space,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let within = space.within(|| {
        assert!(unshare_mounts().expect("mounts do not propagate"), "root may do this");
        test();
    });
    within.expect("the namespace can be entered");
}

/// Like [`alone`], for tests whose benchmark starts an sshd.
fn alone_with_sshd(test: impl FnOnce() + Send) {
    if !Path::new("/usr/sbin/sshd").exists() {
        return eprintln!("skipped: sshd is not installed");
    }
    alone(test);
}

/// How long a step of a benchmark may take.
const PATIENCE: Duration = Duration::from_secs(60);

const SCENARIOS: &str = r#"
[links.short]
rtt_ms = 5
mbit = 100
[data.some]
title = "three files"
files = 3
bytes = 100_000
[[scenario]]
protocols = ["local"]
data = ["some"]
rounds = 1
[[scenario]]
protocols = ["sftp"]
links = ["short"]
directions = ["download"]
data = ["some"]
storage = "ram"
rounds = 1
"#;

/// A benchmark that runs in a directory and an IPC namespace of its own.
struct Bench {
    directory: tempfile::TempDir,
    /// The front (see `guard.rs`).
    child: Child,
    /// The target of the link to its IPC namespace in `/proc`, which contains the namespace's number.
    space: PathBuf,
    /// Holds the namespace open: otherwise the kernel could give its number to another one.
    _namespace: File,
}

impl Bench {
    /// Runs the scenarios with a tool whose commands are `local` and `sftp`.
    fn start(local: &str, sftp: &str) -> Self {
        Self::with_far_end(local, sftp, "")
    }

    /// The same; `far` has further lines of the tools file on the tool's use for SFTP.
    fn with_far_end(local: &str, sftp: &str, far: &str) -> Self {
        let directory =
            tempfile::Builder::new().prefix("leaves-nothing-").tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            fs::write(directory.path().join(name), text).expect("writable");
        };
        write("scenarios.toml", SCENARIOS);
        write(
            "tools.toml",
            &format!(
                "[[tool]]\nname = 'sh'\nversion = 'echo 1'\n\
                 [[tool.use]]\nprotocols = ['local']\nrun = '''{local}'''\n\
                 [[tool.use]]\nprotocols = ['sftp']\nrun = '''{sftp}'''\n{far}"
            ),
        );
        fs::create_dir(directory.path().join("work")).expect("a directory");
        let (child, space, namespace) = start_in_ipc_namespace(
            Command::new("unshare")
                .args(["--ipc", "sh", "-c", AFTER_INPUT, "sh", env!("CARGO_BIN_EXE_haul-bench")])
                .args(["run", "--haul", "/bin/true", "--scenarios", "scenarios.toml"])
                .args(["--tools-file", "tools.toml", "--work", "work", "--output", "results", "*"])
                .current_dir(directory.path())
                .stderr(File::create(directory.path().join("log")).expect("writable")),
        );
        Self { directory, child, space, _namespace: namespace }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn work(&self) -> PathBuf {
        self.directory.path().join("work").canonicalize().expect("it exists")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).expect("it exists")
    }

    /// Its processes other than the front: those in its IPC namespace.
    fn processes(&self) -> BTreeSet<u32> {
        fs::read_dir("/proc")
            .expect("it can be listed")
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(|&id: &u32| id != self.pid())
            .filter(|id| {
                fs::read_link(format!("/proc/{id}/ns/ipc")).is_ok_and(|space| space == self.space)
            })
            .collect()
    }

    /// Waits until a process runs whose command line holds `text`.
    fn wait_for(&self, text: &str) -> u32 {
        let start = Instant::now();
        loop {
            for id in self.processes() {
                let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
                if String::from_utf8_lossy(&line).replace('\0', " ").contains(text) {
                    return id;
                }
            }
            assert!(start.elapsed() < PATIENCE, "no '{text}': {}", self.log());
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn end(&mut self) -> ExitStatus {
        self.child.wait().expect("it can be waited for")
    }

    /// Asserts that nothing is left. Waits for it: if the front was killed, the guard cleans up after it.
    fn leaves_nothing(&self, before: &Inventory) {
        let deadline = Instant::now() + PATIENCE;
        let left = || {
            let files: Vec<_> = fs::read_dir(self.work())
                .expect("it can be listed")
                .map(|entry| entry.expect("an entry").path())
                .collect();
            (files, self.processes(), Inventory::take(&self.work()))
        };
        let is_nothing =
            |(files, processes, inventory): &(Vec<PathBuf>, BTreeSet<u32>, Inventory)| {
                files.is_empty() && processes.is_empty() && inventory.adds_nothing_to(before)
            };
        while !is_nothing(&left()) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        let left = left();
        assert!(is_nothing(&left), "{left:?}, before {before:?}\n{}", self.log());
    }
}

/// A shell script that prints a line, and becomes the program of its arguments once it has read one.
const AFTER_INPUT: &str = "echo ready && read -r line && exec \"$@\" </dev/null >/dev/null";

/// Starts `command`, which runs [`AFTER_INPUT`] in an IPC namespace of its own. Returns the process, the target of
/// the link to the namespace in `/proc`, and the open namespace.
fn start_in_ipc_namespace(command: &mut Command) -> (Child, PathBuf, File) {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut ready = [0; 6];
    let mut output = child.stdout.take().expect("it is piped");
    output.read_exact(&mut ready).expect("it is ready");
    let link = format!("/proc/{}/ns/ipc", child.id());
    let space = fs::read_link(&link).expect("it runs");
    assert_ne!(space, fs::read_link("/proc/self/ns/ipc").expect("a link"));
    let namespace = File::open(&link).expect("it runs");
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(b"\n").expect("it reads");
    (child, space, namespace)
}

/// What a benchmark could leave in the thread's namespaces.
#[derive(Debug, Clone)]
struct Inventory {
    devices: Vec<String>,
    /// The id and the mount point of each mount. Earlier mounts of other programs may disappear: the kernel removes
    /// mounts everywhere when their directory is removed in another namespace.
    mounts: BTreeSet<(String, String)>,
    /// Processes in the thread's mount namespace, other than this one.
    processes: BTreeSet<u32>,
}

impl Inventory {
    fn take(work: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(path).expect("it can be read");
        let name = |line: &str| Some(line.split_once(':')?.0.trim().to_owned());
        let mounts = read("/proc/thread-self/mountinfo");
        assert!(!mounts.contains(&*work.to_string_lossy()), "mounts stay in their own namespace");
        let mount = |line: &str| {
            let mut fields = line.split(' ');
            Some((fields.next()?.to_owned(), fields.nth(3)?.to_owned()))
        };
        let space = fs::read_link("/proc/thread-self/ns/mnt").expect("a link");
        let processes = fs::read_dir("/proc")
            .expect("it can be listed")
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(|id: &u32| {
                fs::read_link(format!("/proc/{id}/ns/mnt")).is_ok_and(|other| other == space)
            })
            .collect();
        Self {
            devices: read("/proc/thread-self/net/dev").lines().filter_map(name).collect(),
            mounts: mounts.lines().filter_map(mount).collect(),
            processes,
        }
    }

    fn adds_nothing_to(&self, before: &Self) -> bool {
        self.devices == before.devices
            && self.mounts.is_subset(&before.mounts)
            && self.processes.is_subset(&before.processes)
    }
}

const COPY: &str = "exec cp -r \"$SRC/.\" \"$DST/\"";
const FETCH: &str = "exec scp -q -F \"$SSH_CONFIG\" \"bench:$REMOTE/*\" \"$DST/\"";
/// Leaves processes of all kinds: in the background, in a session of their own, ignoring signals.
const STUBBORN: &str = "setsid sh -c \"trap : TERM INT HUP; while :; do sleep 1; done\" & \
                        (trap \"\" TERM; sleep 300) & \
                        ssh -F \"$SSH_CONFIG\" bench \"sleep 301\"";

#[test]
fn nothing_is_left_after_success() {
    alone_with_sshd(|| {
        let before = Inventory::take(Path::new("/nowhere"));
        let mut bench = Bench::start(COPY, FETCH);
        let status = bench.end();
        assert_eq!(status.code(), Some(0), "{}", bench.log());
        bench.leaves_nothing(&before);
        let results = fs::read_to_string(bench.directory.path().join("results")).expect("results");
        // The machine, two scenarios, a warm-up and a counted run of each.
        assert_eq!(results.lines().count(), 1 + 2 + 4, "{results}");
        assert_eq!(results.matches(r#""outcome":"ok""#).count(), 4, "{results}");
    });
}

#[test]
fn nothing_is_left_after_failures_and_the_exit_status_shows_them() {
    alone_with_sshd(|| {
        let before = Inventory::take(Path::new("/nowhere"));
        let mut bench = Bench::start("echo no >&2; (sleep 300 &) ; exit 3", COPY);
        let status = bench.end();
        assert_eq!(status.code(), Some(1), "{}", bench.log());
        assert!(bench.log().contains("exit status 3: no"), "{}", bench.log());
        bench.leaves_nothing(&before);
    });
}

#[test]
fn the_far_end_of_a_tool_runs_where_the_server_does_and_is_not_left() {
    alone_with_sshd(|| {
        let before = Inventory::take(Path::new("/nowhere"));
        let far = "[tool.use.far]\nready = 'up'\nrun = '''test \"$SECRET\" && \
                   ip -4 -o address | grep -qF \"$HOST/\" && echo up; sleep 302'''\n";
        let mut bench = Bench::with_far_end(COPY, FETCH, far);
        assert_eq!(bench.end().code(), Some(0), "{}", bench.log());
        bench.leaves_nothing(&before);
        let results = fs::read_to_string(bench.directory.path().join("results")).expect("results");
        assert_eq!(results.matches(r#""outcome":"ok""#).count(), 4, "{results}");
        assert!(results.contains("At the far end:"), "{results}");
    });
}

#[test]
fn a_run_whose_far_end_fails_has_failed() {
    alone_with_sshd(|| {
        let before = Inventory::take(Path::new("/nowhere"));
        let far = "[tool.use.far]\nready = 'up'\nrun = 'echo no relay >&2; exit 3'\n";
        let mut bench = Bench::with_far_end(COPY, FETCH, far);
        assert_eq!(bench.end().code(), Some(1), "{}", bench.log());
        assert!(bench.log().contains("the far end: exit status: 3: no relay"), "{}", bench.log());
        bench.leaves_nothing(&before);
    });
}

#[test]
fn a_wrong_result_fails_the_benchmark() {
    alone_with_sshd(|| {
        let mut bench =
            Bench::start("cp -r \"$SRC/.\" \"$DST/\"; printf x >>\"$DST/file01\"", FETCH);
        assert_eq!(bench.end().code(), Some(1), "{}", bench.log());
        assert!(
            bench.log().contains("WRONG: file01 has 100001 bytes instead of 100000"),
            "{}",
            bench.log()
        );
    });
}

#[test]
fn nothing_is_left_after_a_signal() {
    alone_with_sshd(|| {
        let before = Inventory::take(Path::new("/nowhere"));
        for (signal, code) in [
            (Signal::INT, Some(130)),
            (Signal::TERM, Some(143)),
            (Signal::HUP, Some(129)),
            (Signal::KILL, None),
        ] {
            let mut bench = Bench::start(COPY, STUBBORN);
            bench.wait_for("sleep 301");
            let front = Pid::from_raw(bench.pid().cast_signed()).expect("a process");
            kill_process(front, signal).expect("it runs");
            assert_eq!(bench.end().code(), code, "{signal:?}: {}", bench.log());
            bench.leaves_nothing(&before);
        }
    });
}

#[test]
fn nothing_is_left_when_the_guard_or_the_worker_is_killed() {
    alone_with_sshd(|| {
        let before = Inventory::take(Path::new("/nowhere"));
        for process in ["haul-bench guard", "haul-bench worker"] {
            let mut bench =
                Bench::start(COPY, FETCH.replace("exec scp", "exec scp -l 20").as_str());
            bench.wait_for("scp -l");
            let victim = bench.wait_for(process);
            let victim = Pid::from_raw(victim.cast_signed()).expect("a process");
            kill_process(victim, Signal::KILL).expect("it runs");
            assert_ne!(bench.end().code(), Some(0), "{}", bench.log());
            bench.leaves_nothing(&before);
        }
    });
}

#[test]
fn nothing_is_left_of_a_network_when_it_is_dropped() {
    alone(|| {
        let descriptors = || fs::read_dir("/proc/self/fd").expect("it can be listed").count();
        let (before, open_before) = (Inventory::take(Path::new("/nowhere")), descriptors());
        for _ in 0..3 {
            let specs = vec![LinkSpec::new(Duration::from_millis(5), Some(1e8)); 4];
            let network = Network::new(&specs, Means::of_this_machine()).expect("a network");
            let address = network.links()[3].address().to_string();
            let ping =
                network.client().command("ping").args(["-c", "1", "-W", "60", &address]).output();
            assert!(ping.is_ok_and(|output| output.status.success()), "the link works");
        }
        assert!(Inventory::take(Path::new("/nowhere")).adds_nothing_to(&before));
        assert_eq!(descriptors(), open_before);
    });
}
