//! Identification strings (RFC 4253, 4.2): haul's, and a parser, without I/O, for the server's: the first line that
//! begins with `SSH-2.0-` or `SSH-1.99-`, and the lines that may precede it.

use bytes::BytesMut;

use super::end::End;

/// haul's identification.
pub const IDENTIFICATION: &str = concat!("SSH-2.0-haul_", env!("CARGO_PKG_VERSION"));

/// Maximum length of a line, as in OpenSSH (`SSH_MAX_BANNER_LEN`); RFC 4253, 4.2 allows 255 bytes.
const LONGEST_LINE: usize = 8 << 10;
/// Maximum total length of the lines before the identification. RFC 4253, 4.2 sets no limit; servers
/// send far less.
const PREAMBLE: usize = 64 << 10;

/// Lines that OpenSSH sends instead of its identification: the first when it has too many unauthenticated
/// connections, the second to an address with a penalty (`PerSourcePenalties`).
const REFUSALS: [&str; 2] = ["Exceeded MaxStartups", "Not allowed at this time"];

/// State of the parser: bytes of the lines skipped so far.
#[derive(Debug, Default)]
pub struct Identification {
    skipped: usize,
}

impl Identification {
    /// Removes lines from the front of `buffer`, up to and including the identification, which is
    /// returned without its line end. `None` if it has not arrived yet.
    ///
    /// # Errors
    /// [`End::NotSsh`] if the peer does not speak SSH 2 or exceeds a limit; [`End::Disconnected`] if it sends one
    /// of the lines in `REFUSALS`.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<String>, End> {
        while let Some(end) = buffer.iter().position(|&byte| byte == b'\n') {
            if end > LONGEST_LINE {
                return Err(End::NotSsh);
            }
            let line = buffer.split_to(end + 1);
            let line = String::from_utf8_lossy(&line);
            // Remove only the line end: the rest is part of the exchange hash.
            let line = line.trim_end_matches('\n').trim_end_matches('\r').to_owned();
            if line.starts_with("SSH-2.0-") || line.starts_with("SSH-1.99-") {
                return Ok(Some(line));
            }
            if REFUSALS.contains(&line.trim_end()) {
                return Err(End::Disconnected { text: line, fatal: false });
            }
            self.skipped += end + 1;
            if line.starts_with("SSH-") || self.skipped > PREAMBLE {
                return Err(End::NotSsh);
            }
        }
        if buffer.len() > LONGEST_LINE { Err(End::NotSsh) } else { Ok(None) }
    }

    /// True if lines before the identification were received.
    pub const fn has_skipped_lines(&self) -> bool {
        self.skipped > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<String>, End> {
        Identification::default().next(&mut BytesMut::from(text))
    }

    #[test]
    fn the_first_ssh_line_is_returned_without_its_line_end() {
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
        assert!(matches!(busy, End::Disconnected { fatal: false, .. }), "{busy:?}");
    }
}
