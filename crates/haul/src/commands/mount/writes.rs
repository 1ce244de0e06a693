//! `haul mount --read-write` and `--pending`: the spool, warnings, and files that wait to be uploaded.

use std::path::PathBuf;
use std::time::Duration;

use haul_mount::{Mount, MountBuilder, PendingFile, Warning};
use haul_storage::{Location, Result, text};
use serde::Serialize;

use super::identity::{identity, port};
use super::options::MountOptions;
use super::status;
use crate::args::MountArgs;
use crate::backends::Storages;
use crate::config::Config;
use crate::directories;
use crate::exit::{Exit, Stop};
use crate::output::Printer;

/// A file that waits to be uploaded.
#[derive(Debug, Serialize)]
struct Pending {
    event: &'static str,
    location: String,
    path: String,
    bytes: u64,
    error: Option<String>,
    spool_file: String,
}

/// The directory of all spools.
fn spools(args: &MountArgs) -> Result<PathBuf, Stop> {
    if let Some(directory) = &args.spool_dir {
        return Ok(directory.clone());
    }
    let state = directories::state().ok_or_else(|| {
        let message =
            "neither XDG_STATE_HOME nor HOME is set to an absolute path; pass --spool-dir DIR";
        Stop::Usage(message.to_owned())
    })?;
    Ok(state.join("mount"))
}

/// Makes the mount writable if `--read-write` is given.
pub(super) fn apply(
    builder: MountBuilder,
    args: &MountArgs,
    location: &Location,
    printer: &Printer,
) -> Result<MountBuilder, Stop> {
    if !args.read_write {
        return Ok(builder);
    }
    let (location, printer) = (location.clone(), printer.clone());
    let warn = move |warning: &Warning| {
        let (path, message) = match warning {
            Warning::Conflict { path, copy } => {
                let name = text::name(copy.name());
                (path, format!("it has changed on the server; your version is in '{name}'"))
            }
            Warning::LeftOpen { path, copy } => {
                let name = text::name(copy.name());
                let message = format!(
                    "it was open when an earlier mount ended; what was written is in '{name}'"
                );
                (path, message)
            }
            Warning::Incomplete { path, copy } => {
                let name = text::name(copy.name());
                let message = format!(
                    "it was changed or removed on the server before all of it was fetched; what was \
                     written is in '{name}' in the mount, and cannot be uploaded"
                );
                (path, message)
            }
            Warning::Aside { path, aside } => {
                let name = text::name(aside.name());
                let message = format!(
                    "it could not be replaced, and could not get its name back; it is now '{name}' on \
                     the server"
                );
                (path, message)
            }
            Warning::Unrecorded { path, error } => {
                (path, format!("it was open; what was written may be lost: {error}"))
            }
            Warning::Failed { path, error } => {
                (path, format!("not uploaded yet; haul retries it: {error}"))
            }
            _ => return,
        };
        printer.warning(&location.display(path).to_string(), &message);
    };
    Ok(builder.writable(spools(args)?).sync_close(args.sync_close).on_warning(warn))
}

/// Unmounts, then waits for uploads, at most `patience` without progress. Warns if files are left.
pub(super) async fn unmount(
    mount: Mount,
    patience: Duration,
    location: &Location,
    printer: &Printer,
) -> Result<()> {
    let left = mount.unmount_and_upload(patience).await?;
    if left > 0 {
        let files = if left == 1 { "1 file is".to_owned() } else { format!("{left} files are") };
        let message =
            format!("{files} not uploaded yet; the next mount with --read-write uploads the rest");
        printer.warning(&location.to_string(), &message);
    }
    Ok(())
}

/// Runs `haul mount --pending`.
pub(super) fn print_pending(
    args: &MountArgs,
    config: &Config,
    printer: &Printer,
) -> Result<Exit, Stop> {
    let identity = match &args.location {
        Some(named) => {
            let storages = Storages::for_names(config, &args.remote, printer)?;
            let (ssh, options) = (&args.remote.ssh, MountOptions::of(args).map_err(Stop::Usage)?);
            let location = match storages.locate_at(named, port(ssh, &options.ssh))? {
                // As a mount identifies it.
                Location::Local(path) => Location::Local(status::absolute(&path)),
                remote => remote,
            };
            Some(identity(&location, ssh, &options.ssh))
        }
        None => None,
    };
    let files = haul_mount::pending_files(&spools(args)?, identity.as_deref())?;
    for file in files {
        print(file, printer);
    }
    Ok(Exit::Done)
}

fn print(file: PendingFile, printer: &Printer) {
    let PendingFile { location, path, size, failure, spool_file, .. } = file;
    if printer.is_json() {
        printer.object(&Pending {
            event: "pending",
            location,
            path: path.to_string(),
            bytes: size,
            error: failure,
            spool_file: spool_file.display().to_string(),
        });
        return;
    }
    let size = text::bytes(size);
    let location = text::line(&location);
    let slash = if location.ends_with('/') || location.ends_with(':') { "" } else { "/" };
    let why = failure.map(|error| format!("  ({})", text::line(&error))).unwrap_or_default();
    printer.result(format!("{size:>10}  {location}{slash}{path}{why}"));
}
