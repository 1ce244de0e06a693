//! Reads requests, has them handled, and sends the responses.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use futures_util::FutureExt as _;
use haul_storage::{Error, Result};
use rustix::io::Errno;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::sleep;

use super::device::Device;
use super::in_flight::InFlight;
use super::signals;
use crate::fuse::{
    Body, Header, MAX_REQUEST, Negotiated, Operation, Reply, Request, negotiate, outdated,
};

/// The kernel refuses to write a request into a buffer that is smaller than the longest one.
const BUFFER: usize = MAX_REQUEST as usize + 4096;

/// How long a request goes on after a signal; after a harmless one, how often to look for others.
const GRACE: Duration = Duration::from_millis(500);

/// Handles requests.
pub(crate) trait Handler: Send + Sync + 'static {
    /// Handles a request without waiting; `None` if it has to wait.
    fn handle_now(self: &Arc<Self>, request: &Request) -> Option<Reply>;

    /// Handles a request. The future is dropped if the process is interrupted.
    fn handle(self: Arc<Self>, request: Request) -> impl Future<Output = Reply> + Send;

    /// A response did not reach the kernel, which therefore has no references to the nodes in the response, and will
    /// not close the handle in it.
    fn undelivered(&self, reply: &Reply);
}

/// The connection to the kernel. Dropping it ends it: processes that use the mount get errors.
#[derive(Debug)]
pub(crate) struct Session {
    device: Arc<Device>,
    in_flight: Arc<InFlight>,
    threads: Vec<JoinHandle<()>>,
    ended: watch::Receiver<Option<End>>,
}

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The file system was unmounted, or the session was stopped.
    Unmounted,
    /// Root has ended the connection, while files may be open.
    Aborted,
    /// The kernel supports none of the versions of the protocol.
    TooOld,
    /// Reading requests failed, with this errno.
    Failed(i32),
}

impl Session {
    /// Starts to serve `device` on `threads` threads; tasks run on `runtime`.
    ///
    /// # Errors
    /// If threads cannot be started.
    pub(crate) fn start<H: Handler>(
        device: Device,
        handler: &Arc<H>,
        threads: usize,
        runtime: &Handle,
    ) -> Result<Self> {
        let (device, in_flight) = (Arc::new(device), Arc::new(InFlight::default()));
        let (end, ended) = watch::channel(None);
        let mut session = Self { device, in_flight, threads: Vec::new(), ended };
        let end = Arc::new(end);
        for _ in 0..threads.max(1) {
            let served = Served {
                device: Arc::clone(&session.device),
                in_flight: Arc::clone(&session.in_flight),
                handler: Arc::clone(handler),
                runtime: runtime.clone(),
                end: Arc::clone(&end),
            };
            let thread = thread::Builder::new().name("fuse".to_owned());
            let thread = thread.spawn(move || served.run());
            session.threads.push(thread.map_err(|error| Error::from_io("start threads", error))?);
        }
        Ok(session)
    }

    /// A function that sends notices, and does not wait: the kernel may hold locks during requests, so threads of
    /// `runtime` that may block send them.
    pub(crate) fn notifier(&self, runtime: &Handle) -> impl Fn(Vec<u8>) + Send + Sync + 'static {
        let (device, runtime) = (Arc::downgrade(&self.device), runtime.clone());
        move |notice| {
            let device = device.clone();
            runtime.spawn_blocking(move || {
                if let Some(device) = device.upgrade() {
                    device.notify(&notice);
                }
            });
        }
    }

    /// Whether the kernel has ended it: the file system was unmounted, and all its files are closed.
    pub(crate) fn was_unmounted(&self) -> bool {
        *self.ended.borrow() == Some(End::Unmounted)
    }

    /// Waits until the session has ended.
    pub(crate) async fn ended(&self) -> End {
        let mut ended = self.ended.clone();
        let end = ended.wait_for(Option::is_some).await;
        end.ok().and_then(|end| *end).unwrap_or(End::Unmounted)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.device.stop();
        for thread in self.threads.drain(..) {
            // A thread that has panicked has ended, too.
            drop(thread.join());
        }
        self.in_flight.abort_all();
    }
}

/// What one thread needs.
struct Served<H> {
    device: Arc<Device>,
    in_flight: Arc<InFlight>,
    handler: Arc<H>,
    runtime: Handle,
    end: Arc<watch::Sender<Option<End>>>,
}

