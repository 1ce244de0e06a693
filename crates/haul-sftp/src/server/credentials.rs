//! Credentials of the server's user: keys of an `authorized_keys` file, or a password.

use std::fmt;
use std::path::Path;

use haul_storage::{Error, ErrorKind, Result};
use russh::keys::{Algorithm, PublicKey};

/// Options without effect on this server, which has no terminals, no forwarding, no start-up files and no environment
/// (sshd(8), "AUTHORIZED_KEYS FILE FORMAT").
const IGNORED: [&str; 17] = [
    "restrict",
    "agent-forwarding",
    "no-agent-forwarding",
    "environment",
    "permitlisten",
    "permitopen",
    "port-forwarding",
    "no-port-forwarding",
    "pty",
    "no-pty",
    "tunnel",
    "user-rc",
    "no-user-rc",
    "X11-forwarding",
    "no-X11-forwarding",
    "x11-forwarding",
    "no-x11-forwarding",
];

/// The user who may log in. Passwords are stored as digests only.
#[derive(Debug, Clone)]
pub struct Credentials {
    user: String,
    keys: AuthorizedKeys,
    password: Option<Password>,
}

impl Credentials {
    /// `user` without credentials: add keys or a password.
    pub fn new(user: impl Into<String>) -> Self {
        Self { user: user.into(), keys: AuthorizedKeys::default(), password: None }
    }

    /// Accepts any of these keys.
    #[must_use]
    pub fn with_keys(mut self, keys: AuthorizedKeys) -> Self {
        self.keys = keys;
        self
    }

    /// Accepts this password.
    #[must_use]
    pub fn with_password(mut self, password: Password) -> Self {
        self.password = Some(password);
        self
    }

    /// The user name.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Whether any key is accepted.
    pub(super) fn has_keys(&self) -> bool {
        !self.keys.keys.is_empty()
    }

    /// Whether a password is accepted.
    pub(super) const fn has_password(&self) -> bool {
        self.password.is_some()
    }

    /// Whether this user may log in with this key and signature algorithm.
    pub(super) fn allows_key(&self, user: &str, key: &PublicKey, algorithm: &Algorithm) -> bool {
        // SHA-1 signatures can be forged.
        let is_weak = matches!(algorithm, Algorithm::Rsa { hash: None });
        let is_known = self.keys.keys.iter().any(|known| known.key_data() == key.key_data());
        user == self.user && !is_weak && is_known
    }

    /// Whether this user may log in with this password. A wrong password takes as long as the correct one.
    pub(super) fn allows_password(&self, user: &str, password: &str) -> bool {
        let is_correct = self.password.as_ref().is_some_and(|correct| correct.is(password));
        is_correct & (user == self.user)
    }
}

/// A password, as its digest.
#[derive(Clone)]
pub struct Password {
    digest: blake3::Hash,
}

impl Password {
    /// Stores the digest of a password.
    pub fn new(password: &str) -> Self {
        Self { digest: blake3::hash(password.as_bytes()) }
    }

    /// A random password of 100 bits, and its text.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn random() -> Result<(Self, String)> {
        // Letters and digits that cannot be confused with each other.
        const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
        let mut bytes = [0; 20];
        let count = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| Error::from_io("make a password", errno.into()))?;
        if count < bytes.len() {
            return Err(
                Error::new(ErrorKind::Io, "make a password").because("too few random bytes")
            );
        }
        let text: String =
            bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect();
        Ok((Self::new(&text), text))
    }

    /// Compares digests in constant time (a guarantee of `blake3::Hash`), so that neither the length nor a prefix of
    /// the correct password can be found by timing.
    fn is(&self, password: &str) -> bool {
        self.digest == blake3::hash(password.as_bytes())
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

/// The keys of an `authorized_keys` file.
#[derive(Debug, Clone, Default)]
pub struct AuthorizedKeys {
    keys: Vec<PublicKey>,
    refused: Vec<RefusedLine>,
}

/// A line of an `authorized_keys` file that is not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedLine {
    /// Its number, counted from 1.
    pub line: usize,
    /// The reason.
    pub cause: String,
}

impl AuthorizedKeys {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or none of its lines is accepted.
    pub fn read(path: &Path) -> Result<Self> {
        const OPERATION: &str = "read authorized keys";
        let bytes = std::fs::read(path)
            .map_err(|error| Error::from_io(OPERATION, error).at(path.display()))?;
        let keys = Self::parse(&String::from_utf8_lossy(&bytes));
        if keys.keys.is_empty() {
            let cause = match keys.refused.first() {
                Some(refused) => format!("no usable key; line {}: {}", refused.line, refused.cause),
                None => "no key in it".to_owned(),
            };
            return Err(Error::new(ErrorKind::InvalidInput, OPERATION)
                .at(path.display())
                .because(cause));
        }
        Ok(keys)
    }

    /// Parses the text of a file. A line is accepted only if all its options are supported.
    pub fn parse(text: &str) -> Self {
        let mut keys = Self::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match key_of(line) {
                Ok(key) => keys.keys.push(key),
                Err(cause) => keys.refused.push(RefusedLine { line: number + 1, cause }),
            }
        }
        keys
    }

    /// The lines that were not accepted.
    pub fn refused(&self) -> &[RefusedLine] {
        &self.refused
    }

    /// The number of accepted keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether no key is accepted.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

