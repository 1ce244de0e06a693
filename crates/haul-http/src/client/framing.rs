//! Finds where a response begins and ends in the bytes of a connection (RFC 9112), without I/O.
//!
//! ```text
//! bytes → poll → Provisional*, Head, Body*, End
//! ```
//!
//! One [`Framing`] parses one response. The input that it does not take belongs to the next one.

use bytes::{Buf, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderName, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::head::{Broken, Head};
use crate::parse::{Url, length};

/// A head that is incomplete at this length is rejected, and so is a longer trailer section.
const HEAD_MOST: usize = 64 << 10;
const HEADERS_MOST: usize = 128;

/// The most provisional responses (1xx) before the final one.
const PROVISIONAL_MOST: usize = 64;

/// A chunk-size line that is incomplete beyond this length is rejected. Its extensions are ignored.
const CHUNK_LINE_MOST: usize = 4 << 10;

/// The next element of a response.
#[derive(Debug)]
pub enum Event {
    /// A provisional response. Only `100 Continue` matters here.
    Provisional(StatusCode),
    /// The head.
    Head(Head),
    /// Bytes of the body; never empty.
    Body(Bytes),
    /// The response is complete.
    End,
}

/// The parser of one response.
#[derive(Debug)]
pub struct Framing {
    url: Url,
    /// Whether there is no body, whatever the head says (RFC 9110, 9.3.2).
    is_to_head: bool,
    state: State,
    provisional: usize,
    /// Whether the connection ends with the response.
    closes: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    /// This many bytes of the body are missing.
    Sized(u64),
    /// The body ends with the connection.
    UntilClose,
    /// The line before a chunk.
    ChunkLine,
    Chunk(u64),
    /// The line break behind a chunk.
    ChunkEnd,
    /// Fields behind the last chunk, of which this many bytes have been read.
    Trailer(usize),
    Done,
}

impl Framing {
    /// The response from `url`; `is_to_head` if the request was a HEAD.
    pub const fn new(url: Url, is_to_head: bool) -> Self {
        Self { url, is_to_head, state: State::Head, provisional: 0, closes: false }
    }

    /// Takes the next element from the beginning of `input`; `None` if more bytes are needed.
    ///
    /// # Errors
    /// `Unreadable` if this is not a valid response.
    pub fn poll(&mut self, input: &mut BytesMut) -> Result<Option<Event>, Broken> {
        loop {
            match self.state {
                State::Head => return self.head(input),
                State::Done => return Ok(Some(Event::End)),
                State::Sized(left) | State::Chunk(left) => {
                    if input.is_empty() {
                        return Ok(None);
                    }
                    let most = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                    let bytes = input.split_to(most).freeze();
                    self.took(bytes.len() as u64);
                    return Ok(Some(Event::Body(bytes)));
                }
                State::UntilClose if input.is_empty() => return Ok(None),
                State::UntilClose => return Ok(Some(Event::Body(input.split().freeze()))),
                State::ChunkLine => match chunk_line(input)? {
                    Some(0) => self.state = State::Trailer(0),
                    Some(length) => self.state = State::Chunk(length),
                    None => return Ok(None),
                },
                State::ChunkEnd => {
                    if input.len() < 2 {
                        return Ok(None);
                    }
                    if &input[..2] != b"\r\n" {
                        return Err(unreadable("a chunk does not end where it should"));
                    }
                    input.advance(2);
                    self.state = State::ChunkLine;
                }
                State::Trailer(before) => {
                    let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
                        let is_long = before + input.len() > HEAD_MOST;
                        return if is_long {
                            Err(unreadable("its trailer section is too long"))
                        } else {
                            Ok(None)
                        };
                    };
                    let is_last = matches!(&input[..end], b"" | b"\r");
                    input.advance(end + 1);
                    let length = before + end + 1;
                    if length > HEAD_MOST {
                        return Err(unreadable("its trailer section is too long"));
                    }
                    self.state = if is_last { State::Done } else { State::Trailer(length) };
                }
            }
        }
    }

    /// Bytes of the body that follow without framing, so that they can be read without [`Framing::poll`].
    pub const fn plain(&self) -> u64 {
        match self.state {
            State::Sized(left) => left,
            _ => 0,
        }
    }

    /// Records that this many of the [`Framing::plain`] bytes, or of a chunk, were taken.
    pub fn took(&mut self, bytes: u64) {
        self.state = match self.state {
            State::Sized(left) if left <= bytes => State::Done,
            State::Sized(left) => State::Sized(left - bytes),
            State::Chunk(left) if left <= bytes => State::ChunkEnd,
            State::Chunk(left) => State::Chunk(left - bytes),
            state => state,
        };
    }

    /// The missing bytes of the body, if known.
    pub const fn left(&self) -> Option<u64> {
        match self.state {
            State::Sized(left) => Some(left),
            State::Done => Some(0),
            _ => None,
        }
    }

    /// Whether the body ends with the connection.
    pub fn is_until_close(&self) -> bool {
        self.state == State::UntilClose
    }

    /// The connection has ended, which ends a body without a length.
    ///
    /// # Errors
    /// `Within` if the response is incomplete.
    pub fn on_close(&mut self) -> Result<(), Broken> {
        match self.state {
            State::UntilClose | State::Done => {
                self.state = State::Done;
                Ok(())
            }
            _ => Err(Broken::Within("the connection ended".to_owned())),
        }
    }

    /// Whether the response is complete and the connection can be reused.
    pub fn keeps_open(&self) -> bool {
        self.state == State::Done && !self.closes
    }

    fn head(&mut self, input: &mut BytesMut) -> Result<Option<Event>, Broken> {
        let Some((head, old)) = parse(input, &self.url)? else {
            if input.len() >= HEAD_MOST {
                return Err(unreadable("its header section is too long"));
            }
            return Ok(None);
        };
        if head.status.is_informational() {
            self.provisional += 1;
            if self.provisional > PROVISIONAL_MOST {
                return Err(unreadable("it has too many 1xx responses"));
            }
            return Ok(Some(Event::Provisional(head.status)));
        }
        let body = body_of(&head)?;
        self.state = if self.is_to_head { State::Done } else { body };
        // HTTP/1.0 ends the connection with the response.
        self.closes =
            old || self.state == State::UntilClose || has_word(&head.headers, &CONNECTION, "close");
        Ok(Some(Event::Head(head)))
    }
}

