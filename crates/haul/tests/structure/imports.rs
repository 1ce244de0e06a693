//! Imports between the files of a crate, parsed from their text.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::cycles::Imports;

/// The path of a module, from the root of its crate.
type Module = Vec<String>;

/// The modules of a crate. Modules inside a file belong to it; those called `tests` are left out.
pub(crate) struct Tree {
    files: BTreeMap<Module, File>,
}

struct File {
    path: PathBuf,
    uses: Vec<Use>,
}

/// One name of a `use`, or a path in the code.
#[derive(Debug)]
struct Use {
    path: Vec<String>,
    /// The name that it has in this file; `*` for all names.
    name: String,
    is_public: bool,
    is_path: bool,
}

impl Tree {
    pub(crate) fn read(source: &Path) -> Self {
        let mut tree = Self { files: BTreeMap::new() };
        tree.read_directory(source, &[]);
        tree
    }

    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.files.values().map(|file| file.path.clone()).collect()
    }

    fn read_directory(&mut self, directory: &Path, above: &[String]) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let mut module = above.to_vec();
            if path.is_dir() {
                // A binary is a crate of its own.
                if stem != "bin" && stem != "tests" {
                    module.push(stem);
                    self.read_directory(&path, &module);
                }
                continue;
            }
            if path.extension().is_none_or(|end| end != "rs") || stem == "tests" {
                continue;
            }
            let is_top = above.is_empty() && (stem == "lib" || stem == "main");
            if !is_top && stem != "mod" {
                module.push(stem);
            }
            let text = fs::read_to_string(&path).unwrap();
            let code = code(&text);
            let count = |bracket: char| code.matches(bracket).count();
            // A string or comment whose end was missed would hide imports.
            assert_eq!(count('{'), count('}'), "{}: not parsed correctly", path.display());
            let uses = uses(&code);
            self.files.insert(module, File { path, uses });
        }
    }

    pub(crate) fn imports(&self) -> Imports {
        let mut imports = Imports::new();
        for (module, file) in &self.files {
            let to = imports.entry(file.path.clone()).or_default();
            for one in file.uses.iter().filter(|one| !one.is_public) {
                // A path to another crate is resolved below this module: it ends in this file, and is not counted.
                let Some(from) = absolute(module, &one.path) else { continue };
                let Some((found, name)) = self.defined(&from, 0) else { continue };
                if found != *module {
                    let path = self.files[&found].path.clone();
                    to.entry(path).or_default().insert(name);
                }
            }
        }
        imports
    }

    /// The file that defines the item at a path, and its name there.
    fn defined(&self, path: &[String], depth: usize) -> Option<(Module, String)> {
        let length = (0..=path.len()).rev().find(|n| self.files.contains_key(&path[..*n]))?;
        let (module, rest) = path.split_at(length);
        let Some(name) = rest.first() else {
            // The path is that of a module; items that are used through it are paths in the code.
            return None;
        };
        let file = &self.files[module];
        let named = file.uses.iter().filter(|one| !one.is_path && depth < 8);
        for one in named {
            let Some(mut target) = absolute(module, &one.path) else { continue };
            if one.name == "*" {
                target.pop();
                target.push(name.clone());
                if let Some(found) = self.defined(&target, depth + 1)
                    && self.mentions(&found.0, name)
                {
                    return Some(found);
                }
            } else if one.name == *name {
                target.extend(rest[1..].iter().cloned());
                return self.defined(&target, depth + 1).or_else(|| Some((target, name.clone())));
            }
        }
        Some((module.to_vec(), name.clone()))
    }

    /// Whether the text of a file contains a definition of a name, for `pub use x::*`.
    fn mentions(&self, module: &[String], name: &str) -> bool {
        let text = fs::read_to_string(&self.files[module].path).unwrap_or_default();
        ["struct", "enum", "fn", "trait", "const", "type", "static"]
            .iter()
            .any(|kind| text.contains(&format!("{kind} {name}")))
    }
}

/// The path from the root of the crate. One that does not begin with `crate` is relative to `module`. `None`
/// if it has more `super`s than there are modules above.
fn absolute(module: &[String], path: &[String]) -> Option<Vec<String>> {
    let mut from = module.to_vec();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => {
            from.clear();
            rest = &path[1..];
        }
        "self" => rest = &path[1..],
        "super" => {
            while rest.first().is_some_and(|part| part == "super") {
                from.pop()?;
                rest = &rest[1..];
            }
        }
        _ => {}
    }
    from.extend(rest.iter().cloned());
    Some(from)
}

