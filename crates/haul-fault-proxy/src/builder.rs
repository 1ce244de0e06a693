//! The settings of a proxy before it starts.
//!
//! `start` opens the listener, so that its errors are returned to the test, and passes it to the thread.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;

use crate::engine::Engine;
use crate::rules::{Effect, Rules};
use crate::shared::{Shared, State};
use crate::{Connections, Direction, Fault, FaultProxy};

/// The default, in bytes: 64 MiB carry 670 MB/s at a delay of 100 ms.
const LINE_CAPACITY: usize = 64 * 1024 * 1024;

/// A proxy that has not been started. See [`FaultProxy::to`].
#[derive(Debug)]
#[must_use = "a proxy does nothing before it is started"]
pub struct Builder {
    server: SocketAddr,
    ipv6: bool,
    line_capacity: usize,
    rules: Rules,
}

impl FaultProxy {
    /// Begins a proxy that forwards to `server`.
    pub const fn to(server: SocketAddr) -> Builder {
        Builder { server, ipv6: false, line_capacity: LINE_CAPACITY, rules: Rules::new(0) }
    }
}

impl Builder {
    /// Listens on `::1` instead of 127.0.0.1. The server may use either protocol.
    pub const fn on_ipv6(mut self) -> Self {
        self.ipv6 = true;
        self
    }

    /// The seed of all randomness; 0 by default.
    pub const fn seed(mut self, seed: u64) -> Self {
        self.rules.seed = seed;
        self
    }

    /// At most `bytes` may be in flight in one direction of one connection; then the sending side has to
    /// wait. The default is 64 MiB. With a delay it bounds the throughput: capacity divided by delay.
    pub const fn line_capacity(mut self, bytes: usize) -> Self {
        self.line_capacity = bytes;
        self
    }

    /// See [`FaultProxy::set`].
    pub fn set(mut self, connections: Connections, direction: Direction, fault: Fault) -> Self {
        self.rules.add(connections, Effect::Stream(direction, fault));
        self
    }

    /// See [`FaultProxy::refuse`].
    pub fn refuse(mut self, connections: Connections) -> Self {
        self.rules.add(connections, Effect::Refuse);
        self
    }

    /// See [`FaultProxy::limit_open`].
    pub fn limit_open(mut self, limit: u64) -> Self {
        self.rules.add(Connections::All, Effect::LimitOpen(limit));
        self
    }

    /// See [`FaultProxy::stall`].
    pub fn stall(mut self, connections: Connections) -> Self {
        self.rules.add(connections, Effect::Stall);
        self
    }

    /// Listens on a free port, and forwards from now on.
    ///
    /// # Errors
    /// Those of opening the listener, of making a pipe, and of starting a thread. An unreachable server is
    /// not an error here: each connection fails.
    pub fn start(self) -> io::Result<FaultProxy> {
        let listener = if self.ipv6 {
            TcpListener::bind((Ipv6Addr::LOCALHOST, 0))?
        } else {
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        };
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (bell_reader, bell_writer) = io::pipe()?;
        let shared = Arc::new(Shared::new(State::new(self.rules, self.line_capacity), bell_writer));
        let engine = Engine::new(listener, self.server, bell_reader, Arc::clone(&shared));
        let thread =
            thread::Builder::new().name("fault-proxy".to_owned()).spawn(move || engine.run())?;
        Ok(FaultProxy::new(address, shared, thread))
    }
}
