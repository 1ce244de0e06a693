//! Files that clients upload.
//!
//! A whole file is written under a temporary name and renamed when it is complete: an interrupted
//! upload leaves nothing behind. Ranges are written in place, many at once.
//!
//! ```text
//! pieces as they arrive → gathered to half a MiB → disk threads, a few at once → flush → rename
//! ```

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, SeekFrom};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::{Buf, Bytes};
use dav_server::fs::{DavFile, DavMetaData, FsError, FsFuture, FsResult, OpenOptions};
use rustix::fs::{Stat, fstat, futimens};
use rustix::io::Errno;
use tokio::sync::oneshot::{Receiver, channel};

use super::described::Described;
use super::limits;
use super::part::{Part, in_place};
use super::proppatch::modified;
use super::refusal::{fs_error, io_error};
use super::share::Share;

/// A file being uploaded.
#[derive(Debug)]
pub(super) struct Upload {
    share: Arc<Share>,
    file: Arc<File>,
    /// The part file, until it is renamed.
    part: Option<Part>,
    /// The modification time to set.
    modified: Option<SystemTime>,
    /// Whether data is appended, regardless of seeks.
    appends: bool,
    /// The file offset of `gathered`.
    offset: u64,
    gathered: Vec<Bytes>,
    length: usize,
    writes: VecDeque<Receiver<io::Result<Option<Stat>>>>,
    /// Whether nothing was written yet. If the first write is the only one, the stat after it is
    /// final.
    is_first: bool,
    /// The stat of the file, unless data was written since.
    stat: Option<Stat>,
}

/// How to write a file.
#[derive(Debug, Clone, Default)]
pub(super) struct Written {
    /// The modification time to set.
    pub(super) modified: Option<SystemTime>,
    /// The entity tag of the only version that may be replaced.
    pub(super) only: Option<String>,
}

impl Upload {
    /// Opens or creates a file for writes in place. With `options.truncate`, creates a part file that replaces it.
    pub(super) async fn open(
        share: &Arc<Share>,
        path: &[u8],
        options: OpenOptions,
        Written { modified, only }: Written,
    ) -> FsResult<Self> {
        let (inside, path) = (Arc::clone(share), path.to_vec());
        let appends = options.append;
        let opened = share.pool.run_short(move || {
            let (file, part) = match options.truncate {
                true => Part::make(&inside.jail, &path, &options, only)
                    .map(|(file, part)| (file, Some(part)))?,
                false => (in_place(&inside.jail, &path, &options)?, None),
            };
            let end = if appends { fstat(&file)?.st_size } else { 0 };
            Ok::<_, Errno>((file, part, u64::try_from(end).unwrap_or(0)))
        });
        let (file, part, end) = opened.await.map_err(fs_error)?;
        Ok(Self {
            share: Arc::clone(share),
            file: Arc::new(file),
            part,
            modified,
            appends,
            offset: end,
            gathered: Vec::new(),
            length: 0,
            writes: VecDeque::new(),
            is_first: true,
            stat: None,
        })
    }

    async fn write(&mut self, piece: Bytes) -> FsResult<()> {
        self.stat = None;
        self.length += piece.len();
        self.gathered.push(piece);
        if self.length >= limits::WRITE {
            self.submit().await;
        }
        while self.writes.len() >= limits::WRITES {
            self.wait().await?;
        }
        Ok(())
    }

