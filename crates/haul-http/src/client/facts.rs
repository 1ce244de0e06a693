//! File metadata from the head of a response, and checks that a response is the one requested.

use haul_storage::{
    Digest, DigestKind, Entry, EntryKind, Error, ErrorKind, Identity, Range, RelPath, Result,
    Retry, Timestamp, UNKNOWN_SIZE,
};
use http::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_RANGE, DATE, ETAG, HeaderName,
    LAST_MODIFIED,
};
use http::{HeaderValue, StatusCode};

use super::error;
use super::head::Head;
use crate::parse::href::decode;
use crate::parse::{Coding, Url};
use crate::parse::{dates, disposition, ranges, ranges::ContentRange, repr_digest};

const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");

/// If a file was last modified longer ago than this, its date identifies the version (RFC 9110, 8.8.2.2).
const SETTLED_SECONDS: i64 = 60;

/// Metadata of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Length of the whole file in bytes, if the server sent it.
    pub size: Option<u64>,
    /// When it was last modified.
    pub modified: Option<Timestamp>,
    /// Its version (ETag), as sent.
    pub tag: Option<String>,
    /// Whether ranges of it can be requested, if that is known.
    pub ranged: Option<bool>,
    /// Whether the last modification was so long ago that it identifies this version.
    settled: bool,
    /// The content coding. Length and version are those of the encoded bytes.
    pub coding: Option<Coding>,
    /// The digest of the file (RFC 9530), if the server sent one, requested or not. Left out if the
    /// file is sent encoded, because it would be the digest of the encoded bytes.
    pub digest: Option<Digest>,
    /// The file name that the server suggests (RFC 6266), made safe.
    pub suggested_name: Option<String>,
    /// `Last-Modified` as sent, for comparing.
    last_modified: Option<HeaderValue>,
}

impl Facts {
    /// Parses the head of a successful response.
    ///
    /// # Errors
    /// It is a partial response without a valid range.
    pub fn of(response: &Head, operation: &'static str) -> Result<Self> {
        let wrong = |cause: String| {
            Error::new(ErrorKind::Protocol, operation).at(&response.url).because(cause)
        };
        let accepts = response.header(&ACCEPT_RANGES).and_then(ranges::accepts_bytes);
        let (size, ranged) = if response.status == StatusCode::PARTIAL_CONTENT {
            let range = content_range(response).map_err(wrong)?;
            (range.total(), Some(true))
        } else {
            (response.length(), accepts)
        };
        let modified = response.header(&LAST_MODIFIED).and_then(dates::parse);
        let now = response.header(&DATE).and_then(dates::parse);
        let settled = modified.zip(now).is_some_and(|(modified, now)| {
            modified.seconds.saturating_add(SETTLED_SECONDS) <= now.seconds
        });
        let coding = response.header(&CONTENT_ENCODING).and_then(Coding::parse);
        let digests = response.headers.get_all(&REPR_DIGEST).iter();
        let digest = repr_digest::sha256(digests.filter_map(|value| value.to_str().ok()));
        let digest = digest.filter(|_| coding.is_none());
        Ok(Self {
            size,
            modified,
            settled,
            digest: digest.map(|bytes| Digest { kind: DigestKind::Sha256, bytes }),
            tag: text(response, &ETAG),
            ranged,
            coding,
            suggested_name: response
                .headers
                .get(CONTENT_DISPOSITION)
                .and_then(|value| disposition::file_name(value.as_bytes())),
            last_modified: response.headers.get(LAST_MODIFIED).cloned(),
        })
    }

    /// Identifies the version.
    pub fn identity(&self) -> Identity {
        Identity {
            size: self.size.unwrap_or(UNKNOWN_SIZE),
            modified: self.modified,
            id: None,
            // Versions with equal weak tags may have different bytes (RFC 9110, 8.8.1): with a time beside
            // it a weak tag is good enough, alone it does not identify a version.
            tag: self.tag.clone().filter(|tag| self.modified.is_some() || !tag.starts_with("W/")),
        }
    }

    /// Whether the bytes sent are those stored under one of these names: not encoded, or in a coding that
    /// the name implies (`.gz`).
    pub fn is_as_stored(&self, urls: [&Url; 2]) -> bool {
        let Some(coding) = &self.coding else { return true };
        let last = |url: &Url| decode(url.path().rsplit('/').next().unwrap_or_default().as_bytes());
        let suggested = self.suggested_name.as_ref().map(|name| name.as_bytes().to_vec());
        let names = urls.into_iter().filter_map(last).chain(suggested);
        names.into_iter().any(|name| coding.is_of_name(&name))
    }

    /// Converts to an entry at `path`.
    pub fn entry(&self, path: &RelPath) -> Entry {
        let size = self.size.unwrap_or(UNKNOWN_SIZE);
        let mut entry = Entry::new(path.clone(), EntryKind::File, size);
        entry.modified = self.modified;
        entry.tag.clone_from(&self.tag);
        entry.digest = self.digest;
        entry
    }

