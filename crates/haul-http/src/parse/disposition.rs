//! The name of a downloaded file, from `Content-Disposition` (RFC 6266).
//!
//! The name comes from the server and is used on the local disk, so it is one component that cannot lead
//! elsewhere or control a terminal. Leading dots are removed: a file that the user did not ask for by name must not
//! become a program's settings (`.bashrc`, `.npmrc`).

use haul_storage::text::steers_a_terminal;

use super::href::decode;

/// The longest name that file systems accept, in bytes.
const NAME_MAX: usize = 255;

/// The longest header that is parsed, in bytes.
const LONGEST: usize = 8 * 1024;

/// The file name in the header, made safe; `None` if there is none that can be used.
///
/// `filename*` (RFC 8187) is preferred to `filename` (RFC 6266, section 4.3).
pub fn file_name(header: &[u8]) -> Option<String> {
    if header.len() > LONGEST {
        return None;
    }
    // Servers write UTF-8, and older ones Latin-1; RFC 9110 leaves the encoding open.
    let header = match std::str::from_utf8(header) {
        Ok(text) => text.to_owned(),
        Err(_) => header.iter().copied().map(char::from).collect(),
    };
    let mut plain = None;
    let mut extended = None;
    for (name, value) in parameters(&header) {
        if name.eq_ignore_ascii_case("filename*") {
            extended = extended.or_else(|| decode_extended(&value));
        } else if name.eq_ignore_ascii_case("filename") {
            plain = plain.or(Some(value));
        }
    }
    // Only the last component counts: some programs send a path (RFC 6266, section 4.3).
    let last = |name: String| name.rsplit(['/', '\\']).next().map(str::to_owned);
    let is_left_out = |c: char| c == '.' || c.is_whitespace();
    let usable = |name: String| safe(last(name)?.trim().trim_start_matches(is_left_out));
    extended.and_then(usable).or_else(|| plain.and_then(usable))
}

/// The trimmed name, if it can be used as a file name.
fn safe(name: &str) -> Option<String> {
    // A character that reverses the text direction could show `txt.exe` as `exe.txt`.
    if name.chars().any(|c| steers_a_terminal(c) || matches!(c, '/' | '\\')) {
        return None;
    }
    let name = name.trim();
    let usable = !matches!(name, "" | "." | "..") && name.len() <= NAME_MAX;
    usable.then(|| name.to_owned())
}

/// The parameters `name=value` after the type, values without quotes.
fn parameters(header: &str) -> Vec<(&str, String)> {
    let mut found = Vec::new();
    // Some servers leave out the type, so the first part may be a parameter.
    let mut rest = header;
    loop {
        rest = rest.trim_start_matches([';', ' ', '\t']);
        if rest.is_empty() {
            return found;
        }
        let end = rest.find([';', '=']).unwrap_or(rest.len());
        let name = rest[..end].trim();
        rest = &rest[end..];
        let Some(behind) = rest.strip_prefix('=') else { continue };
        let behind = behind.trim_start();
        let value;
        (value, rest) = match behind.strip_prefix('"') {
            Some(quoted) => unquote(quoted),
            None => {
                let end = behind.find(';').unwrap_or(behind.len());
                (behind[..end].trim().to_owned(), &behind[end..])
            }
        };
        found.push((name, value));
    }
}

/// The text up to the closing quote, and the rest. A backslash escapes only itself and a quote:
/// `"C:\x"` is meant literally.
fn unquote(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => {
                let quoted = chars.next_if(|(_, next)| matches!(next, '"' | '\\'));
                value.push(quoted.map_or('\\', |(_, next)| next));
            }
            c => value.push(c),
        }
    }
    (value, "")
}

/// `UTF-8'en'na%C3%AFve`: RFC 8187, section 3.2.1. Latin-1 was allowed by the RFC before it.
fn decode_extended(value: &str) -> Option<String> {
    let (charset, rest) = value.split_once('\'')?;
    let (_, encoded) = rest.split_once('\'')?;
    let bytes = decode(encoded.as_bytes())?;
    if charset.eq_ignore_ascii_case("utf-8") {
        return String::from_utf8(bytes).ok();
    }
    charset.eq_ignore_ascii_case("iso-8859-1").then(|| bytes.into_iter().map(char::from).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(header: &str) -> Option<String> {
        file_name(header.as_bytes())
    }

    #[test]
    fn the_examples_of_rfc_6266_and_headers_of_servers_are_read() {
        for (header, expected) in [
            ("Attachment; filename=example.html", "example.html"),
            ("INLINE; FILENAME= \"an example.html\"", "an example.html"),
            ("attachment; filename*= UTF-8''%e2%82%ac%20rates", "\u{20ac} rates"),
            (
                "attachment; filename=\"EURO rates\"; filename*=utf-8''%e2%82%ac%20rates",
                "\u{20ac} rates",
            ),
            ("attachment; filename*=iso-8859-1'en'%A3%20rates", "\u{a3} rates"),
            ("attachment; filename*=UTF-8''%zz; filename=\"b\"", "b"),
            ("attachment; filename=\"a\\\"b;c.txt\"; size=3", "a\"b;c.txt"),
            ("filename=x.bin", "x.bin"),
            ("attachment;filename=\"r\u{e9}sum\u{e9}.pdf\"", "r\u{e9}sum\u{e9}.pdf"),
            ("attachment; filename=\"/etc/passwd\"", "passwd"),
            ("attachment; filename=\"C:\\dir\\file.txt\"", "file.txt"),
            ("attachment; filename=\"..\\\\..\\\\x\"", "x"),
            ("attachment; filename=\".bashrc\"", "bashrc"),
            ("attachment; filename=unclosed\"quote", "unclosed\"quote"),
        ] {
            assert_eq!(name(header).as_deref(), Some(expected), "{header}");
        }
        assert_eq!(file_name(b"attachment; filename=\"\xe9.txt\"").as_deref(), Some("\u{e9}.txt"));
    }

    /// Formerly, a dot behind a space was not removed, so that `. .bashrc` became `.bashrc`.
    #[test]
    fn leading_dots_with_spaces_between_them_are_removed() {
        assert_eq!(name("attachment; filename=\". .bashrc\"").as_deref(), Some("bashrc"));
        assert_eq!(name("attachment; filename*=UTF-8''.%C2%A0..x").as_deref(), Some("x"));
        assert_eq!(name("attachment; filename=\". . .\""), None);
    }

    #[test]
    fn unusable_names_are_refused() {
        let long = format!("attachment; filename={}", "x".repeat(256));
        for header in [
            "attachment",
            "",
            "attachment; filename=\"\"",
            "attachment; filename=..",
            "attachment; filename=\"a/\"",
            "attachment; filename*=UTF-8''a%2f..%0a",
            "attachment; filename*=UTF-8''a%1b%5b31m",
            "attachment; filename*=UTF-8''%e2%80%aetxt.exe",
            "attachment; filename*=UTF-8''a%d8%9cb",
            "attachment; filename*=UTF-8''a%e2%80%a8b",
            "attachment; filename*=UTF-8''%00",
            &long,
        ] {
            assert_eq!(name(header), None, "{header}");
        }
    }

    proptest! {
        #[test]
        fn every_name_is_one_component(header in "(filename\\*?=|\"|UTF-8''|%2[eF]|[\\\\./;]|\\PC){0,20}") {
            if let Some(name) = name(&header) {
                prop_assert!(haul_storage::RelPath::root().join(&name).is_ok(), "{name}");
                prop_assert!(name.len() <= NAME_MAX);
                prop_assert!(!name.starts_with('.'));
            }
        }
    }
}
