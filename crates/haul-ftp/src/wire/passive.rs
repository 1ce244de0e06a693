//! The port of a data connection: replies to `EPSV` (RFC 2428) and `PASV` (RFC 959).
//!
//! Only the port is used. The address in a reply to `PASV` is wrong behind NAT, and a hostile server
//! could direct the client elsewhere; data connections always go to the host of the control connection.

/// The port in `229 Entering Extended Passive Mode (|||6446|)`; any character may be the delimiter.
pub fn extended_port(text: &[u8]) -> Option<u16> {
    let open = text.iter().position(|byte| *byte == b'(')?;
    let inner = &text[open + 1..];
    let close = inner.iter().position(|byte| *byte == b')')?;
    let inner = &inner[..close];
    let delimiter = *inner.first()?;
    let mut fields = inner.split(|byte| *byte == delimiter).skip(3);
    number::<u16>(fields.next()?).filter(|port| *port != 0)
}

/// The port in `227 Entering Passive Mode (127,0,0,1,24,31)`; some servers leave the parentheses
/// out.
pub fn port(text: &[u8]) -> Option<u16> {
    let is_part = |byte: &u8| byte.is_ascii_digit() || *byte == b',';
    text.split(|byte| !is_part(byte)).find_map(|group| {
        let fields: Vec<_> = group.split(|byte| *byte == b',').map(number::<u8>).collect();
        let [_, _, _, _, high, low] = fields[..] else { return None };
        Some(u16::from(high?) << 8 | u16::from(low?)).filter(|port| *port != 0)
    })
}

/// The length in `150 Opening BINARY mode data connection for f (1234 bytes)`, which many servers send
/// when a download begins.
pub fn announced_size(text: &[u8]) -> Option<u64> {
    let open = text.iter().rposition(|byte| *byte == b'(')?;
    let (digits, unit) =
        text[open + 1..].split_at(text[open + 1..].iter().position(|b| *b == b' ')?);
    unit.starts_with(b" byte").then(|| number(digits)).flatten()
}

fn number<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ports_are_read_as_servers_write_them() {
        assert_eq!(extended_port(b"Entering Extended Passive Mode (|||6446|)"), Some(6446));
        assert_eq!(extended_port(b"ok (!!!6446!)."), Some(6446));
        assert_eq!(port(b"Entering Passive Mode (127,0,0,1,24,31)."), Some(24 * 256 + 31));
        assert_eq!(port(b"Entering Passive Mode. 10,0,0,1,0,21"), Some(21));
    }

    #[test]
    fn invalid_replies_have_no_port() {
        for text in [&b""[..], b"()", b"(|||99999|)", b"(|||)", b"|||5|", b"(|||0x5|)", b"(|||0|)"]
        {
            assert_eq!(extended_port(text), None);
        }
        for text in [&b"1,2,3"[..], b"(1,2,3,4,256,1)", b"1,2,3,4,0,0", b",,,,,"] {
            assert_eq!(port(text), None);
        }
    }

    #[test]
    fn a_length_is_read_only_where_bytes_are_counted() {
        let opening = b"Opening BINARY mode data connection for a (7 x) b (1234 bytes).";
        assert_eq!(announced_size(opening), Some(1234));
        assert_eq!(announced_size(b"Here it comes (1 byte)"), Some(1));
        for text in
            [&b"Here it comes"[..], b"(12 files)", b"(x bytes)", b"(", b"(12)", b"(-1 bytes)"]
        {
            assert_eq!(announced_size(text), None);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_panic(text in prop::collection::vec(any::<u8>(), 0..80)) {
            extended_port(&text);
            port(&text);
            announced_size(&text);
        }
    }
}
