//! The far end of the demo: a server in this process, and a home for its clients that knows it.

use std::fs;
use std::path::Path;

use haul_sftp::server::{AuthorizedKeys, Credentials, HostKey, SftpServer};
use haul_storage::Error;

/// The only one who may log in.
const USER: &str = "demo";

/// A running server.
#[derive(Debug)]
pub(super) struct Far {
    server: SftpServer,
}

impl Far {
    /// Serves `directory` on the loopback interface. Who may log in is a key made for this run, which
    /// lies with the server's own in `home` where a client looks for them.
    pub(super) async fn sftp(directory: &Path, home: &Path) -> Result<Self, Error> {
        fs::create_dir(directory)
            .map_err(|error| Error::from_io("make", error).at(directory.display()))?;
        let key = HostKey::read_or_create(&home.join(".ssh/id_ed25519"))?;
        let keys = AuthorizedKeys::parse(&key.public_line()?);
        let credentials = Credentials::new(USER).with_keys(keys);
        let server = SftpServer::builder(directory).credentials(credentials).bind().await?;
        let address = server.address();
        let known = home.join(".ssh/known_hosts");
        let line = format!("[{}]:{} {}\n", address.ip(), address.port(), server.public_key());
        fs::write(&known, line)
            .map_err(|error| Error::from_io("write", error).at(known.display()))?;
        Ok(Self { server })
    }

    /// Something in its directory, as a location.
    pub(super) fn location(&self, name: &str) -> String {
        format!("sftp://{USER}@{}/{name}", self.server.address())
    }

    /// Ends it, and returns when nobody is connected any longer.
    pub(super) async fn stop(self) {
        self.server.stop().await;
    }
}
