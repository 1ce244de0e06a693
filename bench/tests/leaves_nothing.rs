//! However a benchmark ends, nothing of it is left: no process, no namespace, no mount, no file.
//!
//! The real program runs a real sshd over a real link; where that is impossible the test is skipped
//! with a message.
#![expect(
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a failed expectation is the failure of the test, and a skipped test says so"
)]

mod others;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use haul_bench::link::{LinkSpec, Means, Namespace, Network};
use others::lineage;
use rustix::process::{Pid, Signal, kill_process};

/// Tests run one at a time: they compare the state of the machine before and after.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> Option<MutexGuard<'static, ()>> {
    let alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Err(error) = Namespace::new() {
        eprintln!("skipped: {error}");
        return None;
    }
    Some(alone)
}

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

/// A benchmark that runs in a directory of its own, by which its processes are recognised.
struct Bench {
    place: tempfile::TempDir,
    child: Option<Child>,
}

impl Bench {
    /// Runs the scenarios with a tool of the commands `local` and `sftp`.
    fn start(local: &str, sftp: &str) -> Self {
        Self::with_far_end(local, sftp, "")
    }

    /// The same; `far` are further lines about the tool's use for SFTP.
    fn with_far_end(local: &str, sftp: &str, far: &str) -> Self {
        let place =
            tempfile::Builder::new().prefix("leaves-nothing-").tempdir().expect("a directory");
        let write =
            |name: &str, text: &str| fs::write(place.path().join(name), text).expect("writable");
        write("scenarios.toml", SCENARIOS);
        write(
            "tools.toml",
            &format!(
                "[[tool]]\nname = 'sh'\nversion = 'echo 1'\n\
                 [[tool.use]]\nprotocols = ['local']\nrun = '''{local}'''\n\
                 [[tool.use]]\nprotocols = ['sftp']\nrun = '''{sftp}'''\n{far}"
            ),
        );
        fs::create_dir(place.path().join("work")).expect("a directory");
        let child = Command::new(env!("CARGO_BIN_EXE_haul-bench"))
            .args(["run", "--haul", "/bin/true", "--scenarios", "scenarios.toml"])
            .args(["--tools-file", "tools.toml", "--work", "work", "--output", "results", "*"])
            .current_dir(place.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(place.path().join("log")).expect("writable"))
            .spawn()
            .expect("it starts");
        Self { place, child: Some(child) }
    }

    fn pid(&self) -> u32 {
        self.child.as_ref().expect("it was started").id()
    }

