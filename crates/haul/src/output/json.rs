//! Events as JSON Lines: one object per line, its type in the field `event`.
//!
//! JSON is Unicode and file names are bytes: `path` has invalid sequences replaced by U+FFFD, and if
//! any was replaced, `path_bytes` has the exact name in hexadecimal. Sizes are bytes and durations
//! seconds, unless the field's name has another unit; points in time are UTC as in RFC 3339. Fields may be
//! added; existing ones stay. Terminal control characters are written as `\u` escapes.

mod config;
mod event;
mod transfer;
mod trees;
mod values;

use std::borrow::Cow;

use haul_storage::text::steers_a_terminal;
use serde::Serialize;

pub(crate) use self::event::{Event, SettingFields};

/// An event with the host that it concerns, when there are several hosts.
#[derive(Debug, Serialize)]
pub(crate) struct OfHost<'a> {
    #[serde(flatten)]
    event: Event<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a str>,
}

impl<'a> OfHost<'a> {
    /// Adds the name of the host, if any, to `event`.
    pub(crate) fn new(host: Option<&'a str>, event: Event<'a>) -> Self {
        Self { event, host }
    }
}

/// Version of the format. It increases when a field is removed or changes its meaning, not when one is added.
const SCHEMA: u32 = 1;

/// Adds the field `schema` to the first object of a stream.
pub(crate) fn with_schema(line: &str) -> String {
    line.replacen('{', &format!("{{\"schema\":{SCHEMA},"), 1)
}

/// Escapes the terminal control characters in a line of JSON that serde_json leaves: it escapes C0 controls only.
pub(crate) fn harmless(line: &str) -> Cow<'_, str> {
    if !line.contains(steers_a_terminal) {
        return Cow::Borrowed(line);
    }
    let mut harmless = String::with_capacity(line.len() + 16);
    for c in line.chars() {
        // All are in the Basic Multilingual Plane (four digits suffice), and occur only inside strings.
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
    fn a_name_that_is_not_utf8_is_printed_without_loss() {
        let entry = Entry::new(RelPath::root(), EntryKind::File, 3);
        let name = line(&Event::entry(&entry, b"a\xff"));
        assert!(name.contains(r#""path":"a�","path_bytes":"61ff""#), "{name}");
        let name = line(&Event::entry(&entry, b"a"));
        assert!(name.starts_with(r#"{"event":"entry","path":"a","kind":"file""#), "{name}");
        assert!(!name.contains("path_bytes"), "{name}");
    }

    #[test]
    fn terminal_control_characters_are_escaped_without_loss() {
        let entry = Entry::new(RelPath::root(), EntryKind::File, 3);
        let path = "a\u{7f}\u{9b}2J\u{202e}gpj.exe\u{1b}";
        let line = line(&Event::entry(&entry, path.as_bytes()));
        let harmless = harmless(&line);
        assert!(harmless.contains(r"a\u007f\u009b2J\u202egpj.exe\u001b"), "{harmless}");
        let parsed: serde_json::Value = serde_json::from_str(&harmless).unwrap();
        assert_eq!(parsed["path"], path);
    }

    #[test]
    fn an_error_event_has_location_operation_and_kind() {
        let error = Error::new(ErrorKind::NotFound, "open").at("x/y");
        assert_eq!(
            line(&Event::from(&error)),
            r#"{"event":"error","location":"x/y","operation":"open","kind":"not_found","message":"not found"}"#
        );
    }
}
