//! Recognises whether a page is the listing of a directory or a document.
//!
//! A page is a listing if it has the marks of a known server, if its title or first heading is the requested
//! path, or if it contains little but links to its own children. The links of a page wrongly taken for a listing
//! would be followed instead of saving the page, so each rule is narrow.

use super::super::href::{Base, Target, resolve};
use super::html::{self, Html, Piece, Tag};

/// Bytes at the beginning of a page that `is_index` examines. rclone's pages have 10 KiB of style sheets before
/// the first link.
pub const PREFIX: usize = 64 << 10;

/// Titles of listings, whatever the path. They include the slash: a document can be titled "Index of"
/// something.
const TITLES: [&str; 3] = ["index of /", "directory listing for /", "directory: /"];

/// Text before a path, or before its last name, in titles that omit the first slash.
const BEFORE_NAMES: [&str; 7] = [
    "index of ",
    "directory listing for ",
    "directory listing of ",
    "directory: ",
    "files within ",
    "files in ",
    "listing: ",
];

/// Links that sort the pages of rclone and Caddy.
const SORTS: [&str; 2] = ["?sort=namedirfirst&order=", "?sort=name&order="];

/// Words that occur around the links of a listing.
const AROUND: [&str; 34] = [
    "name",
    "size",
    "date",
    "time",
    "last",
    "modified",
    "modification",
    "type",
    "description",
    "parent",
    "directory",
    "dir",
    "file",
    "files",
    "folder",
    "index",
    "of",
    "to",
    "bytes",
    "byte",
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
    "am",
    "pm",
];

/// Whether `page`, which was served as HTML at `base`, is its listing.
pub(super) fn is_listing(base: &Base, page: &[u8]) -> bool {
    let page = without_cut_tag(&page[..page.len().min(PREFIX)]);
    let mut seen = Seen::default();
    for piece in Html::new(page) {
        match piece {
            Piece::Title(title) => {
                let title = words_of(&html::decode(title));
                if is_title(&title, base) {
                    return true;
                }
                seen.words += prose_words(&title);
            }
            Piece::Open(tag) if tag.is("a") => {
                if seen.link(base, &tag) {
                    return true;
                }
            }
            Piece::Open(tag) => seen.open(&tag),
            Piece::Close(name) => {
                if let Some(heading) = seen.close(name)
                    && is_path(&words_of(heading.as_bytes()), base)
                {
                    return true;
                }
            }
            Piece::Text(text) => seen.text(&html::decode(text)),
        }
    }
    seen.is_little_but_children()
}

/// The page without an unfinished tag at its end: half a link would count as one that leads elsewhere.
fn without_cut_tag(page: &[u8]) -> &[u8] {
    let last = page.iter().rposition(|byte| *byte == b'<');
    last.filter(|last| !page[*last..].contains(&b'>')).map_or(page, |last| &page[..last])
}

/// What was found on a page.
#[derive(Default)]
struct Seen {
    /// Links to entries of the directory, and links elsewhere (not to itself, its parent or the root).
    children: usize,
    others: usize,
    /// Whether the current text is that of a link; whether there was preformatted text.
    in_link: bool,
    preformatted: bool,
    /// Words that listings do not have around their links.
    words: usize,
    /// The text of the first heading while it is open; whether there was one; whether there was any text.
    heading: Option<String>,
    has_heading: bool,
    has_text: bool,
}

impl Seen {
    /// Notes a link. Returns whether it is one that only listings have.
    fn link(&mut self, base: &Base, tag: &Tag<'_>) -> bool {
        let Some(href) = tag.attribute("href") else { return false };
        let href = href.trim_ascii();
        if SORTS.iter().any(|sort| href.starts_with(sort.as_bytes())) {
            return true;
        }
        self.in_link = true;
        match resolve(base, href) {
            Ok(Target::Child { .. }) => self.children += 1,
            Ok(Target::This) => {}
            Err(_) if is_above(href) || matches!(href.first(), None | Some(b'?' | b'#')) => {}
            Err(_) => self.others += 1,
        }
        false
    }

