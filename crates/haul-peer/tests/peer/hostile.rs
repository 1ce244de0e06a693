//! A server that violates the protocol: the client must neither panic nor wait forever.

use bytes::Bytes;
use futures_util::StreamExt;
use haul_peer::identity::Identity;
use haul_peer::ticket::{Address, Secret, Ticket};
use haul_peer::tls::{self, Binding, ProofKey, Role};
use haul_peer::wire::messages::{self, ToClient, ToServer, to_client, to_server};
use haul_peer::wire::{
    BulkHeader, Deframer, Frame, Limits, VERSION, bulk_head, decode, message_frame, piece_hash,
};
use haul_storage::{Block, Capabilities, ErrorKind, Medium, Range, Result, Storage};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::{PATIENCE, open, path};

/// Length of the server's only file, in bytes.
const SIZE: u64 = 1000;

/// The frames that the server sends for a Read, given the id of the request.
type Pieces = fn(u32) -> Vec<Vec<u8>>;

fn message(id: u32, body: to_client::Body) -> Vec<u8> {
    message_frame(&ToClient { id, body: Some(body) }).unwrap().to_vec()
}

fn piece(id: u32, offset: u64, length: usize) -> Vec<u8> {
    let data = Block::from(Bytes::from(vec![7; length]));
    let (hash, is_subtree) = piece_hash(offset, &data, None);
    let header = BulkHeader { id, handle: 1, offset, is_last: false, is_subtree, hash };
    let mut frame = bulk_head(&header, length).to_vec();
    frame.extend_from_slice(&data.into_bytes());
    frame
}

fn end(id: u32, offset: u64) -> Vec<u8> {
    message(id, to_client::Body::ReadEnd(messages::ReadEnd { offset }))
}

async fn serve(
    socket: TcpStream,
    (identity, secret): (&Identity, &Secret),
    pieces: Pieces,
) -> Option<()> {
    let config = tls::server_config(identity.pkcs8(), &identity.spki()).unwrap();
    let mut stream = tls::accept(socket, config, PATIENCE).await.ok()?;
    let exporter = tls::exporter(stream.get_ref().1).ok()?;
    let client_key = tls::peer_key(stream.get_ref().1)?;
    let mut deframer = Deframer::new(Limits::FULL);
    let mut buffer = vec![0; 64 << 10];
    loop {
        while let Some(Frame::Message(bytes)) = deframer.next_frame().ok()? {
            let ToServer { id, body, .. } = decode(bytes).ok()?;
            let responses = match body? {
                to_server::Body::Hello(hello) => {
                    let binding = Binding {
                        exporter,
                        client_key,
                        server_key: *identity.key().as_bytes(),
                        session: [0; 16],
                        nonce: hello.nonce[..].try_into().ok()?,
                    };
                    vec![message(0, welcome(&binding, secret))]
                }
                to_server::Body::Open(_) => {
                    let identity = messages::Identity { size: Some(SIZE), ..Default::default() };
                    let opened = messages::Opened {
                        handle: 1,
                        identity: Some(identity),
                        ranged: true,
                        entry: None,
                        first: None,
                    };
                    vec![message(id, to_client::Body::Opened(opened))]
                }
                to_server::Body::Read(_) => pieces(id),
                to_server::Body::NextData(_) => {
                    let range = Some(messages::Range { start: 5, length: 0 });
                    let found = messages::FoundRange { range };
                    vec![message(id, to_client::Body::FoundRange(found))]
                }
                _ => Vec::new(),
            };
            stream.write_all(&responses.concat()).await.ok()?;
            stream.flush().await.ok()?;
        }
        let read = stream.read(&mut buffer).await.ok().filter(|read| *read > 0)?;
        deframer.push(Bytes::copy_from_slice(&buffer[..read]));
    }
}

fn welcome(binding: &Binding, secret: &Secret) -> to_client::Body {
    let key = ProofKey::from_secret(secret.expose()).unwrap();
    let capabilities = Capabilities::least(Medium::Disk).with(|can| can.ranged_reads = true);
    to_client::Body::Welcome(messages::Welcome {
        version: VERSION,
        session: vec![1; 16].into(),
        token: vec![2; 32].into(),
        proof: tls::prove(&key, Role::Server, binding).to_vec().into(),
        name: "share".to_owned(),
        writable: false,
        capabilities: Some(Box::new((&capabilities).into())),
        limits: None,
    })
}

/// Reads the server's file. Returns the number of bytes that were read, and the result of `next_data(10)`.
async fn read_from(pieces: Pieces) -> (Result<usize>, Result<Option<Range>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (identity, secret) = (Identity::ephemeral().unwrap(), Secret::generate().unwrap());
    let address = Address::new(listener.local_addr().unwrap()).unwrap();
    let ticket = Ticket::new(identity.key(), secret.clone()).with_addresses([address]);
    let serving = tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            serve(socket, (&identity, &secret), pieces).await;
        }
    });
    let outcome = timeout(PATIENCE, async {
        let storage = open(&ticket).await.unwrap();
        let file = storage.open(&path("file")).await.unwrap();
        let mut blocks = file.read_at(Range::new(0, SIZE));
        let mut length = Ok(0);
        while let Some(block) = blocks.next().await {
            length = match (length, block) {
                (Ok(length), Ok(block)) => Ok(length + block.len()),
                (_, Err(error)) | (Err(error), _) => Err(error),
            };
        }
        (length, file.next_data(10).await)
    });
    let outcome = outcome.await.unwrap();
    serving.abort();
    outcome
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_whose_pieces_arrive_in_any_order_is_read() {
    let pieces: Pieces = |id| vec![piece(id, 500, 500), end(id, SIZE), piece(id, 0, 500)];
    let (length, found) = read_from(pieces).await;
    assert_eq!(length.unwrap(), 1000);
    // The server reports data at offset 5, before the requested offset 10.
    assert_eq!(found.unwrap_err().kind(), ErrorKind::Protocol);
}

/// Overlapping pieces would leave a gap that is never filled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pieces_that_do_not_fit_are_errors() {
    let all: [Pieces; 7] = [
        |id| vec![piece(id, 100, 500), piece(id, 500, 400), piece(id, 0, 100)],
        |id| vec![piece(id, 500, 400), piece(id, 100, 500), piece(id, 0, 100)],
        |id| vec![piece(id, 200, 10), piece(id, 100, 500)],
        |id| vec![piece(id, 0, 500), piece(id, 0, 500)],
        |id| vec![piece(id, 500, 501)],
        |id| vec![piece(id, 0, 0)],
        |id| (0..100).map(|at| piece(id, at + 1, 1)).collect(),
    ];
    for (number, pieces) in all.into_iter().enumerate() {
        let (length, _) = read_from(pieces).await;
        assert_eq!(length.unwrap_err().kind(), ErrorKind::Protocol, "{number}");
    }
    let (length, _) = read_from(|id| vec![end(id, 0), end(id, 0)]).await;
    assert_eq!(length.unwrap(), 0);
}
