//! Actions after a transfer has ended: `--on-done` and `--bell`.

use std::io;
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use haul_engine::Summary;
use haul_storage::{Error, ErrorKind, Result, without_secrets};

use crate::exit::{Exit, Stop};
use crate::output::Printer;

/// The actions at the end. Clones share their figures.
#[derive(Debug, Clone, Default)]
pub(crate) struct Done {
    command: Option<String>,
    bell: bool,
    figures: Arc<Mutex<Figures>>,
}

/// Sums over the transfers of a command.
#[derive(Debug, Clone, Copy, Default)]
struct Figures {
    files: u64,
    failed: u64,
    moved_bytes: u64,
    seconds: f64,
}

impl Done {
    /// Will run `command`, and ring the bell if `bell` is set.
    pub(crate) fn new(command: Option<String>, bell: bool) -> Self {
        Self { command, bell, figures: Arc::default() }
    }

    /// Counts a transfer that has ended.
    pub(crate) fn record(&self, summary: &Summary) {
        let mut figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        figures.files += summary.files;
        figures.failed += summary.failed;
        figures.moved_bytes += summary.moved_bytes;
        figures.seconds += summary.elapsed.as_secs_f64();
    }

    /// Performs the actions, except after a usage error. An error that stopped the command is printed first.
    pub(crate) fn after(
        &self,
        outcome: std::result::Result<Exit, Stop>,
        printer: &Printer,
    ) -> std::result::Result<Exit, Stop> {
        let exit = match outcome {
            Err(Stop::Failed(error)) if self.command.is_some() || self.bell => {
                printer.failure(&error);
                self.record(&Summary { failed: 1, ..Summary::default() });
                Exit::Failed
            }
            outcome => outcome?,
        };
        if self.bell {
            printer.bell();
        }
        let Some(command) = &self.command else { return Ok(exit) };
        printer.flush();
        match self.run(command, exit) {
            Ok(()) => Ok(exit),
            Err(error) => {
                printer.failure(&error);
                Ok(if exit == Exit::Done { Exit::Failed } else { exit })
            }
        }
    }

    fn run(&self, command: &str, exit: Exit) -> Result<()> {
        let figures = *self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        let cannot = || Error::new(ErrorKind::Other, "run the command").at("--on-done");
        // Standard output carries results, or the content of files.
        let output = io::stderr().as_fd().try_clone_to_owned();
        let output = output.map_err(|error| cannot().with_source(error))?;
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).stdin(Stdio::null()).stdout(output);
        without_secrets(&mut shell)
            .env("HAUL_STATUS", exit.status().to_string())
            .env("HAUL_FILES", figures.files.to_string())
            .env("HAUL_FAILED", figures.failed.to_string())
            .env("HAUL_BYTES", figures.moved_bytes.to_string())
            .env("HAUL_SECONDS", format!("{:.3}", figures.seconds));
        let status = shell.status().map_err(|error| cannot().with_source(error))?;
        if status.success() { Ok(()) } else { Err(cannot().because(status.to_string())) }
    }
}
