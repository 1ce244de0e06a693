//! Bytes over a data connection.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use haul_storage::{Block, Error, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::lanes::Lane;
use crate::session::within;
use crate::stream::Stream;

/// What is handed on at once, if as much has come.
const PIECE: usize = 256 << 10;

/// So long the reason for a lost connection may take to come over the other one.
const REASON: Duration = Duration::from_secs(2);

/// So long the server may take to end a data connection that was ended from here.
const ENDING: Duration = Duration::from_secs(5);

/// The next bytes, `most` of them at most; empty at the end. What has come is taken together, but
/// nothing is waited for.
pub(crate) async fn receive(data: &mut Stream, most: u64) -> Result<Bytes> {
    let most = usize::try_from(most).unwrap_or(usize::MAX).min(PIECE);
    let mut piece = BytesMut::with_capacity(most);
    let mut limited = data.take(most as u64);
    within("read", limited.read_buf(&mut piece)).await?;
    while !piece.is_empty() && piece.len() < most {
        match limited.read_buf(&mut piece).now_or_never() {
            Some(Ok(length)) if length > 0 => {}
            // An end or an error comes again when it is asked for.
            _ => break,
        }
    }
    Ok(piece.freeze())
}

/// Writes a block. A slow connection may take its time, a dead one may not.
pub(crate) async fn send(data: &mut Stream, block: &Block) -> Result<()> {
    for piece in block.pieces() {
        let mut rest = &piece[..];
        while !rest.is_empty() {
            let written = within("write", data.write(rest)).await?;
            if written == 0 {
                return Err(crate::error::lost("write", "the data connection takes no more"));
            }
            rest = &rest[written..];
        }
    }
    Ok(())
}

/// Ends an upload: the server has all of it when it says so.
pub(crate) async fn end_upload(lane: &mut Lane, mut data: Stream) -> Result<()> {
    let ended = async {
        within("write", data.flush()).await?;
        within("write", data.shutdown()).await
    };
    if let Err(error) = ended.await {
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
