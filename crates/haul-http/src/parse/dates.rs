//! Parses dates in the forms that servers use.
//!
//! `getlastmodified` and `Last-Modified` should be an IMF-fixdate (RFC 9110, section 5.6.7), which has two
//! obsolete forms that must be accepted. Some servers write ISO 8601 (RFC 3339) there, which WebDAV
//! uses only for `creationdate`, and leave out or add a weekday or a zone.
//!
//! | form | example |
//! |---|---|
//! | IMF-fixdate, RFC 1123 | `Sun, 06 Nov 1994 08:49:37 GMT`, `Sun, 06 Nov 1994 09:49:37 +0100` |
//! | RFC 850 | `Sunday, 06-Nov-94 08:49:37 GMT` |
//! | asctime | `Sun Nov  6 08:49:37 1994` |
//! | ISO 8601 | `1994-11-06T08:49:37Z`, `1994-11-06T08:49:37.25+01:00` |

use haul_storage::Timestamp;

/// The longest text that is parsed, in bytes; any date in these forms is shorter.
const LONGEST: usize = 64;

/// Parses a date in any of the forms above; `None` if it is in none of them, or the day does not exist.
pub fn parse(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    if text.is_empty() || text.len() > LONGEST || !text.is_ascii() {
        return None;
    }
    if text.as_bytes()[0].is_ascii_digit() && text.as_bytes().get(4) == Some(&b'-') {
        return iso_8601(text);
    }
    with_month_name(text)
}

/// The parts may come in any order: the month is the one with a name, the time the one with colons, and the
/// year follows the day.
fn with_month_name(text: &str) -> Option<Timestamp> {
    let mut numbers = Vec::with_capacity(2);
    let mut month = None;
    let mut time = None;
    let mut offset = 0;
    for word in text.split([' ', ',']) {
        let word = word.strip_prefix("GMT").or(word.strip_prefix("UTC")).unwrap_or(word);
        if word.len() > 1 && word.starts_with(['+', '-']) {
            offset = offset_of(word)?;
        } else if word.contains(':') {
            let (before, suffix) = word.split_at(word.find(['+', '-']).unwrap_or(word.len()));
            time = Some(clock(before)?);
            if !suffix.is_empty() {
                offset = offset_of(suffix)?;
            }
        } else {
            for part in word.split('-').filter(|part| !part.is_empty()) {
                if part.bytes().all(|byte| byte.is_ascii_digit()) {
                    numbers.push(part);
                } else if let Some(found) = month_number(part) {
                    month = Some(found);
                }
            }
        }
    }
    let [day, year] = numbers[..] else { return None };
    let year = match (year.len(), year.parse::<i64>().ok()?) {
        // RFC 9110 compares with today; files were not modified before 1970.
        (2, short) if short < 70 => 2000 + short,
        (2, short) => 1900 + short,
        (4, year) => year,
        _ => return None,
    };
    seconds(year, month?, day.parse().ok()?, time?, offset)
}

fn iso_8601(text: &str) -> Option<Timestamp> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let mut parts = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let end = rest.find(['Z', 'z', '+', '-', ' ']).unwrap_or(rest.len());
    let (time, suffix) = rest.split_at(end);
    let suffix = suffix.trim_start();
    let offset = if suffix.starts_with(['+', '-']) { offset_of(suffix)? } else { 0 };
    seconds(year, month, day, clock(time)?, offset)
}

/// `08:49:37` or `08:49:37.25`, to seconds of the day and nanoseconds.
fn clock(text: &str) -> Option<(i64, u32)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut parts = whole.splitn(3, ':').map(|part| number(part, 2));
    let (hour, minute) = (parts.next()??, parts.next()??);
    let second = parts.next().unwrap_or(Some(0))?;
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut nanos = 0;
    let mut unit = 100_000_000;
    for digit in fraction.chars() {
        nanos += digit.to_digit(10)? * unit;
        unit /= 10;
    }
    // Timestamps have no leap seconds: second 60 becomes 59.
    Some((hour * 3600 + minute * 60 + second.min(59), nanos))
}

