//! What a server can do, by what it announces and by what it calls itself.

use crate::codec::{Extensions, LEAST_PACKET, Limits, OPENSSH_PACKET_MAX, Request};

/// What any server reads and writes at a time (draft 02, section 3).
const LEAST_PAYLOAD: u64 = 32_768;

/// What is between head and payload of the longest READ answer or WRITE.
const HEAD: u64 = 1024;

/// What a server can do.
#[derive(Debug, Clone)]
pub(super) struct Server {
    /// Bytes in one READ.
    pub(super) read: u32,
    /// Bytes in one WRITE.
    pub(super) write: u32,
    /// What it announced.
    pub(super) extensions: Extensions,
}

impl Server {
    /// By what it announces and, if it says so, allows.
    pub(super) fn new(extensions: Extensions, limits: Option<Limits>) -> Self {
        let packet = match limits.map(|limits| limits.packet) {
            None | Some(0) => u64::from(LEAST_PACKET),
            Some(packet) => packet.min(u64::from(OPENSSH_PACKET_MAX)),
        };
        let most = packet.saturating_sub(HEAD).max(1024);
        let length = |limit: Option<u64>| {
            let length = match limit {
                None => LEAST_PAYLOAD,
                Some(0) => most,
                Some(limit) => limit.min(most),
            };
            u32::try_from(length).unwrap_or(u32::MAX)
        };
        Self {
            read: length(limits.map(|limits| limits.read)),
            write: length(limits.map(|limits| limits.write)),
            extensions,
        }
    }

    /// Of which only is known what every server can do.
    pub(super) fn unknown() -> Self {
        Self::new(Extensions::default(), None)
    }
}

/// Whether a question goes to a server together with the greeting. What is asked of a handle that
/// is not known yet goes to OpenSSH only, whose first handle is always the same.
pub(super) fn goes_early(server: &str, request: &Request) -> bool {
    match request {
        Request::Readdir(_) | Request::Read { .. } => is_openssh(server),
        _ => is_eager(server),
    }
}

/// Whether it is OpenSSH's, by what it calls itself. Programs of others behind OpenSSH's sshd call
/// themselves the same, so nothing may go wrong for good where that is not so.
pub(super) fn is_openssh(server: &str) -> bool {
    server.starts_with("SSH-2.0-OpenSSH_")
}

/// Whether a server is known to answer whatever it is asked.
pub(super) fn is_eager(server: &str) -> bool {
    server.contains("OpenSSH") || server.contains("haul")
}