fn key_of(line: &str) -> std::result::Result<PublicKey, String> {
    if let Ok(key) = PublicKey::from_openssh(line) {
        return if is_security_key(&key) { Err(UNTOUCHED.to_owned()) } else { Ok(key) };
    }
    let (options, rest) = split_options(line).ok_or("not a public key")?;
    let key = PublicKey::from_openssh(rest.trim_start()).map_err(|_| "not a public key")?;
    let mut needs_touch = is_security_key(&key);
    for option in options {
        let name = option.split('=').next().unwrap_or(option);
        if name.eq_ignore_ascii_case("no-touch-required") {
            needs_touch = false;
        } else if !IGNORED.iter().any(|ignored| ignored.eq_ignore_ascii_case(name)) {
            return Err(format!("option '{}' is not supported", name.escape_debug()));
        }
    }
    if needs_touch { Err(UNTOUCHED.to_owned()) } else { Ok(key) }
}

/// A signature of a security key states whether the key was touched (OpenSSH's PROTOCOL.u2f), but russh does not pass
/// that on. So such a key is accepted only if its line waives the touch. Otherwise any program on the machine with
/// the key could use it.
const UNTOUCHED: &str = "haul cannot see whether a security key was touched; such a key is taken with the \
                         option 'no-touch-required' only";

fn is_security_key(key: &PublicKey) -> bool {
    matches!(key.algorithm(), Algorithm::SkEd25519 | Algorithm::SkEcdsaSha2NistP256)
}

/// Splits the options before a key at commas outside quotes, and returns them with the rest of the line.
fn split_options(line: &str) -> Option<(Vec<&str>, &str)> {
    let mut options = Vec::new();
    let (mut start, mut is_quoted, mut is_escaped) = (0, false, false);
    for (at, character) in line.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => {
                options.push(&line[start..at]);
                start = at + 1;
            }
            ' ' | '\t' if !is_quoted => {
                options.push(&line[start..at]);
                return Some((options, &line[at..]));
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";

    fn parsed(line: &str) -> std::result::Result<usize, String> {
        let keys = AuthorizedKeys::parse(line);
        match keys.refused().first() {
            Some(refused) => Err(refused.cause.clone()),
            None => Ok(keys.len()),
        }
    }

    #[test]
    fn keys_with_comments_and_harmless_options_are_accepted() {
        assert_eq!(parsed(KEY), Ok(1));
        assert_eq!(parsed(&format!("# a comment\n\n{KEY} me@here \n")), Ok(1));
        assert_eq!(parsed(&format!("restrict,no-pty {KEY}")), Ok(1));
        let quoted = r#"environment="A=\" ,b",no-X11-forwarding"#;
        assert_eq!(parsed(&format!("{quoted}\t{KEY} x")), Ok(1));
    }

    #[test]
    fn a_line_with_an_unsupported_option_is_refused() {
        for (options, name) in [
            (r#"command="ls a,b""#, "command"),
            (r#"from="10.0.0.0/8""#, "from"),
            ("cert-authority", "cert-authority"),
            (r#"no-pty,expiry-time="20200101""#, "expiry-time"),
            ("verify-required", "verify-required"),
        ] {
            let cause = parsed(&format!("{options} {KEY}")).unwrap_err();
            assert_eq!(cause, format!("option '{name}' is not supported"));
        }
        assert_eq!(parsed("ssh-ed25519 nonsense").unwrap_err(), "not a public key");
        assert_eq!(parsed("nonsense").unwrap_err(), "not a public key");
    }

    /// In the format of `ssh-keygen -t ed25519-sk`.
    const SECURITY_KEY: &str = "sk-ssh-ed25519@openssh.com \
        AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAICFo/k5LU8863u66YC9eUO2170QduohPURkQnbLa/dczAAAABHNzaDo=";

    /// The server cannot check whether the key was touched.
    #[test]
    fn a_security_key_is_accepted_only_with_no_touch_required() {
        for options in ["", "restrict ", "verify-required ", "no-touch-required,verify-required "] {
            assert!(parsed(&format!("{options}{SECURITY_KEY}")).is_err(), "{options}");
        }
        let cause = parsed(SECURITY_KEY).unwrap_err();
        assert!(cause.contains("touched"), "{cause}");
        assert_eq!(parsed(&format!("no-touch-required {SECURITY_KEY}")), Ok(1));
        assert_eq!(parsed(&format!("no-touch-required {KEY}")), Ok(1));
    }

    #[test]
    fn only_the_correct_user_and_password_are_accepted() {
        let credentials = Credentials::new("me").with_password(Password::new("secret"));
        assert!(credentials.allows_password("me", "secret"));
        assert!(!credentials.allows_password("me", "secret "));
        assert!(!credentials.allows_password("me", ""));
        assert!(!credentials.allows_password("you", "secret"));
        assert!(!Credentials::new("me").allows_password("me", ""));
        assert!(!format!("{credentials:?}").contains("secret"));
    }

    #[test]
    fn a_key_is_accepted_unless_it_signs_with_sha1() {
        let keys = AuthorizedKeys::parse(KEY);
        let key = PublicKey::from_openssh(KEY).unwrap();
        let credentials = Credentials::new("me").with_keys(keys);
        assert!(credentials.allows_key("me", &key, &Algorithm::Ed25519));
        assert!(!credentials.allows_key("you", &key, &Algorithm::Ed25519));
        assert!(!credentials.allows_key("me", &key, &Algorithm::Rsa { hash: None }));
    }

    #[test]
    fn random_passwords_differ() {
        let (first, second) = (Password::random().unwrap(), Password::random().unwrap());
        assert_ne!(first.1, second.1);
        assert_eq!(first.1.len(), 20);
        assert!(first.0.is(&first.1));
    }
}
