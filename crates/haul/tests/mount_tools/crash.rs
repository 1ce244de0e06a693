//! A mount that is killed while files are written and uploaded: every closed file exists afterwards. And a spool on a
//! full disk.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use haul_bench::guard::end_with_thread;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::content::{Chance, content};
use crate::lab::{PATIENCE, SmallDisk, eventually, form, seed, turn};
use crate::mounted::Mounted;
use crate::source::{Kind, Source};

/// All files that are written are shorter than this, in bytes.
const LONGEST: u64 = 400_000;

/// The files that must exist: by name, the seed and the length of their content.
type Expected = BTreeMap<String, (u64, usize)>;

/// Writes a file. Returns errors of close(2), too.
fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    nix::unistd::close(file)?;
    Ok(())
}

/// Writes, replaces, renames and removes files until the mount is gone. At any time, `expected` lists the files that
/// must exist. Returns the error of the operation that failed.
fn write_until_killed(
    top: &Path,
    chance: &mut Chance,
    expected: &Mutex<Expected>,
) -> std::io::Error {
    loop {
        let id = chance.next();
        let known: Vec<_> = expected.lock().unwrap().keys().cloned().collect();
        let any = |chance: &mut Chance| {
            let at = usize::try_from(chance.below(known.len().max(1) as u64)).unwrap();
            known.get(at).cloned()
        };
        let outcome = match (chance.below(10), any(chance)) {
            (0, Some(name)) => {
                let was = expected.lock().unwrap().remove(&name).unwrap();
                let new_name = format!("renamed-{id:x}");
                fs::rename(top.join(&name), top.join(&new_name))
                    .map(|()| _ = expected.lock().unwrap().insert(new_name, was))
            }
            (1, Some(name)) => {
                expected.lock().unwrap().remove(&name);
                fs::remove_file(top.join(&name))
            }
            (choice, known) => {
                let new_name = format!("file-{id:x}");
                let name = known.filter(|_| choice < 4).unwrap_or(new_name);
                // Until it is closed, it may have any content.
                expected.lock().unwrap().remove(&name);
                let length = usize::try_from(chance.below(LONGEST)).unwrap();
                write(&top.join(&name), &content(id, length))
                    .map(|()| _ = expected.lock().unwrap().insert(name, (id, length)))
            }
        };
        if let Err(error) = outcome {
            return error;
        }
    }
}

/// Asserts that all files exist, if only as conflict copies. Returns how many exist as copies only.
#[track_caller]
fn check(directory: &Path, expected: &Expected) -> usize {
    let entries = fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: Vec<_> = names.collect();
    let mut copies = 0;
    for (name, (id, length)) in expected {
        let wanted = content(*id, *length);
        let copy = format!("{name} (conflict ");
        let has_content = |found: &&String| {
            (*found == name || found.starts_with(&copy))
                && fs::read(directory.join(found)).is_ok_and(|found| found == wanted)
        };
        let found = names.iter().find(has_content);
        let found = found.unwrap_or_else(|| panic!("{name} of {length} bytes is lost"));
        copies += usize::from(found != name);
    }
    copies
}

#[test]
fn a_killed_mount_loses_nothing_that_was_closed() {
    let Some(_turn) = turn() else { return };
    let Some(source) = Source::start(Kind::OpenSsh) else { return };
    let mut chance = Chance(seed());
    let expected = Mutex::new(Expected::new());
    let rounds = form(3, 50);
    let mut waiting = 0;
    for _ in 0..rounds {
        let mounted = Mounted::start(&source, "--read-write");
        let top = mounted.path("");
        let time = Duration::from_millis(50 + chance.below(400));
        thread::scope(|scope| {
            let writer = scope.spawn(|| write_until_killed(&top, &mut chance, &expected));
            thread::sleep(time);
            let start = Instant::now();
            // No assertion in this loop: a panic would wait for the writer, which ends only with the mount.
            while !writer.is_finished()
                && expected.lock().unwrap().len() < 3
                && start.elapsed() < PATIENCE
            {
                thread::sleep(Duration::from_millis(10));
            }
            assert!(!writer.is_finished(), "{:?}", writer.join());
            mounted.kill();
        });
        let pending = source.session.haul("mount --pending --json").status(0).out();
        waiting += pending.lines().count();
    }
    let expected = expected.into_inner().unwrap();
    let mounted = Mounted::start(&source, "--read-write");
    check(&mounted.path(""), &expected);
    mounted.uploaded();
    let copies = check(&source.far(""), &expected);
    mounted.end();
    let closed = expected.len();
    eprintln!("{rounds} kills, {closed} files, {waiting} pending uploads, {copies} copies");
    assert!(closed > 0);
}

#[test]
fn a_full_spool_fails_writes_and_loses_nothing() {
    let Some(_turn) = turn() else { return };
    let Some(source) = Source::start(Kind::OpenSsh) else { return };
    fs::create_dir(source.session.path("spool")).unwrap();
    let Some(_disk) = SmallDisk::mount(source.session.path("spool"), "4m") else { return };
    let whole = content(1, 1 << 20);
    let mounted = Mounted::start(&source, "--read-write --spool-dir spool");
    fs::write(mounted.path("before"), &whole).unwrap();
    let refused = write(&mounted.path("long"), &content(2, 16 << 20)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::StorageFull);
    assert!(fs::read(mounted.path("before")).unwrap() == whole);
    fs::remove_file(mounted.path("long")).unwrap();
    fs::write(mounted.path("after"), &whole).unwrap();
    mounted.end();
    assert_eq!(source.names(""), ["after", "before"]);
    assert!(fs::read(source.far("before")).unwrap() == whole);
    assert!(fs::read(source.far("after")).unwrap() == whole);
}

/// A shell truncates the file after `>` before a program writes to it, and closes a descriptor of the file then and
/// after each program.
#[test]
fn a_mount_that_ends_while_a_shell_rewrites_a_file_leaves_the_old_version() {
    let Some(_turn) = turn() else { return };
    let Some(source) = Source::start(Kind::OpenSsh) else { return };
    for (ends, writes) in [(true, false), (true, true), (false, false), (false, true)] {
        source.write("file", "complete");
        let mounted = Mounted::start(&source, "--read-write");
        let echo = if writes { "echo half; sh -c :;" } else { "" };
        let script = format!("{{ {echo} touch started; sleep 600; echo more; }} >mnt/file");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).current_dir(source.session.path("")).stderr(Stdio::null());
        end_with_thread(&mut shell);
        let mut shell = shell.process_group(0).spawn().unwrap();
        let started = source.session.path("started");
        eventually("the shell does not start", || started.exists());
        // Longer than the mount waits for the last descriptor.
        thread::sleep(Duration::from_millis(300));
        if ends {
            mounted.end();
        } else {
            mounted.kill();
        }
        kill_process_group(Pid::from_child(&shell), Signal::KILL).unwrap();
        shell.wait().unwrap();
        fs::remove_file(started).unwrap();
        let mounted = Mounted::start(&source, "--read-write");
        mounted.uploaded();
        mounted.end();
        assert_eq!(fs::read_to_string(source.far("file")).unwrap(), "complete");
        // What was written is not lost.
        let copies = source.names("").into_iter().filter(|name| name != "file");
        let copies: Vec<_> =
            copies.map(|name| fs::read_to_string(source.far(&name)).unwrap()).collect();
        assert_eq!(copies, vec!["half\n"; usize::from(writes)], "{ends} {writes}");
        source.names("").iter().for_each(|name| fs::remove_file(source.far(name)).unwrap());
    }
}
