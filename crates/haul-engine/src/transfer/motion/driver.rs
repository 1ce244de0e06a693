//! Performs the I/O that a [`FileInMotion`] requests: reads, hashes, writes, journal records and waits.
//!
//! A worker performs one action after another while the file has any, so the worker that read a block also writes
//! it, without spawning or allocating. Further concurrent actions get further workers.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join;
use futures_util::stream::FuturesUnordered;
use haul_storage::{
    Block, BlockStream, Error, ErrorKind, Range, RangeSet, ReadAt, Result, Retry, UNKNOWN_SIZE,
    WriteAt,
};
use tokio::sync::{Notify, SemaphorePermit};
use tokio::time::sleep;

use super::action::{Action, Reading, Requester, Writing};
use super::blocks::Received;
use super::file::FileInMotion;
use super::mode::Reads;
use crate::Cancel;
use crate::context::Context;
use crate::digest::FileHasher;

/// Source and destination of a file, with its hasher.
pub struct Ends {
    /// The source.
    pub reader: Arc<dyn ReadAt>,
    /// How the source is read.
    pub reads: Reads,
    /// The destination.
    pub writer: Arc<dyn WriteAt>,
    /// Computes the digest, if one is wanted.
    pub hasher: Option<FileHasher>,
    /// The source, as shown in messages.
    pub source_name: String,
    /// The destination, as shown in messages.
    pub destination_name: String,
}

/// Drives the transfer of one file.
pub struct Driver<'a> {
    context: &'a Context,
    ends: Ends,
    file: Mutex<FileInMotion>,
    /// Permit to be one of the large files that are transferred at once.
    slot: Mutex<Option<SemaphorePermit<'a>>>,
    /// Notified when the file may have withdrawn a read or a permit request.
    withdrew: Notify,
    /// Cancelled when the file stops early.
    stopped: Cancel,
}

impl<'a> Driver<'a> {
    /// A driver of `file` between `ends`. `slot` is released when the next file may begin.
    pub fn new(
        context: &'a Context,
        ends: Ends,
        file: FileInMotion,
        slot: SemaphorePermit<'a>,
    ) -> Self {
        Self {
            context,
            ends,
            file: Mutex::new(file),
            slot: Mutex::new(Some(slot)),
            withdrew: Notify::new(),
            stopped: Cancel::default(),
        }
    }

    /// Source and destination.
    pub const fn ends(&self) -> &Ends {
        &self.ends
    }