    /// Submits the gathered pieces to a disk thread; a short write may run at once (`WorkPool::submit_short`).
    async fn submit(&mut self) {
        // The semaphore is never closed.
        let permit = Arc::clone(&self.share.writes).acquire_owned().await;
        let (file, offset) = (Arc::clone(&self.file), self.offset);
        let pieces = std::mem::take(&mut self.gathered);
        let length = std::mem::take(&mut self.length);
        self.offset += length as u64;
        self.is_first = false;
        // For a part file, `finish` calls fstat once it has its name.
        let is_final = self.part.is_none();
        let (sender, receiver) = channel();
        let work = move || {
            let written = write_all(&file, &pieces, offset);
            let stat = || Ok(if is_final { Some(fstat(&file)?) } else { None });
            // No receiver is left if the upload broke off.
            drop(sender.send(written.and_then(|()| stat())));
            drop((pieces, permit));
        };
        match length <= limits::SHORT {
            true => self.share.pool.submit_short(work),
            false => self.share.pool.submit(work),
        }
        self.writes.push_back(receiver);
    }

    /// Waits for the oldest write and returns the stat after it, unless this is a part file.
    async fn wait(&mut self) -> FsResult<Option<Stat>> {
        let Some(oldest) = self.writes.pop_front() else { return Ok(None) };
        match oldest.await {
            Ok(outcome) => outcome.map_err(|error| io_error(&error)),
            // The job panicked.
            Err(_) => Err(FsError::GeneralFailure),
        }
    }

    async fn finish(&mut self) -> FsResult<()> {
        let is_only = self.is_first;
        if !self.gathered.is_empty() {
            self.submit().await;
        }
        let mut after = None;
        while !self.writes.is_empty() {
            after = self.wait().await?;
        }
        if is_only && self.modified.is_none() && after.is_some() {
            // A range of a file, of which there may be thousands: save another switch to a disk
            // thread.
            self.stat = after;
            return Ok(());
        }
        let (file, part, time) = (Arc::clone(&self.file), self.part.take(), self.modified);
        let share = Arc::clone(&self.share);
        let done = self.share.pool.run_short(move || {
            if let Some(time) = time {
                futimens(&file, &modified(time))?;
            }
            part.map_or(Ok(()), |part| part.name(&file, &share.replacing))?;
            fstat(&file)
        });
        self.stat = Some(done.await.map_err(fs_error)?);
        Ok(())
    }
}

impl DavFile for Upload {
    fn metadata(&'_ mut self) -> FsFuture<'_, Box<dyn DavMetaData>> {
        let file = Arc::clone(&self.file);
        Box::pin(async move {
            let stat = match self.stat {
                Some(stat) => stat,
                None => self.share.pool.run_short(move || fstat(&file)).await.map_err(fs_error)?,
            };
            Ok(Box::new(Described::new(&stat)) as Box<dyn DavMetaData>)
        })
    }

    fn write_buf(&'_ mut self, mut buffer: Box<dyn Buf + Send>) -> FsFuture<'_, ()> {
        let piece = buffer.copy_to_bytes(buffer.remaining());
        Box::pin(self.write(piece))
    }

    fn write_bytes(&'_ mut self, piece: Bytes) -> FsFuture<'_, ()> {
        Box::pin(self.write(piece))
    }

    fn read_bytes(&'_ mut self, _: usize) -> FsFuture<'_, Bytes> {
        Box::pin(async { Err(FsError::NotImplemented) })
    }

    fn seek(&'_ mut self, position: SeekFrom) -> FsFuture<'_, u64> {
        match position {
            // The system has no such offsets.
            SeekFrom::Start(offset) if i64::try_from(offset).is_err() => {
                return Box::pin(async { Err(FsError::TooLarge) });
            }
            SeekFrom::Start(offset) if !self.appends => self.offset = offset,
            _ => {}
        }
        let offset = self.offset;
        Box::pin(async move { Ok(offset) })
    }

    fn flush(&'_ mut self) -> FsFuture<'_, ()> {
        Box::pin(self.finish())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(part) = self.part.take() {
            self.share.pool.submit(move || part.remove());
        }
    }
}

fn write_all(file: &File, pieces: &[Bytes], mut offset: u64) -> io::Result<()> {
    for piece in pieces {
        file.write_all_at(piece, offset)?;
        offset += piece.len() as u64;
    }
    Ok(())
}
