//! Bytes of a file as a body: blocks are read on disk threads ahead of what is being sent.
//!
//! ```text
//! wanted → [reading, reading, read] → sent
//! ```
//!
//! A thread is busy only while it reads. A client that takes nothing holds a few blocks, and no
//! thread.

use std::collections::VecDeque;
use std::fs::File;
use std::future::Future;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use haul_storage::{BufferPool, WorkPool};
use tokio::sync::oneshot::{Receiver, channel};

use super::limits;

/// A range of a file that is being sent.
pub(super) struct FileBody {
    file: Arc<File>,
    pool: WorkPool,
    buffers: BufferPool,
    /// Where the next block is read.
    offset: u64,
    /// Bytes that no thread was asked to read yet.
    unread: u64,
    /// Bytes that are not yet handed over.
    left: u64,
    blocks: VecDeque<Receiver<io::Result<Bytes>>>,
}

impl FileBody {
    /// `length` bytes from `offset`.
    pub(super) fn new(
        file: File,
        (offset, length): (u64, u64),
        pool: &WorkPool,
        buffers: &BufferPool,
    ) -> Self {
        Self {
            file: Arc::new(file),
            pool: pool.clone(),
            buffers: buffers.clone(),
            offset,
            unread: length,
            left: length,
            blocks: VecDeque::new(),
        }
    }

    /// Bytes that are not yet handed over.
    pub(super) const fn left(&self) -> u64 {
        self.left
    }

    /// The next block; none at the end.
    pub(super) fn poll_block(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Bytes>>> {
        self.read_ahead();
        let Some(block) = self.blocks.front_mut() else { return Poll::Ready(None) };
        let outcome = ready!(Pin::new(block).poll(context));
        self.blocks.pop_front();
        // A thread that did not answer has met a panic.
        let outcome = outcome.unwrap_or_else(|_| Err(io::Error::other("the reading broke off")));
        match &outcome {
            Ok(bytes) => {
                self.left -= bytes.len() as u64;
                self.read_ahead();
            }
            Err(_) => {
                self.unread = 0;
                self.blocks.clear();
            }
        }
        Poll::Ready(Some(outcome))
    }

    fn read_ahead(&mut self) {
        while self.unread > 0 && self.blocks.len() < limits::AHEAD {
            let length = usize::try_from(self.unread).unwrap_or(usize::MAX).min(limits::BLOCK);
            let (file, buffers, offset) =
                (Arc::clone(&self.file), self.buffers.clone(), self.offset);
            let (sender, receiver) = channel();
            self.pool.submit(move || {
                // Nobody waits for it if the client is gone; then it need not be read either.
                if !sender.is_closed() {
                    drop(sender.send(read(&file, &buffers, offset, length)));
                }
            });
            self.blocks.push_back(receiver);
            self.offset += length as u64;
            self.unread -= length as u64;
        }
    }
}

/// All of a block, or an error: a file that became shorter cannot be sent as was promised.
fn read(file: &File, buffers: &BufferPool, offset: u64, length: usize) -> io::Result<Bytes> {
    let mut buffer = buffers.take(length);
    file.read_exact_at(buffer.as_mut_slice(), offset)?;
    Ok(buffer.freeze(length))
}
