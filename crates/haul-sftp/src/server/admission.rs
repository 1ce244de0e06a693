//! Classifies requests before they are executed: each gets a scope, which decides when it may run, or an
//! immediate response. Also builds the VERSION packet.

use bytes::Bytes;

use super::limits;
use super::names;
use super::order::Scope;
use super::share::ShareOptions;
use super::status::{Refusal, status_response};
use crate::codec::{
    self, Extended, Extensions, Limits, OpenFlags, Request, Response, Status, name,
};

/// The scope of a request, or its response if nothing has to be done. `writes` returns whether
/// a handle was opened for writing.
pub(super) fn admit(
    request: &Request,
    options: &ShareOptions,
    writes: impl Fn(u32) -> bool,
) -> Result<Scope, Response> {
    let read_only = options.read_only;
    let scope = match request {
        Request::Read { handle, .. } | Request::Fstat(handle) => Scope::Read(number(handle)?),
        Request::Extended(Extended::Fstatvfs(handle)) => Scope::Read(number(handle)?),
        Request::Readdir(handle) => Scope::Advance(number(handle)?),
        Request::Close(handle) => {
            let handle = number(handle)?;
            if writes(handle) { Scope::Write(handle) } else { Scope::Advance(handle) }
        }
        Request::Write { handle, .. } | Request::Fsetstat(handle, _) if !read_only => {
            Scope::Write(number(handle)?)
        }
        Request::Extended(Extended::Fsync(handle)) => Scope::Write(number(handle)?),
        Request::Extended(Extended::CopyData { from, to, .. }) if !read_only => {
            number(from).and(number(to))?;
            Scope::WriteNames
        }
        Request::Open { flags, .. } => {
            let changes = [OpenFlags::CREATE, OpenFlags::TRUNCATE];
            let writes = [OpenFlags::WRITE, OpenFlags::APPEND];
            let is_any = |flags_of: [OpenFlags; 2]| flags_of.iter().any(|f| flags.has(*f));
            match (is_any(changes), is_any(writes)) {
                (false, false) => Scope::ReadNames,
                _ if read_only => return Err(Refusal::READ_ONLY.response()),
                (false, true) => Scope::ReadNames,
                (true, _) => Scope::WriteNames,
            }
        }
        Request::Extended(Extended::Limits) => {
            let limits = Limits {
                packet: u64::from(limits::PACKET),
                read: u64::from(limits::PAYLOAD),
                write: u64::from(limits::PAYLOAD),
                handles: options.handles as u64,
            };
            return Err(Response::Extended(limits.encode()));
        }
        Request::Extended(Extended::Unknown { .. }) => {
            return Err(status_response(Status::Unsupported, "no such extension"));
        }
        request if names::changes(request) => {
            if read_only {
                return Err(Refusal::READ_ONLY.response());
            }
            Scope::WriteNames
        }
        _ => Scope::ReadNames,
    };
    Ok(scope)
}

/// The VERSION packet, which lists the supported extensions.
pub(super) fn version() -> Response {
    let extensions = [
        (name::POSIX_RENAME, "1"),
        (name::STATVFS, "2"),
        (name::FSTATVFS, "2"),
        (name::HARDLINK, "1"),
        (name::FSYNC, "1"),
        (name::LSETSTAT, "1"),
        (name::LIMITS, "1"),
        (name::EXPAND_PATH, "1"),
        (name::COPY_DATA, "1"),
        (name::CHECK_FILE_NAME, "1"),
    ];
    let extensions = extensions
        .into_iter()
        .map(|(name, version)| (Bytes::from_static(name), Bytes::from_static(version.as_bytes())));
    Response::Version { version: codec::VERSION, extensions: Extensions(extensions.collect()) }
}

/// Parses a handle into its number. The handles of this server are four bytes, big-endian.
pub(super) fn number(handle: &[u8]) -> Result<u32, Response> {
    let number = <[u8; 4]>::try_from(handle).map(u32::from_be_bytes);
    number.map_err(|_| Refusal::NO_HANDLE.response())
}
