//! `haul serve`: serves a directory over SFTP or WebDAV.

mod dav;
mod given;
mod log;
mod sftp;

use crate::args::{ServeArgs, ServeProtocol};
use crate::exit::{Exit, Stop};
use crate::output::Printer;

/// Runs the server of the chosen protocol.
pub(crate) async fn run(args: &ServeArgs, printer: &Printer) -> Result<Exit, Stop> {
    match &args.protocol {
        ServeProtocol::Sftp(args) => sftp::run(args, printer).await,
        ServeProtocol::Dav(args) => dav::run(args, printer).await,
    }
}