impl<H: Handler> Served<H> {
    fn run(&self) {
        let mut buffer = vec![0; BUFFER];
        let end = loop {
            match self.device.receive(&mut buffer) {
                Ok(Some(length)) => {
                    if let Some(end) = self.take(&buffer[..length]) {
                        break end;
                    }
                }
                Ok(None) => break End::Unmounted,
                Err(error) if number(&error) == Errno::CONNABORTED.raw_os_error() => {
                    break End::Aborted;
                }
                Err(error) => break End::Failed(number(&error)),
            }
        };
        // The first thread that ends knows why. The others end after it, because the device is stopped.
        self.end.send_if_modified(|ended| {
            let is_first = ended.is_none();
            ended.get_or_insert(end);
            is_first
        });
        self.device.stop();
    }

    /// Handles what was read. Returns how the session ended, if it did.
    fn take(&self, bytes: &[u8]) -> Option<End> {
        let Ok(request) = Request::decode(bytes) else {
            if let Some(unique) = Request::number(bytes) {
                self.device.send(unique, Some(Errno::IO), &[]);
            }
            return None;
        };
        let unique = request.header.unique;
        match request.operation {
            Operation::Init(offered) => match negotiate(&offered) {
                Negotiated::Ready(body) | Negotiated::Again(body) => {
                    self.device.send(unique, None, &[&body]);
                    None
                }
                Negotiated::TooOld => {
                    self.device.send(unique, Some(Errno::PROTO), &[]);
                    Some(End::TooOld)
                }
            },
            Operation::Interrupt(other) => {
                self.interrupt(unique, other);
                None
            }
            Operation::Destroy => {
                self.device.send(unique, None, &[]);
                None
            }
            _ => {
                self.handle(request);
                None
            }
        }
    }

    /// Aborts a request, unless it is done soon, or only harmless signals are pending. The kernel sends this for the
    /// first signal, also for that of a timer, after which no program expects `EINTR` from `rename` or `ftruncate`.
    fn interrupt(&self, unique: u64, other: u64) {
        if self.in_flight.thread(other).is_none() {
            // Another thread may have read that request and not yet begun: on EAGAIN, the kernel repeats the INTERRUPT,
            // unless that request has got its response.
            self.device.send(unique, Some(Errno::AGAIN), &[]);
            return;
        }
        // A weak reference: the device is closed when the session ends, not after the pause.
        let (device, in_flight) = (Arc::downgrade(&self.device), Arc::clone(&self.in_flight));
        self.runtime.spawn(async move {
            loop {
                sleep(GRACE).await;
                let Some(thread) = in_flight.thread(other) else { return };
                if signals::is_stopped(thread) {
                    break;
                }
            }
            if in_flight.abort(other)
                && let Some(device) = device.upgrade()
            {
                device.send(other, Some(Errno::INTR), &[]);
            }
        });
    }

    fn handle(&self, request: Request) {
        let Header { unique, thread, .. } = request.header;
        if let Some(reply) = self.handler.handle_now(&request) {
            respond(&self.device, &*self.handler, unique, &reply);
            return;
        }
        let handler = Arc::clone(&self.handler);
        let (device, in_flight) = (Arc::clone(&self.device), Arc::clone(&self.in_flight));
        self.in_flight.spawn(&self.runtime, (unique, thread), async move {
            let reply = AssertUnwindSafe(Arc::clone(&handler).handle(request)).catch_unwind();
            // After a panic the process gets an error; the others are not affected.
            let reply = reply.await.unwrap_or_else(|_| Reply::from(Errno::IO));
            if in_flight.take(unique) {
                respond(&device, &*handler, unique, &reply);
            } else {
                handler.undelivered(&reply);
            }
        });
    }
}

fn respond(device: &Device, handler: &impl Handler, unique: u64, reply: &Reply) {
    if let Some(node) = reply.outdated {
        device.notify(&outdated(node));
    }
    let delivered = match &reply.body {
        Body::None => true,
        Body::Error(errno) => device.send(unique, Some(*errno), &[]),
        Body::Bytes(bytes) => device.send(unique, None, &[bytes]),
        Body::Data(block) => {
            let pieces: Vec<&[u8]> = block.pieces().iter().map(|piece| &piece[..]).collect();
            device.send(unique, None, &pieces)
        }
    };
    if !delivered {
        handler.undelivered(reply);
    }
}

fn number(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or_else(|| Errno::IO.raw_os_error())
}
