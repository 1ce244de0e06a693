//! `haul serve` serves a directory over SFTP or WebDAV, `haul share` serves files to peers, and `haul bridge` connects
//! peers.

mod addresses;
mod announced;
mod bridge;
mod bridged;
mod contents;
mod dav;
mod log;
mod mapped;
mod peer;
mod qr;
mod server_args;
mod sftp;
mod spool;
mod watch;
mod web;

pub(crate) use self::bridge::run as bridge;
pub(crate) use self::peer::run as share;
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