    fn work(&self) -> PathBuf {
        self.place.path().join("work").canonicalize().expect("it exists")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.place.path().join("log")).expect("it exists")
    }

    /// Processes that work in the directory or name it, other than the front (the process started here; see
    /// `guard.rs`).
    fn processes(&self) -> BTreeSet<u32> {
        let work = self.work();
        let names = |id: u32, file: &str| {
            let bytes = fs::read(format!("/proc/{id}/{file}")).unwrap_or_default();
            String::from_utf8_lossy(&bytes).contains(&*work.to_string_lossy())
        };
        let inside = |id: u32| {
            fs::read_link(format!("/proc/{id}/cwd")).is_ok_and(|cwd| cwd.starts_with(&work))
        };
        fs::read_dir("/proc")
            .expect("it can be listed")
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(|&id: &u32| id != self.pid())
            .filter(|&id| names(id, "cmdline") || names(id, "environ") || inside(id))
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
            assert!(start.elapsed() < Duration::from_secs(60), "no '{text}': {}", self.log());
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn end(&mut self) -> ExitStatus {
        self.child.as_mut().expect("it was started").wait().expect("it can be waited for")
    }

    /// Asserts that nothing is left. Waits up to 30 s: if the front was killed, the guard cleans up after it.
    fn leaves_nothing(&self, before: &Inventory) {
        let deadline = Instant::now() + Duration::from_secs(30);
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

/// What a benchmark could leave besides processes and files.
#[derive(Debug, Clone)]
struct Inventory {
    devices: Vec<String>,
    mounts: String,
    /// Network and mount namespaces that processes of this machine are in, with the lineage of each process.
    namespaces: BTreeMap<PathBuf, Vec<Vec<u32>>>,
    /// All processes.
    processes: BTreeSet<u32>,
}

impl Inventory {
    fn take(work: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(path).expect("it can be read");
        let names = |line: &str| Some(line.split_once(':')?.0.trim().to_owned());
        let mut namespaces = BTreeMap::<_, Vec<_>>::new();
        let mut processes = BTreeSet::new();
        for entry in fs::read_dir("/proc").expect("it can be listed") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Ok(process) = name.parse() else { continue };
            processes.insert(process);
            for kind in ["ns/net", "ns/mnt"] {
                let Ok(namespace) = fs::read_link(path.join(kind)) else { continue };
                namespaces.entry(namespace).or_default().push(lineage(process));
            }
        }
        let mounts = read("/proc/self/mountinfo");
        assert!(!mounts.contains(&*work.to_string_lossy()), "mounts stay in their own namespace");
        Self {
            devices: read("/proc/net/dev").lines().filter_map(names).collect(),
            mounts,
            namespaces,
            processes,
        }
    }
}

impl Inventory {
    /// Other programs may start and end processes meanwhile: one that descends from a process that existed
    /// before, and not through this one, is theirs.
    fn adds_nothing_to(&self, before: &Self) -> bool {
        let own = std::process::id();
        let above: BTreeSet<u32> = lineage(own).into_iter().collect();
        let is_of_others = |lineage: &Vec<u32>| {
            let to_this = lineage.iter().take_while(|process| **process != own);
            to_this.into_iter().any(|one| before.processes.contains(one) && !above.contains(one))
        };
        let is_known = |namespace: &PathBuf, lineages: &Vec<Vec<u32>>| {
            before.namespaces.contains_key(namespace) || lineages.iter().all(is_of_others)
        };
        self.devices == before.devices
            && self.mounts == before.mounts
            && self.namespaces.iter().all(|(namespace, lineages)| is_known(namespace, lineages))
    }
}

const COPY: &str = "exec cp -r \"$SRC/.\" \"$DST/\"";
const FETCH: &str = "exec scp -q -F \"$SSH_CONFIG\" \"bench:$REMOTE/*\" \"$DST/\"";
/// Leaves processes of all kinds: in the background, in a session of their own, ignoring signals.
const STUBBORN: &str = "setsid sh -c \"trap : TERM INT HUP; while :; do sleep 1; done\" & \
                        (trap \"\" TERM; sleep 300) & \
                        ssh -F \"$SSH_CONFIG\" bench \"sleep 301\"";

fn has_sshd() -> bool {
    let found = Path::new("/usr/sbin/sshd").exists();
    if !found {
        eprintln!("skipped: sshd is not installed");
    }
    found
}

#[test]
fn nothing_is_left_after_success() {
    let Some(_alone) = alone().filter(|_| has_sshd()) else { return };
    let before = Inventory::take(Path::new("/nowhere"));
    let mut bench = Bench::start(COPY, FETCH);
    let status = bench.end();
    assert_eq!(status.code(), Some(0), "{}", bench.log());
    bench.leaves_nothing(&before);
    let results = fs::read_to_string(bench.place.path().join("results")).expect("results");
    // The machine, two scenarios, a warm-up and a counted run of each.
    assert_eq!(results.lines().count(), 1 + 2 + 4, "{results}");
    assert_eq!(results.matches(r#""outcome":"ok""#).count(), 4, "{results}");
}

#[test]
fn nothing_is_left_after_failures_and_the_exit_status_shows_them() {
    let Some(_alone) = alone().filter(|_| has_sshd()) else { return };
    let before = Inventory::take(Path::new("/nowhere"));
    let mut bench = Bench::start("echo no >&2; (sleep 300 &) ; exit 3", COPY);
    let status = bench.end();
    assert_eq!(status.code(), Some(1), "{}", bench.log());
    assert!(bench.log().contains("exit status 3: no"), "{}", bench.log());
    bench.leaves_nothing(&before);
}

#[test]
fn the_far_end_of_a_tool_runs_where_the_server_does_and_ends_with_the_run() {
    let Some(_alone) = alone().filter(|_| has_sshd()) else { return };
    let before = Inventory::take(Path::new("/nowhere"));
    let far = "[tool.use.far]\nready = 'up'\nrun = '''test \"$SECRET\" && \
               ip -4 -o address | grep -qF \"$HOST/\" && echo up; sleep 302'''\n";
    let mut bench = Bench::with_far_end(COPY, FETCH, far);
    assert_eq!(bench.end().code(), Some(0), "{}", bench.log());
    bench.leaves_nothing(&before);
    let results = fs::read_to_string(bench.place.path().join("results")).expect("results");
    assert_eq!(results.matches(r#""outcome":"ok""#).count(), 4, "{results}");
    assert!(results.contains("At the far end:"), "{results}");
}

#[test]
fn a_run_whose_far_end_fails_has_failed() {
    let Some(_alone) = alone().filter(|_| has_sshd()) else { return };
    let before = Inventory::take(Path::new("/nowhere"));
    let far = "[tool.use.far]\nready = 'up'\nrun = 'echo no relay >&2; exit 3'\n";
    let mut bench = Bench::with_far_end(COPY, FETCH, far);
    assert_eq!(bench.end().code(), Some(1), "{}", bench.log());
    assert!(bench.log().contains("the far end: exit status: 3: no relay"), "{}", bench.log());
    bench.leaves_nothing(&before);
}

#[test]
fn a_wrong_result_fails_the_benchmark() {
    let Some(_alone) = alone().filter(|_| has_sshd()) else { return };
    let mut bench = Bench::start("cp -r \"$SRC/.\" \"$DST/\"; printf x >>\"$DST/file01\"", FETCH);
    assert_eq!(bench.end().code(), Some(1), "{}", bench.log());
    assert!(
        bench.log().contains("WRONG: file01 has 100001 bytes instead of 100000"),
        "{}",
        bench.log()
    );
}

#[test]
fn nothing_is_left_after_a_signal() {
    let Some(_alone) = alone().filter(|_| has_sshd()) else { return };
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
}

#[test]
fn nothing_is_left_when_the_guard_or_the_worker_is_killed() {
    let Some(_alone) = alone().filter(|_| has_sshd()) else { return };
    let before = Inventory::take(Path::new("/nowhere"));
    for process in ["haul-bench guard", "haul-bench worker"] {
        let mut bench = Bench::start(COPY, FETCH.replace("exec scp", "exec scp -l 100").as_str());
        bench.wait_for("scp -l");
        let victim = bench.wait_for(process);
        let victim = Pid::from_raw(victim.cast_signed()).expect("a process");
        kill_process(victim, Signal::KILL).expect("it runs");
        assert_ne!(bench.end().code(), Some(0), "{}", bench.log());
        bench.leaves_nothing(&before);
    }
}

#[test]
fn nothing_is_left_of_a_network_when_it_is_dropped() {
    let Some(_alone) = alone() else { return };
    let descriptors = || fs::read_dir("/proc/self/fd").expect("it can be listed").count();
    let (before, open_before) = (Inventory::take(Path::new("/nowhere")), descriptors());
    for _ in 0..3 {
        let specs = vec![LinkSpec::new(Duration::from_millis(5), Some(1e8)); 4];
        let network = Network::new(&specs, Means::of_this_machine()).expect("a network");
        let address = network.links()[3].address().to_string();
        let ping = network.client().command("ping").args(["-c", "1", &address]).output();
        assert!(ping.is_ok_and(|output| output.status.success()), "the link works");
    }
    assert!(Inventory::take(Path::new("/nowhere")).adds_nothing_to(&before));
    assert_eq!(descriptors(), open_before);
}
