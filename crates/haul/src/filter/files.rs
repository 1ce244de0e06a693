//! Pattern files: `--include-from` and `--exclude-from` in rsync's format, `--ignore-file` in that of `.gitignore`.

use std::fs;
use std::path::Path;

use haul_storage::io_cause;

use super::{Pattern, Rule};

/// The rules in a pattern file, one per line. Blank lines, and lines that begin with `#` or `;`, are skipped. A line
/// that begins with `+ ` includes and one that begins with `- ` excludes; `include` applies to all others.
pub(crate) fn patterns(file: &Path, include: bool) -> Result<Vec<Rule>, String> {
    rules(file, |line| {
        if line.trim().is_empty() || line.starts_with(['#', ';']) {
            return Ok(None);
        }
        let (include, pattern) = match (line.strip_prefix("+ "), line.strip_prefix("- ")) {
            (Some(pattern), _) => (true, pattern),
            (None, Some(pattern)) => (false, pattern),
            (None, None) => (include, line),
        };
        pattern.parse().map(|pattern| Some(Rule::new(include, pattern)))
    })
}

/// The rules in a file in the format of `.gitignore`, in reverse order: git applies the last match, haul the first.
/// As in git, a malformed pattern matches nothing.
pub(crate) fn ignored(file: &Path) -> Result<Vec<Rule>, String> {
    let mut rules = rules(file, |line| Ok(ignore_line(line)))?;
    rules.reverse();
    Ok(rules)
}

fn rules(
    file: &Path,
    rule: impl Fn(&str) -> Result<Option<Rule>, String>,
) -> Result<Vec<Rule>, String> {
    let text = fs::read_to_string(file).map_err(|error| {
        format!("{}: cannot read patterns ({})", file.display(), io_cause(&error))
    })?;
    // Some editors write a byte order mark, which git skips too.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let mut rules = Vec::new();
    for (number, line) in text.lines().enumerate() {
        match rule(line) {
            Ok(found) => rules.extend(found),
            Err(cause) => {
                return Err(format!("{}:{}: '{line}': {cause}", file.display(), number + 1));
            }
        }
    }
    Ok(rules)
}

/// One line of a `.gitignore`; `None` if it is empty, a comment or malformed.
fn ignore_line(line: &str) -> Option<Rule> {
    if line.starts_with('#') {
        return None;
    }
    let (include, line) = match line.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    // The documentation of gitignore: "an invalid pattern that never matches".
    let pattern = Pattern::of_gitignore(trim_spaces(line)).ok()?;
    Some(Rule { include, pattern, is_exception: include })
}

