//! Times as HTTP and WebDAV write them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The last second that has a form: years of five digits have none.
const LAST: u64 = 253_402_300_799;

/// As headers have it: `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(super) fn http(time: SystemTime) -> String {
    httpdate::fmt_http_date(whole_seconds(time))
}

/// As RFC 3339 has it: `1994-11-06T08:49:37Z`.
pub(super) fn iso(time: SystemTime) -> String {
    let seconds = seconds(time);
    let (year, month, day) = civil(seconds / 86_400);
    let of_day = seconds % 86_400;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// A header's time.
pub(super) fn parsed(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(text.trim()).ok()
}

/// A time without what headers cannot say.
pub(super) fn whole_seconds(time: SystemTime) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds(time))
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()).min(LAST)
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar. Counts years
/// from March, so that the day that comes and goes is their last.
const fn civil(days: u64) -> (u64, u64, u64) {
    const DAYS_IN_400_YEARS: u64 = 146_097;
    let days = days + 719_468;
    let (era, of_era) = (days / DAYS_IN_400_YEARS, days % DAYS_IN_400_YEARS);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let from_january = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + if from_january < 3 { 1 } else { 0 };
    (year, from_january, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        let at = |seconds| iso(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(978_307_199), "2000-12-31T23:59:59Z");
        assert_eq!(at(u64::from(u32::MAX)), "2106-02-07T06:28:15Z");
        assert_eq!(at(1 << 45), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn what_is_written_is_read() {
        let time = UNIX_EPOCH + Duration::new(784_111_777, 5);
        assert_eq!(http(time), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(parsed(&http(time)), Some(whole_seconds(time)));
    }
}