/// The text without comments, strings and items that only tests have.
fn code(text: &str) -> String {
    let mut code = without_literals(text);
    while let Some(start) = code.find("#[cfg(test)]") {
        let end = start + item_end(&code[start..]);
        code.replace_range(start..end, "");
    }
    code
}

/// The length of the item at the beginning of a text without strings, with its attributes.
fn item_end(text: &str) -> usize {
    let mut lines = text.lines().map(str::trim_start);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with("#["));
    let is_use = first.is_some_and(|line| line.starts_with("use ") || line.contains(" use "));
    let mut depth = 0;
    for (at, letter) in text.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ';' if depth == 0 => return at + 1,
            _ => continue,
        }
        if depth == 0 && !is_use {
            return at + 1;
        }
    }
    text.len()
}

fn without_literals(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |at| at + 2)
        } else if first == '"' {
            string_end(rest)
        } else if rest.starts_with("'\"'") || rest.starts_with("b'\"'") {
            rest[2..].find('\'').map_or(rest.len(), |at| at + 3)
        } else if rest.starts_with("'{'") || rest.starts_with("'}'") {
            3
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        code.push(' ');
        rest = &rest[skipped..];
    }
    code
}

fn string_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            '\\' if !escaped => escaped = true,
            '"' if !escaped => return at + 1,
            _ => escaped = false,
        }
    }
    text.len()
}

/// Everything that a file uses: the names of each `use`, and all paths in the code.
fn uses(code: &str) -> Vec<Use> {
    let mut found = Vec::new();
    let mut paths = String::new();
    for statement in code.split_inclusive(';') {
        let at = statement.rfind("use ").filter(|at| {
            let before = &statement[..*at];
            before.is_empty() || before.ends_with(['\n', ' ', '{', '}', ')'])
        });
        match at {
            Some(at) => {
                let before = statement[..at].trim_end();
                let is_public = before.ends_with("pub") || is_restricted(before);
                let tree = statement[at + 4..].trim_end_matches(';');
                let tree: String = tree.split_whitespace().collect::<Vec<_>>().join(" ");
                for (path, name) in flattened(&tree) {
                    found.push(Use { path, name, is_public, is_path: false });
                }
                paths.push_str(&statement[..at]);
            }
            None => paths.push_str(statement),
        }
        paths.push('\n');
    }
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    for path in paths.split(|letter: char| !is_part(letter)).filter(|path| path.contains("::")) {
        let parts: Vec<String> = path.split("::").map(str::to_owned).collect();
        if parts.iter().any(String::is_empty) {
            continue;
        }
        let first = &parts[0];
        let mut path = parts.clone();
        // The first name may come from a `use`.
        if let Some(one) = found.iter().find(|one| !one.is_path && one.name == *first) {
            path = one.path.iter().chain(&parts[1..]).cloned().collect();
        }
        let name = path.last().cloned().unwrap_or_default();
        found.push(Use { path, name, is_public: false, is_path: true });
    }
    found
}

/// Whether the text before a `use` ends in `pub(crate)`, `pub(super)` or `pub(in …)`.
fn is_restricted(before: &str) -> bool {
    before.ends_with(')')
        && before.rfind("pub(").is_some_and(|at| !before[at..].contains(';'))
        && before.rsplit("pub(").next().is_some_and(|inside| inside.matches(')').count() == 1)
}

/// `a::{b, c as d}` as the paths `a::b` and `a::c`, with the names `b` and `d`.
fn flattened(tree: &str) -> Vec<(Vec<String>, String)> {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else {
        let (path, name) =
            tree.split_once(" as ").map_or((tree, None), |(p, n)| (p, Some(n.trim())));
        let mut path: Vec<String> = path.split("::").map(|part| part.trim().to_owned()).collect();
        if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
            path.pop();
        }
        let name = name.map_or_else(|| path.last().cloned().unwrap_or_default(), str::to_owned);
        return vec![(path, name)];
    };
    let prefix = tree[..open].trim_end_matches("::").trim();
    let inside =
        tree[open + 1..].rfind('}').map_or(&tree[open + 1..], |at| &tree[open + 1..][..at]);
    let mut found = Vec::new();
    let (mut depth, mut start) = (0, 0);
    let mut parts = Vec::new();
    for (at, letter) in inside.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inside[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inside[start..]);
    for part in parts.into_iter().map(str::trim).filter(|part| !part.is_empty()) {
        let joined = if prefix.is_empty() { part.to_owned() } else { format!("{prefix}::{part}") };
        found.extend(flattened(&joined));
    }
    found
}
