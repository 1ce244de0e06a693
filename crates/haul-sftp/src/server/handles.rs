//! What is done by handle, but for reading and writing. Everything here blocks; `session` moves it
//! to the disk threads.

use std::sync::Arc;

use super::files::{Open, stat_vfs_response};
use super::status::{Refusal, ok};
use crate::codec::{Extended, Request, Response};

/// Describes, sets or syncs what is open.
pub(super) fn perform(open: Option<Arc<Open>>, request: &Request) -> Response {
    let answer = || {
        let open = open.ok_or(Refusal::NO_HANDLE)?;
        match request {
            Request::Fstat(_) => return Ok(Response::Attrs(open.attrs()?)),
            Request::Fsetstat(_, attrs) => open.set(attrs)?,
            Request::Extended(Extended::Fsync(_)) => open.as_file()?.sync()?,
            Request::Extended(Extended::Fstatvfs(_)) => {
                return Ok(stat_vfs_response(&open.stat_vfs()?));
            }
            _ => return Err(Refusal::NO_HANDLE),
        }
        Ok(ok())
    };
    answer().unwrap_or_else(|refusal: Refusal| refusal.response())
}

/// Copies a range from one open file to another.
pub(super) fn copy(from: Option<Arc<Open>>, to: Option<Arc<Open>>, request: &Request) -> Response {
    let answer = || {
        let (from, to) = (from.ok_or(Refusal::NO_HANDLE)?, to.ok_or(Refusal::NO_HANDLE)?);
        let Request::Extended(Extended::CopyData { from_offset, length, to_offset, .. }) = request
        else {
            return Err(Refusal::NO_HANDLE);
        };
        from.as_file()?.copy_to(*from_offset, *length, to.as_file()?, *to_offset)?;
        Ok(ok())
    };
    answer().unwrap_or_else(|refusal: Refusal| refusal.response())
}
