//! A server's identification (RFC 4253, 4.2), without any I/O: the first line that is one of SSH, and what may
//! come before it.

use bytes::BytesMut;

use super::end::End;

/// The longest line, and all lines that may come before it (RFC 4253, 4.2; OpenSSH takes more of the
/// latter than anybody sends).
const LONGEST_LINE: usize = 8 << 10;
const PREAMBLE: usize = 64 << 10;

/// What OpenSSH says in place of its identification when it has too many connections.
const TOO_MANY: [&str; 2] = ["Exceeded MaxStartups", "Not allowed at this time"];

/// How far it was read.
#[derive(Debug, Default)]
pub struct Identification {
    passed: usize,
}

impl Identification {
    /// Takes lines from the front of what came, up to the identification. `None`: it has not come yet.
    ///
    /// # Errors
    /// What comes is no SSH, or a server with too many connections.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<String>, End> {
        while let Some(end) = buffer.iter().position(|&byte| byte == b'\n') {
            if end > LONGEST_LINE {
                return Err(End::NotSsh);
            }
            let line = buffer.split_to(end + 1);
            let line = String::from_utf8_lossy(&line);
            // Nothing but the line end: the rest goes into the hash of the key exchange.
            let line = line.trim_end_matches('\n').trim_end_matches('\r').to_owned();
            if line.starts_with("SSH-2.0-") || line.starts_with("SSH-1.99-") {
                return Ok(Some(line));
            }
            if TOO_MANY.contains(&line.trim_end()) {
                return Err(End::Farewell { text: line, fatal: false });
            }
            self.passed += end + 1;
            if line.starts_with("SSH-") || self.passed > PREAMBLE {
                return Err(End::NotSsh);
            }
        }
        if buffer.len() > LONGEST_LINE { Err(End::NotSsh) } else { Ok(None) }
    }

    /// Whether something came that is no identification.
    pub const fn has_passed(&self) -> bool {
        self.passed > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<String>, End> {
        Identification::default().next(&mut BytesMut::from(text))
    }

    #[test]
    fn the_first_line_of_ssh_is_taken_without_its_line_end_and_nothing_else() {
        for (text, line) in [
            ("SSH-2.0-x\r\n", "SSH-2.0-x"),
            ("SSH-2.0-x \n", "SSH-2.0-x "),
            ("welcome\r\n\r\nSSH-2.0-x y\r\nmore", "SSH-2.0-x y"),
            ("SSH-1.99-x\n", "SSH-1.99-x"),
        ] {
            assert_eq!(read(text).unwrap().as_deref(), Some(line));
        }
        assert_eq!(read("SSH-2.0-x").unwrap(), None);
        assert!(read("SSH-1.5-x\r\n").is_err() && read(&"x".repeat(9000)).is_err());
        assert!(read(&format!("{}\nSSH-2.0-x\n", "x".repeat(9000))).is_err());
        assert!(read(&"line\n".repeat(20_000)).is_err());
        let busy = read("Exceeded MaxStartups\r\n").unwrap_err();
        assert!(matches!(busy, End::Farewell { fatal: false, .. }), "{busy:?}");
    }
}
