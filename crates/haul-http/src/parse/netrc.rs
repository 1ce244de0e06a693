//! `~/.netrc`: user names and passwords by host, in the format of ftp(1) and curl.
//!
//! ```text
//! # a comment
//! machine dav.example.org login ada password "a b"   # another one
//! default login anonymous password ada@example.org
//! ```
//!
//! Words are separated by white space, across lines; keywords may be in any case. A word in quotes can
//! contain white space, `\"`, `\\`, `\n`, `\r` and `\t` (curl since 7.84). `#` begins a comment only where a
//! keyword could stand, so a password may begin with one. Values are bytes. Unknown words (`account`, and
//! `port` of other programs) are skipped, and so is `macdef` with all lines to the next empty one. The caller
//! checks that no other user can read the file.

use std::fmt;

use haul_storage::ascii_host;
use zeroize::Zeroizing;

/// The longest file that is accepted (curl: 128 KiB).
pub const LONGEST: usize = 1 << 20;

/// The entries of a file.
#[derive(Debug, Default)]
pub struct Netrc {
    machines: Vec<Machine>,
}

/// The entry for one host.
pub struct Machine {
    /// ASCII (IDNA) if it is a name, in lower case; `None` for `default`.
    host: Option<Vec<u8>>,
    /// The user name, if given.
    pub login: Option<Vec<u8>>,
    /// The password, if given.
    pub password: Option<Zeroizing<Vec<u8>>>,
}

/// Why a file cannot be parsed. The error repeats no words: any of them can be a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NetrcError {
    /// Longer than [`LONGEST`].
    #[error("a netrc of more than {LONGEST} bytes")]
    TooLong,
    /// A quote that is not closed on its line.
    #[error("line {0} of the netrc has a quote that is not closed")]
    Unclosed(usize),
}

impl Netrc {
    /// Parses a file.
    ///
    /// # Errors
    /// If a quote is not closed on its line, or the file is too long; curl refuses such a file as well.
    pub fn parse(text: &[u8]) -> Result<Self, NetrcError> {
        if text.len() > LONGEST {
            return Err(NetrcError::TooLong);
        }
        let mut words = Words { rest: text, line: 1 };
        let mut machines: Vec<Machine> = Vec::new();
        while let Some(word) = words.next(true)? {
            match &word.to_ascii_lowercase()[..] {
                b"machine" => {
                    let host = words.next(false)?.map(|host| host_name(&host));
                    // A file that ends here gives no host.
                    let Some(host) = host else { break };
                    machines.push(Machine { host: Some(host), login: None, password: None });
                }
                b"default" => machines.push(Machine { host: None, login: None, password: None }),
                b"login" | b"user" => {
                    let login = words.next(false)?.map(|login| login.to_vec());
                    if let Some(machine) = machines.last_mut() {
                        machine.login = login;
                    }
                }
                b"password" | b"passwd" => {
                    let password = words.next(false)?;
                    if let Some(machine) = machines.last_mut() {
                        machine.password = password;
                    }
                }
                b"account" => drop(words.next(false)?),
                b"macdef" => words.skip_macro(),
                _ => {}
            }
        }
        Ok(Self { machines })
    }

    /// The first entry that fits `host`, and `login` if given. The `default` entry fits any host and is the
    /// last that counts.
    pub fn lookup(&self, host: &str, login: Option<&str>) -> Option<&Machine> {
        let default = self.machines.iter().position(|machine| machine.host.is_none());
        let last = default.map_or(self.machines.len(), |at| at + 1);
        self.machines[..last].iter().find(|machine| {
            let host_fits = machine
                .host
                .as_ref()
                .is_none_or(|known| known.eq_ignore_ascii_case(host.as_bytes()));
            let known = machine.login.as_deref();
            let fits = |login: &str| known.is_none_or(|known| known == login.as_bytes());
            host_fits && login.is_none_or(fits)
        })
    }
}

/// The host name in ASCII (IDNA) and lower case.
fn host_name(word: &[u8]) -> Vec<u8> {
    let name = std::str::from_utf8(word).ok().and_then(ascii_host);
    name.as_ref().map_or(word, |name| name.as_bytes()).to_ascii_lowercase()
}

impl Machine {
    /// Whether it is the `default` entry, which names no host.
    pub const fn is_default(&self) -> bool {
        self.host.is_none()
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.host.as_deref().unwrap_or(b"default").escape_ascii().to_string();
        f.debug_struct("Machine").field("host", &host).finish_non_exhaustive()
    }
}

/// The words of a file. Each may be a password.
struct Words<'a> {
    rest: &'a [u8],
    line: usize,
}

