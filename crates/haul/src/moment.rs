//! Points in time: the current one, and those of `--min-age` and `--max-age`, which are an age or a date.

use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use haul_storage::Timestamp;
use jiff::Zoned;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// The current time, in seconds since 1970.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// An age, counted back from now (`90s`, `15m`, `36h`, `7d`, `2w`, `6M`, `1y`), or a date (`2026-01-31`,
/// `2026-01-31T12:00`, in local time unless it has a UTC offset, `Z` or a time zone: `[Europe/Berlin]`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment(pub(crate) Timestamp);

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        moment(text, jiff::Timestamp::now(), &TimeZone::system()).map(|at| {
            let (seconds, nanos) = (at.as_second(), at.subsec_nanosecond());
            // Before 1970 the part of a second is negative.
            let below = i64::from(nanos < 0);
            let nanos = u32::try_from(i64::from(nanos) + below * 1_000_000_000).unwrap_or(0);
            Self(Timestamp { seconds: seconds - below, nanos })
        })
    }
}

fn moment(text: &str, now: jiff::Timestamp, zone: &TimeZone) -> Result<jiff::Timestamp, String> {
    if let Some(age) = age(text) {
        return now
            .checked_sub(jiff::SignedDuration::from_secs(age))
            .map_err(|_| format!("'{text}' is out of range"));
    }
    // The types below ignore a time zone in brackets (RFC 9557).
    if text.contains('[') {
        let zoned = text.parse::<Zoned>().map_err(|error| {
            format!(
                "'{text}' is not a date with a time zone ({error}); \
                 write 2026-01-31T12:00[Europe/Berlin] or 2026-01-31T12:00+01:00"
            )
        })?;
        return Ok(zoned.timestamp());
    }
    if let Ok(at) = text.parse::<jiff::Timestamp>() {
        return Ok(at);
    }
    let date = text.parse::<DateTime>().ok();
    date.and_then(|date| date.to_zoned(zone.clone()).ok()).map(|at| at.timestamp()).ok_or_else(
        || {
            format!(
                "'{text}' is neither an age (90s, 15m, 36h, 7d, 2w, 6M, 1y) nor a date (2026-01-31)"
            )
        },
    )
}

/// An age in seconds. Months have 30 days and years 365.
fn age(text: &str) -> Option<i64> {
    const DAY: i64 = 86_400;
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => DAY,
        "w" => 7 * DAY,
        "M" => 30 * DAY,
        "y" => 365 * DAY,
        _ => return None,
    };
    let number: i64 = digits.parse().ok().filter(|number| *number >= 0)?;
    number.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_count_back_from_now_and_dates_do_not() {
        let now: jiff::Timestamp = "2026-03-01T00:00:00Z".parse().unwrap();
        let zone = TimeZone::fixed(jiff::tz::offset(1));
        let at = |text| moment(text, now, &zone).unwrap().to_string();
        assert_eq!(at("90"), "2026-02-28T23:58:30Z");
        assert_eq!(at("36h"), "2026-02-27T12:00:00Z");
        assert_eq!(at("2w"), "2026-02-15T00:00:00Z");
        assert_eq!(at("1M"), "2026-01-30T00:00:00Z");
        assert_eq!(at("2026-01-31"), "2026-01-30T23:00:00Z");
        assert_eq!(at("2026-01-31T12:00"), "2026-01-31T11:00:00Z");
        assert_eq!(at("2026-01-31T12:00:00Z"), "2026-01-31T12:00:00Z");
    }

    /// Formerly, the zone was ignored and the time was taken as local.
    #[test]
    fn a_date_with_a_time_zone_is_in_that_zone() {
        let local = TimeZone::fixed(jiff::tz::offset(7));
        let at = |text| moment(text, jiff::Timestamp::UNIX_EPOCH, &local).unwrap().to_string();
        assert_eq!(at("2026-01-31T12:00[UTC]"), "2026-01-31T12:00:00Z");
        assert_eq!(at("2026-01-31[+02:00]"), "2026-01-30T22:00:00Z");
        assert_eq!(at("2026-01-31T12:00Z[+02:00]"), "2026-01-31T12:00:00Z");
        // Minimal systems have no time zone database.
        if jiff::tz::db().get("Europe/Berlin").is_ok() {
            assert_eq!(at("2026-07-31T12:00[Europe/Berlin]"), "2026-07-31T10:00:00Z");
        }
        // A zone that does not exist, and an offset that is not that of its zone.
        for wrong in ["2026-01-31[No/Such_Zone]", "2026-01-31T12:00+05:00[+02:00]"] {
            let error = wrong.parse::<Moment>().unwrap_err();
            assert!(error.contains("is not a date with a time zone"), "{error}");
        }
    }

    #[test]
    fn text_that_is_neither_an_age_nor_a_date_is_refused() {
        for wrong in ["", "d", "7x", "-1d", "2026-13-01", "yesterday", "99999999999999999y"] {
            assert!(wrong.parse::<Moment>().is_err(), "{wrong}");
        }
    }
}
