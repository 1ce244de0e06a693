//! pjdfstest: whether system calls do what POSIX says. `pjdfstest.expected` lists and explains the failures.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::lab::{outcome, tool, turn};
use crate::mounted::Mounted;
use crate::place::{Kind, Place};

const SETTINGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mount_tools/pjdfstest.toml");
const EXPECTED: &str = include_str!("pjdfstest.expected");

/// It has some 400 tests. Fewer lines of results mean that it ended early.
const LEAST: usize = 300;

/// It takes seconds, so there is no short form.
#[test]
fn pjdfstest_finds_what_is_explained() {
    let Some(_turn) = turn() else { return };
    let Some(program) = tool("pjdfstest") else { return };
    let Some(place) = Place::start(Kind::Local) else { return };
    // Other users have to get there.
    fs::set_permissions(place.session.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let mounted = Mounted::start(&place, "--read-write --allow-other");
    let point = mounted.path("");
    let arguments = ["-c", SETTINGS, "-p", point.to_str().unwrap()];
    let (_, text) = outcome(&program, &arguments, Path::new("/"));
    let ran = text.lines().filter(|line| result(line).is_some()).count();
    assert!(ran >= LEAST, "{ran} tests\n{text}");
    let failed: BTreeSet<_> =
        text.lines().filter(|line| result(line) == Some("FAILED")).filter_map(name).collect();
    let unexplained: Vec<_> =
        failed.iter().filter(|test| !lines().any(|(line, _)| matches(line, test))).collect();
    let unneeded: Vec<_> = lines()
        .filter(|(line, is_certain)| *is_certain && !failed.iter().any(|test| matches(line, test)))
        .map(|(line, _)| line)
        .collect();
    eprintln!("{ran} tests, {} failed as explained", failed.len() - unexplained.len());
    assert!(
        unexplained.is_empty() && unneeded.is_empty(),
        "failed without an explanation: {unexplained:#?}\nexplained, but passed: {unneeded:#?}\n{text}"
    );
    mounted.end();
}

/// The name of the test in a line of the output.
fn name(line: &str) -> Option<&str> {
    line.split_whitespace().next()
}

/// The result in a line of the output, unless it is a line of another kind.
fn result(line: &str) -> Option<&str> {
    let words: Vec<_> = line.split_whitespace().collect();
    let [name, result] = words[..] else { return None };
    (name.contains("::") && ["ok", "FAILED", "skipped"].contains(&result)).then_some(result)
}

/// The patterns of the file, and whether each must be needed.
fn lines() -> impl Iterator<Item = (&'static str, bool)> {
    let lines = EXPECTED.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| match line.strip_prefix("? ") {
        Some(pattern) => (pattern, false),
        None => (line, true),
    })
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
    assert_eq!(result("a::b     FAILED"), Some("FAILED"));
    assert_eq!(result("\tcalled `unwrap()` on an error"), None);
}
