//! The bytes of a file as a response body. Disk threads read blocks ahead of what is being sent; blocks of at most
//! `limits::SHORT` bytes are usually read on the connection's thread.
//!
//! ```text
//! wanted → [reading, reading, read] → sent
//! ```
//!
//! A thread is busy only while it reads. A client that does not read its responses blocks no thread and holds only a
//! few blocks, even with many requests: responses for which no permit is left get short pieces, one at a time.

use std::collections::VecDeque;
use std::fs::File;
use std::future::Future;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use haul_storage::{BufferPool, WorkPool, bytes_owning};
use tokio::sync::Semaphore;
use tokio::sync::oneshot::{Receiver, channel};

use super::limits;
use super::share::Share;

/// A range of a file that is being sent.
pub(super) struct FileBody {
    file: Arc<File>,
    pool: WorkPool,
    buffers: BufferPool,
    /// One permit for each block that is being read or not yet sent, for all responses of a connection.
    ahead: Arc<Semaphore>,
    /// Offset of the next block to read.
    offset: u64,
    /// Bytes that are not being read yet.
    unread: u64,
    /// Bytes that were not returned yet.
    left: u64,
    blocks: VecDeque<Receiver<io::Result<Bytes>>>,
}

impl FileBody {
    /// A body of `length` bytes from `offset`.
    pub(super) fn new(
        file: File,
        (offset, length): (u64, u64),
        share: &Share,
        ahead: &Arc<Semaphore>,
    ) -> Self {
        Self {
            file: Arc::new(file),
            pool: share.pool.clone(),
            buffers: share.buffers.clone(),
            ahead: Arc::clone(ahead),
            offset,
            unread: length,
            left: length,
            blocks: VecDeque::new(),
        }
    }

    /// Bytes that were not returned yet.
    pub(super) const fn left(&self) -> u64 {
        self.left
    }

    /// The next block; `None` at the end.
    pub(super) fn poll_block(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Bytes>>> {
        self.read_ahead();
        let Some(block) = self.blocks.front_mut() else { return Poll::Ready(None) };
        let outcome = ready!(Pin::new(block).poll(context));
        self.blocks.pop_front();
        // The sender is dropped without a result only if the job panicked.
        let outcome = outcome.unwrap_or_else(|_| Err(io::Error::other("reading the file failed")));
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
            let permit = Arc::clone(&self.ahead).try_acquire_owned().ok();
            let most = match &permit {
                Some(_) => limits::BLOCK,
                None if self.blocks.is_empty() => limits::LEAST,
                None => return,
            };
            let length = usize::try_from(self.unread).unwrap_or(usize::MAX).min(most);
            let (file, buffers, offset) =
                (Arc::clone(&self.file), self.buffers.clone(), self.offset);
            let (sender, receiver) = channel();
            let work = move || {
                // If the client has disconnected, the block is not needed.
                if !sender.is_closed() {
                    let read = read(&file, &buffers, offset, length);
                    // The permit is released when the last byte is sent.
                    drop(sender.send(read.map(|bytes| bytes_owning(bytes, permit))));
                }
            };
            match length <= limits::SHORT {
                true => self.pool.submit_short(work),
                false => self.pool.submit(work),
            }
            self.blocks.push_back(receiver);
            self.offset += length as u64;
            self.unread -= length as u64;
        }
    }
}

/// Reads a whole block. A file that has become shorter is an error, as the head of the response has announced its
/// length.
fn read(file: &File, buffers: &BufferPool, offset: u64, length: usize) -> io::Result<Bytes> {
    let mut buffer = buffers.take(length);
    file.read_exact_at(buffer.as_mut_slice(), offset)?;
    Ok(buffer.freeze(length))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn many_unread_responses_hold_only_a_few_blocks() {
        let directory = tempfile::tempdir().unwrap();
        let share = Share::open(directory.path(), true).unwrap();
        let content: Vec<u8> = (0..4_000_000_u32).map(|at| (at / 7) as u8).collect();
        let path = directory.path().join("file");
        fs::write(&path, &content).unwrap();
        let ahead = Arc::new(Semaphore::new(limits::AHEAD_OF_ALL));
        let mut bodies: Vec<_> = (0..40)
            .map(|_| {
                let range = (0, content.len() as u64);
                FileBody::new(File::open(&path).unwrap(), range, &share, &ahead)
            })
            .collect();
        let mut sent = Vec::new();
        for body in &mut bodies {
            sent.push(poll_fn(|context| body.poll_block(context)).await.unwrap().unwrap());
        }
        // One piece of each was returned, and another one is being read.
        let at_most = limits::AHEAD_OF_ALL * limits::BLOCK + 2 * 40 * limits::LEAST;
        let scheduled: u64 = bodies.iter().map(|body| body.offset).sum();
        assert!(scheduled <= at_most as u64, "{scheduled} bytes");
        // Each body still returns all of its bytes.
        for (body, first) in bodies.iter_mut().zip(sent) {
            let mut got = first.to_vec();
            drop(first);
            while let Some(piece) = poll_fn(|context| body.poll_block(context)).await {
                got.extend_from_slice(&piece.unwrap());
            }
            assert!(got == content);
        }
        assert_eq!(ahead.available_permits(), limits::AHEAD_OF_ALL);
    }
}
