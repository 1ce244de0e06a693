//! Globs, translated to regular expressions.
//!
//! | | |
//! |---|---|
//! | `*`, `?` | any characters, one character; not `/` |
//! | `**` | anything, `/` too; `**/` at the start of a component also nothing: `a/**/b` matches `a/b` |
//! | `[a-z]`, `[!a-z]`, `[^a-z]` | one character of these, or none of these; never `/` |
//! | `[[:alpha:]]` | one character of an ASCII class of POSIX, alone or among others: `[[:digit:]_-]` |
//! | `{a,b}` | either |
//! | `\` | the next character is literal |
//!
//! A character is a Unicode character if the name is UTF-8, otherwise a byte.

use regex::bytes::{Regex, RegexBuilder};

/// `**/`: matches nothing at the start of a component (with `/` as the line terminator), or anything that ends with a
/// slash. Component starts are found in the path, not in the glob: `{a/,b}**/c` matches `a/c`, and not `bc`.
const DIRECTORIES: &str = "(?:(?m:^)|.*/)";

/// The classes of POSIX, as rsync and git have them.
const CLASSES: [&str; 12] = [
    "alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "xdigit",
];

/// One glob.
#[derive(Debug, Clone)]
pub(crate) struct Glob {
    characters: Regex,
    bytes: Regex,
}

impl Glob {
    /// Parses a glob; the error is the cause as text.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        Self::parse(text, true, false)
    }

    /// Parses a glob in which braces are literal, as in quotes of a shell.
    pub(crate) fn without_alternatives(text: &str) -> Result<Self, String> {
        Self::parse(text, false, false)
    }

    /// Parses a glob of a `.gitignore`: braces are literal, and `**` is like `*` unless it is a whole component.
    pub(crate) fn of_gitignore(text: &str) -> Result<Self, String> {
        Self::parse(text, false, true)
    }

    fn parse(text: &str, alternatives: bool, whole_stars: bool) -> Result<Self, String> {
        let build = |unicode| {
            let rest = text.chars().peekable();
            let mut parser = Parser { rest, unicode, alternatives, whole_stars, depth: 0 };
            let body = parser.all()?;
            RegexBuilder::new(&format!("^(?:{body})$"))
                .unicode(unicode)
                .dot_matches_new_line(true)
                // For DIRECTORIES; nothing else depends on it.
                .line_terminator(b'/')
                .build()
                .map_err(|error| error.to_string())
        };
        Ok(Self { characters: build(true)?, bytes: build(false)? })
    }

    /// Whether the glob matches the whole of `path`.
    pub(crate) fn is_match(&self, path: &[u8]) -> bool {
        let is_text = std::str::from_utf8(path).is_ok();
        if is_text { self.characters.is_match(path) } else { self.bytes.is_match(path) }
    }
}

struct Parser<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    unicode: bool,
    /// Whether `{a,b}` means either.
    alternatives: bool,
    /// Whether `**` is like `*` unless it is a whole component.
    whole_stars: bool,
    /// How many `{` are open.
    depth: usize,
}

