//! pjdfstest: whether system calls do what POSIX requires. `pjdfstest.expected` lists and explains the failures.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::expected::Expected;
use crate::lab::{outcome, tool, turn};
use crate::mounted::Mounted;
use crate::source::{Kind, Source};

const SETTINGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mount_tools/pjdfstest.toml");
const EXPECTED: Expected = Expected(include_str!("pjdfstest.expected"));

/// pjdfstest has some 400 tests. Fewer results than this mean that it ended early.
const LEAST: usize = 300;

/// pjdfstest takes seconds, so there is no short form.
#[test]
fn only_explained_tests_of_pjdfstest_fail() {
    let Some(_turn) = turn() else { return };
    let Some(program) = tool("pjdfstest") else { return };
    let Some(source) = Source::start(Kind::Local) else { return };
    // Other users must be able to reach the mount point.
    fs::set_permissions(source.session.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let mounted = Mounted::start(&source, "--read-write --allow-other");
    let point = mounted.path("");
    let arguments = ["-c", SETTINGS, "-p", point.to_str().unwrap()];
    let (_, text) = outcome(&program, &arguments, Path::new("/"));
    let ran = text.lines().filter(|line| result(line).is_some()).count();
    assert!(ran >= LEAST, "{ran} tests\n{text}");
    let failed: BTreeSet<_> =
        text.lines().filter(|line| result(line) == Some("FAILED")).filter_map(name).collect();
    EXPECTED.check(&failed, &text);
    eprintln!("{ran} tests, {} failed as explained", failed.len());
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

#[test]
fn only_lines_with_a_result_of_pjdfstest_count() {
    assert_eq!(result("a::b     FAILED"), Some("FAILED"));
    assert_eq!(result("\tcalled `unwrap()` on an error"), None);
}
