//! Times in `MDTM`, `MFMT` and the facts of `MLST` (RFC 3659, 2.3): `YYYYMMDDHHMMSS[.fraction]`, always UTC.

use haul_storage::{StoredTimes, Timestamp};

/// The times that can be represented: whole seconds in the years 0 to 9999.
pub const STORED_TIMES: StoredTimes = StoredTimes::seconds(-62_167_219_200, 253_402_300_799);

/// Parses a time; `None` if it is malformed. A fraction of a second is dropped: haul sets only whole seconds.
pub fn parse_time(text: &[u8]) -> Option<Timestamp> {
    let text = text.trim_ascii();
    let digits = text.split(|byte| *byte == b'.').next()?;
    if digits.len() != 14 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |from: usize, to: usize| {
        digits[from..to].iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'))
    };
    let (year, month, day) = (number(0, 4), number(4, 6), number(6, 8));
    let (hour, minute, second) = (number(8, 10), number(10, 12), number(12, 14));
    // 60 is a leap second.
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let midnight = Timestamp::midnight(year, month, day)?;
    Some(Timestamp { seconds: midnight + hour * 3600 + minute * 60 + second, nanos: 0 })
}

/// Formats a time in whole seconds; `None` outside the years 0 to 9999.
pub fn format_time(time: Timestamp) -> Option<String> {
    let time = time.utc().filter(|time| time.year() >= 0)?;
    Some(time.strftime("%Y%m%d%H%M%S").to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_times_are_parsed_and_formatted() {
        for (text, seconds) in [
            ("19700101000000", 0),
            ("20010909014640", 1_000_000_000),
            ("20240229120000", 1_709_208_000),
            ("19691231235959", -1),
        ] {
            let time = Timestamp { seconds, nanos: 0 };
            assert_eq!(parse_time(text.as_bytes()), Some(time), "{text}");
            assert_eq!(format_time(time).as_deref(), Some(text));
        }
        assert_eq!(parse_time(b"20010909014640.123").map(|time| time.seconds), Some(1_000_000_000));
    }

    #[test]
    fn malformed_and_unrepresentable_times_are_refused() {
        for text in ["", "2001", "20011301000000", "20010100000000", "2001010125000", "abc"] {
            assert_eq!(parse_time(text.as_bytes()), None, "{text}");
        }
        assert_eq!(format_time(Timestamp { seconds: i64::MAX, nanos: 0 }), None);
        assert_eq!(format_time(Timestamp { seconds: i64::MIN, nanos: 0 }), None);
    }

    proptest! {
        #[test]
        fn parsing_a_formatted_time_returns_it(seconds in -60_000_000_000_i64..250_000_000_000) {
            let time = Timestamp { seconds, nanos: 0 };
            let text = format_time(time).unwrap();
            prop_assert_eq!(parse_time(text.as_bytes()), Some(time));
        }

        #[test]
        fn parsing_arbitrary_bytes_does_not_panic(text in prop::collection::vec(any::<u8>(), 0..30)) {
            parse_time(&text);
        }
    }
}