impl Words<'_> {
    /// The next word; with `comments`, where a keyword is expected, skips comments.
    fn next(&mut self, comments: bool) -> Result<Option<Zeroizing<Vec<u8>>>, NetrcError> {
        loop {
            let Some(first) = self.rest.first() else { return Ok(None) };
            if *first == b'#' && comments {
                let end = self.rest.iter().position(|byte| *byte == b'\n');
                self.rest = &self.rest[end.unwrap_or(self.rest.len())..];
            } else if is_space(*first) {
                self.line += usize::from(*first == b'\n');
                self.rest = &self.rest[1..];
            } else {
                break;
            }
        }
        if let Some(quoted) = self.rest.strip_prefix(b"\"") {
            return self.quoted(quoted).map(Some);
        }
        let end = self.rest.iter().position(|byte| is_space(*byte)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        Ok(Some(Zeroizing::new(word.to_vec())))
    }

    fn quoted(&mut self, text: &[u8]) -> Result<Zeroizing<Vec<u8>>, NetrcError> {
        let unclosed = NetrcError::Unclosed(self.line);
        // Allocated in full, so that growing leaves no copy behind.
        let line = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
        let mut word = Zeroizing::new(Vec::with_capacity(line));
        let mut bytes = text[..line].iter().enumerate();
        while let Some((at, byte)) = bytes.next() {
            match byte {
                b'"' => {
                    self.rest = &self.rest[1 + at + 1..];
                    return Ok(word);
                }
                b'\\' => word.push(match bytes.next().ok_or(unclosed)?.1 {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    other => *other,
                }),
                byte => word.push(*byte),
            }
        }
        Err(unclosed)
    }

    /// Skips everything up to an empty line.
    fn skip_macro(&mut self) {
        let mut is_first = true;
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let is_empty = self.rest[..end].trim_ascii().is_empty();
            self.rest = &self.rest[end + 1..];
            self.line += 1;
            if is_empty && !is_first {
                return;
            }
            is_first = false;
        }
        self.rest = b"";
    }
}

const fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Login and password of a host.
    fn found(text: impl AsRef<[u8]>, host: &str, login: Option<&str>) -> Option<(String, String)> {
        let netrc = Netrc::parse(text.as_ref()).unwrap();
        let machine = netrc.lookup(host, login)?;
        let shown = |bytes: Option<&Vec<u8>>| match bytes {
            Some(bytes) => bytes.escape_ascii().to_string(),
            None => "none".to_owned(),
        };
        let password = machine.password.as_deref();
        Some((shown(machine.login.as_ref()), shown(password)))
    }

    fn both(login: &str, password: &str) -> Option<(String, String)> {
        Some((login.to_owned(), password.to_owned()))
    }

    #[test]
    fn hosts_are_found_in_any_layout() {
        let text = "# machine no login no\n\
             machine a.example login ada password x#y\n\
             \tmachine  b.example\n  login \"a b\"\n  # comment\n  password \"c\\\"d\\\\ e\"\n\
             machine C.example password only account z\n\
             macdef init\n machine m login n\nbye\n\n\
             machine a.example login bob passwd second\n\
             default login anonymous password me@\n\
             machine late login l password l\n";
        assert_eq!(found(text, "a.example", None), both("ada", "x#y"));
        assert_eq!(found(text, "A.Example", Some("bob")), both("bob", "second"));
        assert_eq!(found(text, "b.example", None), both("a b", "c\\\"d\\\\ e"));
        assert_eq!(found(text, "c.example", Some("any")), both("none", "only"));
        for host in ["m", "late", "no", "example"] {
            assert_eq!(found(text, host, None), both("anonymous", "me@"), "{host}");
        }
        assert_eq!(found(text, "a.example", Some("eve")), None);
        assert_eq!(found("", "a", None), None);
    }

    /// One unknown word used to make haul ignore the whole file, for all hosts.
    #[test]
    fn a_file_is_parsed_as_by_curl() {
        let text = "machine other port 80 login x password y\nmachine h login ada password p\n";
        assert_eq!(found(text, "h", None), both("ada", "p"));
        assert_eq!(found(text, "other", None), both("x", "y"));
        let comment = "machine h\n login ada # me, password no\n password p#1 # his\n";
        assert_eq!(found(comment, "h", None), both("ada", "p#1"));
        assert_eq!(found("machine h login a password #1", "h", None), both("a", "#1"));
        assert_eq!(found("MACHINE h LOGIN ada PassWord P\r\n", "h", None), both("ada", "P"));
        assert_eq!(found("machine h login ada\n", "h", None), both("ada", "none"));
        let bytes = b"machine h login ada password p\xe4ss\n";
        assert_eq!(found(bytes, "h", None), both("ada", "p\\xe4ss"));
        // Words before a host and a host without a name are ignored; the rest is used.
        let torn = "login x password y\nmachine h login ada password p\nmachine";
        assert_eq!(found(torn, "h", None), both("ada", "p"));
        assert_eq!(found("machine h login", "h", None), both("none", "none"));
    }

    #[test]
    fn a_name_beyond_ascii_is_encoded_for_dns() {
        let text = "machine B\u{dc}CHER.example login ada password p\n";
        assert_eq!(found(text, "xn--bcher-kva.example", None), both("ada", "p"));
    }

    #[test]
    fn only_an_entry_without_a_host_is_the_default() {
        let netrc = Netrc::parse(b"machine a login x\ndefault login y").unwrap();
        assert!(!netrc.lookup("a", None).unwrap().is_default());
        assert!(netrc.lookup("b", None).unwrap().is_default());
    }

    #[test]
    fn an_error_names_the_line_without_its_content() {
        for (text, error) in [
            ("machine a password \"geheim\n\"", NetrcError::Unclosed(1)),
            ("machine a\npassword \"geheim\\", NetrcError::Unclosed(2)),
        ] {
            let failed = Netrc::parse(text.as_bytes()).unwrap_err();
            assert_eq!(failed, error, "{text}");
            assert!(!failed.to_string().contains("geheim"));
        }
        let netrc = Netrc::parse(b"machine a login b password geheim").unwrap();
        assert!(!format!("{netrc:?}").contains("geheim"));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_panic(
            text in "(machine|login|password|default|macdef|[ \n\"\\\\#]|a|\\PC){0,30}",
        ) {
            if let Ok(netrc) = Netrc::parse(text.as_bytes()) {
                let _ = netrc.lookup("a", None);
            }
        }
    }
}
