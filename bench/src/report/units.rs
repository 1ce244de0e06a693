//! Numbers as people read them: three significant digits, units that suit the quantity.
//!
//! Rates and amounts of data are decimal, as links are sold; memory is binary, as it is built.

/// 1 048 576 bytes.
pub(super) const MIB: f64 = 1_048_576.0;

/// Three significant digits, or all digits before the point if there are more.
pub(super) fn significant(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    // Rounded before the digits are counted, so that 99.96 gives 100 and not 100.0.
    let rounded: f64 = format!("{value:.2e}").parse().unwrap_or(value);
    let magnitude = rounded.abs().log10().floor();
    let decimals = (2.0 - magnitude).clamp(0.0, 9.0) as usize;
    format!("{value:.decimals$}")
}

/// Bytes per second as MB/s, without the unit.
pub(super) fn megabytes(bytes_per_second: f64) -> String {
    significant(bytes_per_second / 1e6)
}

/// A rate with its unit.
pub(super) fn rate(bytes_per_second: f64) -> String {
    format!("{} MB/s", megabytes(bytes_per_second))
}

/// Seconds as milliseconds, without the unit.
pub(super) fn milliseconds(seconds: f64) -> String {
    significant(seconds * 1e3)
}

/// Bytes as MiB, without the unit.
pub(super) fn mebibytes(bytes: f64) -> String {
    significant(bytes / MIB)
}

/// A setting, or a tick of an axis: up to six decimals, without rounding errors of added fractions.
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
    let time = i64::try_from(seconds).ok().and_then(|at| jiff::Timestamp::from_second(at).ok());
    time.map_or_else(|| "never".to_owned(), |time| time.strftime("%Y-%m-%d %H:%M UTC").to_string())
}

fn scaled(value: f64, units: &[(f64, &str)]) -> Option<String> {
    let (size, unit) = units.iter().find(|(size, _)| value >= *size)?;
    Some(format!("{} {unit}", significant(value / size)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_three_digits_or_all_before_the_point() {
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
