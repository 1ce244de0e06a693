//! Tests of the layout, the limits and the errors of tickets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

fn ticket() -> Ticket {
    Ticket::new(PeerKey([1; 32]), Secret::new([2; 16]))
}

fn full() -> Ticket {
    let addresses = ["192.0.2.1:4077", "192.0.2.2:4077", "[2001:db8::1]:4077", "10.0.0.1:1"];
    let mut ticket = ticket().with_addresses(addresses.map(|text| text.parse().unwrap()));
    let bridge = BridgeAddress::new("bridge.example", 443).unwrap();
    ticket.bridge = Some(bridge.with_key(Some([3; 32])));
    ticket.expires = Some(1_800_000_000);
    ticket.is_one_use = true;
    ticket.is_writable = true;
    ticket
}

/// A ticket's text with these bytes before the checksum.
fn text_of(body: &[u8]) -> String {
    let mut bytes = body.to_vec();
    bytes.extend(checksum(body));
    format!("{PREFIX}{}", *base32::encode(&bytes))
}

/// A ticket of version 1 with key, secret and these fields.
fn text_with(fields: &[Field<'_>]) -> String {
    let mut bytes = vec![VERSION];
    for (kind, value) in [(KEY, &[1; 32][..]), (SECRET, &[2; 16][..])].iter().chain(fields) {
        push_field(&mut bytes, *kind, value);
    }
    bytes.push(END);
    text_of(&bytes)
}

fn error_of(text: &str) -> TicketError {
    text.parse::<Ticket>().unwrap_err()
}

#[test]
fn the_bytes_are_those_of_the_documented_layout() {
    let expected = [
        &[1][..],
        &[0x81, 32],
        &[1; 32],
        &[0x82, 16],
        &[2; 16],
        &[0x03, 12, 192, 0, 2, 1, 0x0f, 0xed, 192, 0, 2, 2, 0x0f, 0xed],
        &[0x04, 18, 0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0x0f, 0xed],
        &[0x03, 6, 10, 0, 0, 1, 0, 1],
        &[0x05, 16, 0x01, 0xbb],
        b"bridge.example",
        &[0x86, 32],
        &[3; 32],
        &[0x07, 8],
        &1_800_000_000_u64.to_be_bytes(),
        &[0x08, 1, 3, 0],
    ]
    .concat();
    let bytes = full().to_bytes();
    let (body, sum) = bytes.split_at(bytes.len() - CHECKSUM_LEN);
    assert_eq!(body, expected);
    assert_eq!(sum, checksum(&expected));
    assert_eq!(full().to_string(), text_of(&expected));
    assert_eq!(text_of(&expected).parse(), Ok(full()));
}

#[test]
fn the_test_vector_of_the_documentation_is_a_ticket() {
    let mut ticket = ticket().with_addresses(["192.0.2.1:4180".parse().unwrap()]);
    ticket.is_writable = true;
    let text = ticket.to_string();
    let page = include_str!("../../../../docs/peer-protocol.md");
    assert!(page.contains(&format!("\n    {text}\n")), "{text}");
    assert_eq!(text.parse(), Ok(ticket));
}

#[test]
fn case_and_surrounding_white_space_do_not_matter() {
    let upper = full().to_upper();
    assert_eq!(upper.to_lowercase(), full().to_string());
    assert!(upper.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit()));
    assert_eq!(format!("\t {} \r\n", *upper).parse(), Ok(full()));
}

#[test]
fn other_text_is_not_a_ticket() {
    for text in [
        "",
        " ",
        "haul",
        "hau",
        "haul_",
        "haul0aa",
        "iaul1aaaa",
        "http://host/",
        "häul1a",
        "hauü1",
        "ü",
    ] {
        assert_eq!(error_of(text), TicketError::NotATicket, "{text}");
    }
}

#[test]
fn a_foreign_character_is_reported_with_its_position() {
    let character = |found, position| TicketError::Character { found, position };
    assert_eq!(error_of("haul10"), character('0', 6));
    assert_eq!(error_of(" haul1ab\ncd"), character('\n', 8));
    assert_eq!(error_of("haul1abü"), character('ü', 8));
    assert_eq!(error_of(&format!("{}.", ticket())), character('.', ticket().to_string().len() + 1));
    // A right-to-left override is escaped.
    assert!(character('\u{202e}', 6).to_string().contains(r"'\u{202e}'"));
}

#[test]
fn a_ticket_without_its_end_is_reported_as_cut_off() {
    let text = full().to_string();
    for end in PREFIX.len()..text.len() {
        assert_eq!(error_of(&text[..end]), TicketError::CutOff, "{end}");
    }
}

