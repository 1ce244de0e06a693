//! Rounded sizes in index pages, such as `4.8M`.

use haul_storage::Range;

/// The lengths in bytes that a rounded size can mean; `None` if it is no rounded size. Servers round up, down or to the
/// nearest, and a prefix stands for powers of 1000 or 1024: all of that is included.
///
/// `unit` is the word behind the size, for `4.8 MB`.
pub(super) fn rounded(size: &[u8], unit: Option<&[u8]>) -> Option<Range> {
    let size = std::str::from_utf8(size).ok()?;
    let end = size.find(|sign: char| !sign.is_ascii_digit() && sign != '.').unwrap_or(size.len());
    let (number, suffix) = size.split_at(end);
    let suffix = match suffix {
        "" => std::str::from_utf8(unit?).ok()?,
        suffix => suffix,
    };
    let suffix = suffix.to_ascii_lowercase();
    let power = match suffix.trim_end_matches('b').trim_end_matches('i') {
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => return None,
    };
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    let is_number = !whole.is_empty() && whole.len() <= 6 && decimals.len() <= 3;
    if !is_number || decimals.contains('.') {
        return None;
    }
    let scale = 10_u64.pow(u32::try_from(decimals.len()).ok()?);
    let units = format!("{whole}{decimals}").parse::<u64>().ok()?;
    let least = units.saturating_sub(1).checked_mul(1000_u64.pow(power))? / scale;
    let most = (units + 1).checked_mul(1024_u64.pow(power))?.div_ceil(scale);
    Some(Range::between(least, most + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_usual_ways_to_round_are_included() {
        let of = |size: &str, unit: Option<&str>| rounded(size.as_bytes(), unit.map(str::as_bytes));
        for (size, unit, bytes) in [
            ("4.8M", None, &[4_800_000, 5_033_164, 4_759_999, 5_085_000][..]),
            ("1.5K", None, &[1536, 1500, 1590, 1450]),
            ("5", Some("KB"), &[5000, 5120, 4097, 5700]),
            ("1.0", Some("GiB"), &[1 << 30, 1_000_000_000]),
            // Rounded up and down.
            ("1K", None, &[1, 512, 1024, 2047]),
            ("10k", None, &[10_000, 10_240]),
        ] {
            let range = of(size, unit).unwrap();
            for length in bytes {
                assert!(range.contains(*length), "{size}: {length}");
            }
        }
        let range = of("4.8M", None).unwrap();
        assert!(range.start() > 4_600_000 && range.end() < 5_200_000, "{range:?}");
        for (size, unit) in [
            ("-", None),
            ("1536", None),
            ("1536", Some("bytes")),
            ("K", None),
            ("1.2.3K", None),
            ("5X", None),
            ("9999999K", None),
            ("", Some("K")),
        ] {
            assert_eq!(of(size, unit), None, "{size}");
        }
    }
}
