//! Measures a mounted view: time until it is mounted, time to a file's first byte, reading rate.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Signal;

use super::job::{Job, Measured, last_words};
use super::stage::Stage;
use crate::mounts::mounts_in;
use crate::record::Outcome;

/// Bytes per read call, a size that programs commonly use.
const READ: usize = 128 << 10;

/// The measurements of a mount.
#[derive(Debug)]
pub(super) struct View {
    /// From the start of the command to the mount.
    pub(super) ready: Duration,
    /// From opening a file, already looked up, to its first byte.
    pub(super) first_byte: Duration,
    /// Bytes per second from opening to the end.
    pub(super) rate: f64,
    /// Whether the bytes were correct.
    pub(super) outcome: Outcome,
}

/// Waits until `job` has mounted on `point`, reads the first file of the data set, unmounts. The inner
/// error is a failure of the mount, the outer one of the benchmark.
pub(super) fn look(
    job: Job,
    stage: &Stage,
    point: &Path,
    home: &Path,
    limit: Duration,
) -> io::Result<(Measured, Result<View, String>)> {
    let start = job.started();
    let seen = wait_for(&job, point, start + limit)?.then(|| start.elapsed());
    let seen = match seen {
        None => Err(format!("it did not mount: {}", last_words(home))),
        Some(ready) => read(stage, point, start + limit)?.map(|view| View { ready, ..view }),
    };
    if mounts_in(point)?.iter().any(|mount| mount == point) {
        unmount(point, UnmountFlags::DETACH)?;
    }
    job.stop(Signal::TERM);
    let measured = job.finish(stage, (start.elapsed()) + Duration::from_secs(5))?;
    Ok((measured, seen))
}

/// Waits for the mount; false if the job ends or the deadline passes first.
fn wait_for(job: &Job, point: &Path, deadline: Instant) -> io::Result<bool> {
    loop {
        if mounts_in(point)?.iter().any(|mount| mount == point) {
            return Ok(true);
        }
        if !job.is_running() || Instant::now() >= deadline {
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Reads the file on a thread of its own, because a mount whose server is gone blocks forever.
fn read(stage: &Stage, point: &Path, deadline: Instant) -> io::Result<Result<View, String>> {
    let name = stage.data.names().next().unwrap_or_default();
    let path: PathBuf = point.join(&name);
    let (sender, read) = channel();
    thread::spawn(move || {
        // Fails if the receiver has timed out.
        let _ = sender.send(read_file(&path));
    });
    let patience = deadline.saturating_duration_since(Instant::now());
    Ok(match read.recv_timeout(patience) {
        Err(_) => Err("the file could not be read in time".to_owned()),
        Ok(Err(error)) => Err(format!("{name}: {error}")),
        Ok(Ok((view, digest))) => {
            let right = stage.data.holds(0, &digest);
            let cause = || format!("{name} differs in content");
            let outcome = if right { Outcome::Ok } else { Outcome::Wrong { cause: cause() } };
            Ok(View { outcome, ..view })
        }
    })
}

fn read_file(path: &Path) -> io::Result<(View, blake3::Hash)> {
    // The lookup is not measured.
    fs::metadata(path)?;
    let (mut buffer, mut hasher) = (vec![0; READ], blake3::Hasher::new());
    let start = Instant::now();
    let mut file = File::open(path)?;
    let (mut bytes, mut first_byte) = (0_u64, None);
    loop {
        let length = file.read(&mut buffer)?;
        let first = *first_byte.get_or_insert_with(|| start.elapsed());
        if length == 0 {
            let rate = bytes as f64 / start.elapsed().as_secs_f64();
            let view =
                View { ready: Duration::ZERO, first_byte: first, rate, outcome: Outcome::Ok };
            return Ok((view, hasher.finalize()));
        }
        hasher.update(&buffer[..length]);
        bytes += length as u64;
    }
}