fn unreadable(what: &str) -> Broken {
    Broken::Unreadable(what.to_owned())
}

/// Takes a head from the beginning of `input` if it is complete; also returns whether it is HTTP/1.0 or
/// older.
fn parse(input: &mut BytesMut, url: &Url) -> Result<Option<(Head, bool)>, Broken> {
    let mut fields = [httparse::EMPTY_HEADER; HEADERS_MOST];
    let mut response = httparse::Response::new(&mut fields);
    let length = match response.parse(input) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(Broken::Unreadable(error.to_string())),
    };
    let status = StatusCode::from_u16(response.code.unwrap_or_default());
    let status = status.map_err(|_| unreadable("its status line is malformed"))?;
    let mut headers = HeaderMap::new();
    for field in response.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let value = HeaderValue::from_bytes(field.value);
        let (Ok(name), Ok(value)) = (name, value) else {
            return Err(unreadable("a header field is malformed"));
        };
        headers.append(name, value);
    }
    let old = response.version != Some(1);
    input.advance(length);
    Ok(Some((Head { status, headers, url: url.clone() }, old)))
}

/// The kind of body that follows a head (RFC 9112, 6.3).
fn body_of(head: &Head) -> Result<State, Broken> {
    if matches!(head.status.as_u16(), 204 | 304) {
        return Ok(State::Done);
    }
    if head.is_coded() {
        // haul sends no TE, so a server must not use other transfer codings. With gzip, for example,
        // the bytes would not be those of the file.
        let values: Vec<_> = head.headers.get_all(TRANSFER_ENCODING).iter().collect();
        let is_chunked =
            |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
        return match values[..] {
            [value] if is_chunked(value) => Ok(State::ChunkLine),
            _ => Err(unreadable("it has a transfer coding other than chunked")),
        };
    }
    let lengths = head.headers.get_all(CONTENT_LENGTH);
    match length::parse(lengths.iter().map(HeaderValue::as_bytes)) {
        Ok(Some(0)) => Ok(State::Done),
        Ok(Some(length)) => Ok(State::Sized(length)),
        Ok(None) => Ok(State::UntilClose),
        Err(error) => Err(Broken::Unreadable(format!("it has {error}"))),
    }
}

/// Takes the chunk-size line if it is complete, and returns the length of the chunk.
fn chunk_line(input: &mut BytesMut) -> Result<Option<u64>, Broken> {
    // httparse takes an empty line for the last chunk.
    if input.first().is_some_and(|byte| !byte.is_ascii_hexdigit()) {
        return Err(unreadable("a chunk size is malformed"));
    }
    match httparse::parse_chunk_size(input) {
        Ok(httparse::Status::Complete((length, size))) => {
            input.advance(length);
            Ok(Some(size))
        }
        Ok(httparse::Status::Partial) if input.len() <= CHUNK_LINE_MOST => Ok(None),
        Ok(httparse::Status::Partial) => Err(unreadable("a chunk extension is too long")),
        Err(_) => Err(unreadable("a chunk size is malformed")),
    }
}

/// Whether a header field that is a list contains this word.
fn has_word(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    headers.get_all(name).iter().any(|value| {
        let mut words = value.to_str().unwrap_or_default().split(',');
        words.any(|found| found.trim().eq_ignore_ascii_case(word))
    })
}

#[cfg(test)]
mod tests;
