//! `~/.netrc`: users and passwords by host, as ftp(1) began it and curl reads it.
//!
//! ```text
//! # a comment
//! machine dav.example.org login ada password "a b"
//! default login anonymous password ada@example.org
//! ```
//!
//! Words with white space between them, on any lines. A word in quotes can have white space, and
//! `\"`, `\\`, `\n`, `\r`, `\t` in it (curl since 7.84). `#` begins a comment where a line begins.
//! `account` is read over, and so is `macdef` with all lines to the next empty one. That nobody else
//! can read the file is the caller's to check.

use std::fmt;

use zeroize::Zeroizing;

/// The longest file that is read (curl: 128 KiB).
pub const LONGEST: usize = 1 << 20;

/// What a file has.
#[derive(Debug, Default)]
pub struct Netrc {
    machines: Vec<Machine>,
}

/// What it says of one host.
pub struct Machine {
    /// In lower case; `None` for `default`.
    host: Option<String>,
    /// As whom, if said.
    pub login: Option<String>,
    /// With what, if said.
    pub password: Option<Zeroizing<String>>,
}

/// Why a file cannot be read. No words of it are repeated: any of them can be a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NetrcError {
    /// Longer than [`LONGEST`].
    #[error("a netrc of more than {LONGEST} bytes")]
    TooLong,
    /// A word that means nothing.
    #[error("line {0} of the netrc has a word that is not known")]
    UnknownWord(usize),
    /// The last word needs another.
    #[error("line {0} of the netrc has a word without a value")]
    MissingValue(usize),
    /// A login or password of nobody.
    #[error("line {0} of the netrc belongs to no machine")]
    NoMachine(usize),
    /// A quote that is not closed on its line.
    #[error("line {0} of the netrc has a quote that is not closed")]
    Unclosed(usize),
}

impl Netrc {
    /// Reads a file's text.
    pub fn parse(text: &str) -> Result<Self, NetrcError> {
        if text.len() > LONGEST {
            return Err(NetrcError::TooLong);
        }
        let mut words = Words { rest: text, line: 1, line_begins: true };
        let mut machines: Vec<Machine> = Vec::new();
        while let Some(word) = words.next()? {
            let line = words.line;
            match &word[..] {
                "machine" => {
                    let host = words.value()?.to_ascii_lowercase();
                    machines.push(Machine { host: Some(host), login: None, password: None });
                }
                "default" => machines.push(Machine { host: None, login: None, password: None }),
                "login" | "user" => {
                    let login = words.value()?.to_string();
                    machines.last_mut().ok_or(NetrcError::NoMachine(line))?.login = Some(login);
                }
                "password" | "passwd" => {
                    let password = words.value()?;
                    let machine = machines.last_mut().ok_or(NetrcError::NoMachine(line))?;
                    machine.password = Some(password);
                }
                "account" => drop(words.value()?),
                "macdef" => words.skip_macro(),
                _ => return Err(NetrcError::UnknownWord(line)),
            }
        }
        Ok(Self { machines })
    }

    /// What is said of `host`, and of `login` there if one is wanted: the first that fits, up to the
    /// `default`, which fits always and is the last that counts.
    pub fn lookup(&self, host: &str, login: Option<&str>) -> Option<&Machine> {
        let default = self.machines.iter().position(|machine| machine.host.is_none());
        let last = default.map_or(self.machines.len(), |at| at + 1);
        self.machines[..last].iter().find(|machine| {
            let host_fits =
                machine.host.as_ref().is_none_or(|known| known.eq_ignore_ascii_case(host));
            let known = machine.login.as_deref();
            host_fits && login.is_none_or(|login| known.is_none_or(|known| known == login))
        })
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.host.as_deref().unwrap_or("default");
        f.debug_struct("Machine").field("host", &host).finish_non_exhaustive()
    }
}

/// The words of a file. Each may be a password.
struct Words<'a> {
    rest: &'a str,
    line: usize,
    line_begins: bool,
}

