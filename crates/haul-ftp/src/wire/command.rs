//! Command lines.

use std::fmt;

use haul_storage::{Error, ErrorKind, Result};

/// A command with its line end.
#[derive(Clone, PartialEq, Eq)]
pub struct Command {
    verb: &'static str,
    line: Vec<u8>,
    /// Its argument is a password.
    secret: bool,
}

impl Command {
    /// A command without an argument.
    pub fn bare(verb: &'static str) -> Self {
        Self { verb, line: format!("{verb}\r\n").into_bytes(), secret: false }
    }

    /// A command with an argument, most often a path.
    ///
    /// # Errors
    /// `InvalidInput` if the argument has a CR, LF, NUL or 0xff. CR and LF end the line, and on many servers so does a
    /// NUL: the rest could inject a second command. 0xff is Telnet's IAC (RFC 854), which some servers interpret and
    /// others do not: the name would change.
    pub fn new(verb: &'static str, argument: impl AsRef<[u8]>) -> Result<Self> {
        let argument = argument.as_ref();
        if let Some(byte) = argument.iter().find(|byte| matches!(byte, b'\r' | b'\n' | 0 | 0xff)) {
            let error = Error::new(ErrorKind::InvalidInput, "send a name to the server");
            return Err(error.because(format!("an FTP name cannot contain the byte 0x{byte:02x}")));
        }
        let mut line = Vec::with_capacity(verb.len() + argument.len() + 3);
        line.extend_from_slice(verb.as_bytes());
        line.push(b' ');
        line.extend_from_slice(argument);
        line.extend_from_slice(b"\r\n");
        Ok(Self { verb, line, secret: false })
    }

    /// The command that sends a password.
    ///
    /// # Errors
    /// Those of [`Command::new`].
    pub fn password(password: &str) -> Result<Self> {
        let command = Self::new("PASS", password).map_err(|_| {
            Error::new(ErrorKind::InvalidInput, "log in")
                .because("the password has a byte that FTP cannot send")
        })?;
        Ok(Self { secret: true, ..command })
    }

    /// The command without its argument.
    pub const fn verb(&self) -> &'static str {
        self.verb
    }

    /// The argument; empty if there is none, or if it is a password.
    pub fn argument(&self) -> &[u8] {
        let end = self.line.len().saturating_sub(b"\r\n".len());
        let argument = self.line.get(self.verb.len() + 1..end).unwrap_or_default();
        if self.secret { &[] } else { argument }
    }

    /// Verb and argument for reports; never a password.
    pub fn shown(&self) -> String {
        match self.secret {
            true => self.verb.to_owned(),
            false => String::from_utf8_lossy(self.line.trim_ascii_end()).into_owned(),
        }
    }

    /// The bytes sent over the wire.
    pub fn line(&self) -> &[u8] {
        &self.line
    }
}

/// A password is not shown.
impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.secret {
            return f.write_str("Command(PASS ***)");
        }
        write!(f, "Command({})", self.line.trim_ascii_end().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_inject_a_second_command() {
        for name in [&b"a\r\nDELE b"[..], b"a\nb", b"a\rb", b"a\0b", b"a\xffb"] {
            let error = Command::new("SIZE", name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
        assert!(Command::password("a\r\nDELE b").is_err());
    }

    #[test]
    fn names_are_bytes_and_keep_their_spaces() {
        let command = Command::new("SIZE", b"/ a  \xfeb ").unwrap();
        assert_eq!(command.line(), b"SIZE / a  \xfeb \r\n");
        assert_eq!(command.argument(), b"/ a  \xfeb ");
        assert_eq!(Command::bare("PWD").argument(), b"");
    }

    #[test]
    fn a_password_is_not_shown() {
        let password = Command::password("hunter2").unwrap();
        assert!(!format!("{password:?}").contains("hunter2"));
        assert_eq!(password.shown(), "PASS");
        assert_eq!(password.argument(), b"");
        assert_eq!(Command::new("RETR", "/a b").unwrap().shown(), "RETR /a b");
    }
}
