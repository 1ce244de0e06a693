//! Parses one line of a listing: facts (`MLSD`), or the output of `ls -l`, `dir` and their counterparts on
//! other systems (`LIST`).

mod appliance;
mod date;
mod dos;
mod facts;
mod line;
mod mainframe;
mod unix;

pub use facts::facts;
use line::fields;
pub use line::{Found, Line};

/// Parses a line of `LIST` in any known format; `None` if it is in none of them. The time is left out unless
/// it is in seconds since 1970: its zone is unknown, and most have no seconds.
pub fn list_line(line: &[u8]) -> Option<Line<'_>> {
    let read = unix::line(line)
        .or_else(|| dos::line(line))
        .or_else(|| appliance::line(line))
        .or_else(|| mainframe::line(line))?;
    // Some servers mark directories with a slash.
    let name = read.name.strip_suffix(b"/").filter(|name| read.found.is_dir() && !name.is_empty());
    Some(Line { name: name.unwrap_or(read.name), ..read })
}

/// Whether a line of `LIST` describes no entry: a heading, a sum, or an empty line.
pub fn is_heading(line: &[u8]) -> bool {
    const SUMS: [&str; 12] = [
        "total",
        "totale",
        "totaal",
        "totalt",
        "insgesamt",
        "gesamt",
        "summa",
        "razem",
        "celkem",
        "\u{438}\u{442}\u{43e}\u{433}\u{43e}",
        "\u{5408}\u{8a08}",
        "\u{603b}\u{8ba1}",
    ];
    let mut words = fields(line);
    let (Some((first, _)), second) = (words.next(), words.next()) else { return true };
    let is_sum = SUMS.iter().any(|sum| sum.as_bytes().eq_ignore_ascii_case(first));
    let is_amount = |text: &[u8]| {
        text[0].is_ascii_digit()
            && text[1..].iter().all(|b| b.is_ascii_digit() || b".,kKMGT".contains(b))
    };
    let sum = is_sum && second.is_some_and(|(amount, end)| is_amount(amount) && end == line.len());
    sum || mainframe::is_heading(line) || appliance::is_heading(line)
}

/// Joins wrapped lines: VMS breaks a long line after the name.
#[derive(Debug, Default)]
pub struct Joined {
    begun: Option<Vec<u8>>,
}

impl Joined {
    /// Takes a line; returns one that is complete.
    pub fn add(&mut self, line: Vec<u8>) -> Option<Vec<u8>> {
        if let Some(begun) = self.begun.take() {
            return Some([&begun[..], b" ", &line].concat());
        }
        if mainframe::is_name_only(&line) {
            self.begun = Some(line);
            return None;
        }
        Some(line)
    }

    /// The incomplete line at the end of the listing, if any.
    pub fn rest(&mut self) -> Option<Vec<u8>> {
        self.begun.take()
    }
}

#[cfg(test)]
mod tests {
    use haul_storage::EntryKind;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn headings_are_recognised() {
        for line in [
            "",
            "  ",
            "total 1234",
            "total 12K",
            "insgesamt 4,5M",
            "\u{438}\u{442}\u{43e}\u{433}\u{43e} 8",
            "Directory DKA0:[ANONYMOUS]",
            "Total of 12 files, 123/456 blocks.",
            "Volume Unit    Referred Ext Used Recfm Lrecl BlkSz Dsorg Dsname",
            " Name     VV.MM   Created       Changed      Size  Init   Mod   Id",
            " Name      Size   TTR   Alias-of AC --------- Attributes --------- Amode Rmode",
            "File         Code             EOF  Last Modification    Owner  RWEP",
            "  size          date       time       name",
            "--------       ------     ------    --------",
            "  Owner    Last modified  Attributes Sector Bytecount Name",
        ] {
            assert!(is_heading(line.as_bytes()), "{line}");
        }
        for line in ["total recall", "drwx", "total 5 x", "-", "--", "Directory", "Total of x"] {
            assert!(!is_heading(line.as_bytes()), "{line}");
        }
    }

    #[test]
    fn a_line_wrapped_after_its_name_is_joined() {
        let mut joined = Joined::default();
        assert_eq!(
            joined.add(b"A.TXT;1 5 2-JUL-2003 10:30".to_vec()).as_deref(),
            Some(&b"A.TXT;1 5 2-JUL-2003 10:30"[..])
        );
        assert_eq!(joined.add(b"A.VERY.LONG;12".to_vec()), None);
        let whole = joined
            .add(b"     170774/170775     24-APR-2003 08:16:15  [A,B]  (RWED,RWED,RE,)".to_vec());
        let whole = whole.unwrap();
        assert_eq!(list_line(&whole).unwrap().name, b"A.VERY.LONG");
        assert_eq!(joined.add(b"B;2".to_vec()), None);
        assert_eq!(joined.rest().as_deref(), Some(&b"B;2"[..]));
        assert_eq!(joined.rest(), None);
    }

    #[test]
    fn the_slash_behind_a_directory_is_removed() {
        let line = list_line(b"drwxr-sr-t 2 o g 4096 Feb  3 10:11 dir/").unwrap();
        assert_eq!(line.name, b"dir");
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(line in prop::collection::vec(any::<u8>(), 0..120)) {
            list_line(&line);
            facts(&line);
            is_heading(&line);
        }

        #[test]
        fn a_nearly_valid_line_is_read_or_refused(
            line in "[-dlcb ]{0,3}[rwx-]{0,9}[ 0-9a-zA-Z:;=>./<-]{0,80}"
        ) {
            list_line(line.as_bytes());
            facts(line.as_bytes());
        }

        #[test]
        fn a_name_in_a_listing_is_preserved_byte_for_byte(
            name in prop::collection::vec(1u8..=255, 1..60), size in any::<u64>(),
        ) {
            prop_assume!(!name.contains(&b'\n') && !name.contains(&b'\r'));
            let unix = format!("-rw-r--r--    1 ftp      ftp      {size:>12} Nov 22 13:50 ");
            let dos = format!("02-03-24  05:06PM {size:>20} ");
            let mlsd = format!("type=file;size={size}; ");
            for (prefix, facts_too) in [(unix, false), (dos, false), (mlsd, true)] {
                let line = [prefix.as_bytes(), &name].concat();
                let read = if facts_too { facts(&line) } else { list_line(&line) };
                let read = read.unwrap();
                prop_assert_eq!(read.name, &name[..]);
                prop_assert_eq!(read.found.size, Some(size));
                prop_assert_eq!(read.found.kind, EntryKind::File);
            }
        }
    }
}
