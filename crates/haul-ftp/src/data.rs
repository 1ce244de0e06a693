//! Bytes over a data connection.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use haul_storage::{Block, Error, Result};
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, timeout, timeout_at};

use crate::lanes::Lane;
use crate::stream::Stream;

/// What is handed on at once, if as much has come.
const PIECE: usize = 256 << 10;

/// So long more bytes are waited for that are to be handed on together.
const MOMENT: Duration = Duration::from_millis(10);

/// So long the reason for a lost connection may take to come over the other one.
const REASON: Duration = Duration::from_secs(2);

/// So long the server may take to end a data connection that was ended from here.
const ENDING: Duration = Duration::from_secs(5);

/// The next bytes, `most` of them at most; empty at the end. What comes within a moment is taken
/// together: each piece costs a write to the disk.
pub(crate) async fn receive(data: &mut Stream, most: u64) -> Result<Bytes> {
    let most = usize::try_from(most).unwrap_or(usize::MAX).min(PIECE);
    let mut piece = BytesMut::with_capacity(most).limit(most);
    data.receive("read", &mut piece).await?;
    let enough = Instant::now() + MOMENT;
    while !piece.get_ref().is_empty() && piece.has_remaining_mut() {
        match timeout_at(enough, data.read_buf(&mut piece)).await {
            Ok(Ok(length)) if length > 0 => {}
            // An end or an error comes again when it is asked for.
            _ => break,
        }
    }
    let piece = piece.into_inner().freeze();
    data.came(piece.len() as u64);
    Ok(piece)
}

/// Writes a block.
pub(crate) async fn send(data: &mut Stream, block: &Block) -> Result<()> {
    for piece in block.pieces() {
        data.send("write", piece).await?;
    }
    Ok(())
}

/// Ends an upload: the server has all of it when it says so.
pub(crate) async fn end_upload(lane: &mut Lane, mut data: Stream) -> Result<()> {
    if let Err(error) = data.end("write").await {
        return Err(reason(lane, data, error).await);
    }
    if data.is_secure() {
        // What TLS has to say at the end: tickets, without which the next one cannot be resumed.
        let mut nothing = [0; 1];
        drop(timeout(ENDING, data.read(&mut nothing)).await);
    }
    drop(data);
    lane.finish("write").await
}

/// Why a data connection was lost: the server may say it on the control connection.
pub(crate) async fn reason(lane: &mut Lane, data: Stream, error: Error) -> Error {
    drop(data);
    match timeout(REASON, lane.control.last_reply()).await {
        Ok(Ok(reply)) if !reply.is_done() => crate::error::refused(error.operation(), &reply),
        Ok(Ok(_)) => error,
        _ => {
            lane.control.break_off();
            error
        }
    }
}
