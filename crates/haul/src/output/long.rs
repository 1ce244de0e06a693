//! The columns of a long listing: mode, size, modification time.

use haul_storage::{Entry, EntryKind, SpecialKind, Timestamp};
use jiff::tz::TimeZone;

use super::human::utc;
use crate::units::bytes;

/// Formats entries for `ls -l`.
#[derive(Debug)]
pub(crate) struct LongForm {
    human_sizes: bool,
    zone: TimeZone,
}

impl LongForm {
    /// A formatter with times in the system's time zone (`TZ`); `human_sizes` prints sizes with units.
    pub(crate) fn new(human_sizes: bool) -> Self {
        Self { human_sizes, zone: TimeZone::system() }
    }

    /// The columns before the name, with a trailing space.
    pub(crate) fn columns(&self, entry: &Entry) -> String {
        let modified =
            entry.modified.map_or_else(|| "-".to_owned(), |time| local(time, &self.zone));
        let size = match entry.known_size() {
            Some(size) => self.size(size),
            None => "?".to_owned(),
        };
        let width = if self.human_sizes { 8 } else { 14 };
        format!("{} {size:>width$} {modified:>19} ", mode(entry))
    }

    /// A size in the same format as in the columns.
    pub(crate) fn size(&self, size: u64) -> String {
        if self.human_sizes { bytes(size) } else { size.to_string() }
    }
}

/// A time as `2026-11-25 14:03:05`, to the second; formatted by [`utc`] if it is outside the range of jiff.
fn local(time: Timestamp, zone: &TimeZone) -> String {
    match jiff::Timestamp::from_second(time.seconds) {
        Ok(time) => zone.to_datetime(time).strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => utc(time, false),
    }
}

fn mode(entry: &Entry) -> String {
    let kind = match entry.kind {
        EntryKind::File => '-',
        EntryKind::Directory => 'd',
        EntryKind::Symlink(_) => 'l',
        EntryKind::Special(special) => special_letter(special),
    };
    let mut text = String::from(kind);
    let mode = match (&entry.kind, entry.mode) {
        (_, Some(mode)) => mode,
        // Links without a mode are shown as on Linux.
        (EntryKind::Symlink(_), None) => 0o777,
        (_, None) => {
            text.push_str("?????????");
            return text;
        }
    };
    // Set-user-ID, set-group-ID and sticky replace the `x` of user, group and others.
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 == 0 { '-' } else { 'r' });
        text.push(if bits & 2 == 0 { '-' } else { 'w' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
        });
    }
    text
}

fn special_letter(kind: SpecialKind) -> char {
    match kind {
        SpecialKind::Fifo => 'p',
        SpecialKind::Socket => 's',
        SpecialKind::BlockDevice => 'b',
        SpecialKind::CharDevice => 'c',
        SpecialKind::Unknown => '?',
    }
}

#[cfg(test)]
mod tests {
    use haul_storage::RelPath;

    use super::*;

    #[test]
    fn modes_show_their_special_bits() {
        let mut entry = Entry::new(RelPath::root(), EntryKind::Directory, 0);
        entry.mode = Some(0o1777);
        assert_eq!(mode(&entry), "drwxrwxrwt");
        entry.kind = EntryKind::File;
        entry.mode = Some(0o4644);
        assert_eq!(mode(&entry), "-rwSr--r--");
    }

    #[test]
    fn times_are_shown_in_the_time_zone() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let at = |seconds| local(Timestamp { seconds, nanos: 999_999_999 }, &zone);
        assert_eq!(at(951_782_400), "2000-02-29 01:00:00");
        assert_eq!(at(962_409_600), "2000-07-01 02:00:00");
        assert_eq!(at(-1), "1970-01-01 00:59:59");
        // Beyond the year 9999.
        assert_eq!(at(253_500_000_000), "@253500000000");
    }
}