    /// The `If-Range` value that makes a server send a part only of this version (RFC 9110, 13.1.5). With or
    /// without it, the response is compared.
    pub fn if_range(&self) -> Option<HeaderValue> {
        match &self.tag {
            // With a weak tag a server would send the whole file.
            Some(tag) if !tag.starts_with("W/") => HeaderValue::from_str(tag).ok(),
            // So would Apache with a date that is too recent.
            _ if self.settled => self.last_modified.clone(),
            _ => None,
        }
    }

    /// How `now` differs from this version, if it does.
    pub fn differs(&self, now: &Self) -> Option<String> {
        if let Some(coding) = self.other_coding(now) {
            return Some(format!("it is sent encoded ({coding})"));
        }
        if let (Some(was), Some(is)) = (self.size, now.size)
            && was != is
        {
            return Some(format!("it had {was} bytes and has {is}"));
        }
        // Apache marks a tag as weak for a second after the file was modified (RFC 9110, 8.8.3.2).
        let opaque = |tag: &str| tag.trim_start_matches("W/").to_owned();
        if let (Some(was), Some(is)) = (&self.tag, &now.tag)
            && opaque(was) != opaque(is)
        {
            return Some(format!("its ETag was {was} and is {is}"));
        }
        match (&self.last_modified, &now.last_modified) {
            (Some(was), Some(is)) if was != is => {
                Some(format!("it was modified {} and now {}", shown(was), shown(is)))
            }
            _ => None,
        }
    }
}

impl Facts {
    /// The coding of a response, if it differs from that of the version being read.
    fn other_coding<'a>(&self, now: &'a Self) -> Option<&'a str> {
        now.coding.as_ref().filter(|_| now.coding != self.coding).map(Coding::name)
    }

    /// Checks that a response has the same coding as the version being read.
    ///
    /// # Errors
    /// `Protocol` if not.
    pub fn check_coding(&self, now: &Self, url: &Url) -> Result<()> {
        let Some(coding) = self.other_coding(now) else { return Ok(()) };
        let coding = coding.escape_debug();
        Err(Error::new(ErrorKind::Protocol, "read").at(url).because(format!(
            "the server, or a proxy, sends it encoded ({coding}), which haul did not request"
        )))
    }
}

/// The `Range` header of a request (RFC 9110, 14.1.2). The range must not be empty.
pub fn bytes_of(range: Range) -> String {
    format!("bytes={}-{}", range.start(), range.end().saturating_sub(1))
}

/// Checks that a response is the requested part of the version being read. `requested` must not extend beyond the end
/// of the file.
///
/// # Errors
/// `Changed` if the file has changed; the error of the status if it is no success; `Protocol` if the
/// server sends something else.
pub fn check_part(response: &Head, requested: Range, version: &Facts) -> Result<()> {
    let url = &response.url;
    let wrong = |cause: String| Error::new(ErrorKind::Protocol, "read").at(url).because(cause);
    match response.status {
        StatusCode::PARTIAL_CONTENT => {}
        StatusCode::OK => {
            let now = Facts::of(response, "read")?;
            version.check_coding(&now, url)?;
            return Err(match version.differs(&now) {
                Some(how) => changed(url, &how),
                // A server may ignore `Range` at any time (RFC 9110, 14.2); some caches do until they have the file.
                None => wrong(format!(
                    "the server sent the whole file instead of bytes {} to {}",
                    requested.start(),
                    requested.end().saturating_sub(1)
                ))
                .with_retry(Retry::Later),
            });
        }
        StatusCode::RANGE_NOT_SATISFIABLE | StatusCode::PRECONDITION_FAILED => {
            return Err(changed(url, "the requested range no longer exists"));
        }
        status => return Err(error::of_status(status, "read", url)),
    }
    let now = Facts::of(response, "read")?;
    version.check_coding(&now, url)?;
    if let Some(how) = version.differs(&now) {
        return Err(changed(url, &how));
    }
    let found = content_range(response).map_err(wrong)?;
    let ContentRange::Bytes { first, last, .. } = found else {
        return Err(wrong(
            "the server sent a range that its Content-Range calls \
                          unsatisfiable"
                .to_owned(),
        ));
    };
    if (first, last.saturating_add(1)) != (requested.start(), requested.end()) {
        return Err(wrong(format!(
            "the server sent bytes {first} to {last} instead of {} to {}",
            requested.start(),
            requested.end() - 1
        )));
    }
    match response.length() {
        Some(length) if length != requested.len() => Err(wrong(format!(
            "the server announced {length} bytes for a range of \
                               {}",
            requested.len()
        ))),
        _ => Ok(()),
    }
}

fn content_range(response: &Head) -> Result<ContentRange, String> {
    let value = response.header(&CONTENT_RANGE);
    let value = value.ok_or("the server sent a partial response without Content-Range")?;
    ContentRange::parse(value).map_err(|error| format!("{error}: '{}'", value.escape_debug()))
}

fn changed(url: &Url, how: &str) -> Error {
    Error::new(ErrorKind::Changed, "read").at(url).because(format!("it has changed: {how}"))
}

fn text(response: &Head, name: &HeaderName) -> Option<String> {
    response.header(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn shown(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).escape_debug().to_string()
}
