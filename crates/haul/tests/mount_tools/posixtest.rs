//! posixtest of go-fuse: what programs expect of a file system. `posixtest.expected` lists and explains the tests that
//! do not pass.

use std::collections::BTreeSet;
use std::path::Path;

use crate::expected::Expected;
use crate::lab::{form, outcome, tool, turn};
use crate::mounted::Mounted;
use crate::source::{Kind, Source};

const EXPECTED: Expected = Expected(include_str!("posixtest.expected"));

/// The number of tests in the version that `posixtest/go.mod` names.
const TESTS: usize = 29;

/// Where the tests run.
const KINDS: &[Kind] = &[Kind::Local, Kind::OpenSsh];

#[test]
fn only_explained_tests_of_posixtest_fail() {
    let Some(_turn) = turn() else { return };
    let Some(program) = tool("posixtest") else { return };
    for kind in form(&KINDS[..1], KINDS) {
        let Some(source) = Source::start(*kind) else { continue };
        let mounted = Mounted::start(&source, "--read-write");
        let directory = format!("HAUL_POSIXTEST={}", mounted.path("").display());
        let program = program.to_str().unwrap();
        let arguments = [directory.as_str(), program, "-test.v", "-test.timeout=10m"];
        let (_, text) = outcome(Path::new("env"), &arguments, Path::new("/"));
        let results: Vec<_> = text.lines().filter_map(result).collect();
        assert_eq!(results.len(), TESTS, "{kind:?}: it ended early\n{text}");
        // A skipped test counts as failed: the file system lacks what it needs.
        let other = results.iter().filter(|(_, result)| *result != "PASS");
        let other: BTreeSet<_> = other.map(|(name, _)| *name).collect();
        EXPECTED.check(&other, &text);
        eprintln!("{kind:?}: {TESTS} tests, {} failed as explained", other.len());
        mounted.end();
    }
}

/// The name of a test and its result, in a line of the output.
fn result(line: &str) -> Option<(&str, &str)> {
    let (result, rest) = line.trim().strip_prefix("--- ")?.split_once(": ")?;
    let name = rest.strip_prefix("TestPosix/")?.split_whitespace().next()?;
    Some((name, result))
}

#[test]
fn a_line_of_posixtest_has_a_name_and_a_result() {
    assert_eq!(result("    --- FAIL: TestPosix/Link (0.00s)"), Some(("Link", "FAIL")));
    assert_eq!(result("--- FAIL: TestPosix (0.15s)"), None);
    assert_eq!(result("=== RUN   TestPosix/Link"), None);
}
