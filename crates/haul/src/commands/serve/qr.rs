//! QR codes for terminals: two rows of modules in a line of text, as Unicode half blocks.

use haul_storage::{Error, ErrorKind, Result};
use qrcodegen::{QrCode, QrCodeEcc};

/// The width of the light border in modules. The standard (ISO 18004) requires 4; readers accept half of that.
const QUIET: i32 = 2;

/// The lines of a QR code. Text in upper case takes 5.5 bits a character.
///
/// Light modules are printed, dark ones are not: most terminals have a dark background. Readers accept the inverse.
///
/// # Errors
/// If the text is too long (more than 4296 characters in upper case).
pub(super) fn lines(text: &str) -> Result<Vec<String>> {
    let code = QrCode::encode_text(text, QrCodeEcc::Low).map_err(|_| {
        Error::new(ErrorKind::InvalidInput, "print a QR code").because("the ticket is too long")
    })?;
    Ok(half_blocks(code.size(), |x, y| code.get_module(x, y)))
}

fn half_blocks(size: i32, is_dark: impl Fn(i32, i32) -> bool) -> Vec<String> {
    let end = size + QUIET;
    let is_light = |x, y| y < end && !is_dark(x, y);
    let line = |y: i32| {
        let modules = (-QUIET..end).map(|x| match (is_light(x, y), is_light(x, y + 1)) {
            (true, true) => '█',
            (true, false) => '▀',
            (false, true) => '▄',
            (false, false) => ' ',
        });
        modules.collect()
    };
    (-QUIET..end).step_by(2).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_half_blocks_shows_two_rows() {
        // One dark module at the top left of three by three.
        let shown = half_blocks(3, |x, y| (x, y) == (0, 0));
        assert_eq!(shown, ["███████", "██▄████", "███████", "▀▀▀▀▀▀▀"]);
    }

    /// The three squares in the corners, by which readers find a code.
    #[test]
    fn a_ticket_in_upper_case_is_a_code_with_its_finder_patterns() {
        let text = "HAUL1ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".repeat(4);
        let shown = lines(&text).unwrap();
        let width = shown[0].chars().count();
        // Version 5 has 37 modules a side, and room for 154 characters in alphanumeric mode at the lowest level.
        assert_eq!((width, shown.len()), (41, 21));
        assert!(shown.iter().all(|line| line.chars().count() == width));
        for (line, column) in [(1, 2), (1, 32), (16, 2)] {
            let pattern: String = shown[line].chars().skip(column).take(7).collect();
            assert_eq!(pattern, " ▄▄▄▄▄ ", "line {line}, column {column}");
        }
        assert!(lines(&"A".repeat(5000)).is_err());
    }
}
