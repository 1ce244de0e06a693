//! The threads of a server. All tasks of a connection run on one thread, so that passing data
//! between them wakes no other thread. There are as many threads as processors, at most 16; a
//! connection is assigned to the thread that has the fewest.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener, TcpStream as StdTcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, available_parallelism};

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::accept::Running;
use super::admission::{Admission, Admitted};

/// Most threads for connections.
const THREADS: usize = 16;

/// An accepted connection.
struct Arrival {
    socket: StdTcpStream,
    from: SocketAddr,
    admitted: Admitted,
}

/// A thread, as seen by the one that accepts connections.
struct Worker {
    arrivals: UnboundedSender<Arrival>,
    load: Arc<AtomicUsize>,
}

/// The threads of a server, which serve the connections assigned to them until the server stops.
pub struct Workers(Vec<Worker>);

impl Workers {
    /// Starts threads called `name`, which end with `running`. `serve` serves a connection; it must not block.
    ///
    /// # Errors
    /// If the system refuses a thread or its resources.
    pub fn start<F>(
        name: &str,
        running: &Running,
        serve: impl Fn(TcpStream, SocketAddr, Admitted, Running) -> F + Clone + Send + 'static,
    ) -> io::Result<Self>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let count = available_parallelism().map_or(2, usize::from).clamp(1, THREADS);
        let mut workers = Vec::new();
        for _ in 0..count {
            let (arrivals, receiver) = unbounded_channel();
            let load = Arc::<AtomicUsize>::default();
            let (serve, running, its_load) = (serve.clone(), running.clone(), Arc::clone(&load));
            spawn(name, move |runtime| {
                runtime.block_on(work(receiver, &its_load, serve, running));
            })?;
            workers.push(Worker { arrivals, load });
        }
        Ok(Self(workers))
    }

    /// Assigns a connection to the thread that has the fewest. It is dropped if the server has stopped.
    pub fn assign(&self, socket: TcpStream, from: SocketAddr, admitted: Admitted) {
        let least = self.0.iter().min_by_key(|worker| worker.load.load(Ordering::Relaxed));
        // If the socket fails here, the client has disconnected.
        if let (Some(worker), Ok(socket)) = (least, socket.into_std()) {
            worker.load.fetch_add(1, Ordering::Relaxed);
            // A thread ends only when the server stops.
            drop(worker.arrivals.send(Arrival { socket, from, admitted }));
        }
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Workers({})", self.0.len())
    }
}

/// Starts threads called `name`: one accepts connections until the server stops, the others serve them.
/// `serve` serves a connection that was admitted. `turn_away` gets one that was not, and may send a
/// response before it drops it. Neither may block.
///
/// # Errors
/// If the system refuses a thread or its resources.
pub fn start_workers<F>(
    name: &str,
    (listener, admission): (StdTcpListener, Arc<Admission>),
    running: &Running,
    serve: impl Fn(TcpStream, SocketAddr, Admitted, Running) -> F + Clone + Send + 'static,
    turn_away: impl Fn(TcpStream, SocketAddr) + Send + 'static,
) -> io::Result<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let workers = Workers::start(name, running, serve)?;
    let running = running.clone();
    spawn(name, move |runtime| {
        runtime.block_on(accept(listener, admission, workers, turn_away, running));
    })
}

fn spawn(name: &str, work: impl FnOnce(Runtime) + Send + 'static) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name(name.to_owned()).spawn(move || work(runtime)).map(drop)
}

/// Accepts connections and assigns each to the thread that has the fewest.
async fn accept(
    listener: StdTcpListener,
    admission: Arc<Admission>,
    workers: Workers,
    turn_away: impl Fn(TcpStream, SocketAddr),
    running: Running,
) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let assign = |socket: TcpStream, from, admitted| workers.assign(socket, from, admitted);
    running.accept(listener, &admission, assign, turn_away).await;
}

/// Serves the connections of one thread until the server stops and the last one has ended.
async fn work<F>(
    mut arrivals: UnboundedReceiver<Arrival>,
    load: &Arc<AtomicUsize>,
    serve: impl Fn(TcpStream, SocketAddr, Admitted, Running) -> F,
    mut running: Running,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(Arrival { socket, from, admitted }) = arrivals.recv() => {
                let loaded = Loaded(Arc::clone(load));
                // An error means that the client has disconnected.
                let Ok(socket) = TcpStream::from_std(socket) else { continue };
                let connection = serve(socket, from, admitted, running.clone());
                connections.spawn(async move {
                    connection.await;
                    drop(loaded);
                });
            }
            Some(_) = connections.join_next() => {}
            () = running.stopped() => break,
        }
    }
    while connections.join_next().await.is_some() {}
}

/// Counts a connection of a thread until it is dropped.
struct Loaded(Arc<AtomicUsize>);

impl Drop for Loaded {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::io::Read;
    use std::net::Ipv4Addr;
    use std::sync::Mutex;

    use tokio::io::AsyncWriteExt;

    use super::super::accept::Stopper;
    use super::*;

    #[tokio::test]
    async fn connections_are_spread_over_the_threads_and_end_with_the_server() {
        let listener = StdTcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (stopper, running) = Stopper::new();
        let threads = Arc::new(Mutex::new(HashSet::new()));
        let seen = Arc::clone(&threads);
        let count = available_parallelism().map_or(2, usize::from).clamp(1, THREADS);
        let admission = Admission::new(count, count);
        let serve = move |mut socket: TcpStream, _, admitted, mut running: Running| {
            seen.lock().unwrap().insert(thread::current().id());
            async move {
                socket.write_all(b"x").await.unwrap();
                running.stopped().await;
                drop((socket, admitted));
            }
        };
        start_workers("test", (listener, admission), &running, serve, |_, _| {}).unwrap();
        drop(running);
        let mut clients: Vec<_> = (0..count)
            .map(|_| {
                let mut client = StdTcpStream::connect(address).unwrap();
                client.read_exact(&mut [0]).unwrap();
                client
            })
            .collect();
        assert_eq!(threads.lock().unwrap().len(), count);
        let mut refused = StdTcpStream::connect(address).unwrap();
        assert_eq!(refused.read(&mut [0]).unwrap(), 0);
        stopper.stop().await;
        for client in &mut clients {
            assert_eq!(client.read(&mut [0]).unwrap(), 0);
        }
    }
}
