//! Numbers as users write and read them: sizes, rates, counts, durations.
//!
//! Reading: `128K`, `1.5G`, `10MB`, `80mbit`. Writing: `1.50 GiB`, `93.2 MiB/s`, `2 min 05 s`.
//! Everything is parsed once, here, into types that cannot be out of range.

use std::str::FromStr;
use std::time::Duration;

use haul_engine::Auto;
pub(crate) use haul_storage::text::bytes;

/// A size in bytes, as an option takes it.
///
/// Suffixes as in GNU's tools: `K`, `M`, `G`, `T` and `KiB`, `MiB`, `GiB`, `TiB` count in 1024,
/// `KB`, `MB`, `GB`, `TB` in 1000; `B` or nothing means bytes. Case does not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, suffix) = split_number(text);
        let factor = byte_factor(suffix).ok_or_else(|| {
            format!("'{text}' is not a size; write 4096, 128K, 10MB (1000s) or 1.5GiB (1024s)")
        })?;
        scaled(text, number, factor).map(Self)
    }
}

/// A rate in bytes per second.
///
/// A size (`10M`, `10MB`) or bits, always in 1000 (`bit`, `kbit`, `mbit`, `gbit`); both with or without `/s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate(pub(crate) u64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, suffix) = split_number(text);
        let suffix = suffix.strip_suffix("/s").unwrap_or(suffix);
        let factor = match suffix.to_ascii_lowercase().as_str() {
            "bit" => Some(0.125),
            "kbit" => Some(125.0),
            "mbit" => Some(125e3),
            "gbit" => Some(125e6),
            _ => byte_factor(suffix),
        };
        let factor = factor.ok_or_else(|| {
            format!("'{text}' is not a rate; write 10M (bytes per second) or 80mbit (bits)")
        })?;
        match scaled(text, number, factor)? {
            0 => Err("a rate of 0 would stop every transfer".to_owned()),
            rate => Ok(Self(rate)),
        }
    }
}

/// A size between `MIN` and `MAX` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SizeIn<const MIN: u64, const MAX: u64>(pub(crate) u64);

impl<const MIN: u64, const MAX: u64> FromStr for SizeIn<MIN, MAX> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Size(size) = text.parse()?;
        if (MIN..=MAX).contains(&size) {
            return Ok(Self(size));
        }
        Err(format!("'{text}' is not between {} and {}", short(MIN), short(MAX)))
    }
}

/// A whole number between `MIN` and `MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Count<const MIN: u64, const MAX: u64>(pub(crate) u64);

impl<const MIN: u64, const MAX: u64> FromStr for Count<MIN, MAX> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(count) if (MIN..=MAX).contains(&count) => Ok(Self(count)),
            _ => Err(format!("'{text}' is not a number between {MIN} and {MAX}")),
        }
    }
}

impl<const MIN: u64, const MAX: u64> Count<MIN, MAX> {
    /// The number as a `usize`.
    pub(crate) fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// `auto` or a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OrAuto<T>(pub(crate) Option<T>);

impl<T: FromStr<Err = String>> FromStr for OrAuto<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self(None));
        }
        let value = text.parse::<T>().map_err(|cause| format!("{cause}, or write 'auto'"))?;
        Ok(Self(Some(value)))
    }
}

impl<T> OrAuto<T> {
    /// The value for the engine.
    pub(crate) fn resolve<U>(self, value: impl FnOnce(T) -> U) -> Auto<U> {
        self.0.map_or(Auto::Auto, |given| Auto::Fixed(value(given)))
    }
}

/// On or off: `yes`, `no`, `true`, `false`, `on`, `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Switch(pub(crate) bool);

impl FromStr for Switch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "yes" | "true" | "on" => Ok(Self(true)),
            "no" | "false" | "off" => Ok(Self(false)),
            _ => Err(format!("'{text}' is neither yes nor no")),
        }
    }
}

/// Bytes per second, for display.
pub(crate) fn rate(bytes_per_second: u64) -> String {
    format!("{}/s", bytes(bytes_per_second))
}

/// A duration, for display: tenths up to ten seconds, whole seconds up to a minute, then two units.
pub(crate) fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 9.95 {
        return format!("{seconds:.1} s");
    }
    let seconds = seconds.round() as u64;
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, min, s) => format!("{min} min {s:02} s"),
        (0, h, min, _) => format!("{h} h {min:02} min"),
        (days, h, ..) => format!("{days} d {h:02} h"),
    }
}

