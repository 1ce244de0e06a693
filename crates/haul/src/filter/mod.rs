//! `--include` and `--exclude`: an ordered list of globs that decides which paths take part.
//!
//! As in rsync the first rule that matches decides, and a path that no rule matches is included. A pattern
//! without `/` is compared with the base name at any depth; one with `/` (a leading one too) with
//! the whole path below the source; one with a trailing `/` matches directories only. The syntax of
//! patterns is in `glob`.

pub(crate) mod files;
mod list;

use std::str::FromStr;
use std::sync::Arc;

use haul_engine::Filter;

pub(crate) use list::NameList;

use crate::glob::Glob;

/// One glob.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    glob: Glob,
    whole_path: bool,
    directories_only: bool,
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text, Glob::new)
    }
}

impl Pattern {
    /// Parses a pattern of a `.gitignore`, in which braces are literal.
    fn of_gitignore(text: &str) -> Result<Self, String> {
        Self::parse(text, Glob::of_gitignore)
    }

    fn parse(text: &str, glob: fn(&str) -> Result<Glob, String>) -> Result<Self, String> {
        let directories_only = text.ends_with('/');
        let body = text.strip_suffix('/').unwrap_or(text);
        let whole_path = body.contains('/');
        let body = body.strip_prefix('/').unwrap_or(body);
        if body.is_empty() {
            return Err("the pattern is empty".to_owned());
        }
        Ok(Self { glob: glob(body)?, whole_path, directories_only })
    }

    fn matches(&self, path: &[u8], is_directory: bool) -> bool {
        if self.directories_only && !is_directory {
            return false;
        }
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        self.glob.is_match(if self.whole_path { path } else { name })
    }
}

/// A pattern and what it decides.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(crate) include: bool,
    pub(crate) pattern: Pattern,
    /// Whether it is an exception (`!`) of an ignore file: without anything to except, it has no effect.
    pub(crate) is_exception: bool,
}

impl Rule {
    /// A rule that is no exception.
    pub(crate) const fn new(include: bool, pattern: Pattern) -> Self {
        Self { include, pattern, is_exception: false }
    }
}

/// Ordered rules, and the list of `--files-from`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    rules: Vec<Rule>,
    list: Option<Arc<NameList>>,
}

impl Rules {
    /// These rules, in this order.
    ///
    /// # Errors
    /// If there are only include rules: they would exclude nothing. Exceptions of an ignore file may be alone, as for
    /// git.
    pub(crate) fn new(rules: Vec<Rule>) -> Result<Self, String> {
        let mut meant = rules.iter().filter(|rule| !rule.is_exception).peekable();
        if meant.peek().is_some() && rules.iter().all(|rule| rule.include) {
            return Err("patterns that only include leave nothing out: what no pattern matches is copied too. \
                        To copy only what matches, exclude the rest after it: --include GLOB --exclude '*'; \
                        for matches in subdirectories: --include GLOB --include '*/' --exclude '*'"
                .to_owned());
        }
        Ok(Self { rules, list: None })
    }

    /// Restricts the rules to the names of a list.
    pub(crate) fn only(self, list: Option<NameList>) -> Self {
        Self { list: list.map(Arc::new), ..self }
    }

    /// The list, if there is one.
    pub(crate) fn list(&self) -> Option<&Arc<NameList>> {
        self.list.as_ref()
    }

    /// Whether a path below the source takes part.
    pub(crate) fn includes(&self, path: &[u8], is_directory: bool) -> bool {
        // Always: it marks listed paths as found, and those that the rules exclude are in the source, too.
        let is_listed = self.list.as_ref().is_none_or(|list| list.takes(path, is_directory));
        is_listed && !self.exclude(path, is_directory)
    }

    /// The listed paths that the source does not have, sorted. Paths in excluded directories are not among them: haul
    /// does not enter those directories.
    pub(crate) fn missing(&self) -> Vec<&[u8]> {
        let mut missing = self.list.as_ref().map(|list| list.missing()).unwrap_or_default();
        missing.retain(|path| {
            let mut ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
            !ends.any(|(end, _)| self.exclude(&path[..end], true))
        });
        missing
    }

    fn exclude(&self, path: &[u8], is_directory: bool) -> bool {
        let decided = self.rules.iter().find(|rule| rule.pattern.matches(path, is_directory));
        decided.is_some_and(|rule| !rule.include)
    }

    /// Whether everything takes part.
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.list.is_none()
    }

    /// The filter for the engine.
    pub(crate) fn filter(&self) -> Filter {
        if self.is_empty() {
            return Filter::default();
        }
        let rules = self.clone();
        Filter::new(move |path, is_directory| rules.includes(path, is_directory))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(list: &[&str]) -> Rules {
        let rule = |text: &&str| Rule::new(text.starts_with('+'), text[1..].parse().unwrap());
        Rules::new(list.iter().map(rule).collect()).unwrap()
    }

    #[test]
    fn the_first_match_decides() {
        let rules = rules(&["+keep.o", "-*.o"]);
        assert!(rules.includes(b"a/keep.o", false));
        assert!(!rules.includes(b"a/b.o", false));
        assert!(rules.includes(b"a/b.c", false));
    }

    #[test]
    fn a_slash_anchors_at_the_source() {
        let rules = rules(&["-/build", "-doc/*.pdf", "-**/tmp/x"]);
        assert!(!rules.includes(b"build", true));
        assert!(rules.includes(b"a/build", true));
        assert!(!rules.includes(b"doc/a.pdf", false));
        assert!(rules.includes(b"doc/b/a.pdf", false));
        assert!(!rules.includes(b"a/b/tmp/x", false));
        assert!(!rules.includes(b"tmp/x", false));
    }

    #[test]
    fn a_trailing_slash_means_directories_only() {
        let rules = rules(&["-target/"]);
        assert!(!rules.includes(b"a/target", true));
        assert!(rules.includes(b"a/target", false));
    }

    #[test]
    fn names_that_are_not_text_are_compared_as_bytes() {
        assert!(!rules(&["-*.o"]).includes(b"\xff\xfe.o", false));
    }

    #[test]
    fn patterns_that_only_include_are_refused() {
        let rule = Rule::new(true, "*.txt".parse().unwrap());
        let error = Rules::new(vec![rule]).unwrap_err();
        assert!(error.contains("--exclude '*'"), "{error}");
        assert!(Rules::new(Vec::new()).is_ok());
    }

    #[test]
    fn broken_globs_are_refused() {
        for wrong in ["", "/", "a[", "{a"] {
            assert!(wrong.parse::<Pattern>().is_err(), "{wrong}");
        }
    }
}
