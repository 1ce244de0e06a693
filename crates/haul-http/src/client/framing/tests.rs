//! Responses with each kind of body, malformed, truncated, or split at any byte.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn url() -> Url {
    Url::parse("http://h/f").unwrap()
}

/// The parsed response.
#[derive(Debug, Default, PartialEq, Eq)]
struct Read {
    provisional: Vec<u16>,
    status: Option<u16>,
    body: Vec<u8>,
    /// Whether the connection can be reused, once the response has ended.
    reusable: Option<bool>,
    broken: Option<Broken>,
    /// Bytes of the next response.
    rest: Vec<u8>,
}

/// Parses a response that arrives in pieces, then the end of the connection.
fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, is_to_head: bool) -> Read {
    let mut framing = Framing::new(url(), is_to_head);
    let (mut input, mut read) = (BytesMut::new(), Read::default());
    for piece in pieces {
        input.extend_from_slice(piece);
        while read.reusable.is_none() && read.broken.is_none() {
            match framing.poll(&mut input) {
                Ok(Some(Event::Provisional(status))) => read.provisional.push(status.as_u16()),
                Ok(Some(Event::Head(head))) => read.status = Some(head.status.as_u16()),
                Ok(Some(Event::Body(bytes))) => {
                    assert!(!bytes.is_empty());
                    read.body.extend_from_slice(&bytes);
                }
                Ok(Some(Event::End)) => read.reusable = Some(framing.keeps_open()),
                Ok(None) => break,
                Err(broken) => read.broken = Some(broken),
            }
        }
    }
    if read.reusable.is_none() && read.broken.is_none() {
        match framing.on_close() {
            Ok(()) => read.reusable = Some(framing.keeps_open()),
            Err(broken) => read.broken = Some(broken),
        }
    }
    // After an error the remaining input has no meaning.
    read.rest = if read.broken.is_some() { Vec::new() } else { input.to_vec() };
    read
}

fn whole(text: &str) -> Read {
    read([text.as_bytes()], false)
}

#[test]
fn the_head_determines_where_the_body_ends() {
    for (head, body, rest, reusable) in [
        ("Content-Length: 5\r\n", "hello", "HTTP/1.1 200", true),
        ("Content-Length: 5\r\nConnection: x, Close\r\n", "hello", "", false),
        ("Content-Length: 0\r\n", "", "next", true),
        ("", "until the end", "", false),
        ("Transfer-Encoding: identity\r\nContent-Length: 3\r\n", "abc", "next", true),
        ("Transfer-Encoding: Identity\r\n", "until the end", "", false),
    ] {
        let read = whole(&format!("HTTP/1.1 200 OK\r\n{head}\r\n{body}{rest}"));
        assert_eq!(read.body, body.as_bytes(), "{head}");
        assert_eq!(
            (read.rest, read.reusable),
            (rest.as_bytes().to_vec(), Some(reusable)),
            "{head}"
        );
    }
}

#[test]
fn chunks_may_have_extensions_and_a_trailer() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n";
    let read = whole(&format!(
        "{head}5;a=\"b\"\r\nhello\r\nA\r\n, world of\r\n0;x\r\nDigest: y\r\n\r\nnext"
    ));
    assert_eq!(read.body, b"hello, world of");
    assert_eq!((&read.rest[..], read.reusable), (&b"next"[..], Some(true)));
    for wrong in ["x\r\n", "5\r\nhello5\r\n", "\r\n\r\n", "FFFFFFFFFFFFFFFFF\r\n", "-1\r\n"] {
        let read = whole(&format!("{head}{wrong}"));
        assert!(matches!(read.broken, Some(Broken::Unreadable(_))), "{wrong}: {read:?}");
    }
    for cut in ["", "5", "5\r\nhel", "5\r\nhello", "5\r\nhello\r\n", "0\r\n", "0\r\nDigest: y\r\n"]
    {
        let read = whole(&format!("{head}{cut}"));
        assert!(matches!(read.broken, Some(Broken::Within(_))), "{cut}: {read:?}");
    }
}

/// The bytes of `gzip, chunked` used to be stored as the file.
#[test]
fn a_transfer_coding_that_was_not_requested_is_unreadable() {
    for codings in [
        "gzip, chunked",
        "gzip",
        "chunked, gzip",
        "chunked, chunked",
        "gzip\r\nTransfer-Encoding: chunked",
    ] {
        let head = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {codings}\r\n\r\n");
        let read = whole(&format!("{head}2\r\nab\r\n0\r\n\r\n"));
        assert!(matches!(read.broken, Some(Broken::Unreadable(_))), "{codings}: {read:?}");
        assert!(read.body.is_empty(), "{codings}: {read:?}");
    }
}