/// Removes trailing spaces, except one that follows an unescaped backslash.
fn trim_spaces(line: &str) -> &str {
    let trimmed = line.trim_end_matches(' ');
    let backslashes = trimmed.len() - trimmed.trim_end_matches('\\').len();
    let is_escaped = backslashes % 2 == 1 && trimmed.len() < line.len();
    if is_escaped { &line[..=trimmed.len()] } else { trimmed }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::Rules;
    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    #[test]
    fn lines_are_patterns_and_comments_are_not() {
        let text = "# a comment\n; another\n\n*.o\n+ keep/\n- *.tmp\n";
        let rules = patterns(file(text).path(), false).unwrap();
        let includes: Vec<_> = rules.iter().map(|rule| rule.include).collect();
        assert_eq!(includes, [false, true, false]);
        assert!(patterns(file("x\n").path(), true).unwrap()[0].include);
    }

    #[test]
    fn an_error_names_the_file_and_line_of_a_malformed_pattern() {
        let file = file("*.o\na[\n");
        let error = patterns(file.path(), false).unwrap_err();
        assert!(error.starts_with(&format!("{}:2: 'a[': ", file.path().display())), "{error}");
        assert!(patterns(Path::new("/nonexistent"), false).unwrap_err().contains("/nonexistent"));
    }

    /// The expected values come from `git check-ignore`.
    #[test]
    fn gitignore_rules_match_as_in_git() {
        let text =
            "*.log\n!keep.log\n/build\ntarget/\ndoc/*.pdf\n**/cache\n\\#x\n{a,b}\n\\{c\\}\nend \n";
        let rules = Rules::new(ignored(file(text).path()).unwrap()).unwrap();
        for (path, is_directory, included) in [
            ("a/x.log", false, false),
            ("a/keep.log", false, true),
            ("build", true, false),
            ("a/build", true, true),
            ("a/target", true, false),
            ("a/target", false, true),
            ("doc/a.pdf", false, false),
            ("doc/b/a.pdf", false, true),
            ("a/b/cache", true, false),
            ("#x", false, false),
            ("a", false, true),
            ("{a,b}", false, false),
            ("{c}", false, false),
            ("\\c\\", false, true),
            ("end", false, false),
        ] {
            assert_eq!(rules.includes(path.as_bytes(), is_directory), included, "{path}");
        }
    }

    /// Formerly, they excluded files in all directories. The expected values come from `git check-ignore`.
    #[test]
    fn two_stars_that_are_no_whole_component_match_within_one() {
        let text = "/**x\nd/**y\ne/**\nf/**/z\ng**/h\ni?**/k\n";
        let rules = Rules::new(ignored(file(text).path()).unwrap()).unwrap();
        for (path, included) in [
            ("ax", false),
            ("a/bx", true),
            ("d/ay", false),
            ("d/b/ay", true),
            ("e/a/b", false),
            ("f/z", false),
            ("f/a/b/z", false),
            ("gab/h", false),
            ("g/a/h", false),
            ("i1/k", false),
            ("i1/a/k", true),
        ] {
            assert_eq!(rules.includes(path.as_bytes(), false), included, "{path}");
        }
    }

    /// Formerly, they did so only behind literal characters. The expected values come from `git check-ignore`.
    #[test]
    fn two_stars_that_are_a_whole_component_match_directories_behind_any_character() {
        let text = "**/foo/**/bar\n*.d/**/z\n?x/**\n\\q/**/r\n[s]/**/t\n";
        let rules = Rules::new(ignored(file(text).path()).unwrap()).unwrap();
        for path in [
            "foo/bar",
            "x/foo/bar",
            "foo/a/b/bar",
            "a.d/z",
            "a.d/b/c/z",
            "ax/b/c",
            "q/r",
            "q/a/b/r",
            "s/t",
            "s/a/t",
        ] {
            assert!(!rules.includes(path.as_bytes(), false), "{path}");
        }
        assert!(rules.includes(b"ax", false) && rules.includes(b"foo/barx", false));
    }

    /// Formerly, such a file was an error, unless there were other rules.
    #[test]
    fn exceptions_alone_ignore_nothing() {
        let exceptions = || ignored(file("# kept\n!keep.o\n").path()).unwrap();
        assert!(Rules::new(exceptions()).unwrap().includes(b"x.o", false));
        let excluded = Rule::new(false, "*.o".parse().unwrap());
        let rules = Rules::new([exceptions(), vec![excluded]].concat()).unwrap();
        assert!(rules.includes(b"keep.o", false) && !rules.includes(b"x.o", false));
        let included = Rule::new(true, "*.c".parse().unwrap());
        assert!(Rules::new([exceptions(), vec![included]].concat()).is_err());
    }

    /// Formerly, one such line made the whole file an error.
    #[test]
    fn a_malformed_line_of_a_gitignore_matches_nothing() {
        let rules = Rules::new(ignored(file("a[\nb\\\n/\n*.o\n").path()).unwrap()).unwrap();
        assert!(!rules.includes(b"x.o", false));
        assert!(rules.includes(b"a[", false) && rules.includes(b"b\\", false));
    }

    /// Formerly, the mark was part of the first pattern.
    #[test]
    fn a_byte_order_mark_is_not_part_of_the_first_pattern() {
        let file = file("\u{feff}*.o\n");
        for rules in [ignored(file.path()).unwrap(), patterns(file.path(), false).unwrap()] {
            assert!(!Rules::new(rules).unwrap().includes(b"x.o", false));
        }
    }
}
