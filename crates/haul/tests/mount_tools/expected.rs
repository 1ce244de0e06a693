//! Lists of tests of other programs that do not pass on a mount, and why.

use std::collections::BTreeSet;

/// Such a list. Each line is a pattern, in which one `*` may stand for any text. A pattern that matches no failed test
/// is an error, unless the line begins with `? `: those tests may pass or fail. Lines that begin with `#` are comments
/// with the reasons.
pub(crate) struct Expected(pub(crate) &'static str);

impl Expected {
    /// Asserts that the failed tests are those of the list. `text` is the output of the program.
    #[track_caller]
    pub(crate) fn check(&self, failed: &BTreeSet<&str>, text: &str) {
        let unexplained: Vec<_> = failed
            .iter()
            .filter(|test| !self.lines().any(|(pattern, _)| matches(pattern, test)))
            .collect();
        let unneeded: Vec<_> = self
            .lines()
            .filter(|(pattern, is_required)| {
                *is_required && !failed.iter().any(|test| matches(pattern, test))
            })
            .map(|(pattern, _)| pattern)
            .collect();
        assert!(
            unexplained.is_empty() && unneeded.is_empty(),
            "failed without an explanation: {unexplained:#?}\n\
             explained, but passed: {unneeded:#?}\n{text}"
        );
    }

    /// The patterns, and whether each must match a failed test.
    fn lines(&self) -> impl Iterator<Item = (&'static str, bool)> {
        let lines = self.0.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.map(|line| match line.strip_prefix("? ") {
            Some(pattern) => (pattern, false),
            None => (line, true),
        })
    }
}

/// Whether a pattern with at most one `*` matches.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, end)) => {
            let rest = name.strip_prefix(start);
            rest.is_some_and(|rest| rest.ends_with(end))
        }
    }
}

#[test]
fn a_pattern_matches_a_whole_name() {
    assert!(matches("*::fifo", "open::kind::fifo"));
    assert!(matches("mkfifo::*", "mkfifo::mode"));
    assert!(matches("a::b", "a::b"));
    assert!(!matches("a::b", "a::b::c"));
    assert!(!matches("*::fifo", "open::fifo::x"));
}
