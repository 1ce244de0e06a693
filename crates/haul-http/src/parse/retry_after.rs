//! `Retry-After` (RFC 9110, section 10.2.3): seconds, or a date.

use std::time::Duration;

use haul_storage::Timestamp;

use super::dates;

/// The longest pause that is returned; the caller decides how much of it to wait.
pub const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// The pause that the server requests, from `now` on, at most [`LONGEST`]; zero if the date has passed. `None`
/// if the value is invalid.
pub fn parse(value: &str, now: Timestamp) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that does not fit is still a number of seconds.
        let seconds = value.parse().unwrap_or(u64::MAX);
        return Some(Duration::from_secs(seconds).min(LONGEST));
    }
    let wait = dates::parse(value)?.seconds.saturating_sub(now.seconds);
    Some(Duration::from_secs(u64::try_from(wait).unwrap_or(0)).min(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_waits_from_now_and_have_a_limit() {
        let now = Timestamp { seconds: 784_111_777, nanos: 0 };
        let wait = |value| parse(value, now).map(|wait| wait.as_secs());
        assert_eq!(wait("120"), Some(120));
        assert_eq!(wait(" 0 "), Some(0));
        assert_eq!(wait("Sun, 06 Nov 1994 08:50:37 GMT"), Some(60));
        assert_eq!(wait("Sun, 06 Nov 1994 08:40:37 GMT"), Some(0));
        assert_eq!(wait("7200"), Some(7200));
        assert_eq!(wait("999999999999999999999999"), Some(31_622_400));
        assert_eq!(wait("Sun, 06 Nov 2094 08:50:37 GMT"), Some(31_622_400));
        assert_eq!(wait("soon"), None);
        assert_eq!(wait("-1"), None);
        assert_eq!(wait(""), None);
    }
}
