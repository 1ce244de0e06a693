//! `haul mkdir`: creates directories.

use haul_storage::{Error, ErrorKind, StorageExt as _};

use crate::args::MkdirArgs;
use crate::backends::Places;
use crate::config::Config;
use crate::exit::{Exit, Stop};
use crate::output::Printer;

/// Runs `haul mkdir`.
pub(crate) async fn run(
    args: &MkdirArgs,
    config: &Config,
    printer: &Printer,
) -> Result<Exit, Stop> {
    let places = Places::for_names(config, &args.remote, printer)?;
    let locations = args.locations.iter().map(|location| places.locate(location));
    let mut exit = Exit::Done;
    for location in locations.collect::<Result<Vec<_>, _>>()? {
        // Whether the directory is new.
        let created = async {
            let place = places.destination(&location, None).await?;
            if place.exists {
                if place.is_directory && args.parents {
                    return Ok(false);
                }
                return Err(Error::new(ErrorKind::AlreadyExists, "create directory").at(&location));
            }
            if args.parents {
                return place.storage.create_dir_all(&place.path).await;
            }
            place.storage.create_dir(&place.path).await.map(|()| true)
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
