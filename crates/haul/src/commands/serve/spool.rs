//! Standard input as a file of a share: it is stored until the share ends, so that several receivers can read it, each
//! from any offset.

use std::fs::File;
use std::io::{self, ErrorKind as Io};
use std::path::PathBuf;
use std::thread;

use haul_storage::{Error, RelPath, Result};
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::args::ShareArgs;
use crate::commands::pipe::STREAM;
use crate::exit::Stop;
use crate::signals::Signals;

/// The name of the file without `--name`.
const NAME: &str = "stdin";

/// The paths of a share, `-` replaced by a file with the content of standard input.
#[derive(Debug)]
pub(super) struct Paths {
    pub(super) paths: Vec<PathBuf>,
    /// Removed when this is dropped.
    _spool: Option<TempDir>,
}

impl Paths {
    /// Reads standard input to its end if it is one of the paths. `None` if a signal comes before the end.
    ///
    /// # Errors
    /// If it cannot be stored, if it is given twice, if `--name` is not a file name, or with `--keep`: the next run has
    /// another input.
    pub(super) async fn of(args: &ShareArgs, signals: &Signals) -> Result<Option<Self>, Stop> {
        let mut paths = args.paths.clone();
        let mut streams = paths.iter_mut().filter(|path| path.as_os_str() == STREAM);
        let Some(stream) = streams.next() else {
            return Ok(Some(Self { paths, _spool: None }));
        };
        if streams.next().is_some() {
            return Err(Stop::Usage("standard input ('-') can be shared only once".to_owned()));
        }
        if args.keep {
            let message =
                "--keep cannot be used with standard input ('-'), which later runs do not have";
            return Err(Stop::Usage(message.to_owned()));
        }
        let name = args.name.as_deref().unwrap_or(NAME);
        RelPath::root().join(name).map_err(|error| {
            Stop::Usage(format!(
                "with standard input ('-'), --name must be a file name: it {error}"
            ))
        })?;
        let failed = |error| Error::from_io("store standard input", error);
        let spool = tempfile::Builder::new().prefix("haul-share-").tempdir().map_err(failed)?;
        *stream = spool.path().join(name);
        let file = File::create(stream.as_path()).map_err(failed)?;
        let reading = read_input(file).map_err(failed)?;
        tokio::select! {
            outcome = reading => {
                // The thread always sends an outcome, unless it panics.
                let outcome = outcome.unwrap_or_else(|_| Err(Io::UnexpectedEof.into()));
                outcome.map_err(failed)?;
                Ok(Some(Self { paths, _spool: Some(spool) }))
            }
            () = signals.cancel().cancelled() => Ok(None),
        }
    }
}

/// Copies standard input on a thread of its own, which does not delay the end of the program.
fn read_input(mut file: File) -> io::Result<oneshot::Receiver<io::Result<u64>>> {
    let (done, reading) = oneshot::channel();
    thread::Builder::new().name("standard input".to_owned()).spawn(move || {
        // The receiver is gone after a signal.
        drop(done.send(io::copy(&mut io::stdin().lock(), &mut file)));
    })?;
    Ok(reading)
}
