//! What is told about the clients of a server. The server keeps no log; it tells an observer, from whichever
//! thread it happens on.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// Something about a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientEvent<A> {
    /// Where it comes from.
    pub address: SocketAddr,
    /// What it did, or what was done to it.
    pub action: A,
}

/// Who is told. It must not block: the server's threads call it.
pub struct Observer<A>(Arc<dyn Fn(ClientEvent<A>) + Send + Sync>);

impl<A: 'static> Observer<A> {
    /// Calls `told` with each event.
    pub fn new(told: impl Fn(ClientEvent<A>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(told))
    }

    /// Tells it.
    pub fn tell(&self, address: SocketAddr, action: A) {
        (self.0)(ClientEvent { address, action });
    }
}

impl<A> Clone for Observer<A> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<A: 'static> Default for Observer<A> {
    /// Nobody.
    fn default() -> Self {
        Self::new(drop)
    }
}

impl<A> fmt::Debug for Observer<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}