impl Parser<'_> {
    fn all(&mut self) -> Result<String, String> {
        let mut regex = String::new();
        let mut is_literal = true;
        let mut previous = None;
        while let Some(character) = self.rest.next() {
            let mut last = character;
            match character {
                '*' => {
                    let mut stars = 1;
                    while self.rest.next_if_eq(&'*').is_some() {
                        stars += 1;
                    }
                    // git compares the literal characters at the start of the glob on their own. So for git, `**`
                    // right after them begins a component.
                    let begins = is_literal || previous == Some('/');
                    let is_whole = begins && matches!(self.rest.peek(), None | Some('/'));
                    if stars == 1 || (self.whole_stars && !is_whole) {
                        regex.push_str("[^/]*");
                    } else if self.rest.next_if_eq(&'/').is_some() {
                        regex.push_str(DIRECTORIES);
                        last = '/';
                    } else {
                        regex.push_str(".*");
                    }
                }
                '?' => regex.push_str("[^/]"),
                '[' => self.class(&mut regex)?,
                '{' if self.alternatives => {
                    self.depth += 1;
                    regex.push_str("(?:");
                }
                ',' if self.depth > 0 => regex.push('|'),
                '}' if self.depth > 0 => {
                    self.depth -= 1;
                    regex.push(')');
                }
                '}' if self.alternatives => return Err("'}' without '{'".to_owned()),
                '\\' => {
                    let next = self.rest.next().ok_or("it ends with a '\\'")?;
                    self.literal(next, &mut regex);
                    last = next;
                }
                character => self.literal(character, &mut regex),
            }
            is_literal &= !matches!(character, '*' | '?' | '[' | '\\');
            previous = Some(last);
        }
        if self.depth > 0 {
            return Err("'{' without '}'".to_owned());
        }
        Ok(regex)
    }

    /// Parses the characters between `[` and `]`. A `]` that comes first is one of them.
    fn class(&mut self, regex: &mut String) -> Result<(), String> {
        const UNENDED: &str = "'[' without ']'";
        let negated = self.rest.next_if(|next| matches!(next, '!' | '^')).is_some();
        let mut members = String::new();
        let mut first = true;
        loop {
            let mut from = self.rest.next().ok_or(UNENDED)?;
            if from == ']' && !first {
                break;
            }
            if from == '['
                && let Some(name) = self.posix_class()?
            {
                members.push_str(&format!("[:{name}:]"));
                first = false;
                continue;
            }
            if from == '\\' {
                from = self.rest.next().ok_or(UNENDED)?;
            }
            first = false;
            let mut ahead = self.rest.clone();
            let is_range = ahead.next() == Some('-') && ahead.next().is_some_and(|end| end != ']');
            if !is_range {
                // When matching bytes, each byte of the character is a member of the class.
                self.literal(from, &mut members);
                continue;
            }
            self.rest.next();
            let mut to = self.rest.next().ok_or(UNENDED)?;
            if to == '\\' {
                to = self.rest.next().ok_or(UNENDED)?;
            }
            if to < from {
                return Err(format!("the range {from}-{to} is empty"));
            }
            self.range(from, to, &mut members);
        }
        let sign = if negated { "^" } else { "" };
        regex.push_str(&format!("[[{sign}{members}]&&[^/]]"));
        Ok(())
    }

    /// Parses `:alpha:]`, after the `[`. `None` if the bracket is one of the characters.
    fn posix_class(&mut self) -> Result<Option<&'static str>, String> {
        let mut ahead = self.rest.clone();
        if ahead.next() != Some(':') {
            return Ok(None);
        }
        let mut name = String::new();
        while let Some(letter) = ahead.next_if(char::is_ascii_alphabetic) {
            name.push(letter);
        }
        if ahead.next() != Some(':') || ahead.next() != Some(']') {
            return Ok(None);
        }
        self.rest = ahead;
        let known = CLASSES.into_iter().find(|class| *class == name);
        known.map(Some).ok_or_else(|| {
            format!("unknown class [:{name}:]; the classes are {}", CLASSES.join(", "))
        })
    }

    fn literal(&self, character: char, regex: &mut String) {
        if self.unicode || character.is_ascii() {
            regex.push_str(&code(character));
        } else {
            let mut bytes = [0; 4];
            character.encode_utf8(&mut bytes).bytes().for_each(|byte| regex.push_str(&hex(byte)));
        }
    }

    fn range(&self, from: char, to: char, members: &mut String) {
        let (first, last) = if self.unicode || to.is_ascii() {
            (code(from), code(to))
        } else {
            let first = if from.is_ascii() { code(from) } else { hex(0x80) };
            (first, hex(0xff))
        };
        members.push_str(&format!("{first}-{last}"));
    }
}

/// A character escaped for a regular expression.
fn code(character: char) -> String {
    format!("\\x{{{:x}}}", u32::from(character))
}

