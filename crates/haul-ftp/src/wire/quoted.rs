//! The reply to `PWD` (RFC 959, appendix II): a path in quotes.

use super::reply::Reply;

/// The path in `257 "/a ""quoted"" path" is current`; `None` unless it is absolute.
pub fn quoted(reply: &Reply) -> Option<Vec<u8>> {
    let text = reply.last_line();
    let inner = &text[text.iter().position(|byte| *byte == b'"')? + 1..];
    let mut path = Vec::new();
    let mut bytes = inner.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if byte == b'"' && bytes.next_if_eq(&b'"').is_none() {
            return (reply.is_done() && path.starts_with(b"/")).then_some(path);
        }
        path.push(byte);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ReplyParser;

    #[test]
    fn the_home_directory_is_the_quoted_absolute_path() {
        let home = |line: &str| quoted(&ReplyParser::default().line(line.as_bytes()).ok()??);
        assert_eq!(home("257 \"/a b\" is current").as_deref(), Some(&b"/a b"[..]));
        assert_eq!(home("257 \"/a \"\"b\"\"\"").as_deref(), Some(&b"/a \"b\""[..]));
        for line in ["257 /a", "257 \"/a", "257 \"C:\\\"", "550 \"/a\"", "257 \"\""] {
            assert_eq!(home(line), None, "{line}");
        }
    }
}
