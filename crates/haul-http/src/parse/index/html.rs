//! A tokenizer for as much of HTML as is needed to find links: tags with attributes, text, comments.
//!
//! Its time is linear: if the end of a token is missing, it extends to the end of the page, as in the HTML
//! standard, section 13.2.5. Unlike there, a tag without an end is a piece like any other.

use std::borrow::Cow;

/// A piece of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// `<name attributes>`.
    Open(Tag<'a>),
    /// `</name>`.
    Close(&'a [u8]),
    /// Text between tags, entities not decoded.
    Text(&'a [u8]),
    /// The text of `<title>`, entities not decoded.
    Title(&'a [u8]),
}

/// An opening tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tag<'a> {
    name: &'a [u8],
    attributes: &'a [u8],
}

impl<'a> Tag<'a> {
    pub(super) fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }

    /// The value of the first attribute of that name, with its entities decoded.
    pub(super) fn attribute(&self, wanted: &str) -> Option<Cow<'a, [u8]>> {
        let mut rest = self.attributes;
        loop {
            rest = skip(rest, |byte| is_space(byte) || byte == b'/' || byte == b'=');
            if rest.is_empty() {
                return None;
            }
            let (name, behind) = split(rest, |byte| is_space(byte) || byte == b'=' || byte == b'/');
            let behind = skip(behind, is_space);
            let value;
            (value, rest) = match behind.strip_prefix(b"=") {
                None => (&b""[..], behind),
                Some(behind) => {
                    let behind = skip(behind, is_space);
                    match behind.first() {
                        Some(&quote) if is_quote(quote) => {
                            let (value, behind) = split(&behind[1..], |byte| byte == quote);
                            (value, behind.get(1..).unwrap_or_default())
                        }
                        _ => split(behind, is_space),
                    }
                }
            };
            if name.eq_ignore_ascii_case(wanted.as_bytes()) {
                return Some(decode(value));
            }
        }
    }
}

/// The pieces of a page.
#[derive(Debug)]
pub(super) struct Html<'a> {
    rest: &'a [u8],
}

impl<'a> Html<'a> {
    pub(super) const fn new(page: &'a [u8]) -> Self {
        Self { rest: page }
    }

    /// The text before `</name`; the rest begins there.
    fn take_raw(&mut self, name: &[u8]) -> &'a [u8] {
        let is_end =
            |window: &[u8]| window.starts_with(b"</") && window[2..].eq_ignore_ascii_case(name);
        let end = self.rest.windows(2 + name.len()).position(is_end).unwrap_or(self.rest.len());
        let (raw, rest) = self.rest.split_at(end);
        self.rest = rest;
        raw
    }

    /// The tag whose `<` or `</` was taken: its name and attributes.
    fn take_tag(&mut self) -> Tag<'a> {
        let (name, behind) =
            split(self.rest, |byte| is_space(byte) || byte == b'>' || byte == b'/');
        let mut quote = None;
        // A quote opens a value only after `=`: `<a title=it's>` has none.
        let mut after_equals = false;
        let end = behind.iter().position(|byte| {
            match quote {
                Some(open) if open == *byte => quote = None,
                Some(_) => {}
                None if *byte == b'>' => return true,
                None if is_quote(*byte) && after_equals => quote = Some(*byte),
                None => {}
            }
            after_equals = *byte == b'=' || (after_equals && is_space(*byte));
            false
        });
        let end = end.unwrap_or(behind.len());
        self.rest = behind.get(end + 1..).unwrap_or_default();
        Tag { name, attributes: &behind[..end] }
    }
}

impl<'a> Iterator for Html<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        loop {
            if self.rest.is_empty() {
                return None;
            }
            let (text, behind) = split(self.rest, |byte| byte == b'<');
            if !text.is_empty() {
                self.rest = behind;
                return Some(Piece::Text(text));
            }
            match &behind[1..] {
                [b'!', b'-', b'-', comment @ ..] => {
                    let end = comment.windows(3).position(|window| window == b"-->");
                    self.rest = end.map_or(&b""[..], |end| &comment[end + 3..]);
                }
                [b'!' | b'?', rest @ ..] => {
                    let (_, behind) = split(rest, |byte| byte == b'>');
                    self.rest = behind.get(1..).unwrap_or_default();
                }
                [b'/', rest @ ..] => {
                    self.rest = rest;
                    return Some(Piece::Close(self.take_tag().name));
                }
                rest @ [first, ..] if first.is_ascii_alphabetic() => {
                    self.rest = rest;
                    let tag = self.take_tag();
                    if tag.is("title") {
                        return Some(Piece::Title(self.take_raw(b"title")));
                    }
                    // The content of these is not markup, or (`template`) not part of the page.
                    if ["script", "style", "textarea", "template"].iter().any(|raw| tag.is(raw)) {
                        self.take_raw(tag.name);
                    }
                    return Some(Piece::Open(tag));
                }
                rest => {
                    self.rest = rest;
                    return Some(Piece::Text(b"<"));
                }
            }
        }
    }
}

/// Decodes entities: numeric ones, and those that servers write. Unknown ones stay as they are.
pub(super) fn decode(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'&') {
        return Cow::Borrowed(text);
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        // Bounded, to keep the time linear; `&#x0010ffff;` fits.
        let end = tail.iter().take(12).position(|byte| *byte == b';');
        match end.filter(|_| *first == b'&').and_then(|end| Some((entity(&tail[..end])?, end))) {
            Some((character, end)) => {
                decoded.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                rest = &tail[end + 1..];
            }
            None => {
                decoded.push(*first);
                rest = tail;
            }
        }
    }
    Cow::Owned(decoded)
}

fn entity(name: &[u8]) -> Option<char> {
    let name = std::str::from_utf8(name).ok()?;
    if let Some(number) = name.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(digits) => digits_of(digits, 16),
            None => digits_of(number, 10),
        };
        return code.and_then(char::from_u32);
    }
    Some(match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => '\u{a0}',
        "sol" => '/',
        "colon" => ':',
        "period" => '.',
        "num" => '#',
        "percnt" => '%',
        "quest" => '?',
        "plus" => '+',
        "equals" => '=',
        "lowbar" => '_',
        "lpar" => '(',
        "rpar" => ')',
        _ => return None,
    })
}

/// A number of digits alone: `from_str_radix` accepts a sign as well.
fn digits_of(text: &str, radix: u32) -> Option<u32> {
    let is_number = text.chars().all(|digit| digit.is_digit(radix));
    is_number.then(|| u32::from_str_radix(text, radix).ok()).flatten()
}

fn split(bytes: &[u8], stop: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    bytes.split_at(bytes.iter().position(|byte| stop(*byte)).unwrap_or(bytes.len()))
}

fn skip(bytes: &[u8], over: impl Fn(u8) -> bool) -> &[u8] {
    split(bytes, |byte| !over(byte)).1
}

const fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace()
}

const fn is_quote(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_numeric_entity_has_digits_only() {
        for (text, decoded) in [
            ("&#65;&#x42;&#X43;", "ABC"),
            ("&#+65;&#x+42;&#-1;&#;&#x;&# 65;", "&#+65;&#x+42;&#-1;&#;&#x;&# 65;"),
            ("&#xd800;&#99999999999;", "&#xd800;&#99999999999;"),
        ] {
            assert_eq!(*decode(text.as_bytes()), *decoded.as_bytes());
        }
    }
}
