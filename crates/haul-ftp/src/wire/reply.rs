//! Replies (RFC 959, 4.2): a code of three digits and a text of one or more lines.

use std::fmt;

/// A reply.
#[derive(Clone, PartialEq, Eq)]
pub struct Reply {
    code: u16,
    /// The text, line by line; the first and the last without their code.
    lines: Vec<Vec<u8>>,
    /// What was sent and may be quoted in the text; see [`Reply::about`].
    sent: Vec<u8>,
}

impl Reply {
    /// The same reply to commands with these arguments, which the server may quote in its text.
    #[must_use]
    pub fn about(self, sent: Vec<u8>) -> Self {
        Self { sent, ..self }
    }

    /// The three digits.
    pub const fn code(&self) -> u16 {
        self.code
    }

    /// An action has begun, and another reply follows.
    pub const fn is_preliminary(&self) -> bool {
        self.code / 100 == 1
    }

    /// The command succeeded.
    pub const fn is_done(&self) -> bool {
        self.code / 100 == 2
    }

    /// The server expects the next command of a sequence.
    pub const fn is_pending(&self) -> bool {
        self.code / 100 == 3
    }

    /// The server does not know or implement the command, or refuses its argument (501).
    pub const fn is_unknown(&self) -> bool {
        matches!(self.code, 500 | 501 | 502 | 504)
    }

    /// Whether the server does not know the command, whatever its argument. 501 may concern only one
    /// name.
    pub const fn is_unknown_command(&self) -> bool {
        matches!(self.code, 500 | 502 | 504)
    }

    /// The command failed, but may succeed later.
    pub const fn is_transient(&self) -> bool {
        self.code / 100 == 4
    }

    /// All lines of the text.
    pub fn lines(&self) -> &[Vec<u8>] {
        &self.lines
    }

    /// The text of the only or the last line.
    pub fn last_line(&self) -> &[u8] {
        self.lines.last().map_or(&[], |line| line)
    }

    /// The text for display, at most 300 characters long; control characters become spaces.
    pub fn text(&self) -> String {
        const LONGEST: usize = 300;
        let text = self.lines.iter().map(|line| String::from_utf8_lossy(line.trim_ascii()));
        let text = text.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
        let shown = text.chars().take(LONGEST);
        shown.map(|c| if c.is_control() { ' ' } else { c }).collect()
    }

    /// Whether the text has these words outside the names that were sent. `words` is in lower case; the text may be in
    /// any.
    pub fn mentions(&self, words: &str) -> bool {
        mentions(&String::from_utf8_lossy(&self.lines.join(&b' ')), &self.sent, words)
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code, self.text())
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reply({self})")
    }
}

/// Whether `text` has these words (given in lower case) outside the names of `sent`: servers quote names, and
/// `not found.txt: Permission denied` does not mean that the file was not found.
///
/// A server may show a path shortened, below another root or with doubled quotes, so each component counts
/// as a name. Only names that contain all the words are ignored: a file called `file` is no reason to
/// overlook `no such file`.
pub fn mentions(text: &str, sent: &[u8], words: &str) -> bool {
    let mut text = text.to_ascii_lowercase();
    if !text.contains(words) {
        return false;
    }
    // Names also end at bytes that a server may not quote unchanged.
    let separates = |byte: &u8| !matches!(byte, b' '..=b'~') || matches!(byte, b'/' | b'\\' | b'"');
    for name in sent.split(separates) {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        if name.contains(words) {
            text = text.replace(&name, "\0");
        }
    }
    text.contains(words)
}

/// Assembles replies from lines.
#[derive(Debug, Default)]
pub struct ReplyParser {
    unfinished: Option<Reply>,
    bytes: usize,
}

/// The longest reply: a `FEAT` has a few hundred bytes, a `MLST` a path and its facts.
const LONGEST: usize = 64 << 10;

/// Bytes of overhead that each line counts for, even an empty one.
const LINE: usize = 32;

