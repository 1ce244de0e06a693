//! The client of a connection, and its share of resources.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use haul_net::Admitted;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::Semaphore;

use super::limits;

/// The client of a connection.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) from: SocketAddr,
    pub(super) admitted: Admitted,
    /// Permits for blocks that are read and not yet sent; see `file_body`.
    pub(super) ahead: Arc<Semaphore>,
    /// A duplicate of the socket; `None` if the system has no further file descriptor.
    socket: Option<OwnedFd>,
}

impl Client {
    pub(super) fn new(socket: impl AsFd, from: SocketAddr, admitted: Admitted) -> Arc<Self> {
        let ahead = Arc::new(Semaphore::new(limits::AHEAD_OF_ALL));
        let socket = socket.as_fd().try_clone_to_owned().ok();
        Arc::new(Self { from, admitted, ahead, socket })
    }

    /// Whether the client has closed its sending side. It may still read the responses it has requested, so only
    /// long work of little value is abandoned for that.
    pub(super) fn has_closed(&self) -> bool {
        let Some(socket) = &self.socket else { return false };
        let wanted = PollFlags::RDHUP;
        let mut sockets = [PollFd::new(socket, wanted)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let found = poll(&mut sockets, Some(&now)).is_ok_and(|ready| ready > 0);
        found && sockets[0].revents().intersects(wanted | PollFlags::HUP | PollFlags::ERR)
    }
}
