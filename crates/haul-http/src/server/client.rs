//! The client of a connection, and its share of resources.

use std::net::SocketAddr;
use std::sync::Arc;

use haul_net::Admitted;
use tokio::sync::Semaphore;

use super::limits;

/// The client of a connection.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) from: SocketAddr,
    pub(super) admitted: Admitted,
    /// Permits for blocks read ahead of what the client takes; see `file_body`.
    pub(super) ahead: Arc<Semaphore>,
}

impl Client {
    pub(super) fn new(from: SocketAddr, admitted: Admitted) -> Arc<Self> {
        Arc::new(Self { from, admitted, ahead: Arc::new(Semaphore::new(limits::AHEAD_OF_ALL)) })
    }
}
