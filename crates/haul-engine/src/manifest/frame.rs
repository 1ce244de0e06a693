//! The frame that `gpg --clearsign` puts around a manifest (RFC 9580, 7): a head of `Key: value` lines, the text, and
//! the signature. haul does not verify the signature; gpg does.

use super::line::LineError;

const BEGIN_TEXT: &[u8] = b"-----BEGIN PGP SIGNED MESSAGE-----";
const BEGIN_SIGNATURE: &[u8] = b"-----BEGIN PGP SIGNATURE-----";
const END_SIGNATURE: &[u8] = b"-----END PGP SIGNATURE-----";

/// Where in such a frame the next line is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// Outside of any frame.
    #[default]
    Outside,
    /// In the lines before the text.
    Head,
    /// In the text, where a line that begins with `-` is escaped: it has `- ` before it.
    Text,
    /// In the signature, which began at this line.
    Signature(u64),
}

impl Frame {
    /// The line as it was signed; `LineError::Signature` for a line that is not part of the text.
    pub fn strip<'a>(&mut self, number: u64, line: &'a [u8]) -> Result<&'a [u8], LineError> {
        let bare = line.trim_ascii_end();
        match *self {
            Self::Outside if bare == BEGIN_TEXT => *self = Self::Head,
            // Also behind a text without a frame, as from `cat SHA256SUMS SHA256SUMS.asc`.
            Self::Outside | Self::Text if bare == BEGIN_SIGNATURE => {
                *self = Self::Signature(number);
            }
            Self::Outside => return Ok(line),
            Self::Head if bare.is_empty() => *self = Self::Text,
            Self::Head if is_head(bare) => {}
            Self::Head => {
                *self = Self::Text;
                return Ok(line);
            }
            Self::Text => return Ok(line.strip_prefix(b"- ").unwrap_or(line)),
            Self::Signature(_) if bare == END_SIGNATURE => *self = Self::Outside,
            Self::Signature(_) => {}
        }
        Err(LineError::Signature)
    }

    /// The line at which a signature began that has not ended. Call it at the end; a second call returns `None`.
    pub fn end(&mut self) -> Option<u64> {
        match std::mem::take(self) {
            Self::Signature(number) => Some(number),
            _ => None,
        }
    }
}

/// `Hash: SHA256` and the like.
fn is_head(line: &[u8]) -> bool {
    let key = line.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
    key > 0 && line[key..].starts_with(b": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signed_text_is_taken_out_of_the_frame() {
        let text = "-----BEGIN PGP SIGNED MESSAGE-----\r\nHash: SHA256\n\none\n- -two\n\n\
                    -----BEGIN PGP SIGNATURE-----\n\niQ=\n-----END PGP SIGNATURE-----\nthree";
        let mut frame = Frame::default();
        let lines = text.split('\n').zip(1..);
        let lines = lines.filter_map(|(line, number)| frame.strip(number, line.as_bytes()).ok());
        let lines: Vec<_> = lines.map(|line| String::from_utf8_lossy(line)).collect();
        assert_eq!(lines, ["one", "-two", "", "three"]);
        assert_eq!(frame.end(), None);
    }

    #[test]
    fn a_frame_without_a_head_or_an_end_loses_no_line_silently() {
        let mut frame = Frame::default();
        assert_eq!(frame.strip(1, BEGIN_TEXT), Err(LineError::Signature));
        assert_eq!(frame.strip(2, b"one"), Ok(b"one".as_slice()));
        assert_eq!(frame.strip(3, BEGIN_SIGNATURE), Err(LineError::Signature));
        assert_eq!(frame.strip(4, b"two"), Err(LineError::Signature));
        assert_eq!(frame.end(), Some(3));
        assert_eq!(frame.end(), None);
    }
}
