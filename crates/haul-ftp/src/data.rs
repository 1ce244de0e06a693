//! Sends and receives bytes over a data connection.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use haul_storage::{Block, Error, Result};
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, timeout, timeout_at};

use crate::lanes::Lane;
use crate::session::Session;
use crate::stream::Stream;

/// Most bytes passed on at once.
const PIECE: usize = 256 << 10;

/// How long to wait for more bytes before an incomplete piece is passed on.
const MOMENT: Duration = Duration::from_millis(10);

/// How long to wait on the control connection for the reply that explains a lost data connection.
const REASON: Duration = Duration::from_secs(2);

/// How long the server may take to close a TLS data connection after the client has ended it.
const ENDING: Duration = Duration::from_secs(5);

/// The next bytes, at most `most`; empty at the end. Bytes that arrive within [`MOMENT`] are joined to one piece, since
/// each piece costs a write to the disk.
pub(crate) async fn receive(data: &mut Stream, most: u64) -> Result<Bytes> {
    let most = usize::try_from(most).unwrap_or(usize::MAX).min(PIECE);
    let mut piece = BytesMut::with_capacity(most).limit(most);
    data.receive("read", &mut piece).await?;
    let enough = Instant::now() + MOMENT;
    while !piece.get_ref().is_empty() && piece.has_remaining_mut() {
        match timeout_at(enough, data.read_buf(&mut piece)).await {
            Ok(Ok(length)) if length > 0 => {}
            // The next call returns the end or the error again.
            _ => break,
        }
    }
    let piece = piece.into_inner().freeze();
    data.on_received(piece.len() as u64);
    Ok(piece)
}

/// Writes a block.
pub(crate) async fn send(data: &mut Stream, block: &Block) -> Result<()> {
    for piece in block.pieces() {
        data.send("write", piece).await?;
    }
    Ok(())
}

/// Ends an upload and waits until the server confirms that it has received everything.
pub(crate) async fn end_upload(lane: &mut Lane, mut data: Stream) -> Result<()> {
    if let Err(error) = data.end("write").await {
        return Err(reason(lane, data, error).await);
    }
    if data.is_secure() {
        // Read the server's session tickets, since an upload reads nothing else: without them the next data
        // connection cannot resume.
        let mut nothing = [0; 1];
        drop(timeout(ENDING, data.read(&mut nothing)).await);
    }
    drop(data);
    lane.finish("write").await
}

/// The error of a lost data connection: the server's reply on the control connection, or else `error`.
pub(crate) async fn reason(session: &mut Session, data: Stream, error: Error) -> Error {
    drop(data);
    match timeout(REASON, session.control.last_reply()).await {
        Ok(Ok(reply)) if !reply.is_done() => crate::error::refused(error.operation(), &reply),
        Ok(Ok(_)) => error,
        _ => {
            session.control.break_off();
            error
        }
    }
}