impl ReplyParser {
    /// Takes a line without its end; returns the reply if that was its last line.
    ///
    /// # Errors
    /// A description of what is wrong with the line.
    pub fn line(&mut self, line: &[u8]) -> Result<Option<Reply>, &'static str> {
        self.bytes += line.len() + LINE;
        if self.bytes > LONGEST {
            return Err("its reply is longer than 64 KiB");
        }
        let head = head(line);
        let Some(mut reply) = self.unfinished.take() else {
            let (code, last, text) = head.ok_or("its reply does not begin with a code")?;
            let reply = Reply { code, lines: vec![text.to_vec()], sent: Vec::new() };
            return Ok(self.continued(reply, last));
        };
        match head {
            Some((code, true, text)) if code == reply.code => {
                reply.lines.push(text.to_vec());
                Ok(self.continued(reply, true))
            }
            // Some servers repeat the code on every line.
            Some((code, false, text)) if code == reply.code => {
                reply.lines.push(text.to_vec());
                Ok(self.continued(reply, false))
            }
            _ => {
                reply.lines.push(line.to_vec());
                Ok(self.continued(reply, false))
            }
        }
    }

    fn continued(&mut self, reply: Reply, last: bool) -> Option<Reply> {
        if last {
            self.bytes = 0;
            return Some(reply);
        }
        self.unfinished = Some(reply);
        None
    }
}

/// Code, whether it is the last line, and text.
fn head(line: &[u8]) -> Option<(u16, bool, &[u8])> {
    let (digits, rest) = line.split_at_checked(3)?;
    if !digits.iter().all(u8::is_ascii_digit) || !(b'1'..=b'6').contains(&digits[0]) {
        return None;
    }
    let code = digits.iter().fold(0, |code, digit| code * 10 + u16::from(digit - b'0'));
    match rest.split_first() {
        None => Some((code, true, rest)),
        Some((b' ', text)) => Some((code, true, text)),
        Some((b'-', text)) => Some((code, false, text)),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(lines: &[&str]) -> Result<Option<Reply>, &'static str> {
        let mut parser = ReplyParser::default();
        let mut last = None;
        for line in lines {
            assert_eq!(last, None, "a reply ended early");
            last = parser.line(line.as_bytes())?;
        }
        Ok(last)
    }

    #[test]
    fn a_reply_of_one_line_is_parsed() {
        let reply = parse(&["213 5000"]).unwrap().unwrap();
        assert_eq!((reply.code(), reply.last_line()), (213, &b"5000"[..]));
        assert_eq!(parse(&["200"]).unwrap().unwrap().code(), 200);
    }

    #[test]
    fn a_reply_of_several_lines_ends_with_its_own_code() {
        let reply = parse(&["211-Features:", " SIZE", "200 is a text", "211 End"]);
        let reply = reply.unwrap().unwrap();
        assert_eq!(reply.lines().len(), 4);
        assert_eq!(reply.lines()[2], b"200 is a text");
        let every = parse(&["220-a", "220-b", "220 c"]).unwrap().unwrap();
        assert_eq!(every.text(), "a b c");
    }

    #[test]
    fn invalid_lines_are_refused() {
        for line in ["", "hello", "20", "999 x", "2x0 y", "220+x"] {
            assert!(parse(&[line]).is_err(), "{line}");
        }
    }

    #[test]
    fn an_endless_reply_is_cut_off() {
        let mut parser = ReplyParser::default();
        parser.line(b"211-Features").unwrap();
        let ended = (0..100_000).find_map(|_| parser.line(b" MORE AND MORE").err());
        assert!(ended.is_some());
    }

    #[test]
    fn text_cannot_control_a_terminal() {
        let mut parser = ReplyParser::default();
        let reply = parser.line(b"550 \x1b[31mred\x07").unwrap().unwrap();
        assert!(!reply.text().contains('\x1b'));
    }

    #[test]
    fn words_in_a_quoted_name_are_ignored() {
        let words = "not found";
        for (text, sent, expected) in [
            ("/a/x: Not found", "/a/x", true),
            ("not found.txt: Permission denied", "/a/not found.txt", false),
            ("\"/home/a/Not Found.txt\": denied", "/a/Not Found.txt", false),
            ("C:\\a\\not found\\x denied", "/a/not found/x", false),
            ("\"/a \"\"not found\"\"\" denied", "/a \"not found\"", false),
            ("/a/not found.txt: not found", "/a/not found.txt", true),
            ("/a/found: not found", "/a/found", true),
            ("X: not found", "/x", true),
            ("denied", "/a/not found", false),
        ] {
            assert_eq!(mentions(text, sent.as_bytes(), words), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_parsed_or_refused(lines in prop::collection::vec(".{0,40}", 0..8)) {
            let mut parser = ReplyParser::default();
            for line in lines {
                drop(parser.line(line.as_bytes()));
            }
        }
    }
}
