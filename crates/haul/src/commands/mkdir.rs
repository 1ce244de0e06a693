//! `haul mkdir`: creates directories.

use haul_storage::{Error, ErrorKind, StorageExt as _};

use crate::args::MkdirArgs;
use crate::backends::Storages;
use crate::config::Config;
use crate::exit::{Exit, Stop};
use crate::output::Printer;

/// Runs `haul mkdir`.
pub(crate) async fn run(
    args: &MkdirArgs,
    config: &Config,
    printer: &Printer,
) -> Result<Exit, Stop> {
    let storages = Storages::for_names(config, &args.remote, printer)?;
    let locations = args.locations.iter().map(|location| storages.locate(location));
    let mut exit = Exit::Done;
    for location in locations.collect::<Result<Vec<_>, _>>()? {
        // Whether the directory is new.
        let created = async {
            let opened = storages.destination(&location, None).await?;
            if opened.exists {
                if opened.is_directory && args.parents {
                    return Ok(false);
                }
                return Err(Error::new(ErrorKind::AlreadyExists, "create directory").at(&location));
            }
            if args.parents {
                return opened.storage.create_dir_all(&opened.path).await;
            }
            opened.storage.create_dir(&opened.path).await.map(|()| true)
        };
        match created.await {
            Ok(true) if printer.is_verbose() && !printer.is_json() => {
                printer.result(format!("created {location}"));
            }
            Ok(_) => {}
            Err(error) => {
                printer.failure(&error.at(&location));
                exit = Exit::Failed;
            }
        }
    }
    Ok(exit)
}
