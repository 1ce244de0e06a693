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
    /// Permits for blocks read ahead of what the client takes; see `file_body`.
    pub(super) ahead: Arc<Semaphore>,
    /// The socket once more; `None` if the system gave no further descriptor.
    socket: Option<OwnedFd>,
}

impl Client {
    pub(super) fn new(socket: impl AsFd, from: SocketAddr, admitted: Admitted) -> Arc<Self> {
        let ahead = Arc::new(Semaphore::new(limits::AHEAD_OF_ALL));
        let socket = socket.as_fd().try_clone_to_owned().ok();
        Arc::new(Self { from, admitted, ahead, socket })
    }

    /// Whether it sends nothing more. It may still want what it has asked for: only work that is long and worth
    /// little is given up for that.
    pub(super) fn has_closed(&self) -> bool {
        let Some(socket) = &self.socket else { return false };
        let wanted = PollFlags::RDHUP;
        let mut sockets = [PollFd::new(socket, wanted)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let found = poll(&mut sockets, Some(&now)).is_ok_and(|ready| ready > 0);
        found && sockets[0].revents().intersects(wanted | PollFlags::HUP | PollFlags::ERR)
    }
}