#[test]
fn characters_behind_a_ticket_are_an_error() {
    for more in ["a", "aa", "aaaaaaaa", "7777777777"] {
        assert_eq!(error_of(&format!("{}{more}", full())), TicketError::Mistyped);
    }
}

#[test]
fn a_text_of_more_than_2_kib_is_refused() {
    let text = format!("haul1{}", "a".repeat(MAX_TEXT));
    assert_eq!(error_of(&text), TicketError::TooLong);
    assert_ne!(error_of(&text[..MAX_TEXT]), TicketError::TooLong);
}

#[test]
fn the_longest_ticket_is_within_the_limit() {
    let ip = |n: u16| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n));
    let addresses = (0..40).map(|n| Address::new(SocketAddr::new(ip(n), 1)).unwrap());
    let mut ticket = full();
    ticket.addresses.clear();
    let mut ticket = ticket.with_addresses(addresses);
    let host = format!("{}a", "a.".repeat(126));
    ticket.bridge = Some(BridgeAddress::new(&host, 1).unwrap().with_key(Some([3; 32])));
    assert_eq!(ticket.addresses().len(), MAX_ADDRESSES);
    let text = ticket.to_string();
    assert!(text.len() < 1600, "{}", text.len());
    assert_eq!(text.parse(), Ok(ticket));
}

#[test]
fn more_than_32_addresses_are_refused() {
    let address = [192_u8, 0, 2, 1, 0, 1];
    let most = address.repeat(MAX_ADDRESSES);
    assert!(text_with(&[(IPV4, &most)]).parse::<Ticket>().is_ok());
    let error = error_of(&text_with(&[(IPV4, &most), (IPV4, &address)]));
    assert_eq!(error, TicketError::TooManyAddresses);
}

#[test]
fn a_ticket_of_a_later_version_is_distinguished_from_a_damaged_one() {
    assert_eq!(error_of(&text_of(&[2, 0x11, 1, 0, END])), TicketError::LaterVersion);
    assert_eq!(error_of("haul2abcdefgh"), TicketError::LaterVersion);
    let critical = text_with(&[(CRITICAL | 9, b"new")]);
    assert_eq!(error_of(&critical), TicketError::LaterVersion);
    // Also if the later version has changed the format of known fields.
    let critical = text_with(&[(EXPIRES, b"short"), (CRITICAL | 9, b"new")]);
    assert_eq!(error_of(&critical), TicketError::LaterVersion);
    assert_eq!(text_with(&[(9, b"new"), (0x7f, b"")]).parse(), Ok(ticket()));
}

#[test]
fn unknown_flags_are_ignored() {
    let parsed: Ticket = text_with(&[(FLAGS, &[0xfd])]).parse().unwrap();
    assert!(parsed.is_one_use && !parsed.is_writable);
}

