//! Conversions between timestamps and the Gregorian calendar, in UTC. The backends' date formats use these.

use jiff::SignedDuration;
use jiff::civil::{Date, DateTime};

use crate::Timestamp;

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

impl Timestamp {
    /// Midnight of a day in seconds since 1970; `None` if there is no such day. The year is -9999 to 9999.
    pub fn midnight(year: i64, month: i64, day: i64) -> Option<i64> {
        let (year, month) = (i16::try_from(year).ok()?, i8::try_from(month).ok()?);
        let date = Date::new(year, month, i8::try_from(day).ok()?).ok()?;
        Some(date.duration_since(EPOCH.date()).as_secs())
    }

    /// Date and time of day; `None` outside the years -9999 to 9999.
    pub fn utc(self) -> Option<DateTime> {
        let since = SignedDuration::from_secs(self.seconds);
        let nanos = SignedDuration::from_nanos(self.nanos.into());
        EPOCH.checked_add(since).ok()?.checked_add(nanos).ok()
    }

    /// The date, `YYYY-MM-DD`; outside the calendar the seconds since 1970 as `date -d` accepts them (`@N`).
    pub fn date(self) -> String {
        self.utc().map_or_else(|| format!("@{}", self.seconds), |time| time.date().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_gregorian_calendar() {
        // As `date -u -d @N +%F` prints them.
        for (seconds, date) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (951_782_400, "2000-02-29"),
            (4_107_542_400, "2100-03-01"),
            (4_294_967_295, "2106-02-07"),
            (-2_147_483_648, "1901-12-13"),
        ] {
            assert_eq!(Timestamp { seconds, nanos: 0 }.date(), date);
        }
        assert_eq!(Timestamp::LATEST.date(), format!("@{}", i64::MAX));
    }

    #[test]
    fn a_day_that_does_not_exist_has_no_midnight() {
        assert_eq!(Timestamp::midnight(1970, 1, 2), Some(86_400));
        assert_eq!(Timestamp::midnight(2000, 2, 29), Some(951_782_400));
        for (year, month, day) in
            [(1900, 2, 29), (2001, 13, 1), (2001, 0, 1), (2001, 1, 0), (40_000, 1, 1)]
        {
            assert_eq!(Timestamp::midnight(year, month, day), None, "{year}-{month}-{day}");
        }
    }
}
