//! `haul mount`: shows a location as a folder until it is unmounted.
//!
//! ```text
//! options → open the location → check the mount point, mount → print → wait for a signal or umount → unmount
//!                                                           └─ control: serves `--status`       (writes: upload)
//! ```

mod background;
mod control;
mod identity;
mod options;
mod report;
mod status;
mod writes;

use std::path::Path;
use std::time::{Duration, Instant};

use haul_mount::{Ended, Mount, MountBuilder};
use haul_storage::{Error, ErrorKind, Location, text};
use serde::Serialize;

pub(crate) use self::background::{enter, start};
use self::control::Control;
use self::identity::{identity, port};
use self::options::MountOptions;
use self::report::Subject;
use crate::args::{MountArgs, TransferArgs};
use crate::backends::{OpenedPath, Storages};
use crate::config::Config;
use crate::exit::{Exit, Stop};
use crate::output::Printer;
use crate::settings;
use crate::signals::Signals;

/// How long a request may be without progress if there is no `--timeout`; the same as for connections.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Size of the cache on disk without `--cache-size`.
const CACHE: u64 = 10 << 30;

/// The event that is printed once programs can use the files.
#[derive(Debug, Serialize)]
struct Mounted {
    event: &'static str,
    location: String,
    mount_point: String,
    read_only: bool,
    pid: u32,
}

/// Runs `haul mount`.
pub(crate) async fn run(
    args: &MountArgs,
    config: &Config,
    printer: &Printer,
) -> Result<Exit, Stop> {
    if args.pending {
        return writes::print_pending(args, config, printer);
    }
    if args.status {
        let point = match (&args.location, &args.point) {
            (point, None) => point.as_deref(),
            _ => return Err(Stop::Usage("--status has at most one mount point".to_owned())),
        };
        return status::run(point, printer);
    }
    let (Some(location), Some(point)) = (&args.location, &args.point) else {
        return Err(Stop::Usage("LOCATION and MOUNTPOINT are missing".to_owned()));
    };
    let options = MountOptions::of(args).map_err(Stop::Usage)?;
    let resolved = settings::resolve(&TransferArgs::default(), config).map_err(Stop::Usage)?;
    let mut remote = args.remote.clone();
    remote.ssh.options.clone_from(&options.ssh);
    let storages = Storages::for_transfer(config, &resolved, &remote, printer)?;
    let location = storages.locate_at(location, port(&args.remote.ssh, &options.ssh))?;
    let signals = Signals::listen(printer, "unmounting");
    let opened = tokio::select! {
        opened = Box::pin(open(&storages, &location, args.read_write)) => opened?,
        () = signals.cancel().cancelled() => return Ok(signals.exit().unwrap_or(Exit::Done)),
    };
    check(&opened, &location, point)?;
    // The canonical path: a spool is found by the location, from any working directory.
    let location = opened.local.map_or(location, Location::Local);
    let identity = identity(&location, &args.remote.ssh, &options.ssh);
    let builder = Mount::builder(opened.storage).root(opened.path).settings(resolved.engine);
    let builder = builder.identity(identity);
    let builder = options.apply(configured(builder, args, &location));
    let mount = writes::apply(builder, args, &location, printer)?.mount(point)?;
    let _control = serve_status(&mount, &location, !args.read_write, printer);
    print(&location, mount.point(), !args.read_write, printer);
    if args.in_background {
        background::detach(printer)?;
    }
    let ended = tokio::select! {
        ended = mount.ended() => ended,
        () = signals.cancel().cancelled() => Ended::Unmounted,
    };
    writes::unmount(mount, timeout(args), &location, printer).await?;
    match ended {
        Ended::Unmounted => Ok(Exit::Done),
        Ended::TooOld => Err(failed(point)
            .because("the kernel's FUSE is too old; haul needs Linux 5.6 or later")
            .into()),
        Ended::Failed(number) => {
            let cause = std::io::Error::from_raw_os_error(number);
            Err(failed(point).with_source(cause).into())
        }
        _ => Err(failed(point).into()),
    }
}

/// Responds to `haul mount --status` until the result is dropped.
fn serve_status(
    mount: &Mount,
    location: &Location,
    read_only: bool,
    printer: &Printer,
) -> Option<Control> {
    let subject = Subject {
        location: location.to_string(),
        mount_point: mount.point().display().to_string(),
        read_only,
        since: Instant::now(),
    };
    let observer = mount.observer();
    let report = move || serde_json::to_vec(&subject.report(&observer)?).ok();
    // The mount works without it.
    let unseen = |error: &std::io::Error| {
        printer.log(&format!("haul: --status will not show this mount ({error})"));
    };
    Control::listen(report).inspect_err(unseen).ok()
}

fn failed(point: &Path) -> Error {
    Error::new(ErrorKind::Io, "serve the mount").at(point.display())
}

fn configured(builder: MountBuilder, args: &MountArgs, location: &Location) -> MountBuilder {
    let builder = match &args.cache_dir {
        Some(directory) => {
            builder.cache(directory.clone(), args.cache_size.map_or(CACHE, |size| size.0))
        }
        None => builder,
    };
    builder.source(location.to_string()).memory(args.memory.0).timeout(timeout(args))
}

fn timeout(args: &MountArgs) -> Duration {
    let timeout = args.remote.network.timeout;
    timeout.map_or(TIMEOUT, |seconds| Duration::from_secs(seconds.0))
}

/// Opens the location to mount.
async fn open(
    storages: &Storages<'_>,
    location: &Location,
    writable: bool,
) -> Result<OpenedPath, Error> {
    if !writable {
        return storages.existing(location).await;
    }
    let opened = storages.destination(location, None).await?;
    if opened.exists {
        return Ok(opened);
    }
    Err(Error::new(ErrorKind::NotFound, "mount")
        .at(location)
        .hinting("create the directory first: haul mkdir -p LOCATION"))
}

/// Refuses a location that is not a directory, and a mount point inside the location.
fn check(opened: &OpenedPath, location: &Location, point: &Path) -> Result<(), Error> {
    let cannot = |kind| Error::new(kind, "mount").at(location);
    if !opened.is_directory {
        return Err(cannot(ErrorKind::NotADirectory)
            .hinting("mount the directory that contains the file, or copy it with haul cp"));
    }
    // A mount point that does not exist is reported by the mount.
    if let (Some(local), Ok(point)) = (&opened.local, point.canonicalize())
        && point.starts_with(local)
    {
        return Err(cannot(ErrorKind::InvalidInput)
            .because("the mount point is in it, so that the mount would contain itself")
            .hinting("choose a mount point elsewhere"));
    }
    Ok(())
}

fn print(location: &Location, point: &Path, read_only: bool, printer: &Printer) {
    let at = text::name(point.as_os_str().as_encoded_bytes()).to_string();
    if printer.is_json() {
        printer.object(&Mounted {
            event: "mounted",
            location: location.to_string(),
            mount_point: point.display().to_string(),
            read_only,
            pid: std::process::id(),
        });
    } else {
        let access = if read_only { "read-only" } else { "read-write" };
        printer.result(format!("mounted   {location}, {access}"));
        printer.result(format!("at        {at}"));
    }
    // The process that started it may be waiting for this output.
    printer.flush();
}
