//! The far end of the demo: a server in this process, and a home directory with its clients' credentials.

use std::fs;
use std::path::Path;

use haul_http::server::{self as dav, DavServer};
use haul_sftp::server::{AuthorizedKeys, Credentials, HostKey, Password, SftpServer};
use haul_storage::Error;

use super::peer::Peer;
use super::workspace::write_private;

/// The only user who may log in.
const USER: &str = "demo";

/// A running server.
#[derive(Debug)]
pub(super) enum Far {
    Sftp(SftpServer),
    Dav(DavServer),
    Peer(Box<Peer>),
}

impl Far {
    /// Serves `directory` on the loopback interface. Clients log in with a key generated for this run; it
    /// and the server's public key are in `home`, where a client looks for them.
    pub(super) async fn sftp(directory: &Path, home: &Path) -> Result<Self, Error> {
        make(directory)?;
        let key = HostKey::read_or_create(&home.join(".ssh/id_ed25519"))?;
        let keys = AuthorizedKeys::parse(&key.public_line()?);
        let credentials = Credentials::new(USER).with_keys(keys);
        let server = SftpServer::builder(directory).credentials(credentials).bind().await?;
        let address = server.address();
        let known = home.join(".ssh/known_hosts");
        let line = format!("[{}]:{} {}\n", address.ip(), address.port(), server.public_key());
        fs::write(&known, line)
            .map_err(|error| Error::from_io("write", error).at(known.display()))?;
        Ok(Self::Sftp(server))
    }

    /// Serves `directory` on the loopback interface. Clients log in with a password generated for this run,
    /// which is in `home`, where a client looks for it.
    pub(super) async fn dav(directory: &Path, home: &Path) -> Result<Self, Error> {
        make(directory)?;
        let (_, password) = Password::random()?;
        let credentials = dav::Credentials::new(USER, &password);
        let line = format!("machine 127.0.0.1 login {USER} password {password}\n");
        write_private(&home.join(".netrc"), &line)?;
        let builder = DavServer::builder(directory).credentials(credentials);
        Ok(Self::Dav(builder.bind().await?))
    }

    /// Shares `directory` through a bridge on the loopback interface. The ticket is in `home`.
    pub(super) async fn peer(directory: &Path, home: &Path) -> Result<Self, Error> {
        make(directory)?;
        Ok(Self::Peer(Box::new(Peer::start(directory, home).await?)))
    }

    /// The location of `name` in the served directory.
    pub(super) fn location(&self, name: &str) -> String {
        let (scheme, address) = match self {
            Self::Sftp(server) => ("sftp", server.address()),
            Self::Dav(server) => ("dav", server.address()),
            Self::Peer(peer) => return peer.location(name),
        };
        format!("{scheme}://{USER}@{address}/{name}")
    }

    /// Stops the server, and returns when no client is connected any longer.
    pub(super) async fn stop(self) {
        match self {
            Self::Sftp(server) => server.stop().await,
            Self::Dav(server) => server.stop().await,
            Self::Peer(peer) => peer.stop().await,
        }
    }
}

fn make(directory: &Path) -> Result<(), Error> {
    fs::create_dir(directory).map_err(|error| Error::from_io("make", error).at(directory.display()))
}