/// Bytes per second of `bytes` in `time`; 0 if `time` is zero.
pub(crate) fn per_second(bytes: u64, time: Duration) -> u64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 { (bytes as f64 / seconds) as u64 } else { 0 }
}

/// Splits text into digits and points, and the suffix.
fn split_number(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text.split_at(end)
}

fn byte_factor(suffix: &str) -> Option<f64> {
    let suffix = suffix.to_ascii_lowercase();
    let mut letters = suffix.chars();
    let power = match letters.next() {
        None | Some('b') => 0,
        Some('k') => 1,
        Some('m') => 2,
        Some('g') => 3,
        Some('t') => 4,
        Some(_) => return None,
    };
    let base: f64 = match (power, letters.as_str()) {
        (_, "") => 1024.0,
        (1.., "ib") => 1024.0,
        (1.., "b") => 1000.0,
        _ => return None,
    };
    Some(base.powi(power))
}

/// `number × factor`, exact for whole numbers below 2^53, which is far beyond any disk.
fn scaled(text: &str, number: &str, factor: f64) -> Result<u64, String> {
    let value: f64 =
        number.parse().map_err(|_| format!("'{text}' does not begin with a number"))?;
    let product = value * factor;
    // `i64::MAX as f64` is 2^63, one more than the largest size.
    if product >= i64::MAX as f64 {
        return Err(format!("'{text}' is too large"));
    }
    Ok(product as u64)
}

/// A bound of a range as a user would write it.
fn short(size: u64) -> String {
    [(40, 'T'), (30, 'G'), (20, 'M'), (10, 'K')]
        .into_iter()
        .find(|(shift, _)| size != 0 && size.is_multiple_of(1 << shift))
        .map_or_else(|| size.to_string(), |(shift, letter)| format!("{}{letter}", size >> shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(text: &str) -> Option<u64> {
        text.parse::<Size>().ok().map(|size| size.0)
    }

    #[test]
    fn sizes_have_the_suffixes_of_gnu_tools() {
        assert_eq!(size("4096"), Some(4096));
        assert_eq!(size("128K"), Some(128 << 10));
        assert_eq!(size("1MiB"), Some(1 << 20));
        assert_eq!(size("10MB"), Some(10_000_000));
        assert_eq!(size("1.5g"), Some(3 << 29));
        assert_eq!(size("7b"), Some(7));
        for wrong in ["", "M", "1X", "-1", "1 M", "1iB", "1.2.3", "1MM", "99999999T", "1bb"] {
            assert_eq!(size(wrong), None, "{wrong}");
        }
        // 2^63 bytes are too many.
        assert_eq!((size("8388607T"), size("8388608T")), (Some(8_388_607 << 40), None));
    }

    #[test]
    fn rates_are_in_bytes_unless_the_unit_is_bit() {
        assert_eq!("10M".parse(), Ok(Rate(10 << 20)));
        assert_eq!("10MB/s".parse(), Ok(Rate(10_000_000)));
        assert_eq!("80mbit".parse(), Ok(Rate(10_000_000)));
        assert_eq!("1Gbit/s".parse(), Ok(Rate(125_000_000)));
        assert!("0".parse::<Rate>().is_err());
        assert!("100mbps".parse::<Rate>().is_err(), "an ambiguous unit is accepted");
    }

    #[test]
    fn the_error_of_a_size_out_of_range_names_the_bounds() {
        let error = "2G".parse::<SizeIn<1024, { 1 << 30 }>>().unwrap_err();
        assert_eq!(error, "'2G' is not between 1K and 1G");
        let error = "foo".parse::<OrAuto<Size>>().unwrap_err();
        assert!(error.ends_with("or 1.5GiB (1024s), or write 'auto'"), "{error}");
    }

    #[test]
    fn long_durations_omit_small_units() {
        let print = |seconds: f64| duration(Duration::from_secs_f64(seconds));
        assert_eq!(print(3.24), "3.2 s");
        assert_eq!(print(59.7), "1 min 00 s");
        assert_eq!(print(3661.0), "1 h 01 min");
        assert_eq!(print(200_000.0), "2 d 07 h");
    }
}
