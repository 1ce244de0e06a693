//! Values in events of all kinds: names, digests, errors, times.

use std::borrow::Cow;
use std::time::Duration;

use haul_engine::digest::Digest;
use haul_storage::{Entry, EntryKind, Error, ErrorKind, LinkPath};
use serde::Serialize;

/// A digest with its function.
#[derive(Debug, Serialize)]
pub(super) struct DigestFields {
    pub(super) kind: &'static str,
    pub(super) hex: String,
}

/// A name; if it is not UTF-8, `path_bytes` has its bytes in hexadecimal.
#[derive(Debug, Serialize)]
pub(super) struct PathFields<'a> {
    pub(super) path: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) path_bytes: Option<String>,
}

/// The path of lanes to a peer.
#[derive(Debug, Serialize)]
pub(super) struct LinkPathFields {
    pub(super) kind: &'static str,
    pub(super) address: String,
}

/// A failed operation.
#[derive(Debug, Serialize)]
pub(crate) struct ErrorFields<'a> {
    pub(super) location: &'a str,
    pub(super) operation: &'a str,
    pub(super) kind: String,
    pub(super) message: String,
    /// What can be done about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hint: Option<&'a str>,
}

impl<'a> From<&'a Error> for ErrorFields<'a> {
    fn from(error: &'a Error) -> Self {
        Self {
            location: error.location(),
            operation: error.operation(),
            kind: kind_name(error.kind()),
            message: error.cause(),
            hint: error.hint(),
        }
    }
}

impl<'a> From<&'a [u8]> for PathFields<'a> {
    fn from(path: &'a [u8]) -> Self {
        let path_bytes = std::str::from_utf8(path).is_err().then(|| hex(path));
        Self { path: String::from_utf8_lossy(path), path_bytes }
    }
}

impl From<LinkPath> for LinkPathFields {
    fn from(path: LinkPath) -> Self {
        Self { kind: path.kind.name(), address: path.address.to_string() }
    }
}

impl From<&Digest> for DigestFields {
    fn from(digest: &Digest) -> Self {
        Self { kind: digest.kind.name(), hex: digest.to_string() }
    }
}

pub(super) fn kind_of(entry: &Entry) -> &'static str {
    match entry.kind {
        EntryKind::File => "file",
        EntryKind::Directory => "directory",
        EntryKind::Symlink(_) => "symlink",
        EntryKind::Special(_) => "special",
    }
}

/// `NotFound` as `not_found`; the kinds are non-exhaustive, so their names are derived.
fn kind_name(kind: ErrorKind) -> String {
    let mut name = String::new();
    for letter in format!("{kind:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn seconds(time: Duration) -> f64 {
    ms(time) / 1000.0
}

/// Milliseconds with microseconds as decimals: more digits are noise.
pub(super) fn ms(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}
