//! The files in flight, one line each: as much of the name as fits, and the progress.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::units::{bytes, rate};

/// The most files that are shown.
const MOST: usize = 8;

/// Lines of the terminal that are not for files: the total, and the cursor below.
const OTHER_LINES: usize = 2;

/// The least height of a terminal, in lines, to show files.
const LEAST_LINES: usize = 4;

/// The least width, in columns, to show the bytes of a file too.
const WITH_BYTES: usize = 70;

/// Replaces the omitted part of a name.
const CUT: &str = "…";

/// A file in flight, as it is shown.
#[derive(Debug, Clone)]
pub(crate) struct FileLine {
    /// Its name, without control characters.
    pub(crate) name: String,
    /// Its length in bytes, if it is known.
    pub(crate) size: Option<u64>,
    /// Bytes done.
    pub(crate) bytes: u64,
    /// Bytes per second over the last seconds.
    pub(crate) bytes_per_second: u64,
}

/// The lines for a terminal of this size; the last one has the number of files that did not fit, if any.
pub(super) fn lines<'a>(
    files: impl ExactSizeIterator<Item = &'a FileLine>,
    width: usize,
    height: usize,
) -> Vec<String> {
    let room = if height < LEAST_LINES { 0 } else { MOST.min(height - OTHER_LINES) };
    let count = files.len();
    let shown = if count > room { room.saturating_sub(1) } else { count };
    let files: Vec<_> = files.take(shown).collect();
    let longest = files.iter().map(|file| file.name.width()).max().unwrap_or(0);
    let mut lines: Vec<_> = files.iter().map(|file| line(file, longest, width)).collect();
    if count > room && room > 0 {
        lines.push(cut(&format!("  and {} more files", count - shown), width));
    }
    lines
}

/// One file in at most `width` columns, with up to `longest` of them for its name.
fn line(file: &FileLine, longest: usize, width: usize) -> String {
    let share = match file.size {
        Some(0) => "100%".to_owned(),
        // A file that grows is shown as 100% at most.
        Some(size) => format!("{}%", (u128::from(file.bytes) * 100 / u128::from(size)).min(100)),
        None => String::new(),
    };
    let speed = if file.bytes_per_second > 0 { rate(file.bytes_per_second) } else { String::new() };
    let mut end = format!("{share:>6}");
    if width >= WITH_BYTES {
        let amount = match file.size {
            Some(size) => format!("{} of {}", bytes(file.bytes), bytes(size)),
            None => bytes(file.bytes),
        };
        end.push_str(&format!("  {amount:>22}"));
    }
    end.push_str(&format!("  {speed:>10}"));
    let room = width.saturating_sub(end.width() + 2).min(longest);
    let name = cut(&file.name, room);
    let padding = " ".repeat(room.saturating_sub(name.width()));
    cut(&format!("  {name}{padding}{end}"), width)
}

/// Shortens `text` to at most `width` columns, in the middle, where paths differ least.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let Some(room) = width.checked_sub(CUT.width()) else { return String::new() };
    let columns = |letter: char| letter.width().unwrap_or(0);
    let fitting = |letters: &mut dyn Iterator<Item = (usize, char)>, room: usize| {
        let mut used = 0;
        let mut last = None;
        for (at, letter) in letters {
            used += columns(letter);
            if used > room {
                break;
            }
            last = Some((at, letter));
        }
        last
    };
    let head = room.div_ceil(2);
    let head_end =
        fitting(&mut text.char_indices(), head).map_or(0, |(at, letter)| at + letter.len_utf8());
    let tail = room - text[..head_end].width();
    let mut tail_start =
        fitting(&mut text.char_indices().rev(), tail).map_or(text.len(), |(at, _)| at);
    // A combining accent without its letter would attach to the character before it.
    while let Some(letter) = text[tail_start..].chars().next().filter(|l| columns(*l) == 0) {
        tail_start += letter.len_utf8();
    }
    format!("{}{CUT}{}", &text[..head_end], &text[tail_start..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> FileLine {
        FileLine {
            name: name.to_owned(),
            size: Some(300 << 20),
            bytes: 126 << 20,
            bytes_per_second: 12 << 20,
        }
    }

    #[test]
    fn a_file_fits_into_every_width() {
        assert_eq!(line(&file("a/b.iso"), 7, 40), "  a/b.iso   42%  12.0 MiB/s");
        assert_eq!(
            line(&file("a/b.iso"), 12, 80),
            "  a/b.iso        42%      126 MiB of 300 MiB  12.0 MiB/s"
        );
        for width in 0..120 {
            for name in [
                "x",
                "a/long/path/to/something.tar.gz",
                "日本語のファイル名.iso",
                "e\u{301}e\u{301}e\u{301}",
            ] {
                let line = line(&file(name), 60, width);
                assert!(line.width() <= width, "{width}: {line}");
            }
        }
    }

    #[test]
    fn names_are_cut_in_the_middle_by_columns() {
        assert_eq!(cut("photos/2026/holiday.jpg", 11), "photo…y.jpg");
        assert_eq!(cut("日本語", 6), "日本語");
        assert_eq!(cut("日本語", 5), "日…語");
        // Half of a wide letter does not fit.
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("abc", 1), "…");
        assert_eq!(cut("abc", 0), "");
    }

    #[test]
    fn files_that_do_not_fit_are_counted() {
        let files: Vec<_> = (0..20).map(|number| file(&number.to_string())).collect();
        let shown = |height| lines(files.iter(), 40, height);
        assert_eq!(shown(24).len(), 8);
        assert_eq!(shown(24)[7], "  and 13 more files");
        assert_eq!(shown(5).len(), 3);
        assert!(shown(3).is_empty());
        assert_eq!(lines(files[..2].iter(), 40, 24).len(), 2);
    }
}
