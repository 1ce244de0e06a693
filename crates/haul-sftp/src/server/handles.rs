//! Requests that refer to a handle, except READ, WRITE, READDIR, CLOSE and `copy-data`. These calls block; `session`
//! runs FSYNC on disk threads, and the others on its own thread as long as they are quick.

use std::sync::Arc;

use super::files::{Open, stat_vfs_response};
use super::status::{Refusal, ok};
use crate::codec::{Extended, Request, Response};

/// Performs FSTAT, FSETSTAT, `fsync@openssh.com` or `fstatvfs@openssh.com`.
pub(super) fn perform(open: Option<Arc<Open>>, request: &Request) -> Response {
    let respond = || {
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
    respond().unwrap_or_else(|refusal: Refusal| refusal.response())
}
