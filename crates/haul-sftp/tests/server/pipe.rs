//! A session over two channels in memory, and the client's end of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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

/// A directory `served` in a directory of its own, with something beside it.
pub(crate) struct Ground {
    outer: TempDir,
}

impl Ground {
    pub(crate) fn new() -> Self {
        let outer = tempfile::tempdir().unwrap();
        fs::create_dir(outer.path().join("served")).unwrap();
        fs::write(outer.path().join("secret"), "secret").unwrap();
        Self { outer }
    }

    /// The directory around the served one.
    pub(crate) fn outside(&self, path: &str) -> PathBuf {
        self.outer.path().canonicalize().unwrap().join(path)
    }

    pub(crate) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.outside("served").join(path)
    }

    pub(crate) fn share(&self, options: ShareOptions) -> Arc<Share> {
        Arc::new(Share::open(&self.path(""), options).unwrap())
    }

    /// A session with usual options that has said INIT.
    pub(crate) async fn session(&self) -> Client {
        Client::begin(&self.share(ShareOptions::default())).await
    }
}

/// The client's end of a session.
pub(crate) struct Client {
    to_server: Option<UnboundedSender<Bytes>>,
    from_server: UnboundedReceiver<Bytes>,
    deframer: Deframer,
    pub(crate) task: JoinHandle<Result<(), SessionError>>,
    next_id: u32,
}

struct Pipe(UnboundedSender<Bytes>);

impl Outgoing for Pipe {
    async fn send(&mut self, bytes: Bytes) -> Result<(), Closed> {
        self.0.send(bytes).map_err(|_| Closed)
    }
}

impl Client {
    /// A session that has said nothing yet.
    pub(crate) fn connect(share: &Arc<Share>) -> Self {
        let (to_server, incoming) = unbounded_channel();
        let (outgoing, from_server) = unbounded_channel();
        let incoming = Box::pin(stream::unfold(incoming, |mut incoming| async move {
            incoming.recv().await.map(|piece| (piece, incoming))
        }));
        let task = tokio::spawn(serve_channel(Arc::clone(share), incoming, Pipe(outgoing)));
        let deframer = Deframer::new(1 << 20);
        Self { to_server: Some(to_server), from_server, deframer, task, next_id: 1 }
    }

    pub(crate) async fn begin(share: &Arc<Share>) -> Self {
        let mut client = Self::connect(share);
        let init = Request::Init { version: 3, extensions: Extensions::default() };
        client.raw(init.encode(0));
        assert!(matches!(client.answer().await, Some((0, Response::Version { version: 3, .. }))));
        client
    }

    /// Sends bytes as they are.
    pub(crate) fn raw(&self, bytes: impl Into<Bytes>) {
        // Whether the session takes them is what the test looks at.
        let _ = self.to_server.as_ref().unwrap().send(bytes.into());
    }

    /// Sends a request; its id.
    pub(crate) fn send(&mut self, request: &Request) -> u32 {
        let id = self.next_id;
        self.next_id += 1;
        self.raw(request.encode(id));
        for piece in request.payload().map(Block::pieces).unwrap_or_default() {
            self.raw(piece.clone());
        }
        id
    }

    /// Says that nothing more comes.
    pub(crate) fn hang_up(&mut self) {
        self.to_server = None;
    }

    /// The next answer in the order in which they come; `None` at the end.
    pub(crate) async fn answer(&mut self) -> Option<(u32, Response)> {
        loop {
            if let Some(frame) = self.frame() {
                return Some(Response::decode(frame).unwrap());
            }
            self.deframer.push(self.from_server.recv().await?);
        }
    }

    /// How many pieces of answers wait to be taken.
    pub(crate) fn waiting(&self) -> usize {
        self.from_server.len()
    }

    fn frame(&mut self) -> Option<Frame> {
        self.deframer.next_frame().unwrap()
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn ask(&mut self, request: &Request) -> Response {
        let id = self.send(request);
        let (answered, response) = self.answer().await.unwrap();
        assert_eq!(answered, id);
        response
    }

    /// Sends a request that is answered with a status.
    pub(crate) async fn status(&mut self, request: &Request) -> Status {
        match self.ask(request).await {
            Response::Status { status, .. } => status,
            other => panic!("{request:?} gave {other:?}"),
        }
    }

    pub(crate) async fn open(&mut self, path: &str, flags: OpenFlags) -> Handle {
        match self.ask(&open(path, flags)).await {
            Response::Handle(handle) => handle,
            other => panic!("opening {path} gave {other:?}"),
        }
    }

    /// A file's whole content, if it is short.
    pub(crate) async fn content(&mut self, path: &str) -> Vec<u8> {
        let handle = self.open(path, OpenFlags::READ).await;
        let read = Request::Read { handle: handle.clone(), offset: 0, length: 200_000 };
        let content = match self.ask(&read).await {
            Response::Data(block) => block.into_bytes().to_vec(),
            Response::Status { status: Status::Eof, .. } => Vec::new(),
            other => panic!("reading {path} gave {other:?}"),
        };
        assert_eq!(self.status(&Request::Close(handle)).await, Status::Ok);
        content
    }

    /// The one path that a request is answered with.
    pub(crate) async fn path(&mut self, request: &Request) -> Vec<u8> {
        match self.ask(request).await {
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
