//! An open `/dev/fuse`.

use std::io::{self, IoSlice, PipeReader, PipeWriter};
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{Errno, read, writev};

use crate::fuse::reply_head;
use crate::lock::lock;

/// An open `/dev/fuse`. The kernel ends the connection once it is dropped.
#[derive(Debug)]
pub(crate) struct Device {
    fd: OwnedFd,
    /// Held by the thread that reads.
    turn: Mutex<()>,
    stops: AtomicBool,
    /// Ends when `stopper` is dropped, which wakes the thread that waits.
    stopped: PipeReader,
    stopper: Mutex<Option<PipeWriter>>,
}

impl Device {
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        fcntl_setfl(&fd, OFlags::NONBLOCK)?;
        let (stopped, stopper) = io::pipe()?;
        let (turn, stops, stopper) = (Mutex::default(), AtomicBool::new(false), Some(stopper));
        Ok(Self { fd, turn, stops, stopped, stopper: Mutex::new(stopper) })
    }

    /// Waits for the next request and returns its length; `None` once the file system is unmounted, or after
    /// [`Device::stop`].
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let _turn = lock(&self.turn);
        while !self.stops.load(Ordering::Acquire) {
            match read(&self.fd, &mut *buffer) {
                Ok(0) | Err(Errno::NODEV) => return Ok(None),
                Ok(length) => return Ok(Some(length)),
                // The next request was interrupted before it was read (ENOENT), or a signal arrived (EINTR).
                Err(Errno::NOENT | Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait()?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    fn wait(&self) -> io::Result<()> {
        let mut events = [
            PollFd::new(&self.fd, PollFlags::IN),
            // `poll` reports a closed pipe (`HUP`) even if no events are requested.
            PollFd::new(&self.stopped, PollFlags::empty()),
        ];
        match poll(&mut events, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes [`Device::receive`] return `None`, on all threads.
    pub(super) fn stop(&self) {
        self.stops.store(true, Ordering::Release);
        drop(lock(&self.stopper).take());
    }

    /// Sends the response to a request. Returns false if the kernel no longer waits for it.
    pub(super) fn send(&self, unique: u64, error: Option<Errno>, body: &[&[u8]]) -> bool {
        let head = reply_head(unique, error, body.iter().map(|piece| piece.len()).sum());
        let mut pieces = Vec::with_capacity(1 + body.len());
        pieces.push(IoSlice::new(&head));
        pieces.extend(body.iter().map(|piece| IoSlice::new(piece)));
        // A failure is normal: the request may have been interrupted, or the file system unmounted.
        self.write(&pieces)
    }

    /// Sends a notice. It is ignored if the kernel does not know the node any more.
    pub(super) fn notify(&self, notice: &[u8]) {
        self.write(&[IoSlice::new(notice)]);
    }

    fn write(&self, pieces: &[IoSlice<'_>]) -> bool {
        loop {
            match writev(&self.fd, pieces) {
                Ok(_) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}