impl Words<'_> {
    fn next(&mut self) -> Result<Option<Zeroizing<String>>, NetrcError> {
        loop {
            let Some(first) = self.rest.chars().next() else { return Ok(None) };
            if first == '\n' {
                self.line += 1;
                self.line_begins = true;
            } else if first == '#' && self.line_begins {
                let end = self.rest.find('\n').unwrap_or(self.rest.len());
                self.rest = &self.rest[end..];
                continue;
            } else if !first.is_whitespace() {
                self.line_begins = false;
                break;
            }
            self.rest = &self.rest[first.len_utf8()..];
        }
        if let Some(quoted) = self.rest.strip_prefix('"') {
            return self.quoted(quoted).map(Some);
        }
        let end = self.rest.find(char::is_whitespace).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        Ok(Some(Zeroizing::new(word.to_owned())))
    }

    fn value(&mut self) -> Result<Zeroizing<String>, NetrcError> {
        let line = self.line;
        self.next()?.ok_or(NetrcError::MissingValue(line))
    }

    fn quoted(&mut self, text: &str) -> Result<Zeroizing<String>, NetrcError> {
        let unclosed = NetrcError::Unclosed(self.line);
        // With room for all of it, so that growing leaves no copy behind.
        let mut word = Zeroizing::new(String::with_capacity(text.find('\n').unwrap_or(text.len())));
        let mut chars = text.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.rest = &self.rest[1 + at + 1..];
                    return Ok(word);
                }
                '\n' => return Err(unclosed),
                '\\' => word.push(match chars.next().ok_or(unclosed)?.1 {
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    '\n' => return Err(unclosed),
                    other => other,
                }),
                c => word.push(c),
            }
        }
        Err(unclosed)
    }

    /// Over everything up to an empty line.
    fn skip_macro(&mut self) {
        let mut is_first = true;
        while let Some(end) = self.rest.find('\n') {
            let is_empty = self.rest[..end].trim().is_empty();
            self.rest = &self.rest[end + 1..];
            self.line += 1;
            self.line_begins = true;
            if is_empty && !is_first {
                return;
            }
            is_first = false;
        }
        self.rest = "";
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found<'a>(netrc: &'a Netrc, host: &str, login: Option<&str>) -> Option<(&'a str, &'a str)> {
        let machine = netrc.lookup(host, login)?;
        let password = machine.password.as_ref().map(|password| &password[..]);
        Some((machine.login.as_deref().unwrap_or_default(), password.unwrap_or_default()))
    }

    #[test]
    fn hosts_are_found_in_any_layout() {
        let netrc = Netrc::parse(
            "# machine no login no\n\
             machine a.example login ada password x#y\n\
             \tmachine  b.example\n  login \"a b\"\n  # comment\n  password \"c\\\"d\\\\ e\"\n\
             machine C.example password only account z\n\
             macdef init\n machine m login n\nbye\n\n\
             machine a.example login bob passwd second\n\
             default login anonymous password me@\n\
             machine late login l password l\n",
        )
        .unwrap();
        assert_eq!(found(&netrc, "a.example", None), Some(("ada", "x#y")));
        assert_eq!(found(&netrc, "A.Example", Some("bob")), Some(("bob", "second")));
        assert_eq!(found(&netrc, "b.example", None), Some(("a b", "c\"d\\ e")));
        assert_eq!(found(&netrc, "c.example", Some("any")), Some(("", "only")));
        for host in ["m", "late", "no", "example"] {
            assert_eq!(found(&netrc, host, None), Some(("anonymous", "me@")), "{host}");
        }
        assert_eq!(found(&netrc, "a.example", Some("eve")), None);
        assert_eq!(found(&Netrc::parse("").unwrap(), "a", None), None);
    }

    #[test]
    fn an_error_says_the_line_and_nothing_of_what_stands_there() {
        for (text, error) in [
            ("machine a\nlogin", NetrcError::MissingValue(2)),
            ("machine a\n\nlogin b geheim c", NetrcError::UnknownWord(3)),
            ("password geheim", NetrcError::NoMachine(1)),
            ("machine a password \"geheim\n\"", NetrcError::Unclosed(1)),
            ("machine a password \"geheim\\", NetrcError::Unclosed(1)),
        ] {
            let failed = Netrc::parse(text).unwrap_err();
            assert_eq!(failed, error, "{text}");
            assert!(!failed.to_string().contains("geheim"));
        }
        let netrc = Netrc::parse("machine a login b password geheim").unwrap();
        assert!(!format!("{netrc:?}").contains("geheim"));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(
            text in "(machine|login|password|default|macdef|[ \n\"\\\\#]|a|\\PC){0,30}",
        ) {
            if let Ok(netrc) = Netrc::parse(&text) {
                let _ = found(&netrc, "a", None);
            }
        }
    }
}
