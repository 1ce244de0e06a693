//! Why sessions are terminated.

use super::super::limits;
use crate::codec::CodecError;

/// Why a session was terminated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The bytes are not SFTP.
    #[error("not SFTP: {0}")]
    NotSftp(#[from] CodecError),
    /// A packet arrived before INIT.
    #[error("not SFTP: it does not begin with INIT")]
    NoInit,
    /// The client sends requests and does not read the responses.
    #[error("more than {} requests are unanswered", limits::REQUESTS)]
    TooManyRequests,
    /// The client does not read its responses, so its writes wait, and it has sent more data than may wait.
    #[error("the client does not read its responses")]
    TooManyBytes,
}
