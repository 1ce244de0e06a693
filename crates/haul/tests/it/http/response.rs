//! Responses of a scripted server: those of a correct server for a file, and faulty ones.

use std::io::{self, Write};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::server::Request;

/// How the end of a body is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// `Content-Length`.
    Length,
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// The end of the connection.
    End,
}

/// What happens to the connection after a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The next request is read.
    Stays,
    /// An orderly end (FIN).
    Closes,
    /// A reset (RST).
    Resets,
    /// As the system closes it: a reset if received data was not read.
    Drops,
}

/// A response.
#[derive(Debug, Clone)]
pub(super) struct Response {
    pub(super) version: &'static str,
    /// Sent first: interim responses.
    pub(super) before: String,
    pub(super) status: u16,
    pub(super) fields: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    pub(super) framing: Framing,
    pub(super) end: End,
    /// If set, only this many bytes of the body are sent.
    pub(super) cut: Option<usize>,
    /// Bytes per second.
    pub(super) rate: Option<usize>,
    /// Sent instead of everything else.
    pub(super) raw: Option<Vec<u8>>,
}

impl Response {
    /// A response with a body and its `Content-Length`; the connection stays open.
    pub(super) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self {
            version: "HTTP/1.1",
            before: String::new(),
            status,
            fields: Vec::new(),
            body: body.into(),
            framing: Framing::Length,
            end: End::Stays,
            cut: None,
            rate: None,
            raw: None,
        }
    }

    /// Raw bytes in place of a response; the connection ends after them.
    pub(super) fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self { raw: Some(bytes.into()), end: End::Closes, ..Self::new(200, "") }
    }

    /// An HTML page.
    pub(super) fn page(status: u16) -> Self {
        let page = format!("<html><body><h1>{status}: please come back later</h1></body></html>\n");
        Self::new(status, page).with("Content-Type", "text/html")
    }

    /// A redirect to the URL `to`.
    pub(super) fn redirect(status: u16, to: &str) -> Self {
        Self::new(status, "").with("Location", to)
    }

    /// Sets a header field; an existing one is replaced.
    pub(super) fn with(self, name: &str, value: impl Into<String>) -> Self {
        let mut response = self.without(name);
        response.fields.push((name.to_owned(), value.into()));
        response
    }

    /// Removes a header field.
    pub(super) fn without(mut self, name: &str) -> Self {
        self.fields.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    /// Sets the end of the connection.
    pub(super) fn then(self, end: End) -> Self {
        Self { end, ..self }
    }

    /// The connection ends after this many bytes of the body.
    pub(super) fn cut(self, after: usize, end: End) -> Self {
        Self { cut: Some(after), end, ..self }
    }

    /// Sets how the end of the body is marked.
    pub(super) fn framed(self, framing: Framing) -> Self {
        let end = if framing == Framing::End { End::Closes } else { self.end };
        Self { framing, end, ..self }
    }

    /// Writes it to a connection, without the body if `head_only`.
    pub(super) fn send(&self, head_only: bool, to: &mut impl Write) -> io::Result<()> {
        if let Some(raw) = &self.raw {
            to.write_all(raw)?;
            return to.flush();
        }
        let mut head = format!("{}{} {} Some Words\r\n", self.before, self.version, self.status);
        for (name, value) in &self.fields {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let has_length =
            self.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        match self.framing {
            Framing::Length if !has_length => {
                head.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
            }
            Framing::Chunked => head.push_str("Transfer-Encoding: chunked\r\n"),
            _ => {}
        }
        to.write_all(format!("{head}\r\n").as_bytes())?;
        if !head_only {
            let body = &self.body[..self.cut.unwrap_or(usize::MAX).min(self.body.len())];
            // With a rate, ten pieces per second.
            let piece = self.rate.map_or(64 << 10, |rate| rate / 10).max(1);
            for piece in body.chunks(piece) {
                match self.framing {
                    Framing::Chunked => {
                        let chunk = format!("{:x}\r\n", piece.len());
                        to.write_all(&[chunk.as_bytes(), piece, b"\r\n"].concat())?;
                    }
                    _ => to.write_all(piece)?,
                }
                to.flush()?;
                if self.rate.is_some() {
                    thread::sleep(Duration::from_millis(100));
                }
            }
            if self.framing == Framing::Chunked && self.cut.is_none() {
                to.write_all(b"0\r\n\r\n")?;
            }
        }
        to.flush()
    }
}

/// A file, as a correct server sends it.
#[derive(Debug, Clone)]
pub(super) struct File {
    pub(super) content: Arc<Vec<u8>>,
    /// `ETag`, with its quotes.
    pub(super) tag: Option<String>,
    /// `Last-Modified`.
    pub(super) modified: Option<String>,
    /// Whether the server supports ranges of it.
    pub(super) ranged: bool,
}

impl File {
    /// A file with an ETag and a date, which the server sends in ranges too.
    pub(super) fn new(content: Vec<u8>) -> Self {
        Self {
            content: Arc::new(content),
            tag: Some("\"one\"".to_owned()),
            modified: Some("Mon, 01 Jan 2024 10:00:00 GMT".to_owned()),
            ranged: true,
        }
    }

    /// A version with these bytes, this ETag and this date.
    pub(super) fn version(
        content: Vec<u8>,
        tag: impl Into<Option<&'static str>>,
        modified: impl Into<Option<&'static str>>,
    ) -> Self {
        let (tag, modified) = (tag.into(), modified.into());
        let tag = tag.map(str::to_owned);
        Self {
            content: Arc::new(content),
            tag,
            modified: modified.map(str::to_owned),
            ranged: true,
        }
    }

    /// The response of a correct server (RFC 9110, 13 and 14).
    pub(super) fn respond(&self, request: &Request) -> Response {
        let size = self.content.len();
        let same = request.field("if-range").is_none_or(|version| {
            Some(version) == self.tag.as_deref() || Some(version) == self.modified.as_deref()
        });
        let response =
            match request.range().filter(|_| self.ranged && same && request.method == "GET") {
                Some((first, _)) if first >= size => {
                    Response::new(416, "").with("Content-Range", format!("bytes */{size}"))
                }
                Some((first, last)) => {
                    let last = last.min(size - 1);
                    Response::new(206, &self.content[first..=last])
                        .with("Content-Range", format!("bytes {first}-{last}/{size}"))
                }
                None => Response::new(200, &self.content[..]),
            };
        let response = response.with("Content-Type", "application/octet-stream");
        let response = if self.ranged { response.with("Accept-Ranges", "bytes") } else { response };
        let response = match &self.tag {
            Some(tag) => response.with("ETag", tag),
            None => response,
        };
        match &self.modified {
            Some(modified) => response.with("Last-Modified", modified),
            None => response,
        }
    }
}
