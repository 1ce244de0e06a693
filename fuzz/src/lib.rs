//! Fuzzing of decoders of bytes from outside. Each function takes any bytes, and panics if a property that its
//! documentation states, or that of the function it calls, does not hold. The fuzz targets call them, and so does the
//! test of the committed corpus.

mod fields;
mod peer;
mod ssh;

use std::ffi::OsStr;
use std::hint::black_box;
use std::os::unix::ffi::OsStrExt;

use haul_engine::manifest::parse_line;
use haul_ftp::wire::{self, Command, Features, ReplyParser, listing as listings};
pub use haul_http::client::fuzzing::{response as http_response, tunnel_response as http_tunnel};
use haul_http::parse::cookies::{self, Cookie};
use haul_http::parse::digest::DigestSession;
use haul_http::parse::href::{
    Base, Origin, Target, Url, WebScheme, encode_path, resolve, resolve_path,
};
use haul_http::parse::multistatus::{Limits, Multistatus, MultistatusError, Resource};
use haul_http::parse::{Challenge, Netrc, challenge as challenges, index as indexes};
pub use haul_http::server::fuzzing::xml as dav_request;
pub use haul_mount::fuzzing::request as fuse_request;
pub use haul_net::fuzzing::socks;
use haul_sftp::codec::{Deframer, Frame, Request, Response};
use haul_storage::journal::Record;
use haul_storage::{DigestKind, Location, RelPath, text};

pub use self::fields::{dates, disposition, fields, proxy, ranges};
pub use self::peer::{peer_bridge, peer_frames, peer_messages, peer_ticket, upnp};
pub use self::ssh::{
    ssh_authentication, ssh_certificate, ssh_config, ssh_identification, ssh_known_hosts,
    ssh_offer, ssh_packets,
};

/// Records of a journal: a decoded record of this version encodes to the same bytes.
pub fn journal(data: &[u8]) {
    let mut rest = data;
    while let Some((record, length)) = Record::decode(rest) {
        let mut again = Vec::new();
        record.encode(&mut again);
        assert!(
            again == rest[..length] || matches!(record, Record::OtherVersion(_)),
            "a record does not encode to what it was decoded from"
        );
        rest = &rest[length..];
    }
}

/// Lines of a manifest, and names: an accepted name never leaves the directory.
pub fn manifest(data: &[u8]) {
    for line in data.split(|byte| *byte == b'\n') {
        for kind in [DigestKind::Sha256, DigestKind::Blake3] {
            drop(parse_line(line, kind));
        }
    }
    if let Ok(path) = RelPath::parse(data) {
        assert!(path.components().all(|name| name != b".." && name != b"." && !name.contains(&0)));
    }
}

/// Locations of a command line: the text of a location is safe for a terminal.
pub fn location(data: &[u8]) {
    if let Ok(location) = Location::parse(OsStr::from_bytes(data)) {
        let shown = location.to_string();
        assert!(!shown.contains(text::steers_a_terminal), "{shown:?}");
    }
}

/// Requests of an SFTP client: a decoded request, encoded again, decodes to the same.
pub fn sftp_request(data: &[u8]) {
    for frame in frames(data) {
        if let Ok((id, request)) = Request::decode(frame) {
            let again = whole(&request.encode(id), request.payload());
            let again = frames(&again).pop().map(Request::decode);
            assert!(again == Some(Ok((id, request))), "a request does not survive its encoding");
        }
    }
}

/// Responses of an SFTP server: a decoded response, encoded again, decodes to the same.
pub fn sftp_response(data: &[u8]) {
    for frame in frames(data) {
        if let Ok((id, response)) = Response::decode(frame) {
            let again = whole(&response.encode(id), response.payload());
            let again = frames(&again).pop().map(Response::decode);
            assert!(again == Some(Ok((id, response))), "a response does not survive its encoding");
        }
    }
}

/// A WebDAV listing: its chunks, of the size in the first byte, do not change the result.
pub fn multistatus(data: &[u8]) {
    let Some((size, text)) = data.split_first() else { return };
    let whole = listing([text]);
    let pieces = listing(text.chunks(usize::from(*size).max(1)));
    assert!(whole == pieces, "a listing depends on its chunks");
}

/// An HTML index: every name in it is one component of a path.
pub fn index(data: &[u8]) {
    let Some(base) = directory() else { return };
    let _ = indexes::is_index("text/html", &base, data);
    let found = indexes::parse(&base, data).unwrap_or_default();
    for entry in found.entries {
        assert!(RelPath::root().join(&entry.name).is_ok(), "{:?}", entry.name);
    }
}

