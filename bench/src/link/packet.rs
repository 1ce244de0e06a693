//! What a packet from a TUN device costs on the wire.
//!
//! The kernel hands over segments of up to 64 KiB whole and says into what size they are to be cut
//! (`struct virtio_net_hdr`, virtio 1.2, section 5.1.6). A line would carry each piece with its own
//! headers; so that is what is counted.

/// Bytes of `virtio_net_hdr` before every packet.
pub(super) const HEADER: usize = 10;
/// The largest packet that a TUN device gives, header included.
pub(super) const LARGEST: usize = HEADER + 65_536;

const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
/// A flag beside the kind: explicit congestion notification.
const GSO_ECN: u8 = 0x80;

/// What a packet costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wire {
    /// Bytes of all pieces, IP headers included.
    pub(super) bytes: u64,
    /// Pieces.
    pub(super) packets: u64,
}

impl Wire {
    /// Of `packet` as read from the device, `virtio_net_hdr` first. None: no packet.
    pub(super) fn of(packet: &[u8]) -> Option<Self> {
        let (header, ip) = packet.split_at_checked(HEADER)?;
        if ip.is_empty() {
            return None;
        }
        let whole = Self { bytes: ip.len() as u64, packets: 1 };
        let kind = header[1] & !GSO_ECN;
        let size = u64::from(u16::from_ne_bytes([header[4], header[5]]));
        if size == 0 || !matches!(kind, GSO_TCPV4 | GSO_TCPV6 | GSO_UDP_L4) {
            return Some(whole);
        }
        let Some(headers) = headers(ip, kind == GSO_UDP_L4) else { return Some(whole) };
        let payload = whole.bytes.saturating_sub(headers);
        let packets = payload.div_ceil(size).max(1);
        Some(Self { bytes: payload + packets * headers, packets })
    }
}

/// Bytes of IP and TCP or UDP headers. The header's own `hdr_len` is a hint and may be wrong.
fn headers(ip: &[u8], udp: bool) -> Option<u64> {
    let network = match ip.first()? >> 4 {
        4 => usize::from(ip[0] & 0x0f) * 4,
        // Extension headers do not occur with segments of our own kernel.
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
        let mut packet = vec![0; HEADER + 52 + payload];
        packet[1] = kind;
        packet[4..6].copy_from_slice(&size.to_ne_bytes());
        packet[HEADER] = 0x45;
        packet[HEADER + 20 + 12] = 8 << 4;
        packet
    }

    #[test]
    fn a_large_segment_costs_what_its_pieces_cost() {
        let wire = Wire::of(&segment(GSO_TCPV4, 1448, 14_480)).expect("a packet");
        assert_eq!(wire, Wire { bytes: 15_000, packets: 10 });
        let wire = Wire::of(&segment(GSO_TCPV4 | GSO_ECN, 1448, 14_481)).expect("a packet");
        assert_eq!(wire, Wire { bytes: 15_001 + 52, packets: 11 });
    }

    #[test]
    fn a_single_packet_costs_its_length() {
        let wire = Wire::of(&segment(0, 0, 100)).expect("a packet");
        assert_eq!(wire, Wire { bytes: 152, packets: 1 });
    }

    #[test]
    fn what_is_no_packet_is_none() {
        assert_eq!(Wire::of(&[]), None);
        assert_eq!(Wire::of(&[0; HEADER]), None);
        // A header that promises TCP and a packet that ends before it.
        let mut short = segment(GSO_TCPV4, 1448, 0);
        short.truncate(HEADER + 20);
        assert_eq!(Wire::of(&short), Some(Wire { bytes: 20, packets: 1 }));
    }
}
