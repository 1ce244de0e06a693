//! Digests of files (`check-file-name`), SHA-256 only. They are computed in steps, so that the disk
//! threads also serve other requests; when the session ends, its digests end with their current
//! step.

use std::sync::Weak;

use bytes::Bytes;
use haul_net::Jail;
use haul_storage::WorkPool;
use sha2::{Digest as _, Sha256};

use super::files::Open;
use super::status::Refusal;
use crate::codec::{Attrs, Extended, FileHash, OpenFlags, Request, Response, Status};

/// Bytes per step: a few milliseconds.
const STEP: u64 = 8 << 20;

/// Bytes per read.
const PIECE: usize = 256 << 10;

/// A digest in progress.
pub(super) struct Hashing {
    file: Open,
    offset: u64,
    /// The end of the range; the file may end before.
    end: u64,
    hasher: Sha256,
}

impl Hashing {
    /// Opens the file whose digest is requested.
    pub(super) fn open(jail: &Jail, request: &Request) -> Result<Self, Refusal> {
        let Request::Extended(Extended::CheckFileName { path, algorithms, offset, length, block }) =
            request
        else {
            return Err(Refusal::NO_HANDLE);
        };
        let is_known = algorithms.split(|byte| *byte == b',').any(|name| name == FileHash::SHA256);
        if !is_known || *block != 0 {
            let words = "only sha256 with block size 0 is supported";
            return Err(Refusal::Server(Status::Unsupported, words));
        }
        let file = Open::file(jail, path, OpenFlags::READ, &Attrs::default())?;
        let end = match length {
            0 => u64::MAX,
            length => offset.saturating_add(*length),
        };
        Ok(Self { file, offset: *offset, end, hasher: Sha256::new() })
    }

    /// Hashes one step. The next step is queued behind other work while the session exists.
    /// `respond` gets the response to request `id`; it is dropped if the session ends before the last step.
    pub(super) fn run(
        mut self,
        pool: &WorkPool,
        id: u32,
        session: Weak<()>,
        respond: impl FnOnce(Bytes) + Send + 'static,
    ) {
        let again = pool.clone();
        pool.submit(move || {
            let packet: Bytes = match self.step() {
                Ok(true) => {
                    let digests = self.hasher.finalize().to_vec().into();
                    let hash = FileHash { algorithm: FileHash::SHA256.into(), digests };
                    Response::Extended(hash.encode()).encode(id)
                }
                Ok(false) if session.strong_count() > 0 => {
                    return self.run(&again, id, session, respond);
                }
                Ok(false) => return,
                Err(refusal) => refusal.response().encode(id),
            };
            respond(packet);
        });
    }

    /// Hashes one step; returns whether the digest is complete.
    fn step(&mut self) -> Result<bool, Refusal> {
        let file = self.file.as_file()?;
        let mut buffer = vec![0; PIECE];
        let pause = self.end.min(self.offset.saturating_add(STEP));
        while self.offset < pause {
            let most = usize::try_from(pause - self.offset).unwrap_or(PIECE).min(PIECE);
            let read = file.read_into(self.offset, &mut buffer[..most])?;
            if read == 0 {
                return Ok(true);
            }
            self.hasher.update(&buffer[..read]);
            self.offset += read as u64;
        }
        Ok(self.offset >= self.end)
    }
}
