//! Parses HTML index pages of Apache, nginx, lighttpd, IIS, Tomcat, Go, Python, rclone, Caddy and others.
//!
//! There is no standard for such pages. All have a link for each entry, with a slash at the end for
//! directories, so these links are parsed. Names come from the links, since the text is
//! truncated after some 20 to 50 characters. A link that leads elsewhere is no entry. Nor is one with a query
//! (as those that sort the page) or fragment, unless its text contains the `?` or `#` as well: WEBrick does not
//! encode it.
//!
//! Sizes and dates, as far as they are exact:
//!
//! | server | size | date |
//! |---|---|---|
//! | nginx | bytes; rounded with `autoindex_exact_size off` | minutes, without a zone |
//! | Apache | bytes below 973, else rounded | minutes, in the server's zone |
//! | lighttpd | rounded | seconds, in the server's zone |
//! | rclone, Caddy | bytes, in the page's source | seconds with a zone, in the page's source |
//!
//! A rounded size is no size ([`Listed::size`] is `None`), only a check ([`Listed::rounded`]). A date without seconds
//! and zone is ignored: a HEAD of the file gives both exactly, and a date that is wrong by hours is worse than none.

mod html;
mod recognise;
mod rounded;

use std::collections::HashMap;

use haul_storage::{Range, Timestamp};

use super::dates;
use super::href::{Base, HrefError, Target, resolve};
use html::{Html, Piece, Tag};
pub use recognise::PREFIX;

/// The longest page that is accepted: some 200 000 entries.
pub const LONGEST: usize = 32 << 20;

/// The most bytes of a link's text that are examined, and of the text behind it, in which a size is sought.
const TEXT_MAX: usize = 256;

/// The content of an index page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Index {
    /// The entries in their order, each name once.
    pub entries: Vec<Listed>,
    /// How many links could be entries but have no usable name: with an encoded `/` or NUL, or an
    /// invalid `%`.
    pub refused: usize,
}

/// An entry of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name: one component.
    pub name: Vec<u8>,
    /// Whether the link ends with a slash.
    pub directory: bool,
    /// Length in bytes, if it is exact.
    pub size: Option<u64>,
    /// The lengths that a rounded size can mean.
    pub rounded: Option<Range>,
    /// Last modification, if given with seconds and zone.
    pub modified: Option<Timestamp>,
}

/// Why a page is not parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// Longer than [`LONGEST`].
    #[error("an index of more than {LONGEST} bytes")]
    TooLong,
}

/// Whether a page is the index of `base` and not a document. Call this only for a URL whose path
/// ends with a slash: an index page saved as a file looks the same.
///
/// `prefix` is the page or its beginning; only the first [`PREFIX`] bytes are examined.
pub fn is_index(content_type: &str, base: &Base, prefix: &[u8]) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    let is_html = ["text/html", "application/xhtml+xml"];
    is_html.iter().any(|known| media_type.eq_ignore_ascii_case(known))
        && recognise::is_listing(base, prefix)
}

/// The entries of `page`, which is the index of `base`.
///
/// # Errors
/// If it is longer than [`LONGEST`].
pub fn parse(base: &Base, page: &[u8]) -> Result<Index, IndexError> {
    if page.len() > LONGEST {
        return Err(IndexError::TooLong);
    }
    let mut reader = Reader::default();
    for piece in Html::new(page) {
        match piece {
            Piece::Open(tag) => reader.open(base, &tag),
            Piece::Close(name) if name.eq_ignore_ascii_case(b"tr") => reader.end_entry(),
            Piece::Close(name) => reader.close(name),
            Piece::Text(text) => reader.text(text),
            Piece::Title(_) => {}
        }
    }
    reader.end_entry();
    Ok(reader.index)
}

#[derive(Debug, Default)]
struct Reader {
    index: Index,
    /// The index of each name in the entries.
    positions: HashMap<Vec<u8>, usize>,
    /// The entry that the current text belongs to.
    current: Option<usize>,
    /// Whether a link is open; its text is a name that may be truncated.
    in_link: bool,
    text: Vec<u8>,
    /// A link with a query or fragment, and its text so far: it may be a name.
    unclear: Option<(Vec<u8>, Vec<u8>)>,
}

impl Reader {
    fn open(&mut self, base: &Base, tag: &Tag<'_>) {
        if tag.is("a") {
            if let Some(href) = tag.attribute("href") {
                self.end_entry();
                self.in_link = true;
                self.link(base, href.trim_ascii());
            }
        } else if tag.is("tr") || tag.is("li") {
            self.end_entry();
        } else if let Some(entry) = self.current.and_then(|at| self.index.entries.get_mut(at)) {
            if tag.is("time") && entry.modified.is_none() {
                entry.modified = tag.attribute("datetime").and_then(|value| exact_date(&value));
            } else if tag.is("td") && entry.size.is_none() && !entry.directory {
                entry.size = tag.attribute("data-size").and_then(|value| number(&value));
            }
        }
        self.separate();
    }

