//! Splits bytes that arrive in chunks into tokens of markup and text (XML 1.0, section 2).
//!
//! A token is returned when its end has arrived. The position where the search for the end stopped is
//! remembered, so that a long token is not searched again from its start with each chunk.

use quick_xml::parser::{ElementParser, Parser};

use super::limits::MultistatusError;

/// A token of the document, without its delimiters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// Text between markup, entities not decoded.
    Text(&'a str),
    /// `<![CDATA[…]]>`: literal text.
    Cdata(&'a str),
    /// `<name attributes>`.
    Start(&'a str),
    /// `<name attributes/>`.
    Empty(&'a str),
    /// `</name>`.
    End(&'a str),
    /// A comment or a processing instruction of so many bytes, which is ignored.
    Skipped(usize),
}

/// The kind of the token at the front.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Text,
    Start(ElementParser),
    End,
    Comment,
    Cdata,
    Instruction,
}

const MARK: &[u8] = b"\xef\xbb\xbf";
const COMMENT: &[u8] = b"<!--";
const CDATA: &[u8] = b"<![CDATA[";

#[derive(Debug)]
pub(super) struct Tokens {
    buffer: Vec<u8>,
    /// Where the token at the front begins.
    start: usize,
    /// Its kind, once known.
    kind: Option<Kind>,
    /// How far its end was searched for.
    scanned: usize,
    limit: usize,
    /// Whether nothing was returned yet, so that a byte order mark may follow.
    first: bool,
    /// Whether the document declares an encoding of which only ASCII is supported.
    ascii_only: bool,
}

impl Tokens {
    pub(super) const fn new(limit: usize) -> Self {
        Self {
            buffer: Vec::new(),
            start: 0,
            kind: None,
            scanned: 0,
            limit,
            first: true,
            ascii_only: false,
        }
    }

    pub(super) fn push(&mut self, chunk: &[u8]) {
        self.buffer.drain(..self.start);
        self.scanned -= self.start;
        self.start = 0;
        self.buffer.extend_from_slice(chunk);
    }

    /// The next token, if it has arrived completely.
    pub(super) fn next(&mut self) -> Result<Option<Token<'_>>, MultistatusError> {
        if self.first && !self.skip_mark()? {
            return Ok(None);
        }
        let kind = match self.kind {
            Some(kind) => kind,
            None => match classify(&self.buffer[self.start..])? {
                Some((kind, head)) => {
                    self.kind = Some(kind);
                    self.scanned = self.start + head;
                    kind
                }
                None => return Ok(None),
            },
        };
        let found = self.find_end(kind);
        let (end, next) = found.unwrap_or((self.buffer.len(), self.buffer.len()));
        if next - self.start > self.limit {
            return Err(MultistatusError::TooLarge("bytes"));
        }
        if found.is_none() {
            return Ok(None);
        }
        let start = self.start;
        (self.start, self.scanned, self.kind) = (next, next, None);
        self.token(kind, start, end).map(Some)
    }

    /// Whether only white space is left.
    pub(super) fn rest_is_blank(&self) -> bool {
        self.buffer[self.start..].iter().all(u8::is_ascii_whitespace)
    }

    /// Skips a byte order mark of UTF-8 and refuses any other. `false` if more bytes are needed.
    fn skip_mark(&mut self) -> Result<bool, MultistatusError> {
        match &self.buffer[..] {
            head if head.len() < MARK.len() => return Ok(false),
            // UTF-16, with or without a mark.
            [0xfe | 0xff | 0, ..] | [_, 0, ..] => return Err(MultistatusError::Encoding),
            head if head.starts_with(MARK) => {
                (self.start, self.scanned) = (MARK.len(), MARK.len());
            }
            _ => {}
        }
        self.first = false;
        Ok(true)
    }

    /// Where the content of the token ends, and where the next token begins.
    fn find_end(&mut self, kind: Kind) -> Option<(usize, usize)> {
        let rest = &self.buffer[self.scanned..];
        let found = match kind {
            Kind::Text => rest.iter().position(|byte| *byte == b'<').map(|at| (at, at)),
            Kind::End => rest.iter().position(|byte| *byte == b'>').map(|at| (at, at + 1)),
            Kind::Start(mut parser) => {
                let found = parser.feed(rest).map(|at| (at, at + 1));
                self.kind = Some(Kind::Start(parser));
                found
            }
            Kind::Comment => find(rest, b"-->"),
            Kind::Cdata => find(rest, b"]]>"),
            Kind::Instruction => find(rest, b"?>"),
        };
        if let Some((end, next)) = found {
            return Some((self.scanned + end, self.scanned + next));
        }
        // The first bytes of the end mark may have arrived.
        let overlap = match kind {
            Kind::Comment | Kind::Cdata => rest.len().min(2),
            Kind::Instruction => rest.len().min(1),
            Kind::Text | Kind::Start(_) | Kind::End => 0,
        };
        self.scanned = self.buffer.len() - overlap;
        None
    }

    fn token(
        &mut self,
        kind: Kind,
        start: usize,
        end: usize,
    ) -> Result<Token<'_>, MultistatusError> {
        let bytes = &self.buffer[start..end];
        if self.ascii_only && !bytes.is_ascii() {
            return Err(MultistatusError::Encoding);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| MultistatusError::Encoding)?;
        Ok(match kind {
            Kind::Text => Token::Text(text),
            Kind::Cdata => Token::Cdata(&text[CDATA.len()..]),
            Kind::End => Token::End(text["</".len()..].trim_end()),
            Kind::Start(_) => match text.strip_suffix('/') {
                Some(text) => Token::Empty(&text[1..]),
                None => Token::Start(&text[1..]),
            },
            Kind::Comment => Token::Skipped(text.len()),
            Kind::Instruction => {
                let declaration = text.strip_prefix("<?xml");
                let declaration =
                    declaration.filter(|rest| rest.starts_with([' ', '\t', '\r', '\n']));
                if let Some(declaration) = declaration {
                    self.ascii_only = !is_utf8(declaration)?;
                }
                Token::Skipped(text.len())
            }
        })
    }
}

/// The kind of token that begins here, and where its content begins; `None` if too little has arrived.
fn classify(bytes: &[u8]) -> Result<Option<(Kind, usize)>, MultistatusError> {
    let arriving = |sign: &[u8]| bytes.len() < sign.len() && sign.starts_with(bytes);
    Ok(Some(match bytes {
        [] | [b'<'] => return Ok(None),
        [b'<', b'/', ..] => (Kind::End, 2),
        [b'<', b'?', ..] => (Kind::Instruction, 2),
        [b'<', b'!', ..] if bytes.starts_with(COMMENT) => (Kind::Comment, COMMENT.len()),
        [b'<', b'!', ..] if bytes.starts_with(CDATA) => (Kind::Cdata, CDATA.len()),
        [b'<', b'!', ..] if arriving(COMMENT) || arriving(CDATA) => return Ok(None),
        [b'<', b'!', ..] => return Err(MultistatusError::DocumentType),
        [b'<', ..] => (Kind::Start(ElementParser::default()), 1),
        _ => (Kind::Text, 0),
    }))
}

/// The start and the end of the first `sign`.
fn find(bytes: &[u8], sign: &[u8]) -> Option<(usize, usize)> {
    let at = bytes.windows(sign.len()).position(|window| window == sign)?;
    Some((at, at + sign.len()))
}

/// Whether an XML declaration gives UTF-8 as the encoding (`true`), or one that includes ASCII (`false`).
fn is_utf8(declaration: &str) -> Result<bool, MultistatusError> {
    let Some((_, value)) = declaration.split_once("encoding") else { return Ok(true) };
    let value = value.trim_start().strip_prefix('=').unwrap_or(value).trim_start();
    let quote = value.chars().next().filter(|quote| "\"'".contains(*quote));
    let name = quote.and_then(|quote| value[1..].split_once(quote)).map(|(name, _)| name);
    let name = name.ok_or(MultistatusError::Malformed("an XML declaration"))?.to_ascii_lowercase();
    const WITH_ASCII: [&str; 4] = ["us-ascii", "ascii", "iso-8859-", "windows-125"];
    match &name[..] {
        "utf-8" | "utf8" => Ok(true),
        name if WITH_ASCII.iter().any(|known| name.starts_with(known)) => Ok(false),
        _ => Err(MultistatusError::Encoding),
    }
}
