//! Formats and parses the times of HTTP and WebDAV.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use haul_storage::Timestamp;

/// The last second that can be written: years have four digits.
const LAST: u64 = 253_402_300_799;

/// The form of headers: `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(super) fn http(time: SystemTime) -> String {
    httpdate::fmt_http_date(whole_seconds(time))
}

/// The form of RFC 3339: `1994-11-06T08:49:37Z`.
pub(super) fn iso(time: SystemTime) -> String {
    Timestamp::from(whole_seconds(time)).utc().map_or_else(String::new, |time| format!("{time}Z"))
}

/// Parses the time of a header.
pub(super) fn parsed(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(text.trim()).ok()
}

/// A time in the precision and range of headers.
pub(super) fn whole_seconds(time: SystemTime) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds(time))
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()).min(LAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_by_rfc_3339() {
        let at = |seconds| iso(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(978_307_199), "2000-12-31T23:59:59Z");
        assert_eq!(at(u64::from(u32::MAX)), "2106-02-07T06:28:15Z");
        assert_eq!(at(1 << 45), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn a_formatted_time_is_parsed_back() {
        let time = UNIX_EPOCH + Duration::new(784_111_777, 5);
        assert_eq!(http(time), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(parsed(&http(time)), Some(whole_seconds(time)));
    }
}
