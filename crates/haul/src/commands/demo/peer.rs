//! A share of the demo, which clients reach only through a bridge; both are in this process.

use std::path::{Path, PathBuf};

use haul_local::{LocalOptions, LocalStorage};
use haul_net::Secret as Token;
use haul_peer::bridge::{BridgeServer, Registration};
use haul_peer::identity::Identity;
use haul_peer::server::{Grant, PeerServer};
use haul_peer::ticket::{BridgeAddress, Secret, Ticket};
use haul_sftp::server::Password;
use haul_storage::{Error, ErrorKind};
use tokio::runtime::{Builder, Runtime};

use super::workspace::write_private;

/// A running share and its bridge.
#[derive(Debug)]
pub(super) struct Peer {
    server: PeerServer,
    bridge: BridgeServer,
    registration: Registration,
    /// The file that has the ticket: other users can see arguments.
    ticket: PathBuf,
    _threads: Threads,
}

/// The runtime of the registration: the demo's own thread is blocked while it waits for its children.
#[derive(Debug)]
struct Threads(Option<Runtime>);

impl Peer {
    /// Shares `directory`, writable. The ticket, which has no address but the bridge's, is in `home`.
    pub(super) async fn start(directory: &Path, home: &Path) -> Result<Self, Error> {
        let (_, token) = Password::random()?;
        let token = Token::new(token);
        let bridge = BridgeServer::builder().token(Some(token.clone()));
        let bridge = bridge.bind(&Identity::ephemeral()?).await?;
        let address = named(&bridge)?;
        let identity = Identity::ephemeral()?;
        let secret = Secret::generate()?;
        let storage = LocalStorage::open(directory, LocalOptions::default())?;
        let grant = Grant { writable: true, owners: true, ..Grant::new(secret.clone()) };
        let server = PeerServer::builder(storage, "demo").grant(grant).bridged();
        let server = server.bind(&identity).await?;
        let acceptor = server.acceptor().ok_or_else(failed)?;
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let threads = Threads(runtime.map(Some).map_err(|error| failed().with_source(error))?);
        let registration = Registration::builder(address.clone()).token(Some(token));
        let registration = registration.secret(secret.clone());
        let registering = threads
            .0
            .as_ref()
            .ok_or_else(failed)?
            .spawn(registration.start(move |stream, from| acceptor.accept(stream, from)));
        let registration = registering.await.map_err(|error| failed().with_source(error))??;
        let mut ticket = Ticket::new(identity.key(), secret);
        ticket.bridge = Some(address);
        let file = std::path::absolute(home.join("ticket"));
        let file = file.map_err(|error| failed().with_source(error))?;
        write_private(&file, &format!("{ticket}\n"))?;
        Ok(Self { server, bridge, registration, ticket: file, _threads: threads })
    }

    /// The location of `name` in the share.
    pub(super) fn location(&self, name: &str) -> String {
        format!("@{}/{name}", self.ticket.display())
    }

    /// Ends the share, then the bridge.
    pub(super) async fn stop(self) {
        drop(self.registration);
        self.server.end().await;
        self.bridge.stop().await;
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // A runtime must not wait for its tasks where it is dropped by an asynchronous function.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// The address of the bridge, with its key, for the ticket.
fn named(bridge: &BridgeServer) -> Result<BridgeAddress, Error> {
    let address = bridge.addresses().first().ok_or_else(failed)?.to_string();
    let address: BridgeAddress =
        address.parse().map_err(|error| failed().because(format!("{address}: {error}")))?;
    Ok(address.with_key(Some(bridge.key().0)))
}

fn failed() -> Error {
    Error::new(ErrorKind::Other, "start a share")
}
