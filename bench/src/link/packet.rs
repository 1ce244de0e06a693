//! The size that a packet from a TUN device has on the wire.
//!
//! The kernel passes segments of up to 64 KiB to the device unsplit, along with the size of the pieces that they
//! must be split into (`struct virtio_net_hdr`, virtio 1.2, section 5.1.6). A real link carries each piece with
//! headers of its own, so the headers of each piece are counted.

/// Bytes of `virtio_net_hdr` before every packet.
pub(super) const VNET_HEADER: usize = 10;
/// Bytes of the largest packet that a TUN device returns, `virtio_net_hdr` included.
pub(super) const MAX_PACKET: usize = VNET_HEADER + 65_536;

const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
/// Flag in the same byte (`gso_type`) as the types above: explicit congestion notification.
const GSO_ECN: u8 = 0x80;

/// The size of a packet on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wire {
    /// Bytes of all pieces, with the headers of each, from IP on.
    pub(super) bytes: u64,
    /// Number of pieces.
    pub(super) packets: u64,
}

impl Wire {
    /// The size of `packet` as read from the device, `virtio_net_hdr` first. `None` if nothing follows that header.
    pub(super) fn of(packet: &[u8]) -> Option<Self> {
        let (header, ip) = packet.split_at_checked(VNET_HEADER)?;
        if ip.is_empty() {
            return None;
        }
        let whole = Self { bytes: ip.len() as u64, packets: 1 };
        let kind = header[1] & !GSO_ECN;
        let size = u64::from(u16::from_ne_bytes([header[4], header[5]]));
        if size == 0 || !matches!(kind, GSO_TCPV4 | GSO_TCPV6 | GSO_UDP_L4) {
            return Some(whole);
        }
        let Some(headers) = header_bytes(ip, kind == GSO_UDP_L4) else { return Some(whole) };
        let payload = whole.bytes.saturating_sub(headers);
        let packets = payload.div_ceil(size).max(1);
        Some(Self { bytes: payload + packets * headers, packets })
    }
}

/// Bytes of the IP header and the TCP or UDP header. `hdr_len` of `virtio_net_hdr` is only a hint and may be wrong.
fn header_bytes(ip: &[u8], udp: bool) -> Option<u64> {
    let network = match ip.first()? >> 4 {
        4 => usize::from(ip[0] & 0x0f) * 4,
        // Our own kernel sends no segments with extension headers.
        6 => 40,
        _ => return None,
    };
    let transport = if udp { 8 } else { usize::from(*ip.get(network + 12)? >> 4) * 4 };
    Some((network + transport) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A TCP segment over IPv4 with 12 bytes of options and `payload` bytes.
    fn segment(kind: u8, size: u16, payload: usize) -> Vec<u8> {
        let mut packet = vec![0; VNET_HEADER + 52 + payload];
        packet[1] = kind;
        packet[4..6].copy_from_slice(&size.to_ne_bytes());
        packet[VNET_HEADER] = 0x45;
        packet[VNET_HEADER + 20 + 12] = 8 << 4;
        packet
    }

    #[test]
    fn each_piece_of_a_large_segment_has_its_own_headers() {
        let wire = Wire::of(&segment(GSO_TCPV4, 1448, 14_480)).expect("a packet");
        assert_eq!(wire, Wire { bytes: 15_000, packets: 10 });
        let wire = Wire::of(&segment(GSO_TCPV4 | GSO_ECN, 1448, 14_481)).expect("a packet");
        assert_eq!(wire, Wire { bytes: 15_001 + 52, packets: 11 });
    }

    #[test]
    fn a_packet_that_is_not_split_has_its_own_length() {
        let wire = Wire::of(&segment(0, 0, 100)).expect("a packet");
        assert_eq!(wire, Wire { bytes: 152, packets: 1 });
    }

    #[test]
    fn an_empty_packet_has_no_size_and_a_truncated_one_its_own_length() {
        assert_eq!(Wire::of(&[]), None);
        assert_eq!(Wire::of(&[0; VNET_HEADER]), None);
        // The virtio header announces TCP, but the packet ends after the IP header.
        let mut short = segment(GSO_TCPV4, 1448, 0);
        short.truncate(VNET_HEADER + 20);
        assert_eq!(Wire::of(&short), Some(Wire { bytes: 20, packets: 1 }));
    }
}