/// `+0100` or `-01:00`, to seconds east of Greenwich.
fn offset_of(text: &str) -> Option<i64> {
    let (sign, digits) = text.split_at_checked(1)?;
    let digits = digits.replace(':', "");
    if digits.len() != 4 {
        return None;
    }
    let minutes = number(&digits[..2], 2)? * 60 + number(&digits[2..], 2)?;
    let east = if sign == "-" { -minutes } else { minutes };
    (minutes <= 24 * 60).then_some(east * 60)
}

fn number(text: &str, digits: usize) -> Option<i64> {
    let valid = (1..=digits).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if valid { text.parse().ok() } else { None }
}

fn month_number(word: &str) -> Option<i64> {
    const NAMES: [&str; 12] =
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let start = word.get(..3)?.to_ascii_lowercase();
    // No weekday begins like a month.
    let at = NAMES.iter().position(|name| *name == start)?;
    i64::try_from(at + 1).ok()
}

/// A day of the Gregorian calendar and a time, to seconds since 1970.
fn seconds(
    year: i64,
    month: i64,
    day: i64,
    time: (i64, u32),
    offset_seconds: i64,
) -> Option<Timestamp> {
    if !(1600..=9999).contains(&year) {
        return None;
    }
    let midnight = Timestamp::midnight(year, month, day)?;
    Some(Timestamp { seconds: midnight + time.0 - offset_seconds, nanos: time.1 })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Option<i64> {
        parse(text).map(|time| time.seconds)
    }

    #[test]
    fn all_forms_of_the_example_of_rfc_9110_give_the_same_second() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "1994-11-06T08:49:37Z",
            "1994-11-06T09:49:37+01:00",
            "1994-11-06T08:49:37",
            "1994-11-06 08:49:37",
            "Sun, 6 Nov 1994 08:49:37 UTC",
            "06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 09:49:37 +0100",
            "Sun, 06 Nov 1994 07:49:37 -0100",
            "Sun, 06 Nov 1994 09:49:37 +01:00",
            "Sun, 06 Nov 1994 07:49:37 -01:00",
            "Sun, 06-Nov-94 07:49:37 -01:00",
            "Sun, 06 Nov 1994 07:49:37-0100",
            "Sun Nov 06 1994 09:49:37 GMT+0100",
            "1994-11-06 09:49:37 +0100",
            "1994-11-06 08:49:37 UTC",
            " Sun, 06 Nov 1994 08:49:37 GMT\r\n",
        ] {
            assert_eq!(at(text), Some(784_111_777), "{text}");
        }
    }

    #[test]
    fn fractions_and_times_before_1970_are_parsed() {
        let time = parse("1994-11-06T08:49:37.25Z").unwrap();
        assert_eq!((time.seconds, time.nanos), (784_111_777, 250_000_000));
        assert_eq!(parse("1994-11-06T08:49:37.123456789123Z").unwrap().nanos, 123_456_789);
        assert_eq!(at("Wed, 31 Dec 1969 23:59:59 GMT"), Some(-1));
        assert_eq!(at("Thu, 29 Feb 2024 00:00:00 GMT"), Some(1_709_164_800));
    }

    #[test]
    fn invalid_dates_are_refused() {
        for text in [
            "",
            "0",
            "yesterday",
            "Sun, 31 Feb 2023 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nov 1994",
            "1994-13-06T08:49:37Z",
            "1994-11-06",
            "Sun, 06 Nov 199 08:49:37 GMT",
            "1994-11-06T08:49:37+99:99",
            "Sun, 06 Nov 1994 08:49:37 +99:99",
            "Sun, 06 Nov 1994 08:49:37 0100",
        ] {
            assert_eq!(at(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn dates_written_by_httpdate_are_read_exactly(seconds in 0_u64..253_402_300_799) {
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            let text = httpdate::fmt_http_date(time);
            prop_assert_eq!(parse(&text), Some(Timestamp::from(time)), "{}", text);
        }

        #[test]
        fn any_text_is_parsed_without_panic(text in "[0-9A-Za-z:+,. -]{0,40}|\\PC{0,70}") {
            let _ = parse(&text);
        }
    }
}