fn hex(byte: u8) -> String {
    format!("\\x{byte:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(glob: &str, matching: &[&str], others: &[&str]) {
        let parsed = Glob::new(glob).unwrap();
        for path in matching {
            assert!(parsed.is_match(path.as_bytes()), "{glob} and {path}");
        }
        for path in others {
            assert!(!parsed.is_match(path.as_bytes()), "{glob} and {path}");
        }
    }

    #[test]
    fn stars_and_question_marks_stop_at_slashes() {
        check("*.o", &["a.o", ".o", "ä.o", "a\nb.o"], &["a/b.o", "a.oo"]);
        check("?", &["a", "ä", "日", "\n"], &["", "/", "ab", "äö"]);
        check("a?c", &["abc", "aöc"], &["ac", "a/c"]);
    }

    #[test]
    fn two_stars_do_not_stop_at_slashes() {
        check("**", &["a", "a/b", ""], &[]);
        check("**/a", &["a", "b/a", "b/c/a"], &["ba", "a/b"]);
        check("a/**", &["a/b", "a/b/c"], &["a", "ab"]);
        check("a/**/b", &["a/b", "a/c/b", "a/c/d/b"], &["ab", "a/cb"]);
        check("a/**.pdf", &["a/b.pdf", "a/b/c.pdf"], &["a.pdf"]);
        check("{**/a,b}", &["a", "c/a", "b"], &["c/b"]);
        check("a**/b", &["a/b", "ac/b", "a/c/b"], &["ab", "b"]);
    }

    /// Formerly, an alternative counted as the beginning of a component, and the end of alternatives never did.
    #[test]
    fn two_stars_and_a_slash_match_nothing_only_where_a_component_begins() {
        check("x{a,**/b}", &["xa", "x/b", "xc/b", "x/c/b"], &["xb"]);
        check("{a/,b/}**/c", &["a/c", "b/c", "a/d/c"], &["ac", "c"]);
        check("{a/,b}**/c", &["a/c", "b/c", "bd/c"], &["bc"]);
        check("x/{a,**/b}", &["x/a", "x/b", "x/c/b"], &["xb"]);
        check("{a,{x,y/}**/b}", &["a", "x/b", "y/b", "y/z/b"], &["xb"]);
        check("ä/**/**/ö", &["ä/ö", "ä/a/b/ö"], &["äö", "ä/aö"]);
        let bytes = Glob::new("{a/,b}**/*").unwrap();
        assert!(bytes.is_match(b"a/\xff") && !bytes.is_match(b"b\xff"));
    }

    #[test]
    fn classes_match_whole_characters() {
        check("[äö].txt", &["ä.txt", "ö.txt"], &["a.txt", "äö.txt"]);
        check("[!ä].txt", &["a.txt", "ö.txt"], &["ä.txt", "/.txt"]);
        check("[a-cü-ÿ]", &["b", "þ"], &["d", "ä"]);
        check("[]a]", &["]", "a"], &["b"]);
        check("[a-]", &["a", "-"], &["b"]);
        check("[^-a]", &["b"], &["a", "-", "/"]);
        check("[[&~.\\]]", &["[", "&", "~", ".", "]"], &["a", "\\"]);
    }

    /// Formerly, `[[:alpha:]]` was one of these characters and a `]`.
    #[test]
    fn posix_classes_are_those_of_ascii() {
        check("[[:alpha:]]", &["a", "Z"], &["1", "ä", "a]", ":", "[", "/"]);
        check("[![:digit:]_]x", &["ax", "äx"], &["1x", "_x", "/x"]);
        check("[[:upper:][:digit:]-]*", &["A", "1a", "-a"], &["a", "]"]);
        check("[[:graph:]]", &["!"], &["/", " "]);
        check("[[:punct:]]", &["[", "!"], &["/", "a"]);
        check("[[:x]", &["[", ":", "x"], &["a"]);
        let bytes = Glob::new("[[:alpha:]]*").unwrap();
        assert!(bytes.is_match(b"a\xff") && !bytes.is_match(b"\xffa"));
        assert!(Glob::new("[[:letter:]]").unwrap_err().contains("unknown class [:letter:]"));
        assert!(Glob::new("[[:alpha:]").is_err());
    }

    #[test]
    fn alternatives_and_escapes() {
        check("*.{jpg,jp{e,x}g}", &["a.jpg", "a.jpeg", "a.jpxg"], &["a.jpng", "a.jp"]);
        check("\\*\\{,\\}", &["*{,}"], &["a{,}"]);
        check("a.b+(c)|$", &["a.b+(c)|$"], &["axb+(c)|$"]);
    }

    /// Formerly, braces were escaped beforehand. In `\{` this made the `\` literal.
    #[test]
    fn braces_are_literal_where_alternatives_are_not_allowed() {
        let is_match = |glob: &str, name: &str| {
            Glob::without_alternatives(glob).unwrap().is_match(name.as_bytes())
        };
        assert!(is_match("{a,b}*", "{a,b}c") && !is_match("{a,b}*", "ac"));
        assert!(is_match("\\{a\\}", "{a}") && !is_match("\\{a\\}", "\\a\\"));
        assert!(is_match("[{]a}", "{a}"));
    }

    #[test]
    fn names_that_are_not_text_are_compared_as_bytes() {
        let is_match = |glob: &str, name: &[u8]| Glob::new(glob).unwrap().is_match(name);
        assert!(is_match("*.o", b"\xff\xfe.o"));
        assert!(is_match("??", b"\xe4\xf6") && !is_match("?", b"\xe4\xf6"));
        assert!(is_match("ä\u{f6}*", b"\xc3\xa4\xc3\xb6\xff"));
        assert!(is_match("[!a]b", b"\xe4b") && !is_match("[a-c]b", b"\xe4b"));
    }

    #[test]
    fn broken_globs_are_refused() {
        for wrong in ["[", "[a", "[]", "[a-", "{a", "a}", "\\", "[z-a]", "{a,{b}"] {
            assert!(Glob::new(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_glob_with_many_stars_is_matched_without_backtracking() {
        let glob = Glob::new(&"*a".repeat(50)).unwrap();
        assert!(!glob.is_match("a".repeat(49).as_bytes()));
        assert!(!glob.is_match(&[b"a".repeat(4000), b"b".to_vec()].concat()));
    }
}
