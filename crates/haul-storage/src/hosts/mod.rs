//! Lists of hosts in the syntax of pdsh and ClusterShell, and locations that contain one.
//!
//! | list | hosts |
//! |---|---|
//! | `a,b` | `a`, `b` |
//! | `node[01-20]` | `node01` to `node20`; the width of the first number is kept |
//! | `node[1,3,5-9]` | `node1`, `node3`, `node5` to `node9` |
//! | `rack[1-2]n[01-16]` | `rack1n01` to `rack2n16`; the last number varies fastest |
//! | `[fe80::1],[fe80::2]` | two IPv6 addresses: a bracket that contains `:` is not a list |
//!
//! A [`HostList`] is counted when it is parsed and expanded one host at a time, so that a list that is
//! too long takes no memory. [`ManyHosts`] is an argument with such a list in place of its host.

mod many;
mod parse;

use std::fmt;

pub use many::ManyHosts;

/// Maximum number of hosts in a list: the addresses of an IPv4 network with 16 bits for hosts.
pub const MOST_HOSTS: u64 = 65_536;

/// Maximum length of a host name in bytes: that of DNS (255, RFC 1035, 2.3.4), without the length of the first
/// label and the root at the end.
pub const LONGEST_HOST: usize = 253;

/// Hosts in the order in which they are written, possibly with duplicates.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostList {
    terms: Vec<Term>,
    count: u64,
}

/// Why a text is not a list of hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostListError {
    text: String,
    /// The line of a file, from 1.
    line: Option<usize>,
    /// The character of the text, from 1.
    at: usize,
    cause: &'static str,
}

/// The part between two commas outside of brackets.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    parts: Vec<Part>,
    count: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Numbers { spans: Vec<Span>, count: u64 },
}

/// The numbers `first..=last`, written with at least `width` digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    first: u64,
    last: u64,
    width: usize,
}

impl HostList {
    /// The number of hosts including duplicates; at most [`MOST_HOSTS`].
    pub const fn len(&self) -> u64 {
        self.count
    }

    /// Whether the list has no hosts.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The hosts, one by one.
    pub fn iter(&self) -> impl Iterator<Item = String> + '_ {
        self.terms.iter().flat_map(|term| (0..term.count).map(|index| term.host(index)))
    }
}

impl Term {
    /// Host `index` of this term. Each bracket is one digit of the index, whose base is the bracket's
    /// count; the last one is the least significant.
    fn host(&self, mut index: u64) -> String {
        let mut pieces = Vec::with_capacity(self.parts.len());
        for part in self.parts.iter().rev() {
            pieces.push(match part {
                Part::Text(text) => text.clone(),
                Part::Numbers { spans, count } => {
                    let number = number_at(spans, index % count);
                    index /= count;
                    number
                }
            });
        }
        pieces.reverse();
        pieces.concat()
    }
}

impl Span {
    const fn count(self) -> u64 {
        self.last - self.first + 1
    }
}

/// Number `index` of the spans, with its padding.
fn number_at(spans: &[Span], mut index: u64) -> String {
    for span in spans {
        if index < span.count() {
            return format!("{:0width$}", span.first + index, width = span.width);
        }
        index -= span.count();
    }
    String::new()
}

impl HostListError {
    /// `at` is a byte offset from 0.
    fn new(text: &str, at: usize, cause: &'static str) -> Self {
        let before = text.get(..at).unwrap_or(text);
        Self { text: text.to_owned(), line: None, at: before.chars().count() + 1, cause }
    }

    /// The offending character of the list, counted from 1.
    pub const fn position(&self) -> usize {
        self.at
    }
}

impl fmt::Display for HostListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        write!(f, "'{}', character {}: {}", self.text.escape_debug(), self.at, self.cause)
    }
}

impl std::error::Error for HostListError {}

#[cfg(test)]
mod tests;
