//! Keys in an agent. Each request opens the socket again, so that a restarted agent is found, and
//! many connections can authenticate at once.

use std::path::Path;
use std::time::Duration;

use haul_storage::{Error, ErrorKind, Result};
use russh::keys::HashAlg;
use russh::keys::agent::AgentIdentity;
use russh::keys::agent::client::AgentClient;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// Timeout for listing keys. Signing has no limit, since the agent may prompt its user.
const LISTING: Duration = Duration::from_secs(5);

/// The keys in an agent, in its order; none without an agent. `Err` is a message.
pub async fn list(socket: Option<&Path>) -> Result<Vec<AgentIdentity>, String> {
    let Some(socket) = socket else { return Ok(Vec::new()) };
    let listing = async { connect(socket).await?.request_identities().await };
    match timeout(LISTING, listing).await {
        Ok(Ok(identities)) => Ok(identities),
        Ok(Err(error)) => Err(format!("agent {}: {error}", socket.display())),
        Err(_) => Err(format!("agent {}: no response", socket.display())),
    }
}

/// Has an agent sign `data`; returns `data` followed by the signature.
pub async fn sign(
    socket: &Path,
    identity: &AgentIdentity,
    hash: Option<HashAlg>,
    data: Vec<u8>,
) -> Result<Vec<u8>> {
    let signing = async { connect(socket).await?.sign_request(identity, hash, data).await };
    signing.await.map_err(|error| {
        Error::new(ErrorKind::Unauthenticated, "have the agent sign")
            .at(socket.display())
            .with_source(error)
    })
}

async fn connect(socket: &Path) -> Result<AgentClient<UnixStream>, russh::keys::Error> {
    AgentClient::connect_uds(socket).await
}