#[test]
fn some_responses_have_no_body() {
    let chunked = "Transfer-Encoding: chunked\r\nContent-Length: 7\r\n\r\nnext";
    for status in [204, 304] {
        let read = whole(&format!("HTTP/1.1 {status} X\r\n{chunked}"));
        assert_eq!((&read.body[..], &read.rest[..]), (&b""[..], &b"next"[..]), "{status}");
    }
    for fields in [chunked, "Content-Length: 7\r\n\r\nnext", "\r\nnext"] {
        let text = format!("HTTP/1.1 200 OK\r\n{fields}");
        let read = read([text.as_bytes()], true);
        assert_eq!((&read.rest[..], read.reusable), (&b"next"[..], Some(true)), "{fields}");
    }
}

#[test]
fn an_http_1_0_response_ends_the_connection() {
    let read = whole("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab");
    assert_eq!((&read.body[..], read.reusable), (&b"ab"[..], Some(false)));
}

#[test]
fn responses_without_end_are_unreadable() {
    let field = format!("X: {}\r\n", "y".repeat(1000));
    let heads = [
        "HTTP/1.1 102 Processing\r\n\r\n".repeat(PROVISIONAL_MOST + 1),
        format!("HTTP/1.1 200 OK\r\nX: {}", "y".repeat(HEAD_MOST)),
        format!("HTTP/1.1 200 OK\r\n{}", "X: y\r\n".repeat(HEADERS_MOST + 1)),
        format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;{}",
            "x".repeat(CHUNK_LINE_MOST)
        ),
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n{}", field.repeat(70)),
    ];
    for text in heads {
        let read = read(text.as_bytes().chunks(500), false);
        assert!(matches!(read.broken, Some(Broken::Unreadable(_))), "{text:.60}");
    }
}

#[test]
fn an_invalid_length_is_unreadable() {
    for length in ["x", "1, 2", "-1"] {
        let read = whole(&format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\nab"));
        assert!(matches!(read.broken, Some(Broken::Unreadable(_))), "{length}");
    }
}

fn chunked(body: &[u8], length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for chunk in body.chunks(length) {
        bytes.extend_from_slice(format!("{:x};ext\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\nX-Trailer: a\r\n\r\n");
    bytes
}

/// The bytes of a response, valid, too short for its `Content-Length` or with one wrong byte, and the
/// beginning of the next one unless the connection's end ends the body.
fn response() -> impl Strategy<Value = Vec<u8>> {
    let framing = (0..4usize, vec(any::<u8>(), 0..300), 1..50usize);
    let provisional = (0..3usize, "[a-z]{0,20}");
    (framing, provisional, proptest::option::of((any::<prop::sample::Index>(), any::<u8>())))
        .prop_map(|((kind, body, length), (provisional, field), wrong)| {
            let mut bytes = "HTTP/1.1 100 Continue\r\n\r\n".repeat(provisional).into_bytes();
            let (fields, body) = match kind {
                0 => (format!("Content-Length: {}\r\n", body.len()), body),
                1 => ("Transfer-Encoding: chunked\r\n".to_owned(), chunked(&body, length)),
                2 => (String::new(), body),
                _ => (format!("Content-Length: {}\r\n", body.len() + 1000), body),
            };
            let head = format!("HTTP/1.1 200 OK\r\nX: {field}\r\n{fields}\r\n");
            bytes.extend_from_slice(head.as_bytes());
            bytes.extend_from_slice(&body);
            if kind != 2 {
                bytes.extend_from_slice(b"HTTP/1.1 404 Not Found\r\n");
            }
            if let Some((at, byte)) = wrong {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes
        })
}

proptest! {
    #[test]
    fn the_response_does_not_depend_on_how_its_bytes_are_split(
        bytes in response(),
        cuts in vec(any::<prop::sample::Index>(), 0..20),
        is_to_head: bool,
    ) {
        let at_once = read([&bytes[..]], is_to_head);
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]);
        prop_assert_eq!(&read(pieces, is_to_head), &at_once);
        prop_assert_eq!(&read(bytes.chunks(1), is_to_head), &at_once);
    }
}
