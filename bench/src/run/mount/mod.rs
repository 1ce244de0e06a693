//! Measures a mounted view: time until it is mounted, then what the scenario does in it.

mod random;
mod read;
mod view;
mod walk;
mod write;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Signal;
use view::View;
use walk::Walker;

use super::job::{Job, Measured, last_error_lines};
use super::stage::Stage;
use crate::data::Dataset;
use crate::mounts::mounts_in;
use crate::record::Measure;

/// The work to do in a mount.
#[derive(Debug)]
pub(super) struct Visit {
    pub(super) measure: Measure,
    pub(super) data: Dataset,
    /// The mount point.
    pub(super) point: PathBuf,
    /// For [`Measure::MountWrite`]: the server's directory that the mount shows, by its path on this machine.
    pub(super) result: PathBuf,
}

/// Waits until `job` has mounted, does what `visit` describes, unmounts. The inner error is a failure of the mount, the
/// outer one of the benchmark.
pub(super) fn look(
    job: Job,
    stage: &Stage,
    visit: Visit,
    home: &Path,
    limit: Duration,
) -> io::Result<(Measured, Result<View, String>)> {
    let (start, point) = (job.started(), visit.point.clone());
    let deadline = start + limit;
    let seen = wait_for(&job, &point, deadline)?.then(|| start.elapsed());
    let seen = match seen {
        None => Err(format!("it did not mount: {}", last_error_lines(home))),
        Some(ready) => visit.by(deadline).map(|view| View { ready, ..view }),
    };
    if mounts_in(&point)?.contains(&point) {
        unmount(&point, UnmountFlags::DETACH)?;
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

impl Visit {
    /// Does the work on a thread of its own, because a mount whose server is gone blocks forever.
    fn by(self, deadline: Instant) -> Result<View, String> {
        let (sender, done) = channel();
        thread::spawn(move || {
            // Fails if the receiver has timed out.
            let _ = sender.send(self.perform(deadline));
        });
        // The wait for an upload ends at the same deadline, with a better message: leave it a second to return that.
        let patience = deadline.saturating_duration_since(Instant::now()) + Duration::from_secs(1);
        match done.recv_timeout(patience) {
            Err(_) => Err("the mount does not respond in time".to_owned()),
            Ok(viewed) => viewed.map_err(|error| error.to_string()),
        }
    }

    fn perform(&self, deadline: Instant) -> io::Result<View> {
        let (data, point) = (&self.data, self.point.as_path());
        match (self.measure, Walker::of(self.measure)) {
            (_, Some(walker)) => walker.walk(data, point),
            (Measure::MountRandom, _) => random::random(data, point),
            (Measure::MountWrite, _) => write::write(data, point, &self.result, deadline),
            _ => read::read(data, point),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::DataSpec;
    use crate::record::Outcome;

    fn visit(measure: Measure, temp: &Path) -> Visit {
        let spec = DataSpec { files: 1, bytes: 1000, directories: 0, sparse_size: None };
        let data = spec.make(&temp.join("data")).expect("writable");
        let point = data.root().to_owned();
        Visit { measure, data, point, result: temp.join("server") }
    }

    #[test]
    fn reading_gives_samples_and_find_and_ls_one_part_each() {
        let deadline = Instant::now() + Duration::from_secs(60);
        for (measure, parts) in
            [(Measure::Mount, 0), (Measure::MountFind, 1), (Measure::MountList, 1)]
        {
            let temp = tempfile::tempdir().expect("a directory");
            let view = visit(measure, temp.path()).by(deadline).expect("a view");
            assert_eq!(view.outcome, Outcome::Ok);
            assert_eq!((view.parts.len(), view.read.is_empty()), (parts, parts > 0), "{measure:?}");
        }
    }

    #[test]
    fn an_error_inside_a_mount_is_a_failure_of_the_mount() {
        let temp = tempfile::tempdir().expect("a directory");
        let mut visit = visit(Measure::Mount, temp.path());
        visit.point = temp.path().join("none");
        let error = visit.by(Instant::now() + Duration::from_secs(60)).expect_err("no directory");
        assert!(error.contains("No such file"), "{error}");
    }
}
