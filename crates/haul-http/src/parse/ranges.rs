//! `Content-Range` and `Accept-Ranges` (RFC 9110, sections 14.3 and 14.4).
//!
//! The range of a response is compared with the requested one before any of it is written: otherwise a proxy
//! that returns another range would put good bytes at the wrong offset.

/// The part of a file that a response contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentRange {
    /// `bytes first-last/total`, with 206.
    Bytes {
        /// Offset of the first byte.
        first: u64,
        /// Offset of the last byte; not less than `first`.
        last: u64,
        /// Length of the whole file in bytes, if the server reports it; greater than `last`.
        total: Option<u64>,
    },
    /// `bytes */total`, with 416: the requested range is beyond the end of the file.
    Unsatisfied {
        /// Length of the whole file in bytes.
        total: u64,
    },
}

/// Why a `Content-Range` cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// The unit is not bytes.
    #[error("a Content-Range whose unit is not bytes")]
    Unit,
    /// The syntax is not that of RFC 9110.
    #[error("a malformed Content-Range")]
    Malformed,
    /// The last byte is before the first or not within the total, or a number does not fit.
    #[error("an impossible Content-Range")]
    Impossible,
}

impl ContentRange {
    /// Parses the value of the header.
    ///
    /// # Errors
    /// See [`RangeError`].
    pub fn parse(value: &str) -> Result<Self, RangeError> {
        // Some servers send `bytes=0-1/2` or `bytes:0-1/2`, which are unambiguous.
        let value = value.trim();
        let unit = value.get(..5).filter(|unit| unit.eq_ignore_ascii_case("bytes"));
        let rest = unit.map(|_| &value[5..]).ok_or(RangeError::Unit)?;
        let rest = rest.strip_prefix([' ', '\t', '=', ':']).ok_or(RangeError::Unit)?.trim();
        let (range, total) = rest.split_once('/').ok_or(RangeError::Malformed)?;
        let total = match total.trim() {
            "*" => None,
            total => Some(number(total)?),
        };
        if range.trim() == "*" {
            return Ok(Self::Unsatisfied { total: total.ok_or(RangeError::Malformed)? });
        }
        let (first, last) = range.split_once('-').ok_or(RangeError::Malformed)?;
        let (first, last) = (number(first.trim())?, number(last.trim())?);
        if first > last || last == u64::MAX || total.is_some_and(|total| last >= total) {
            return Err(RangeError::Impossible);
        }
        Ok(Self::Bytes { first, last, total })
    }

    /// Number of bytes in the response.
    pub const fn length(&self) -> u64 {
        match self {
            // `parse` refuses a `last` of `u64::MAX`, so this cannot overflow.
            Self::Bytes { first, last, .. } => *last - *first + 1,
            Self::Unsatisfied { .. } => 0,
        }
    }

    /// Length of the whole file in bytes, if the server reports it.
    pub const fn total(&self) -> Option<u64> {
        match self {
            Self::Bytes { total, .. } => *total,
            Self::Unsatisfied { total } => Some(*total),
        }
    }
}

/// Whether an `Accept-Ranges` value announces byte ranges; `None` if it is empty. A server without this header may
/// still support ranges.
pub fn accepts_bytes(value: &str) -> Option<bool> {
    let mut units = value.split(',').map(str::trim).filter(|unit| !unit.is_empty()).peekable();
    units.peek()?;
    Some(units.any(|unit| unit.eq_ignore_ascii_case("bytes")))
}

fn number(text: &str) -> Result<u64, RangeError> {
    // `u64::from_str` accepts a leading '+'.
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(RangeError::Malformed);
    }
    text.parse().map_err(|_| RangeError::Impossible)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn content_ranges_with_and_without_a_total_are_parsed() {
        let bytes = |first, last, total| Ok(ContentRange::Bytes { first, last, total });
        assert_eq!(ContentRange::parse("bytes 0-499/1234"), bytes(0, 499, Some(1234)));
        assert_eq!(ContentRange::parse("bytes 42-1233/1234"), bytes(42, 1233, Some(1234)));
        assert_eq!(ContentRange::parse("Bytes 42-1233/*"), bytes(42, 1233, None));
        assert_eq!(ContentRange::parse(" bytes=0-0/1 "), bytes(0, 0, Some(1)));
        let unsatisfied = ContentRange::Unsatisfied { total: 1234 };
        assert_eq!(ContentRange::parse("bytes */1234"), Ok(unsatisfied));
        assert_eq!((unsatisfied.length(), unsatisfied.total()), (0, Some(1234)));
        assert_eq!(ContentRange::parse("bytes 0-499/1234").map(|range| range.length()), Ok(500));
    }

    #[test]
    fn an_invalid_content_range_is_refused() {
        for (text, error) in [
            ("", RangeError::Unit),
            ("items 0-1/2", RangeError::Unit),
            ("bytesx 0-1/2", RangeError::Unit),
            ("bytes 0-1", RangeError::Malformed),
            ("bytes */*", RangeError::Malformed),
            ("bytes -1/2", RangeError::Malformed),
            ("bytes +0-1/2", RangeError::Malformed),
            ("bytes 0-1/+2", RangeError::Malformed),
            ("bytes 5-4/10", RangeError::Impossible),
            ("bytes 0-10/10", RangeError::Impossible),
            ("bytes 0-18446744073709551615/*", RangeError::Impossible),
            ("bytes 0-99999999999999999999/*", RangeError::Impossible),
        ] {
            assert_eq!(ContentRange::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn accept_ranges_is_parsed_as_yes_no_or_unknown() {
        assert_eq!(accepts_bytes("bytes"), Some(true));
        assert_eq!(accepts_bytes("items, Bytes"), Some(true));
        assert_eq!(accepts_bytes("none"), Some(false));
        assert_eq!(accepts_bytes(" , "), None);
    }

    proptest! {
        #[test]
        fn parsing_arbitrary_text_does_not_panic(text in "bytes [0-9*/ -]{0,50}|\\PC{0,30}") {
            if let Ok(range) = ContentRange::parse(&text) {
                prop_assert!(range.total().is_none_or(|total| range.length() <= total));
            }
        }
    }
}
