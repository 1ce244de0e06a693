//! Fuzzed parsers of HTTP header fields, and of the variables that name a proxy.

use std::hint::black_box;

use haul_http::parse::proxy::{bypasses, proxy_for, proxy_for_ftp};
use haul_http::parse::ranges::accepts_bytes;
use haul_http::parse::{
    Coding, ContentRange, Origin, WebScheme, dates as date, disposition as names, keep_alive,
    length, retry_after,
};
use haul_storage::{RelPath, Timestamp, text};

/// `Content-Range` and `Accept-Ranges`: a range lies within its file, and its text parses to the same range.
pub fn ranges(data: &[u8]) {
    for line in lines(data) {
        black_box(accepts_bytes(line));
        let Ok(range) = ContentRange::parse(line) else { continue };
        let total = range.total().map_or_else(|| "*".to_owned(), |total| total.to_string());
        let written = match range {
            ContentRange::Bytes { first, last, total: of } => {
                assert!(first <= last && range.length() == last - first + 1, "{range:?}");
                assert!(of.is_none_or(|of| last < of), "{range:?}");
                format!("bytes {first}-{last}/{total}")
            }
            ContentRange::Unsatisfied { .. } => format!("bytes */{total}"),
        };
        assert_eq!(ContentRange::parse(&written), Ok(range), "{written}");
    }
}

/// Dates, and `Retry-After`: a time has less than a second of nanoseconds, and a wait is bounded.
pub fn dates(data: &[u8]) {
    const NOW: Timestamp = Timestamp { seconds: 1_800_000_000, nanos: 0 };
    for line in lines(data) {
        let time = date::parse(line);
        assert!(time.is_none_or(|time| time.nanos < 1_000_000_000), "{time:?}");
        assert_eq!(date::parse(&format!(" {line} ")), time, "{line}");
        let wait = retry_after::parse(line, NOW);
        assert!(wait.is_none_or(|wait| wait <= retry_after::LONGEST), "{wait:?}");
    }
}

/// `Keep-Alive`, `Content-Encoding` and `Content-Length`: a length does not depend on whether its fields are joined.
pub fn fields(data: &[u8]) {
    for line in lines(data) {
        black_box(keep_alive::parse(line));
        if let Some(coding) = Coding::parse(line) {
            assert!(!coding.name().is_empty(), "{line}");
            black_box(coding.is_of_name(data));
        }
    }
    let joined = data.split(|byte| *byte == b'\n').collect::<Vec<_>>().join(&b',');
    let one_by_one = length::parse(data.split(|byte| *byte == b'\n'));
    assert_eq!(length::parse([&joined[..]]), one_by_one);
}

/// `Content-Disposition`: the name of a download is one component, not hidden, and safe for a terminal.
pub fn disposition(data: &[u8]) {
    if let Some(name) = names::file_name(data) {
        let is_safe =
            RelPath::root().join(&name).is_ok() && !name.contains(text::steers_a_terminal);
        assert!(is_safe && !name.starts_with('.'), "{name:?}");
    }
}

/// `http_proxy` and `no_proxy`, a line each, and hosts: the authority of a proxy contains no user, and an error is too
/// short to repeat a URL.
pub fn proxy(data: &[u8]) {
    let mut lines = lines(data);
    let (value, list) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let variable = |name: &str| match name {
        "http_proxy" | "ftp_proxy" => Some(value.to_owned()),
        "no_proxy" => Some(list.to_owned()),
        _ => None,
    };
    for host in lines.chain(["h", "192.0.2.1", "::1"]) {
        black_box(bypasses(list, host, 80));
        assert!(bypasses("*", host, 80));
        black_box(proxy_for_ftp(host, 21, variable).is_ok());
        let Ok(origin) = Origin::new(WebScheme::Http, host, None) else { continue };
        match proxy_for(&origin, variable) {
            Ok(Some(proxy)) => {
                let shown = format!("{proxy} {proxy:?}");
                assert!(!shown.chars().any(char::is_control), "{shown:?}");
                let socks = proxy.socks().is_some();
                assert!(shown.starts_with(if socks { "socks5" } else { "http" }), "{shown}");
                let authority = proxy.origin.authority();
                assert!(!authority.contains('@'), "{authority}");
            }
            Ok(None) => {}
            Err(error) => assert!(error.to_string().len() < 120, "{error}"),
        }
    }
}

/// The lines that are UTF-8, as the parsers require.
fn lines(data: &[u8]) -> impl Iterator<Item = &str> {
    data.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok())
}
