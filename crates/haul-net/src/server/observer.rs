//! Events about the clients of a server. The server has no log of its own: it calls an observer, on the thread on which
//! an event occurs.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// An event about a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientEvent<A> {
    /// The client's address, or that of the bridge that the event is about.
    pub address: SocketAddr,
    /// What the client did, or how the server reacted.
    pub action: A,
}

/// A callback for events. It must not block, since threads of the server call it.
pub struct Observer<A>(Arc<dyn Fn(ClientEvent<A>) + Send + Sync>);

impl<A: 'static> Observer<A> {
    /// Calls `callback` with each event.
    pub fn new(callback: impl Fn(ClientEvent<A>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(callback))
    }

    /// Reports an event.
    pub fn notify(&self, address: SocketAddr, action: A) {
        (self.0)(ClientEvent { address, action });
    }
}

impl<A> Clone for Observer<A> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<A: 'static> Default for Observer<A> {
    /// An observer that ignores all events.
    fn default() -> Self {
        Self::new(drop)
    }
}

impl<A> fmt::Debug for Observer<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}
