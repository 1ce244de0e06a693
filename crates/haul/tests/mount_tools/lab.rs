//! The set-up of every test: whether it can run here, its turn, and other programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use haul_bench::guard::unshare_mounts;
use rustix::process::geteuid;

use crate::session::isolate;

/// The variable that selects the long form.
const NIGHT: &str = "HAUL_TEST_NIGHT";

/// Longest time that another program may take, in seconds. The slowest, stress-ng at night, takes ten minutes.
const MOST: &str = "1800";

/// Longest wait for a condition.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// How many tests are running. One that runs alone counts as [`most_tests`].
static RUNNING: Mutex<usize> = Mutex::new(0);

/// Notified when a test ends.
static ENDED: Condvar = Condvar::new();

/// The right to mount, until it is dropped.
pub(crate) struct Turn {
    /// How many tests it counts as.
    tests: usize,
}

/// Waits for this test's turn; `None`, with the reason printed, if this process cannot mount. Only this thread and its
/// children will see new mounts.
pub(crate) fn turn() -> Option<Turn> {
    can_mount().then(|| Turn::wait(1))?.unshared()
}

/// As [`turn`], for a test that measures time: no other one runs meanwhile.
pub(crate) fn turn_alone() -> Option<Turn> {
    can_mount().then(|| Turn::wait(most_tests()))?.unshared()
}

/// How many tests may run at a time. By day, they wait for servers and other processes more than they compute; at
/// night, each loads the machine.
fn most_tests() -> usize {
    form(2, 1)
}

/// Whether this process can mount; prints why not.
fn can_mount() -> bool {
    let can_mount = geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can_mount {
        eprintln!("SKIPPED: mounting takes root and /dev/fuse");
    }
    can_mount
}

impl Turn {
    fn wait(tests: usize) -> Self {
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |running: &mut usize| *running + tests > most_tests();
        let running = ENDED.wait_while(running, is_full);
        *running.unwrap_or_else(PoisonError::into_inner) += tests;
        Self { tests }
    }

    /// Gives this thread a mount namespace of its own, so that no mount is left, even if this program is killed.
    fn unshared(self) -> Option<Self> {
        if unshare_mounts().unwrap() {
            return Some(self);
        }
        eprintln!("SKIPPED: mounting takes CAP_SYS_ADMIN");
        None
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // A test that has failed may have poisoned the lock, but the count is right.
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= self.tests;
        ENDED.notify_all();
    }
}

/// Whether the tests run in their long form.
pub(crate) fn is_night() -> bool {
    std::env::var_os(NIGHT).is_some_and(|value| !value.is_empty() && value != "0")
}

/// `short` by day, `long` at night.
pub(crate) fn form<T>(short: T, long: T) -> T {
    if is_night() { long } else { short }
}

/// The seed of random operations: `HAUL_TEST_SEED`, or else 7 by day and the current time at night. It is printed.
pub(crate) fn seed() -> u64 {
    let set = std::env::var("HAUL_TEST_SEED").ok().map(|text| text.parse().unwrap());
    let now = || SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let seed = set.unwrap_or_else(|| if is_night() { now() } else { 7 });
    eprintln!("HAUL_TEST_SEED={seed}");
    seed
}

/// The path of a program; `None`, with the reason printed, if it is not installed.
pub(crate) fn tool(name: &str) -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut files = std::env::split_paths(&path).chain([own]).map(|bin| bin.join(name));
    let found = files.find(|file| file.is_file());
    if found.is_none() {
        eprintln!("SKIPPED: {name} is not installed");
    }
    found
}

/// Whether these programs are installed; prints which one is not.
pub(crate) fn has_tools(names: &[&str]) -> bool {
    names.iter().all(|name| tool(name).is_some())
}

/// Runs a program; returns whether it has succeeded, and what it has printed.
pub(crate) fn outcome(program: &Path, arguments: &[&str], directory: &Path) -> (bool, String) {
    let mut command = Command::new("timeout");
    isolate(&mut command)
        .args(["-k", "10", MOST])
        .arg(program)
        .args(arguments)
        .current_dir(directory)
        .env("LC_ALL", "C.UTF-8")
        .env("NO_COLOR", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_AUTHOR_NAME", "Ada")
        .env("GIT_AUTHOR_EMAIL", "ada@example.org")
        .env("GIT_COMMITTER_NAME", "Ada")
        .env("GIT_COMMITTER_EMAIL", "ada@example.org")
        .stdin(Stdio::null());
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "MAKEFLAGS"] {
        command.env_remove(name);
    }
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// Runs a program, which must succeed; returns what it has printed.
#[track_caller]
pub(crate) fn run(program: &Path, arguments: &[&str], directory: &Path) -> String {
    let (is_done, text) = outcome(program, arguments, directory);
    let program = program.display();
    assert!(is_done, "$ {program} {}\n{text}", arguments.join(" "));
    text
}

/// Runs a script, which ends at the first command that fails; returns what it has printed.
#[track_caller]
pub(crate) fn shell(script: &str, directory: &Path) -> String {
    run(Path::new("sh"), &["-euc", script], directory)
}

/// Waits until a condition holds; panics with `message` after [`PATIENCE`].
#[track_caller]
pub(crate) fn eventually(message: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{message}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Sets a flag when it is dropped, also when the test fails, so that other threads end.
pub(crate) struct Ending<'a>(pub(crate) &'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A file system in memory, of limited size, until it is dropped.
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts it in a directory that exists; `None`, with the reason printed, if that is not possible.
    pub(crate) fn mount(at: PathBuf, size: &str) -> Option<Self> {
        let options = format!("size={size},mode=0700");
        let mut command = Command::new("mount");
        let command = command.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&at);
        if !command.status().unwrap().success() {
            eprintln!("SKIPPED: tmpfs cannot be mounted");
            return None;
        }
        Some(Self(at))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}
