//! Words of command lines, for messages.

use std::ffi::OsStr;

/// A word of a command line, quoted for a shell if necessary.
pub(crate) fn quoted(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=./,:@%+".contains(letter);
    if !text.is_empty() && text.chars().all(plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}
