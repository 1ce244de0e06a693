//! The far end of a tool that connects to another copy of itself and not to a server: it is started for one run, where
//! servers run, and is killed afterwards. Its start is not measured.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::job;
use super::shell::shell;
use super::stage::Stage;
use crate::tools::Far;

/// Programs print that they are ready a moment before they are.
const SETTLE: Duration = Duration::from_secs(1);

/// The running far end.
#[derive(Debug)]
pub(super) struct FarEnd(Child);

impl FarEnd {
    /// Starts the command in the new directory `home` and waits, for `limit` at most, until it is ready. The inner
    /// error is a failure of the command, the outer one of the benchmark.
    pub(super) fn start(
        far: &Far,
        tool: &Path,
        variables: &[(&'static str, OsString)],
        home: &Path,
        stage: &Stage,
        limit: Duration,
    ) -> io::Result<Result<Self, String>> {
        fs::create_dir(home)?;
        let namespace = stage.wiring.server().map(|(namespace, _)| namespace);
        // `last_error_lines` reads the file with this name.
        let output = File::create(home.join("stderr"))?;
        let mut command = shell(namespace, &far.run, tool, variables, home);
        let mut end = Self(command.stdout(output.try_clone()?).stderr(output).spawn()?);
        let start = Instant::now();
        loop {
            let printed = fs::read(home.join("stderr"))?;
            if String::from_utf8_lossy(&printed).contains(&far.ready) {
                thread::sleep(SETTLE);
                return Ok(Ok(end));
            }
            let how = match end.0.try_wait()? {
                Some(status) => status.to_string(),
                None if start.elapsed() > limit => "not ready in time".to_owned(),
                None => {
                    thread::sleep(Duration::from_millis(20));
                    continue;
                }
            };
            return Ok(Err(format!("the far end: {how}: {}", job::last_error_lines(home))));
        }
    }

    /// The process id of the shell, which waits for the programs that it starts.
    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for FarEnd {
    fn drop(&mut self) {
        job::stop_group(Pid::from_child(&self.0), Signal::KILL);
        // If waiting fails, the guard reaps it.
        let _ = self.0.wait();
    }
}
