//! The source of the demo as a folder: `haul mount` as a child process.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use haul_storage::Error;

use super::child::{Child, command};
use crate::exit::Stop;
use crate::output::Printer;
use crate::signals::Signals;

/// The device of FUSE, which a mount needs.
const DEVICE: &str = "/dev/fuse";

/// A running `haul mount`. It unmounts when it is dropped.
pub(super) struct Mounted {
    child: Child,
    signals: Signals,
}

impl Mounted {
    /// Mounts `source` at `point`, which is created, read-only. `None` where that is not possible: a note gives
    /// the cause, unless there is no FUSE at all, or the output is JSON.
    pub(super) fn start(
        source: &Path,
        point: &Path,
        home: &Path,
        printer: &Printer,
        signals: &Signals,
    ) -> Result<Option<Self>, Stop> {
        if !Path::new(DEVICE).exists() {
            return Ok(None);
        }
        fs::create_dir(point).map_err(|error| Error::from_io("make", error).at(point.display()))?;
        let paths = [source.as_os_str(), point.as_os_str()];
        let mut command = command(&["mount", "--json"], &paths, home, printer)?;
        // Errors are events on standard output; the message about unmounting is not needed.
        command.stderr(Stdio::null());
        let mut mounted = Self { child: Child::spawn(command)?, signals: signals.clone() };
        match mounted.child.reach("mounted", signals)? {
            Ok(()) => Ok(Some(mounted)),
            Err(cause) => {
                if !printer.is_json() {
                    printer.note(format_args!("haul mount is left out: {cause}"));
                }
                Ok(None)
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Ctrl-C on a terminal reaches the child, too.
        self.child.terminate(self.signals.cancel().is_cancelled());
    }
}
