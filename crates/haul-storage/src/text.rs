//! Makes untrusted text safe to print (file names, text from servers and peers), and formats sizes.
//!
//! Control characters, bidirectional overrides and line separators can move the cursor, recolour or
//! reorder text on a terminal, and forge lines of a log. Each of their bytes is replaced by `\ooo`,
//! three octal digits, as OpenSSH and `ls -b` print it.
//!
//! [`name`] is injective: different names are printed differently. [`line()`] and [`lines`] do not
//! escape backslashes, so that text that is already escaped stays unchanged.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

/// Whether a character affects how a terminal displays others: C0 and C1 controls, DEL, marks and
/// overrides of the writing direction, line and paragraph separators.
pub fn steers_a_terminal(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// A message in one line: control characters are escaped, including line ends.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, steers_a_terminal)
}

/// A message of several lines: control characters are escaped, except line ends and tabs. A carriage
/// return before a line end is dropped.
pub fn lines(text: &str) -> Cow<'_, str> {
    let steers = |c: char| !matches!(c, '\n' | '\t') && steers_a_terminal(c);
    if text.contains("\r\n") {
        return Cow::Owned(escaped(&text.replace("\r\n", "\n"), steers).into_owned());
    }
    escaped(text, steers)
}

/// A file name: control characters, invalid UTF-8, and backslashes that would look like the start of an
/// escape are escaped.
pub fn name(bytes: &[u8]) -> impl fmt::Display + '_ {
    Name(bytes)
}

/// A size with a binary unit and three digits (four from 1000 to 1023); whole bytes below 1 KiB.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    // 1023.5 would be printed as 1024.
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.decimals$} {}", UNITS[unit])
}

fn escaped(text: &str, steers: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&steers) {
        return Cow::Borrowed(text);
    }
    let mut result = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if steers(c) {
            // Writing to a string does not fail.
            let _ = octal(c, &mut result);
        } else {
            result.push(c);
        }
    }
    Cow::Owned(result)
}

fn octal(c: char, out: &mut impl fmt::Write) -> fmt::Result {
    let mut buffer = [0; 4];
    c.encode_utf8(&mut buffer).bytes().try_for_each(|byte| write!(out, "\\{byte:03o}"))
}

struct Name<'a>(&'a [u8]);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            let valid = chunk.valid();
            for (at, c) in valid.char_indices() {
                if steers_a_terminal(c) || (c == '\\' && begins_an_escape(&valid[at + 1..])) {
                    octal(c, f)?;
                } else {
                    f.write_char(c)?;
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\{byte:03o}")?;
            }
        }
        Ok(())
    }
}

/// Whether a backslash before `rest` would look like an escape.
fn begins_an_escape(rest: &str) -> bool {
    let digits = rest.as_bytes().get(..3);
    digits.is_some_and(|digits| digits.iter().all(|digit| (b'0'..=b'7').contains(digit)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The inverse of [`name`].
    fn unescaped(text: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut rest = text.as_bytes();
        while let Some((&first, after)) = rest.split_first() {
            if first == b'\\' && begins_an_escape(std::str::from_utf8(after).unwrap_or("")) {
                let digits = std::str::from_utf8(&after[..3]).unwrap();
                bytes.push(u8::try_from(u32::from_str_radix(digits, 8).unwrap()).unwrap());
                rest = &after[3..];
            } else {
                bytes.push(first);
                rest = after;
            }
        }
        bytes
    }

    #[test]
    fn sizes_are_printed_with_three_digits() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.00 KiB");
        assert_eq!(bytes(1_048_575), "1.00 MiB");
        assert_eq!(bytes(15 << 30), "15.0 GiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
    }

    #[test]
    fn control_characters_are_escaped_and_other_text_is_not() {
        for (text, shown) in [
            ("plain, ümläut, 日本語, 👩‍👩‍👧", "plain, ümläut, 日本語, 👩‍👩‍👧"),
            ("\x1b[31mred", "\\033[31mred"),
            ("a\r\nb\tc\x07\x7f", "a\\015\\012b\\011c\\007\\177"),
            // C1 controls as UTF-8: CSI and OSC in one character.
            ("\u{9b}31m\u{9d}0;title", "\\302\\23331m\\302\\2350;title"),
            ("txt.\u{202e}exe", "txt.\\342\\200\\256exe"),
            (
                "\u{2066}\u{2069}\u{200e}\u{200f}\u{61c}",
                "\\342\\201\\246\\342\\201\\251\\342\\200\\216\\342\\200\\217\\330\\234",
            ),
            ("a\u{2028}b\u{2029}", "a\\342\\200\\250b\\342\\200\\251"),
        ] {
            assert_eq!(line(text), shown);
            assert_eq!(name(text.as_bytes()).to_string(), shown);
        }
        assert_eq!(lines("a\tb\r\nc\rd\x1b"), "a\tb\nc\\015d\\033");
    }

    #[test]
    fn a_name_that_contains_an_escape_sequence_is_printed_unambiguously() {
        assert_eq!(name(b"a\x1b").to_string(), "a\\033");
        assert_eq!(name(b"a\\033").to_string(), "a\\134033");
        assert_eq!(name(b"C:\\dir\\0").to_string(), "C:\\dir\\0");
        assert_eq!(name(b"a\xff\xc3").to_string(), "a\\377\\303");
    }

    proptest! {
        #[test]
        fn a_name_is_printed_without_loss_and_without_control_characters(
            bytes in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..20),
                "[\\\\0-8a\u{1b}\u{202e}\u{e9}]{0,20}".prop_map(String::into_bytes),
            ]
        ) {
            let shown = name(&bytes).to_string();
            prop_assert_eq!(unescaped(&shown), bytes);
            prop_assert!(!shown.contains(steers_a_terminal));
            // Escaping a message that contains the printed name does not change it again.
            prop_assert_eq!(line(&shown), shown.as_str());
        }
    }
}
