//! Checks the structure of the source: no import cycles between files, no file that is too long, and no program that is
//! started with the secrets of the environment.
//!
//! An import is a `use` of, or a path to, something in the same crate. It refers to the file that defines the name,
//! even if the path leads through `pub use`; a `pub use` alone is not an import.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod cycles;
mod imports;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use cycles::cycles;
use imports::Tree;

/// Maximum number of lines in a file, not counting its tests.
const MAX_LINES: usize = 600;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The source directories of all members of the workspace.
fn members() -> Vec<PathBuf> {
    let crates = fs::read_dir(root().join("crates")).unwrap();
    let mut found: Vec<_> = crates.map(|entry| entry.unwrap().path().join("src")).collect();
    found.extend(["bench/src", "fuzz/src"].map(|path| root().join(path)));
    found.retain(|path| path.is_dir());
    found.sort();
    found
}

/// A path relative to the repository, for messages.
fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

#[test]
fn files_have_no_import_cycles() {
    let mut found = String::new();
    for member in members() {
        let tree = Tree::read(&member);
        assert!(!tree.files().is_empty(), "{}: no source", member.display());
        let imports = tree.imports();
        for cycle in cycles(&imports) {
            found.push_str(&format!("\n{} files in {}:\n", cycle.len(), shown(&member)));
            for from in &cycle {
                for to in imports[from].keys().filter(|to| cycle.contains(*to)) {
                    let names: Vec<_> = imports[from][to].iter().map(String::as_str).collect();
                    found.push_str(&format!(
                        "  {} -> {}: {}\n",
                        shown(from),
                        shown(to),
                        names.join(", ")
                    ));
                }
            }
        }
    }
    assert!(found.is_empty(), "{found}");
}

#[test]
fn no_file_is_too_long() {
    let mut long = BTreeMap::new();
    for member in members() {
        for file in Tree::read(&member).files() {
            let is_test = |name: &str| name == "tests.rs" || name == "tests";
            if file.iter().filter_map(|part| part.to_str()).any(is_test) {
                continue;
            }
            let text = fs::read_to_string(&file).unwrap();
            let lines = without_tests(&text).lines().count();
            if lines > MAX_LINES {
                long.insert(shown(&file), lines);
            }
        }
    }
    assert!(long.is_empty(), "more than {MAX_LINES} lines: {long:#?}");
}

/// Formerly, `fusermount3` and `rustc` inherited passwords and tokens.
#[test]
fn programs_are_started_without_the_secrets_of_the_environment() {
    // haul itself, and commands that print a password.
    const EXCEPTIONS: [&str; 3] = [
        "crates/haul/src/commands/mount/background.rs",
        "crates/haul/src/commands/serve/server_args.rs",
        "crates/haul-net/src/secret.rs",
    ];
    // These are not installed.
    const TOOLS: [&str; 4] =
        ["bench/", "fuzz/", "crates/haul-torture/", "crates/haul-fault-proxy/"];
    let files = members().into_iter().flat_map(|member| Tree::read(&member).files());
    let wrong = files.filter(|file| starts_with_secrets(file)).map(|file| shown(&file));
    let mut wrong: Vec<_> =
        wrong.filter(|file| !TOOLS.iter().any(|tool| file.starts_with(tool))).collect();
    wrong.sort();
    let mut expected = EXCEPTIONS.to_vec();
    expected.sort_unstable();
    assert_eq!(wrong, expected);
}

/// Whether a file starts more programs than it hides the secrets of the environment from.
fn starts_with_secrets(file: &Path) -> bool {
    let text = fs::read_to_string(file).unwrap();
    let text = without_tests(&text);
    let imports = text.contains("process::") && text.contains("Command");
    let count = |text: &str, words| text.matches(words).count();
    imports && count(text, "Command::new(") > count(text, "without_secrets(")
}

#[test]
fn a_cycle_is_found_through_re_exports_and_paths() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write(
        "lib.rs",
        "mod one;\nmod two;\nmod three;\nmod tests;\npub use two::{Two, inner::Inner as Renamed};\n",
    );
    write("one.rs", "use crate::{Two, three as other};\nfn f(_: Two) { other::g() }\n");
    write("two/mod.rs", "pub mod inner;\npub struct Two(crate::three::Three);\n");
    write("two/inner.rs", "pub struct Inner;\n");
    write(
        "three.rs",
        "// use crate::one::f;\n/* use super::one; */\nuse super::Renamed;\npub struct Three(Renamed);\npub fn g() {}\n",
    );
    let tree = Tree::read(directory.path());
    assert!(cycles(&tree.imports()).is_empty());
    let path = |name: &str| directory.path().join(name);
    let imports = tree.imports();
    let of = |name: &str| imports[&path(name)].keys().cloned().collect::<Vec<_>>();
    assert_eq!(of("one.rs"), [path("three.rs"), path("two/mod.rs")]);
    assert_eq!(of("three.rs"), [path("two/inner.rs")]);
    write("two/inner.rs", "pub struct Inner;\nfn f() { super::super::one::f() }\n");
    let all = cycles(&Tree::read(directory.path()).imports());
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].len(), 4, "one -> three -> inner -> one, and two: {all:?}");
}

#[test]
fn only_imports_of_tests_are_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let module = "#[cfg(test)]\nmod tests;\n#[cfg(test)]\nuse crate::two::{Two, Other};\n\
        impl X {\n    #[cfg(test)]\n    fn new() -> Self { if f('{') { crate::two::make() } }\n}\n\
        use crate::three::Three;\n#[cfg(test)]\nmod more {\n    use crate::two::Two;\n}\nfn f() { crate::four::f() }\n";
    fs::write(path("one.rs"), module).unwrap();
    for name in ["two", "three", "four"] {
        fs::write(path(&format!("{name}.rs")), "pub fn f() {}\n").unwrap();
    }
    let imports = Tree::read(directory.path()).imports();
    let of: Vec<_> = imports[&path("one.rs")].keys().cloned().collect();
    assert_eq!(of, [path("four.rs"), path("three.rs")]);
}

/// A file up to its modules of tests. A line like `mod tests;`, whose tests are in another file, ends nothing.
fn without_tests(text: &str) -> &str {
    let begins_tests = |(at, _): &(usize, &str)| {
        let module = text[*at..].lines().nth(1);
        module.is_some_and(|line| line.starts_with("mod ") && line.ends_with('{'))
    };
    let end = text.match_indices("#[cfg(test)]\n").find(begins_tests);
    end.map_or(text, |(at, _)| &text[..at])
}
