//! Copies on the server (`copy-data`), done in steps so that the disk threads also serve other
//! requests; when the client has disconnected, a copy ends with its current step.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use haul_storage::WorkPool;

use super::files::Open;
use super::pending::{Outcome, Pending};
use super::status::{Refusal, ok};
use crate::codec::{Extended, Request, Status};

/// Bytes per step.
const STEP: u64 = 32 << 20;

/// The file ends before the requested length. OpenSSH's sftp-server (9.2) confirms such a copy.
const AT_END: Refusal = Refusal::Server(Status::Eof, "End of file");

/// A copy in progress.
pub(super) struct Copying {
    from: Arc<Open>,
    to: Arc<Open>,
    offset: u64,
    length: u64,
    to_offset: u64,
    /// Its end in `from`; unknown before the first step.
    end: Option<u64>,
    in_kernel: bool,
}

impl Copying {
    /// The copy that `request` describes; `None` if a handle is unknown, and for other requests.
    pub(super) fn of(
        request: &Request,
        from: Option<Arc<Open>>,
        to: Option<Arc<Open>>,
    ) -> Option<Self> {
        let Request::Extended(Extended::CopyData { from_offset, length, to_offset, .. }) = *request
        else {
            return None;
        };
        let (offset, end) = (from_offset, None);
        Some(Self { from: from?, to: to?, offset, length, to_offset, end, in_kernel: true })
    }

    /// Does one step, and queues the next behind other work. Once `client` is invalid, the copy fails.
    pub(super) fn run(mut self, pool: &WorkPool, id: u32, client: Weak<()>, pending: Pending) {
        let again = pool.clone();
        pool.submit(move || {
            let outcome = match client.strong_count() {
                0 => Err(Refusal::GONE),
                _ => self.step(),
            };
            let packet: Bytes = match outcome {
                Ok(true) => ok().encode(id),
                Ok(false) => return self.run(&again, id, client, pending),
                Err(refusal) => refusal.response().encode(id),
            };
            // The files may be closed as soon as the response is sent.
            drop(self);
            pending.end(Outcome::Packet(packet));
        });
    }

    /// Copies one step; returns whether the copy is complete.
    fn step(&mut self) -> Result<bool, Refusal> {
        let (from, to) = (self.from.as_file()?, self.to.as_file()?);
        let end = match self.end {
            Some(end) => end,
            None => from.end_of_copy((self.offset, self.length), to, self.to_offset)?,
        };
        self.end = Some(end);
        let pause = end.min(self.offset.saturating_add(STEP));
        while self.offset < pause {
            let most = usize::try_from(pause - self.offset).unwrap_or(usize::MAX);
            let how = (most, &mut self.in_kernel);
            let copied = from.copy_some(self.offset, to, self.to_offset, how)? as u64;
            if copied == 0 {
                // Without a length, the end of the file ends the copy, even if the file has become shorter.
                return if self.length == 0 { Ok(true) } else { Err(AT_END) };
            }
            self.offset += copied;
            self.to_offset += copied;
        }
        Ok(self.offset >= end)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use haul_net::Jail;
    use tokio::sync::mpsc::unbounded_channel;

    use super::super::pending::Kind;
    use super::*;
    use crate::codec::{Attrs, OpenFlags};

    /// Regression: a copy of a long file went on for hours after its client was gone.
    #[test]
    fn a_copy_ends_when_its_client_has_disconnected() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        File::create(path("a")).unwrap().set_len(3 * STEP).unwrap();
        let jail = Jail::open(directory.path()).unwrap();
        let open = |name: &[u8], flags| {
            Some(Arc::new(Open::file(&jail, name, flags, &Attrs::default()).unwrap()))
        };
        let new = OpenFlags::WRITE.and(OpenFlags::CREATE);
        let (from, to) = (open(b"a", OpenFlags::READ), open(b"b", new));
        let request = Request::Extended(Extended::CopyData {
            from: Bytes::new(),
            from_offset: 0,
            length: 0,
            to: Bytes::new(),
            to_offset: 0,
        });
        let mut copying = Copying::of(&request, from, to).unwrap();
        assert_eq!(copying.step(), Ok(false));
        let (ending, mut ended) = unbounded_channel();
        let pending = Pending::new(None, 7, 0, Kind::Other, ending);
        let pool = WorkPool::new("test", 1).unwrap();
        copying.run(&pool, 7, Weak::new(), pending);
        let outcome = ended.blocking_recv().unwrap().outcome;
        let failed = Refusal::GONE.response().encode(7);
        assert!(matches!(outcome, Outcome::Packet(packet) if packet == failed));
        assert_eq!(fs::metadata(path("b")).unwrap().len(), STEP);
    }
}
