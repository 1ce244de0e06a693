//! Events as JSON, one object a line; `event` says which.
//!
//! Names: JSON is Unicode and file names are bytes, so `path` has every invalid byte replaced by
//! U+FFFD, and only then there is `path_bytes`, the exact name in hexadecimal. Sizes are bytes,
//! times seconds, unless the name says otherwise. New fields may come; these stay. Characters that
//! would steer a terminal are written as `\u` escapes.

mod config;
mod event;
mod transfer;
mod trees;
mod values;

use std::borrow::Cow;

use haul_storage::text::steers_a_terminal;
use serde::Serialize;

pub(crate) use self::event::{Event, SettingFields};

/// A line that is about one of many hosts, or about none of them.
#[derive(Debug, Serialize)]
pub(crate) struct OfHost<'a> {
    #[serde(flatten)]
    event: Event<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a str>,
}

impl<'a> OfHost<'a> {
    /// `event` of the host of this name.
    pub(crate) fn new(host: Option<&'a str>, event: Event<'a>) -> Self {
        Self { event, host }
    }
}

/// The version of the objects. It grows when a field changes its meaning or goes; fields are added without.
const SCHEMA: u32 = 1;

/// The first object of a stream, with the version of all of them.
pub(crate) fn with_schema(line: &str) -> String {
    line.replacen('{', &format!("{{\"schema\":{SCHEMA},"), 1)
}

/// A line of JSON whose strings steer no terminal. serde_json escapes C0 controls only.
pub(crate) fn harmless(line: &str) -> Cow<'_, str> {
    if !line.contains(steers_a_terminal) {
        return Cow::Borrowed(line);
    }
    let mut harmless = String::with_capacity(line.len() + 16);
    for c in line.chars() {
        // All of them are in the basic plane, and outside of strings there are none.
        if steers_a_terminal(c) {
            harmless.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            harmless.push(c);
        }
    }
    Cow::Owned(harmless)
}

#[cfg(test)]
mod tests {
    use haul_storage::{Entry, EntryKind, Error, ErrorKind, RelPath};

    use super::*;

    fn line(event: &Event<'_>) -> String {
        serde_json::to_string(event).unwrap()
    }

    #[test]
    fn a_name_that_is_not_text_is_kept_without_loss() {
        let entry = Entry::new(RelPath::root(), EntryKind::File, 3);
        let name = line(&Event::entry(&entry, b"a\xff"));
        assert!(name.contains(r#""path":"a�","path_bytes":"61ff""#), "{name}");
        let name = line(&Event::entry(&entry, b"a"));
        assert!(name.starts_with(r#"{"event":"entry","path":"a","kind":"file""#), "{name}");
        assert!(!name.contains("path_bytes"), "{name}");
    }

    #[test]
    fn a_line_steers_no_terminal_and_says_the_same() {
        let entry = Entry::new(RelPath::root(), EntryKind::File, 3);
        let path = "a\u{7f}\u{9b}2J\u{202e}gpj.exe\u{1b}";
        let line = line(&Event::entry(&entry, path.as_bytes()));
        let harmless = harmless(&line);
        assert!(harmless.contains(r"a\u007f\u009b2J\u202egpj.exe\u001b"), "{harmless}");
        let parsed: serde_json::Value = serde_json::from_str(&harmless).unwrap();
        assert_eq!(parsed["path"], path);
    }

    #[test]
    fn an_error_says_where_what_and_why() {
        let error = Error::new(ErrorKind::NotFound, "open").at("x/y");
        assert_eq!(
            line(&Event::from(&error)),
            r#"{"event":"error","location":"x/y","operation":"open","kind":"not_found","message":"not found"}"#
        );
    }
}