    /// Transfers everything that is missing.
    ///
    /// # Errors
    /// The first error. Operations in flight are completed first, because a write on a disk thread cannot be cancelled.
    pub async fn run(&self) -> Result<()> {
        let mut workers = FuturesUnordered::new();
        let mut cancelled = pin!(self.context.cancel.cancelled());
        let mut is_cancelled = false;
        let mut alarm = pin!(sleep(Duration::ZERO));
        poll_fn(|task: &mut TaskContext<'_>| {
            loop {
                while let Poll::Ready(Some(())) = workers.poll_next_unpin(task) {}
                if !is_cancelled && cancelled.as_mut().poll(task).is_ready() {
                    is_cancelled = true;
                    self.stop(None);
                }
                match self.poll() {
                    Action::Done => return Poll::Ready(()),
                    Action::Wait(None) => return Poll::Pending,
                    Action::Wait(Some(until)) => {
                        let until = self.context.flow.at(until);
                        if alarm.deadline() != until {
                            alarm.as_mut().reset(until);
                        }
                        if alarm.as_mut().poll(task).is_pending() {
                            return Poll::Pending;
                        }
                    }
                    action => workers.push(self.work(action)),
                }
            }
        })
        .await;
        self.free_slot();
        self.file().take_failure().map_or(Ok(()), Err)
    }

    /// Stops the transfer once the operations in flight are complete; `error` is a failure outside of the driver.
    pub fn stop(&self, error: Option<Error>) {
        let now = self.context.flow.now();
        let mut file = self.file();
        file.stop(error, now);
        self.after_input(&mut file);
    }

    /// Awaits a future that depends on other ranges of the file. `None` if the file is stopped or the run cancelled,
    /// because those ranges may never arrive then.
    pub async fn unless_stopped<T>(&self, waiting: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = waiting => Some(done),
            () = self.stopped.cancelled() => None,
            () = self.context.cancel.cancelled() => None,
        }
    }

    fn poll(&self) -> Action {
        let now = self.context.flow.now();
        let mut file = self.file();
        let action = file.poll(now);
        self.after_input(&mut file);
        action
    }

    /// Passes an input to the state machine, with the current time.
    fn input(&self, input: impl FnOnce(&mut FileInMotion, Duration)) {
        let now = self.context.flow.now();
        let mut file = self.file();
        input(&mut file, now);
        self.after_input(&mut file);
    }

    fn after_input(&self, file: &mut FileInMotion) {
        if file.take_withdrew() {
            self.withdrew.notify_waiters();
            if file.is_stopped() {
                self.stopped.cancel();
            }
        }
    }

    fn file(&self) -> MutexGuard<'_, FileInMotion> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn work(&self, mut action: Action) {
        loop {
            match action {
                Action::FindData(from) => {
                    let found = self.ends.reader.next_data(from).await;
                    self.input(|file, now| file.on_data(found, now));
                }
                Action::Zeros(hole) => {
                    let hashed = self.hash_zeros(hole).await;
                    self.input(|file, now| file.on_zeros(hole, hashed, now));
                }
                Action::Room(requester, bytes) => self.room(requester, bytes).await,
                Action::Copy(id, range) => self.copy(id, range).await,
                Action::Read(reading) => self.read(reading).await,
                Action::Write(writing) => self.write(writing).await,
                Action::Record(ranges) => {
                    let recorded = self.record(ranges).await;
                    self.input(|file, now| file.on_recorded(recorded, now));
                }
                Action::FreeSlot => self.free_slot(),
                Action::Wait(_) | Action::Done => return,
            }
            action = self.poll();
        }
    }

    async fn hash_zeros(&self, hole: Range) -> Result<()> {
        let Some(hasher) = &self.ends.hasher else { return Ok(()) };
        self.unless_stopped(hasher.zeros(hole.start(), hole.len())).await.unwrap_or(Ok(()))
    }

    async fn room(&self, requester: Requester, bytes: u64) {
        let room = self.context.flow.room(bytes);
        let granted = self.unless_withdrawn(room, |file| file.wants_room(requester)).await;
        if let Some(permit) = granted {
            self.input(|file, now| file.on_room(requester, permit, now));
        }
    }

    async fn copy(&self, id: u64, range: Range) {
        match self.ends.writer.copy_from(&*self.ends.reader, range).await {
            Ok(copied) => {
                let copied = copied.then_some(range);
                self.input(|file, now| file.on_copied(id, copied, now));
            }
            Err(error) => self.failed_to_read(id, error),
        }
    }

    async fn read(&self, reading: Reading) {
        let Reading { id, range, end, least, blocks } = reading;
        let mut blocks = blocks.unwrap_or_else(|| self.ends.reader.read_until(range, &end));
        let next = self.unless_withdrawn(blocks.next(), |file| file.wants_bytes(id)).await;
        let block = match next {
            None => return self.input(|file, now| file.on_withdrawn(id, now)),
            Some(None) if self.ends.reader.identity().size == UNKNOWN_SIZE => {
                return self.input(|file, now| file.on_end(id, now));
            }
            Some(None) => return self.failed_to_read(id, self.ended_early(range)),
            Some(Some(Err(error))) => return self.failed_to_read(id, error),
            Some(Some(Ok(block))) => block,
        };
        let at = self.context.flow.now();
        if self.ends.reader.identity().size == UNKNOWN_SIZE
            && let Err(error) = self.context.room.more(block.len() as u64).await
        {
            return self.failed_to_read(id, error);
        }
        let (block, failure) = self.gather(block, range, least, &mut blocks).await;
        let failure = failure.map(|error| self.read_error(error));
        let received = Received { block, at, failure, rest: blocks };
        self.input(|file, now| file.on_block(id, received, now));
    }

    /// Appends further data to a block until it has `least` bytes. An error is returned along with the block, so that
    /// the data before it is still written.
    async fn gather(
        &self,
        mut block: Block,
        wanted: Range,
        least: u64,
        blocks: &mut BlockStream,
    ) -> (Block, Option<Error>) {
        while (block.len() as u64) < least {
            match self.unless_stopped(blocks.next()).await {
                None => break,
                Some(Some(Ok(more))) => block.append(more),
                Some(Some(Err(error))) => return (block, Some(error)),
                Some(None) => {
                    let rest = wanted.split_at(block.len() as u64).1;
                    return (block, Some(self.ended_early(rest)));
                }
            }
        }
        (block, None)
    }

    async fn write(&self, writing: Writing) {
        let Writing { id, offset, block, write, hash } = writing;
        let hashed = block.clone();
        let write = async {
            if write {
                let written = self.ends.writer.write_at(offset, block).await;
                let written = written.map_err(|error| error.at(&self.ends.destination_name));
                self.input(|file, now| file.on_written(id, offset, written, now));
            }
        };
        let hash = async {
            if let Some(hasher) = self.ends.hasher.as_ref().filter(|_| hash) {
                let update = hasher.update(offset, hashed);
                let hashed = self.unless_stopped(update).await.unwrap_or(Ok(()));
                let hashed = hashed.map_err(|error| error.at(&self.ends.source_name));
                self.input(|file, now| file.on_hashed(id, offset, hashed, now));
            }
        };
        // The write is polled first: if it fails, the hashing stops in the same poll.
        join(write, hash).await;
    }

    async fn record(&self, ranges: RangeSet) -> Result<()> {
        let recorded = self.ends.writer.record(ranges).await;
        recorded.map_err(|error| error.at(&self.ends.destination_name))
    }

    /// Awaits a future; `None` if the file withdraws the request first.
    async fn unless_withdrawn<T>(
        &self,
        future: impl Future<Output = T>,
        is_wanted: impl Fn(&FileInMotion) -> bool,
    ) -> Option<T> {
        let mut future = pin!(future);
        loop {
            let withdrew = self.withdrew.notified();
            if !is_wanted(&self.file()) {
                return None;
            }
            tokio::select! {
                biased;
                output = &mut future => return Some(output),
                () = withdrew => {}
            }
        }
    }

    fn free_slot(&self) {
        drop(self.slot.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn failed_to_read(&self, id: u64, error: Error) {
        let error = self.read_error(error);
        self.input(|file, now| file.on_failed(id, error, now));
    }

    fn read_error(&self, error: Error) -> Error {
        let error = error.at(&self.ends.source_name);
        if self.ends.reads != Reads::Whole && !self.ends.reader.is_ranged() {
            // The server does not support ranges after all: reopen the file and read it from the start. Data
            // that is in the journal is kept up to the first gap.
            return error.with_retry(Retry::FromStart);
        }
        error
    }

    fn ended_early(&self, wanted: Range) -> Error {
        Error::new(ErrorKind::Changed, "read").at(&self.ends.source_name).because(format!(
            "it ends at byte {} of {} while being read",
            wanted.start(),
            self.ends.reader.identity().size
        ))
    }
}
