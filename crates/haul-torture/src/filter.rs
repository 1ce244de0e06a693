//! `--include` and `--exclude`, in the forms that haul and rsync interpret alike.
//!
//! A pattern matches names at any depth; with a leading slash, names in the root only; with a trailing
//! slash, directories only. A pattern has no other slashes. `*` matches any bytes of a name.

use crate::chance::Chance;

/// One `--include` or `--exclude`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Whether matching entries are included.
    pub include: bool,
    /// The pattern, in the syntax of both programs.
    pub pattern: String,
}

/// Rules in order; the first that matches decides.
#[derive(Debug, Clone, Default)]
pub struct Filter(pub Vec<Rule>);

const PATTERNS: &[&str] =
    &["*.tmp", "*.o", "build/", "/a", "/doc/", "f1*", "*a*", "data", ".*", "README", "/f*", "b"];

impl Filter {
    /// A few random rules.
    pub fn random(chance: &mut Chance) -> Self {
        let count = 1 + chance.below(3);
        let rule = |chance: &mut Chance| Rule {
            include: chance.one_in(3),
            pattern: (*chance.pick(PATTERNS)).to_owned(),
        };
        let mut rules: Vec<Rule> = (0..count).map(|_| rule(chance)).collect();
        // haul refuses rules that exclude nothing.
        if rules.iter().all(|rule| rule.include) {
            rules[0].include = false;
        }
        Self(rules)
    }

    /// Whether `path` (below the root, no leading slash) is included, if its parent is.
    pub fn takes(&self, path: &[u8], is_directory: bool) -> bool {
        let decided = self.0.iter().find(|rule| matches(&rule.pattern, path, is_directory));
        decided.is_none_or(|rule| rule.include)
    }

    /// The arguments for haul and rsync.
    pub fn arguments(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|rule| {
            format!("--{}={}", if rule.include { "include" } else { "exclude" }, rule.pattern)
        })
    }
}

fn matches(pattern: &str, path: &[u8], is_directory: bool) -> bool {
    let body = pattern.strip_suffix('/').unwrap_or(pattern);
    if body.len() < pattern.len() && !is_directory {
        return false;
    }
    match body.strip_prefix('/') {
        Some(rooted) => !path.contains(&b'/') && glob(rooted.as_bytes(), path),
        None => {
            let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
            glob(body.as_bytes(), name)
        }
    }
}

fn glob(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some((b'*', rest)) => (0..=name.len()).any(|skip| glob(rest, &name[skip..])),
        Some((first, rest)) => name.first() == Some(first) && glob(rest, &name[1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_rsync() {
        assert!(matches("*.o", b"d/z.o", false) && !matches("*.o", b"z.oo", false));
        assert!(matches("/a", b"a", false) && !matches("/a", b"d/a", false));
        assert!(matches("build/", b"x/build", true) && !matches("build/", b"build", false));
        assert!(matches(".*", b"d/.hidden", false));
    }
}
