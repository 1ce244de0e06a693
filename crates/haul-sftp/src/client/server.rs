//! Capabilities of a server, from its extensions and its SSH identification string.

use crate::codec::{Extensions, LEAST_PACKET, Limits, OPENSSH_PACKET_MAX, Request};

/// Payload bytes in one READ or WRITE that every server supports (draft 02, section 3).
const LEAST_PAYLOAD: u64 = 32_768;

/// Bytes of a packet that are reserved for everything but the payload of a WRITE or of the response to a READ.
const HEAD: u64 = 1024;

/// The capabilities of a server.
#[derive(Debug, Clone)]
pub(super) struct Server {
    /// Maximum bytes in one READ.
    pub(super) read: u32,
    /// Maximum bytes in one WRITE.
    pub(super) write: u32,
    /// The announced extensions.
    pub(super) extensions: Extensions,
}

impl Server {
    /// The capabilities by the announced extensions and, if the server reports them, its limits.
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

    /// The capabilities that every server has.
    pub(super) fn unknown() -> Self {
        Self::new(Extensions::default(), None)
    }
}

/// Whether a request may be sent together with INIT, before the server's VERSION. A request that needs a handle is sent
/// early only to OpenSSH, whose first handle is always the same.
pub(super) fn goes_early(server: &str, request: &Request) -> bool {
    match request {
        Request::Readdir(_) | Request::Read { .. } => is_openssh(server),
        _ => is_eager(server),
    }
}

/// Whether the identification string is that of OpenSSH. Another SFTP server may run behind OpenSSH's sshd, so a
/// wrong guess must not have lasting consequences.
pub(super) fn is_openssh(server: &str) -> bool {
    server.starts_with("SSH-2.0-OpenSSH_")
}

/// Whether a server is known to respond to requests that are sent before its VERSION.
pub(super) fn is_eager(server: &str) -> bool {
    server.contains("OpenSSH") || server.contains("haul")
}