/// A link: its name is one component of a path, and the link that is written for this name resolves to it again. The
/// target of a redirect contains only characters of a request line, and its URL survives being written.
pub fn href(data: &[u8]) {
    let Some(base) = directory() else { return };
    if let Ok(Target::Child { name, .. }) = resolve_path(&base, data) {
        assert!(RelPath::root().join(&name).is_ok(), "{name:?}");
        let again = resolve(&base, format!("/a/{}", encode_path(&name)).as_bytes());
        assert!(again == Ok(Target::Child { name, slash: false }), "{again:?}");
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(url) = Url::parse("http://h/a/b?c").and_then(|from| from.join(text)) {
        assert!(url.target().bytes().all(|byte| byte.is_ascii_graphic()), "{url}");
        // The zone of an IPv6 address is valid on this machine only, and is not sent.
        let (scheme, host) = (url.origin.scheme(), url.origin.host());
        let host = host.split('%').next().unwrap_or_default();
        let sent = Origin::new(scheme, host, Some(url.origin.port())).map(|origin| url.on(origin));
        assert!(Url::parse(&url.absolute()) == sent, "a URL does not survive being written");
    }
}

/// Authentication challenges of a server: the response to one contains nothing that begins another header field.
pub fn challenge(data: &[u8]) {
    for offer in challenges::parse(data.split(|byte| *byte == b'\n')) {
        if let Challenge::Digest(digest) = offer
            && let Ok(session) = DigestSession::new(digest, "user", "password", "cnonce")
            && let Ok(field) = session.authorization("GET", "/")
        {
            assert!(!field.chars().any(char::is_control), "{field:?}");
        }
    }
}

/// A netrc: its errors are too short to repeat its content, and any word of it can be looked up.
pub fn netrc(data: &[u8]) {
    match Netrc::parse(data) {
        Ok(netrc) => {
            for word in data.split(u8::is_ascii_whitespace) {
                if let Ok(word) = std::str::from_utf8(word) {
                    black_box(netrc.lookup(word, None).map(|found| found.is_default()));
                    black_box(netrc.lookup("h", Some(word)));
                }
            }
        }
        Err(error) => assert!(error.to_string().len() < 80, "{error}"),
    }
}

/// Cookies of a file and of a server: a written file, read again, has the same lines, and no cookie that a server sets
/// goes to a host outside its domain.
pub fn cookies(data: &[u8]) {
    if let Ok(read) = cookies::read(data) {
        let text = |read: &[Cookie]| read.iter().filter_map(Cookie::line).collect::<String>();
        let written = text(&read);
        let again = cookies::read(written.as_bytes()).map(|again| text(&again));
        assert_eq!(again, Ok(written));
    }
    let url = |text: &str| Url::parse(text).ok();
    let Some((url, other)) = url("https://a.example.org/x/").zip(url("https://example.com/x/"))
    else {
        return;
    };
    for line in data.split(|byte| *byte == b'\n') {
        let Ok(line) = std::str::from_utf8(line) else { continue };
        let Some(cookie) = Cookie::received(line, &url, 1_800_000_000) else { continue };
        black_box((cookie.goes_to(&url), cookie.is_expired(1_900_000_000)));
        assert!(!cookie.goes_to(&other), "{cookie:?}");
    }
}

/// Replies of an FTP server: their codes have three digits, 100 to 699, their text has no control characters, a quoted
/// path is absolute, and a time survives being written.
pub fn ftp_reply(data: &[u8]) {
    let mut parser = ReplyParser::default();
    for line in data.split(|byte| *byte == b'\n') {
        let Ok(reply) = parser.line(line) else { return };
        let Some(reply) = reply else { continue };
        assert!((100..700).contains(&reply.code()), "{}", reply.code());
        assert!(!reply.text().chars().any(char::is_control), "{reply}");
        black_box(Features::parse(&reply));
        black_box((wire::extended_port(reply.last_line()), wire::port(reply.last_line())));
        black_box(wire::announced_size(reply.last_line()));
        if let Some(path) = wire::quoted(&reply) {
            assert!(path.starts_with(b"/"), "{path:?}");
        }
        if let Some(time) = wire::parse_time(reply.last_line())
            && let Some(text) = wire::format_time(time)
        {
            let again = wire::parse_time(format!("213 {text}").as_bytes());
            let again = again.or_else(|| wire::parse_time(text.as_bytes()));
            assert!(again.is_some_and(|again| again.seconds == time.seconds), "{text}");
        }
    }
}

/// Lines of an FTP listing: an accepted name is one component of a path, and a command with it is a single line.
pub fn ftp_listing(data: &[u8]) {
    let mut joined = listings::Joined::default();
    let lines = data.split(|byte| *byte == b'\n');
    let mut whole: Vec<_> = lines.filter_map(|line| joined.add(line.to_vec())).collect();
    whole.extend(joined.rest());
    for line in &whole {
        for read in [listings::facts(line), listings::list_line(line)].into_iter().flatten() {
            if let Ok(path) = RelPath::root().join(read.name) {
                assert!(path.components().count() == 1, "{path}");
                if let Ok(command) = Command::new("RETR", path.as_bytes()) {
                    let ends = command.line().iter().filter(|byte| matches!(byte, b'\r' | b'\n'));
                    assert!(ends.count() == 2, "a command has more than one line");
                }
            }
        }
        if let Some(read) = listings::list_line(line) {
            assert!(!read.name.is_empty(), "an entry without a name");
            assert!(read.found.is_file() || read.found.size.is_none(), "a length without a file");
        }
        black_box(listings::is_heading(line));
    }
}

fn directory() -> Option<Base> {
    Some(Base::new(Origin::new(WebScheme::Http, "h", None).ok()?, b"/a"))
}

fn listing<'a>(
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Vec<Resource>, MultistatusError> {
    let limits = Limits { element_bytes: 4096, depth: 8, attributes: 8 };
    let mut parser = Multistatus::new(limits);
    let mut resources = Vec::new();
    for chunk in chunks {
        resources.extend(parser.push(chunk)?);
    }
    parser.finish()?;
    Ok(resources)
}

/// The packets in `data`, up to the first invalid one.
fn frames(data: &[u8]) -> Vec<Frame> {
    let mut deframer = Deframer::new(1 << 16);
    deframer.push(data.to_vec().into());
    std::iter::from_fn(|| deframer.next_frame().ok().flatten()).collect()
}

fn whole(head: &[u8], payload: Option<&haul_storage::Block>) -> Vec<u8> {
    let payload = payload.map(haul_storage::Block::pieces).unwrap_or_default();
    [head].into_iter().chain(payload.iter().map(|piece| &piece[..])).collect::<Vec<_>>().concat()
}