    fn close(&mut self, name: &[u8]) {
        if name.eq_ignore_ascii_case(b"a") {
            self.in_link = false;
            self.settle();
        }
        if name.eq_ignore_ascii_case(b"size") {
            // rclone writes `<size>1536</size>`, which a script formats.
            let size = self.text.rsplit(|byte| *byte == b' ').next().and_then(number);
            self.set_size(size);
        }
        self.separate();
    }

    fn text(&mut self, text: &[u8]) {
        if let Some((_, shown)) = &mut self.unclear {
            shown.extend_from_slice(&text[..text.len().min(TEXT_MAX.saturating_sub(shown.len()))]);
        }
        if self.current.is_some() && !self.in_link {
            let room = TEXT_MAX.saturating_sub(self.text.len());
            self.text.extend_from_slice(&text[..text.len().min(room)]);
        }
    }

    /// Separates words: table cells are words of their own.
    fn separate(&mut self) {
        if !self.text.is_empty() && self.text.len() < TEXT_MAX && !self.text.ends_with(b" ") {
            self.text.push(b' ');
        }
    }

    fn link(&mut self, base: &Base, href: &[u8]) {
        match resolve(base, href) {
            Ok(Target::Child { name, slash }) => self.entry(name, slash),
            Err(HrefError::Malformed | HrefError::Separator | HrefError::Nul) => {
                self.index.refused += 1;
            }
            Err(HrefError::Query) => {
                // Resolve it as if it were encoded.
                let encoded = escaped(href);
                if let Ok(Target::Child { name, .. }) = resolve(base, &encoded) {
                    self.unclear = Some((name, Vec::new()));
                }
            }
            // A link to the page itself, its parent, or elsewhere.
            Ok(Target::This) | Err(_) => {}
        }
    }

    fn entry(&mut self, name: Vec<u8>, slash: bool) {
        let entries = &mut self.index.entries;
        let at = *self.positions.entry(name).or_insert_with_key(|name| {
            let name = name.clone();
            entries.push(Listed {
                name,
                directory: slash,
                size: None,
                rounded: None,
                modified: None,
            });
            entries.len() - 1
        });
        // An entry may have two links: an icon and a name.
        entries[at].directory |= slash;
        self.current = Some(at);
    }

    /// A link with a `?` or `#` is a name if its text, possibly truncated, shows it.
    fn settle(&mut self) {
        let Some((name, shown)) = self.unclear.take() else { return };
        let shown = html::decode(&shown);
        let mut shown = shown.trim_ascii();
        for cut in [&b"..>"[..], b"...", b"..", "\u{2026}".as_bytes()] {
            shown = shown.strip_suffix(cut).unwrap_or(shown);
        }
        let sign = name.iter().position(|byte| matches!(byte, b'?' | b'#'));
        if name.starts_with(shown) && sign.is_some_and(|sign| sign > 0 && shown.len() > sign) {
            self.entry(name, false);
        }
    }

    fn end_entry(&mut self) {
        self.settle();
        let (size, rounded) = size_behind_date(&self.text);
        self.set_size(size);
        if let Some(entry) = self.current.and_then(|at| self.index.entries.get_mut(at))
            && !entry.directory
        {
            entry.rounded = entry.rounded.or(rounded);
        }
        self.current = None;
        self.in_link = false;
        self.text.clear();
    }

    fn set_size(&mut self, size: Option<u64>) {
        if let Some(entry) = self.current.and_then(|at| self.index.entries.get_mut(at))
            && !entry.directory
        {
            entry.size = entry.size.or(size);
        }
    }
}

/// The link with `?` and `#` encoded.
fn escaped(href: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(href.len() + 4);
    for byte in href {
        match byte {
            b'?' => escaped.extend_from_slice(b"%3F"),
            b'#' => escaped.extend_from_slice(b"%23"),
            other => escaped.push(*other),
        }
    }
    escaped
}

/// `29-Feb-2024 12:34 1536`: a number after a time is the size in bytes. `1.5K` is rounded.
fn size_behind_date(text: &[u8]) -> (Option<u64>, Option<Range>) {
    let mut words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    words.find(|word| matches!(word, [_, _, b':', ..]) && word[0].is_ascii_digit());
    let Some(size) = words.next() else { return (None, None) };
    match rounded::rounded(size, words.next()) {
        None => (number(size), None),
        rounded => (None, rounded),
    }
}

/// A date with seconds and a zone: `2024-02-29T12:34:56Z` (Caddy), and Go's
/// `2024-02-29 12:34:56.5 +0000 UTC` (rclone).
fn exact_date(value: &[u8]) -> Option<Timestamp> {
    let value = std::str::from_utf8(value).ok()?.trim();
    let time = value.get(11..)?;
    let has_zone = time.contains(['Z', 'z', '+', '-']);
    if time.as_bytes().get(5) != Some(&b':') || !has_zone {
        return None;
    }
    let mut words = value.splitn(4, ' ');
    match (words.next(), words.next(), words.next()) {
        (Some(day), Some(time), Some(zone)) => dates::parse(&format!("{day}T{time}{zone}")),
        _ => dates::parse(value),
    }
}

fn number(text: impl AsRef<[u8]>) -> Option<u64> {
    let text = std::str::from_utf8(text.as_ref()).ok()?;
    // `parse` accepts a '+'.
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests;
