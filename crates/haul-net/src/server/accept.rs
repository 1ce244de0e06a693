//! Lifecycle of a server: it accepts connections until it is stopped, and has ended when all of
//! them have.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::sleep;

use super::admission::{Admission, Admitted};

/// Pause after a failed accept, which usually means that no descriptors are left.
const PAUSE: Duration = Duration::from_millis(100);

/// Stops a server. Dropping it stops the server without waiting.
#[derive(Debug)]
pub struct Stopper {
    stop: watch::Sender<bool>,
    /// Closed when the last [`Running`] is gone.
    ended: UnboundedReceiver<()>,
}

/// Held by each thread and connection of a server while it runs.
#[derive(Debug, Clone)]
pub struct Running {
    stopping: watch::Receiver<bool>,
    _alive: UnboundedSender<()>,
}

impl Stopper {
    /// Creates the stopper of a new server, and the first [`Running`].
    pub fn new() -> (Self, Running) {
        let (stop, stopping) = watch::channel(false);
        let (alive, ended) = unbounded_channel();
        (Self { stop, ended }, Running { stopping, _alive: alive })
    }

    /// Signals all threads and connections to end, and returns when they have.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.ended.recv().await.is_some() {}
    }
}

impl Drop for Stopper {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

impl Running {
    /// Waits until the server is stopped.
    pub async fn stopped(&mut self) {
        // A dropped stopper stops the server, too.
        let _ = self.stopping.wait_for(|is_stopping| *is_stopping).await;
    }

    /// Accepts connections until the server is stopped. Admitted connections are passed to `serve`,
    /// others to `turn_away`; neither may block.
    pub async fn accept(
        mut self,
        listener: TcpListener,
        admission: &Arc<Admission>,
        mut serve: impl FnMut(TcpStream, SocketAddr, Admitted),
        mut turn_away: impl FnMut(TcpStream, SocketAddr),
    ) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = self.stopped() => return,
            };
            let Ok((socket, from)) = accepted else {
                sleep(PAUSE).await;
                continue;
            };
            match admission.enter(from.ip()) {
                Some(admitted) => serve(socket, from, admitted),
                None => turn_away(socket, from),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Mutex;

    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn a_server_ends_with_its_last_connection() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stopper, running) = Stopper::new();
        let admission = Admission::new(1, 1);
        let served = Arc::new(Mutex::new(Vec::new()));
        let (tasks, of_connection) = (Arc::clone(&served), running.clone());
        let accepting = tokio::spawn(async move {
            let serve = |socket, _, admitted| {
                let mut running = of_connection.clone();
                tasks.lock().unwrap().push(tokio::spawn(async move {
                    running.stopped().await;
                    drop((socket, admitted));
                }));
            };
            running.accept(listener, &admission, serve, |socket, _| drop(socket)).await;
        });
        let mut first = TcpStream::connect(address).await.unwrap();
        let mut second = TcpStream::connect(address).await.unwrap();
        assert_eq!(second.read(&mut [0]).await.unwrap(), 0, "only one connection is admitted");
        stopper.stop().await;
        assert_eq!(first.read(&mut [0]).await.unwrap(), 0);
        accepting.await.unwrap();
        assert_eq!(served.lock().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn dropping_the_stopper_stops_the_server() {
        let (stopper, mut running) = Stopper::new();
        drop(stopper);
        running.stopped().await;
    }
}
