//! Places on servers, whatever they speak.

use std::sync::Arc;

use haul_storage::{Error, ErrorKind, Location, Result, Scheme};

use super::Place;
use super::ftp::FtpPlaces;
use super::http::HttpPlaces;
use super::sftp::SftpPlaces;
use super::threads::LaneThreads;
use crate::args::RemoteArgs;
use crate::output::Printer;

/// Opens hosts, each once.
#[derive(Debug)]
pub(super) struct Remotes {
    sftp: SftpPlaces,
    http: HttpPlaces,
    ftp: FtpPlaces,
}

impl Remotes {
    /// Hosts as the options say, and the environment. `lanes` is how many a transfer will want over
    /// a long path.
    pub(super) fn new(remote: &RemoteArgs, printer: &Printer, lanes: usize) -> Self {
        let threads = Arc::new(LaneThreads::default());
        Self {
            sftp: SftpPlaces::new(&remote.ssh, printer, lanes, Arc::clone(&threads)),
            http: HttpPlaces::new(&remote.tls, printer, lanes, Arc::clone(&threads)),
            ftp: FtpPlaces::new(&remote.tls, printer, lanes, threads),
        }
    }

    /// Remembers what prints the password of a host.
    pub(super) fn password_command(&self, location: &Location, command: &str) {
        match protocol(location) {
            Some(Protocol::Sftp) => self.sftp.password_command(location, command),
            Some(Protocol::Http) => self.http.password_command(location, command),
            Some(Protocol::Ftp) => self.ftp.password_command(location, command),
            None => {}
        }
    }

    /// Opens what is there; links in the location are followed.
    pub(super) async fn existing(&self, location: &Location) -> Result<Place> {
        match protocol(location) {
            Some(Protocol::Sftp) => self.sftp.existing(location).await,
            Some(Protocol::Http) => self.http.existing(location).await,
            Some(Protocol::Ftp) => self.ftp.existing(location).await,
            None => Err(unsupported(location)),
        }
    }

    /// Opens a place to write to, which need not exist. `name` is that of the only source.
    pub(super) async fn destination(
        &self,
        location: &Location,
        name: Option<&[u8]>,
    ) -> Result<Place> {
        match protocol(location) {
            Some(Protocol::Sftp) => self.sftp.destination(location, name).await,
            Some(Protocol::Http) => self.http.destination(location).await,
            Some(Protocol::Ftp) => self.ftp.destination(location).await,
            None => Err(unsupported(location)),
        }
    }
}

enum Protocol {
    Sftp,
    Http,
    Ftp,
}

fn protocol(location: &Location) -> Option<Protocol> {
    let Location::Remote { scheme, .. } = location else { return None };
    Some(match scheme {
        Scheme::Sftp => Protocol::Sftp,
        Scheme::Http | Scheme::Https | Scheme::Dav | Scheme::Davs => Protocol::Http,
        Scheme::Ftp | Scheme::Ftps => Protocol::Ftp,
    })
}

/// `locate` lets nothing through that has no backend.
fn unsupported(location: &Location) -> Error {
    Error::new(ErrorKind::Unsupported, "open").at(location)
}