    fn open(&mut self, tag: &Tag<'_>) {
        self.preformatted |= tag.is("pre");
        let is_heading = ["h1", "h2", "h3", "h4", "h5", "h6"].iter().any(|name| tag.is(name));
        if is_heading && !self.has_heading {
            self.heading = Some(String::new());
            self.has_heading = true;
        }
        // Listings contain no forms, frames or videos.
        self.words += usize::from(tag.is("form") || tag.is("iframe") || tag.is("video"));
    }

    /// Notes a closing tag. Returns the first heading when it ends.
    fn close(&mut self, name: &[u8]) -> Option<String> {
        match name.to_ascii_lowercase()[..] {
            [b'a'] => self.in_link = false,
            [b'h', b'1'..=b'6'] => return self.heading.take(),
            _ => {}
        }
        None
    }

    fn text(&mut self, text: &[u8]) {
        let text = String::from_utf8_lossy(text);
        if let Some(heading) = &mut self.heading {
            heading.push_str(&text);
        }
        self.has_text |= !text.trim().is_empty();
        if self.in_link {
            return;
        }
        self.words += prose_words(&text);
    }

    /// Whether there is nothing but links to entries and to the parent; or only an empty `<pre>`, which
    /// is how Go's file server shows an empty directory.
    const fn is_little_but_children(&self) -> bool {
        let nothing = self.preformatted && !self.has_text;
        self.words == 0 && self.others == 0 && (self.children > 0 || nothing)
    }
}

/// Whether a link leads to the parent or to the root, as in a listing.
fn is_above(href: &[u8]) -> bool {
    matches!(href, b".." | b"../" | b"/")
}

/// Counts words that do not occur around the links of a listing.
fn prose_words(text: &str) -> usize {
    let words = text.split(|c: char| !c.is_alphabetic()).filter(|word| word.len() > 2);
    words.filter(|word| !AROUND.contains(&&word.to_ascii_lowercase()[..])).count()
}

/// The text with single spaces.
fn words_of(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn is_title(title: &str, base: &Base) -> bool {
    let lower = title.to_ascii_lowercase();
    if TITLES.iter().any(|known| lower.starts_with(known)) || is_path(title, base) {
        return true;
    }
    let names: Vec<_> =
        base.components().iter().map(|name| String::from_utf8_lossy(name)).collect();
    let Some(last) = names.last() else { return false };
    let path = names.join("/");
    BEFORE_NAMES.iter().filter(|before| lower.starts_with(**before)).any(|before| {
        // Lower-casing ASCII keeps the length.
        let rest = title.get(before.len()..).unwrap_or_default();
        let rest = rest.trim_start_matches("./").trim_end_matches('/');
        // The last name alone could title a document about it, so it needs a slash behind it.
        rest == path || rest == &last[..] && lower.ends_with('/')
    })
}

/// Whether a title or heading is the requested path, alone or after other words.
fn is_path(title: &str, base: &Base) -> bool {
    let title = title.trim_end_matches([']', ')', '"', '\'']);
    let names = base.components().iter().map(|name| String::from_utf8_lossy(name));
    let path: String = names.flat_map(|name| ["/".to_owned(), name.into_owned()]).collect();
    let before = if path.is_empty() {
        title.strip_suffix('/')
    } else {
        title.strip_suffix('/').unwrap_or(title).strip_suffix(&path[..])
    };
    let Some(before) = before else { return false };
    let host = base.origin.host();
    let has_host = before
        .strip_suffix(&format!(":{}", base.origin.port()))
        .unwrap_or(before)
        .to_ascii_lowercase()
        .ends_with(host);
    has_host || before.chars().next_back().is_none_or(|last| " [(.\"':".contains(last))
}
