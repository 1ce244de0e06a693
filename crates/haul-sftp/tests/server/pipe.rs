//! An SFTP session over two in-memory channels, and a client that talks to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use futures_util::stream;
use haul_sftp::codec::{
    Attrs, Deframer, Extended, Extensions, Frame, Handle, OpenFlags, Request, Response, Status,
};
use haul_sftp::server::{Closed, Outgoing, SessionError, Share, ShareOptions, serve_channel};
use haul_storage::Block;
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

/// A temporary directory with a served subdirectory, and a file `secret` next to it that no client may reach.
pub(crate) struct ServedDir {
    outer: TempDir,
}

impl ServedDir {
    pub(crate) fn new() -> Self {
        let outer = tempfile::tempdir().unwrap();
        fs::create_dir(outer.path().join("served")).unwrap();
        fs::write(outer.path().join("secret"), "secret").unwrap();
        Self { outer }
    }

    /// A path below the directory that contains the served one.
    pub(crate) fn outside(&self, path: &str) -> PathBuf {
        self.outer.path().canonicalize().unwrap().join(path)
    }

    pub(crate) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.outside("served").join(path)
    }

    pub(crate) fn share(&self, options: ShareOptions) -> Arc<Share> {
        Arc::new(Share::open(&self.path(""), options).unwrap())
    }

    /// A session with default options, after INIT.
    pub(crate) async fn session(&self) -> Client {
        Client::begin(&self.share(ShareOptions::default())).await
    }
}

/// The client's end of a session.
pub(crate) struct Client {
    to_server: Option<UnboundedSender<Bytes>>,
    from_server: UnboundedReceiver<Bytes>,
    connection: Option<Arc<()>>,
    deframer: Deframer,
    pub(crate) task: JoinHandle<Result<(), SessionError>>,
    next_id: u32,
}

struct Pipe(UnboundedSender<Bytes>, Weak<()>);

impl Outgoing for Pipe {
    async fn send(&mut self, bytes: Bytes) -> Result<(), Closed> {
        self.0.send(bytes).map_err(|_| Closed)
    }

    fn client(&self) -> Weak<()> {
        self.1.clone()
    }
}

impl Client {
    /// A session in which the client has not sent INIT yet.
    pub(crate) fn connect(share: &Arc<Share>) -> Self {
        let (to_server, incoming) = unbounded_channel();
        let (outgoing, from_server) = unbounded_channel();
        let incoming = Box::pin(stream::unfold(incoming, |mut incoming| async move {
            incoming.recv().await.map(|piece| (piece, incoming))
        }));
        let connection = Some(Arc::new(()));
        let pipe = Pipe(outgoing, connection.as_ref().map(Arc::downgrade).unwrap_or_default());
        let task = tokio::spawn(serve_channel(Arc::clone(share), incoming, pipe));
        let (to_server, deframer) = (Some(to_server), Deframer::new(1 << 20));
        Self { to_server, from_server, connection, deframer, task, next_id: 1 }
    }

    pub(crate) async fn begin(share: &Arc<Share>) -> Self {
        let mut client = Self::connect(share);
        let init = Request::Init { version: 3, extensions: Extensions::default() };
        client.send_raw(init.encode(0));
        assert!(matches!(client.response().await, Some((0, Response::Version { version: 3, .. }))));
        client
    }

    /// Sends bytes as they are.
    pub(crate) fn send_raw(&self, bytes: impl Into<Bytes>) {
        // A closed session is not an error here: tests check for it themselves.
        let _ = self.to_server.as_ref().unwrap().send(bytes.into());
    }

    /// Sends a request and returns its id.
    pub(crate) fn send(&mut self, request: &Request) -> u32 {
        let id = self.next_id;
        self.next_id += 1;
        self.send_raw(request.encode(id));
        for piece in request.payload().map(Block::pieces).unwrap_or_default() {
            self.send_raw(piece.clone());
        }
        id
    }

    /// Closes the client's sending side.
    pub(crate) fn close(&mut self) {
        self.to_server = None;
    }

    /// Ends the connection as far as the server can see. Responses that it still sends arrive.
    pub(crate) fn disconnect(&mut self) {
        drop(self.connection.take());
    }

    /// The next response in order of arrival, with its id; `None` at the end of the session.
    pub(crate) async fn response(&mut self) -> Option<(u32, Response)> {
        loop {
            if let Some(frame) = self.frame() {
                return Some(Response::decode(frame).unwrap());
            }
            self.deframer.push(self.from_server.recv().await?);
        }
    }

    /// The number of pieces the server has sent and the client has not received yet.
    pub(crate) fn unreceived(&self) -> usize {
        self.from_server.len()
    }

    fn frame(&mut self) -> Option<Frame> {
        self.deframer.next_frame().unwrap()
    }

    /// Sends a request and waits for its response, which must be the next one.
    pub(crate) async fn call(&mut self, request: &Request) -> Response {
        let id = self.send(request);
        let (received, response) = self.response().await.unwrap();
        assert_eq!(received, id);
        response
    }

    /// Sends a request whose response must be a status.
    pub(crate) async fn status(&mut self, request: &Request) -> Status {
        match self.call(request).await {
            Response::Status { status, .. } => status,
            other => panic!("{request:?} gave {other:?}"),
        }
    }

    pub(crate) async fn open(&mut self, path: &str, flags: OpenFlags) -> Handle {
        match self.call(&open(path, flags)).await {
            Response::Handle(handle) => handle,
            other => panic!("opening {path} gave {other:?}"),
        }
    }

    /// The content of a file of at most 200 000 bytes.
    pub(crate) async fn content(&mut self, path: &str) -> Vec<u8> {
        let handle = self.open(path, OpenFlags::READ).await;
        let read = Request::Read { handle: handle.clone(), offset: 0, length: 200_000 };
        let content = match self.call(&read).await {
            Response::Data(block) => block.into_bytes().to_vec(),
            Response::Status { status: Status::Eof, .. } => Vec::new(),
            other => panic!("reading {path} gave {other:?}"),
        };
        assert_eq!(self.status(&Request::Close(handle)).await, Status::Ok);
        content
    }

    /// Sends a request whose response is a single path (REALPATH, READLINK).
    pub(crate) async fn path(&mut self, request: &Request) -> Vec<u8> {
        match self.call(request).await {
            Response::Names(names) => names[0].name.to_vec(),
            other => panic!("{request:?} gave {other:?}"),
        }
    }
}

pub(crate) fn open(path: &str, flags: OpenFlags) -> Request {
    Request::Open { path: bytes(path), flags, attrs: Attrs::default() }
}

pub(crate) fn write(handle: &Handle, offset: u64, data: impl Into<Bytes>) -> Request {
    Request::Write { handle: handle.clone(), offset, data: Block::from(data.into()) }
}

pub(crate) fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

pub(crate) fn posix_rename(from: &str, to: &str) -> Request {
    Request::Extended(Extended::PosixRename { from: bytes(from), to: bytes(to) })
}

pub(crate) const NEW: OpenFlags = OpenFlags::WRITE.and(OpenFlags::CREATE).and(OpenFlags::TRUNCATE);
