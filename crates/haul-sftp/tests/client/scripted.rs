//! A server without files, in this process: a test decides when it responds, and with what.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream;
use haul_net::HostWaits;
use haul_sftp::codec::{
    Attrs, Deframer, Extensions, Handle as FileHandle, Name, Request, Response, Status, name,
};
use haul_sftp::transport::{Channel, Dial, First, Outgoing};
use haul_storage::Result;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::pipe::channel;

/// The delay of the response to a request; `None` for no response.
pub(crate) type Script = fn(&Request) -> Option<Duration>;

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_644;

/// A server with a directory `/`, in which every path is a file of 10 bytes, except that those that end with `new`
/// do not exist.
pub(crate) struct Scripted {
    pub(crate) script: Script,
    /// Responses that differ from the usual ones.
    pub(crate) respond: fn(&Request) -> Option<Response>,
    pub(crate) waits: HostWaits,
}

impl std::fmt::Debug for Scripted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scripted")
    }
}

#[async_trait]
impl Dial for Scripted {
    async fn dial(&self, first: &First) -> Result<Channel> {
        let (responses, received) = unbounded_channel();
        let state = Mutex::new(Deframer::new(1 << 20));
        let server = Server { script: self.script, respond: self.respond, state, responses };
        server.send(&[first("")]).await?;
        let incoming = stream::unfold(received, |mut received| async move {
            received.recv().await.map(|bytes: Bytes| (Ok(bytes), received))
        });
        Ok(channel(incoming, server, ""))
    }

    async fn first_rtt(&self) -> Option<Duration> {
        None
    }

    fn host(&self) -> String {
        "scripted".to_owned()
    }

    fn waits(&self) -> HostWaits {
        self.waits.clone()
    }
}

struct Server {
    script: Script,
    respond: fn(&Request) -> Option<Response>,
    state: Mutex<Deframer>,
    responses: UnboundedSender<Bytes>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Server")
    }
}

#[async_trait]
impl Outgoing for Server {
    async fn send(&self, pieces: &[Bytes]) -> Result<()> {
        let mut deframer = self.state.lock().unwrap();
        pieces.iter().for_each(|piece| deframer.push(piece.clone()));
        while let Some(frame) = deframer.next_frame().unwrap() {
            let (id, request) = Request::decode(frame).unwrap();
            let Some(after) = (self.script)(&request) else { continue };
            let response = (self.respond)(&request).unwrap_or_else(|| usual(&request)).encode(id);
            let responses = self.responses.clone();
            if after.is_zero() {
                drop(responses.send(response));
            } else {
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    drop(responses.send(response));
                });
            }
        }
        Ok(())
    }
}

/// A status without a message.
pub(crate) fn status(status: Status) -> Response {
    Response::Status { status, message: Bytes::new() }
}

fn usual(request: &Request) -> Response {
    let attrs = |path: &Bytes| Attrs {
        size: Some(10),
        permissions: Some(if path.len() == 1 { DIRECTORY } else { FILE }),
        ..Attrs::default()
    };
    match request {
        Request::Init { .. } => Response::Version {
            version: 3,
            extensions: Extensions(vec![
                (Bytes::from_static(name::FSYNC), Bytes::from_static(b"1")),
                (Bytes::from_static(name::POSIX_RENAME), Bytes::from_static(b"1")),
            ]),
        },
        Request::Realpath(path) => Response::Names(vec![Name {
            name: path.clone(),
            long: Bytes::new(),
            attrs: Attrs::default(),
        }]),
        Request::Lstat(path) | Request::Stat(path) => match path.ends_with(b"new") {
            true => status(Status::NoSuchFile),
            false => Response::Attrs(attrs(path)),
        },
        Request::Fstat(_) => Response::Attrs(attrs(&Bytes::from_static(b"/f"))),
        Request::Open { .. } | Request::Opendir(_) => {
            Response::Handle(FileHandle::from(Bytes::from_static(b"h")))
        }
        Request::Read { .. } | Request::Readdir(_) => status(Status::Eof),
        _ => status(Status::Ok),
    }
}