#[test]
fn malformed_fields_are_refused() {
    let bridge: Field<'_> = (BRIDGE, b"\x01\xbbhost");
    let cases: [&[Field<'_>]; 10] = [
        &[(KEY, &[1; 32])],
        &[(EXPIRES, &[0; 7])],
        &[(EXPIRES, &[0; 8]), (EXPIRES, &[0; 8])],
        &[(IPV4, &[192, 0, 2, 1, 0])],
        &[(IPV6, &[0x20; 19])],
        &[(BRIDGE_KEY, &[3; 32])],
        &[bridge, bridge],
        &[(BRIDGE, &[1])],
        &[(BRIDGE, b"\x01\xbb\xff")],
        &[(FLAGS, &[])],
    ];
    for fields in cases {
        let error = error_of(&text_with(fields));
        assert!(matches!(error, TicketError::Malformed(_)), "{fields:?}: {error}");
    }
    for body in [&[1, END][..], &[0, END], &[1, KEY, 1, 1, END]] {
        assert!(matches!(error_of(&text_of(body)), TicketError::Malformed(_)), "{body:?}");
    }
    let mut weak = ticket();
    weak.key = PeerKey([0; 32]);
    assert_eq!(error_of(&weak.to_string()), TicketError::Malformed("its key is weak"));
}

#[test]
fn addresses_that_cannot_be_dialled_are_refused() {
    let cases: [Field<'_>; 7] = [
        (IPV4, &[224, 0, 0, 1, 0, 1]),
        (IPV4, &[0, 0, 0, 0, 0, 1]),
        (IPV4, &[192, 0, 2, 1, 0, 0]),
        (IPV6, &[0; 18]),
        (BRIDGE, b"\0\0host"),
        (BRIDGE, b"\0\x01a b"),
        (BRIDGE, b"\0\x01"),
    ];
    for (kind, value) in cases {
        let error = error_of(&text_with(&[(kind, value)]));
        assert!(matches!(error, TicketError::Address(_)), "{value:?}: {error}");
    }
}

#[test]
fn a_location_is_a_ticket_and_a_path() {
    let text = ticket().to_string();
    for (suffix, path) in [("", ""), ("/", ""), ("/a/b", "a/b"), ("/a ", "a "), ("//a", "/a")] {
        let location: TicketLocation = format!("{text}{suffix}").parse().unwrap();
        assert_eq!(location, TicketLocation { ticket: ticket(), path: path.to_owned() });
    }
    assert_eq!(split("haul1abc/d/e"), ("haul1abc", "d/e"));
}

#[test]
fn a_file_with_a_ticket_has_it_in_its_first_line_that_is_not_blank() {
    let text = ticket().to_string();
    for given in [format!("\u{feff}\n  \r\n {text} \r\nmore\n"), text] {
        assert_eq!(parse_given(&given), Ok(ticket()));
    }
    assert_eq!(parse_given(" \n"), Err(TicketError::NotATicket));
    assert_eq!(parse_given("first\nhaul1"), Err(TicketError::NotATicket));
}

#[test]
fn debug_output_hides_the_secret() {
    let secret = "[2, 2, 2";
    let location = TicketLocation { ticket: full(), path: String::new() };
    let shown = format!("{location:?}");
    assert!(shown.contains("***") && !shown.contains(secret), "{shown}");
}

fn addresses() -> impl Strategy<Value = Vec<Address>> {
    let ip = prop_oneof![
        any::<Ipv4Addr>().prop_map(IpAddr::V4),
        any::<Ipv6Addr>().prop_map(IpAddr::V6),
    ];
    let address = (ip, any::<u16>());
    prop::collection::vec(address, 0..40).prop_map(|found| {
        let checked = |(ip, port)| Address::new(SocketAddr::new(ip, port)).ok();
        found.into_iter().filter_map(checked).collect()
    })
}

fn bridges() -> impl Strategy<Value = BridgeAddress> {
    let host = prop_oneof!["[a-z][a-z0-9]{0,20}(\\.[a-z]{1,10}){0,3}", Just("::1".to_owned())];
    let key = prop::option::of(any::<[u8; 32]>());
    (host, 1_u16.., key)
        .prop_map(|(host, port, key)| BridgeAddress::new(&host, port).unwrap().with_key(key))
}

fn tickets() -> impl Strategy<Value = Ticket> {
    let key = any::<[u8; 32]>().prop_filter_map("weak", PeerKey::checked);
    let bridge = prop::option::of(bridges());
    let rest = (any::<Option<u64>>(), any::<bool>(), any::<bool>());
    (key, any::<[u8; 16]>(), addresses(), bridge, rest).prop_map(
        |(key, secret, addresses, bridge, (expires, is_one_use, is_writable))| {
            let ticket = Ticket::new(key, Secret::new(secret)).with_addresses(addresses);
            Ticket { bridge, expires, is_one_use, is_writable, ..ticket }
        },
    )
}

proptest! {
    #[test]
    fn a_ticket_is_parsed_as_it_was_written(ticket in tickets()) {
        let text = ticket.to_string();
        prop_assert!(text.len() <= MAX_TEXT);
        prop_assert_eq!(text.parse(), Ok(ticket));
    }

    #[test]
    fn a_replaced_inserted_or_removed_character_is_an_error(
        ticket in tickets(),
        at in any::<prop::sample::Index>(),
        other in "[a-z0-9.]",
    ) {
        let text = ticket.to_string();
        let at = at.index(text.len());
        let changed = format!("{}{other}{}", &text[..at], &text[at + 1..]);
        prop_assert!(changed == text || changed.parse::<Ticket>().is_err(), "{at}");
        let inserted = format!("{}{other}{}", &text[..at], &text[at..]);
        prop_assert!(inserted.parse::<Ticket>().is_err(), "{at}");
        let removed = format!("{}{}", &text[..at], &text[at + 1..]);
        prop_assert!(removed.parse::<Ticket>().is_err(), "{at}");
    }

    #[test]
    fn any_bytes_with_a_valid_checksum_are_parsed_or_refused(
        body in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let body = [&[1][..], &body, &[END]].concat();
        drop(text_of(&body).parse::<Ticket>());
    }

    #[test]
    fn any_text_is_parsed_or_refused(text in "(haul1|HAUL1)?.{0,40}") {
        drop(text.parse::<TicketLocation>());
    }
}

/// Every replacement of one character of one ticket, at every position.
#[test]
fn every_replaced_character_of_a_ticket_is_an_error() {
    let text = full().to_string();
    for at in 0..text.len() {
        for other in "abcdefghijklmnopqrstuvwxyz0123456789".chars() {
            let changed = format!("{}{other}{}", &text[..at], &text[at + 1..]);
            assert!(changed == text || changed.parse::<Ticket>().is_err(), "{at} {other}");
        }
    }
}
