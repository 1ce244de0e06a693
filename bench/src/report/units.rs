//! Numbers as people read them: three significant digits, units that belong to the quantity.
//!
//! Rates and amounts of data are decimal, as links are sold; memory is binary, as it is built.

/// 1 048 576 bytes.
pub(super) const MIB: f64 = 1_048_576.0;

/// Three significant digits; all digits before the point where there are more.
pub(super) fn significant(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    // Rounded before the digits are counted, for 99.96 is 100 and not 100.0.
    let rounded: f64 = format!("{value:.2e}").parse().unwrap_or(value);
    let magnitude = rounded.abs().log10().floor();
    let decimals = (2.0 - magnitude).clamp(0.0, 9.0) as usize;
    format!("{value:.decimals$}")
}

/// Megabytes per second of bytes per second, without the unit.
pub(super) fn megabytes(bytes_per_second: f64) -> String {
    significant(bytes_per_second / 1e6)
}

/// A rate with its unit.
pub(super) fn rate(bytes_per_second: f64) -> String {
    format!("{} MB/s", megabytes(bytes_per_second))
}

/// Milliseconds of seconds, without the unit.
pub(super) fn milliseconds(seconds: f64) -> String {
    significant(seconds * 1e3)
}

/// MiB of bytes, without the unit.
pub(super) fn mebibytes(bytes: f64) -> String {
    significant(bytes / MIB)
}

/// A setting, or a tick of an axis: as many digits as it has, and none that come from adding fractions up.
pub(super) fn tick(value: f64) -> String {
    ((value * 1e6).round() / 1e6).to_string()
}

/// Whole per cent of a share, one decimal below ten.
pub(super) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let decimals = usize::from(percent < 9.95);
    format!("{percent:.decimals$} %")
}

/// An amount of data with a decimal unit.
pub(super) fn data(bytes: f64) -> String {
    const UNITS: [(f64, &str); 4] = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    scaled(bytes, &UNITS).unwrap_or_else(|| format!("{bytes:.0} B"))
}

/// A line rate of bits per second.
pub(super) fn line_rate(bits: f64) -> String {
    const UNITS: [(f64, &str); 3] = [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")];
    UNITS
        .iter()
        .find(|(size, _)| bits >= *size)
        .map_or_else(|| format!("{bits} bit/s"), |(size, unit)| format!("{} {unit}", bits / size))
}

/// Memory with its unit.
pub(super) fn memory(bytes: u64) -> String {
    let bytes = bytes as f64;
    if bytes >= MIB * 1024.0 {
        format!("{} GiB", significant(bytes / MIB / 1024.0))
    } else {
        format!("{} MiB", mebibytes(bytes))
    }
}

/// Date and time, UTC, of seconds since 1970.
pub(super) fn date(seconds: u64) -> String {
    // Days to a date by counting years from March, so that the leap day is a year's last
    // (Howard Hinnant, "chrono-compatible low-level date algorithms"). No sign to care for: all
    // dates are after 1970.
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

fn scaled(value: f64, units: &[(f64, &str)]) -> Option<String> {
    let (size, unit) = units.iter().find(|(size, _)| value >= *size)?;
    Some(format!("{} {unit}", significant(value / size)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_are_shown_whatever_the_size() {
        assert_eq!(significant(0.012_345), "0.0123");
        assert_eq!(significant(9.996), "10.0");
        assert_eq!(significant(99.96), "100");
        assert_eq!(significant(2354.4), "2354");
        assert_eq!(significant(0.0), "0");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_827_696), "2000-02-29 12:34 UTC");
        assert_eq!(date(1_767_225_599), "2025-12-31 23:59 UTC");
    }

    #[test]
    fn amounts_carry_the_unit_that_suits_them() {
        assert_eq!(data(1_073_741_824.0), "1.07 GB");
        assert_eq!(data(1.0), "1 B");
        assert_eq!(line_rate(500e6), "500 Mbit/s");
        assert_eq!(memory(8 << 30), "8.00 GiB");
        assert_eq!(percent(0.934), "93 %");
        assert_eq!(percent(0.0312), "3.1 %");
    }
}
