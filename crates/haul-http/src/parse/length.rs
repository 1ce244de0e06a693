//! `Content-Length` (RFC 9110, 8.6): digits and nothing else. It determines where a response ends, so a
//! form that two programs read differently could make one response be taken for another.

/// Why a length is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LengthError {
    /// Something other than digits, or more than 64 bits.
    #[error("a malformed Content-Length")]
    Malformed,
    /// Several different ones.
    #[error("conflicting Content-Length values")]
    Conflicting,
}

/// Parses the values of all fields of that name. The same length may occur several times, in one field or in
/// many: proxies join fields with commas.
///
/// # Errors
/// One of them is malformed, or they differ.
pub fn parse<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Result<Option<u64>, LengthError> {
    let mut found = None;
    for value in values {
        for one in value.split(|byte| *byte == b',') {
            let length = number(one.trim_ascii()).ok_or(LengthError::Malformed)?;
            if found.is_some_and(|found| found != length) {
                return Err(LengthError::Conflicting);
            }
            found = Some(length);
        }
    }
    Ok(found)
}

fn number(text: &[u8]) -> Option<u64> {
    // `parse` accepts a '+'.
    let digits = text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[&str]) -> Result<Option<u64>, LengthError> {
        parse(values.iter().map(|value| value.as_bytes()))
    }

    #[test]
    fn a_length_consists_of_digits() {
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&["0"]), Ok(Some(0)));
        assert_eq!(read(&[" 42 "]), Ok(Some(42)));
        assert_eq!(read(&["18446744073709551615"]), Ok(Some(u64::MAX)));
        for wrong in ["+5", "-5", "", "5 5", "0x5", "5.0", "5,", ",5", "18446744073709551616", "٥"]
        {
            assert_eq!(read(&[wrong]), Err(LengthError::Malformed), "{wrong}");
        }
    }

    #[test]
    fn the_same_length_may_be_repeated() {
        assert_eq!(read(&["42, 42"]), Ok(Some(42)));
        assert_eq!(read(&["42", "42,042"]), Ok(Some(42)));
        assert_eq!(read(&["42, 43"]), Err(LengthError::Conflicting));
        assert_eq!(read(&["42", "43"]), Err(LengthError::Conflicting));
    }
}
