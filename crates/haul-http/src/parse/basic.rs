//! `Authorization: Basic` (RFC 7617).

use data_encoding::BASE64;
use zeroize::Zeroizing;

/// Why user and password cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BasicError {
    /// RFC 7617, section 2: the text after the first colon would be taken for the password.
    #[error("a user name with ':' cannot be used with Basic authentication")]
    Colon,
    /// RFC 7617, section 2: not allowed in either.
    #[error("the user name or password contains control characters")]
    Control,
}

/// The header's value. The bytes are sent as given, normally UTF-8, which servers expect today,
/// whatever `charset` the challenge names.
///
/// # Errors
/// If the user name has a `:`, or either has control characters.
pub fn authorization(
    user: impl AsRef<[u8]>,
    password: impl AsRef<[u8]>,
) -> Result<Zeroizing<String>, BasicError> {
    let (user, password) = (user.as_ref(), password.as_ref());
    if user.contains(&b':') {
        return Err(BasicError::Colon);
    }
    if has_control(user) || has_control(password) {
        return Err(BasicError::Control);
    }
    let both = Zeroizing::new([user, b":", password].concat());
    let mut value = Zeroizing::new(String::with_capacity(6 + both.len().div_ceil(3) * 4));
    value.push_str("Basic ");
    BASE64.encode_append(&both, &mut value);
    Ok(value)
}

/// Whether the valid UTF-8 parts contain control characters; other bytes are of unknown encoding.
fn has_control(bytes: &[u8]) -> bool {
    bytes.utf8_chunks().any(|chunk| chunk.valid().chars().any(char::is_control))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorization_matches_the_examples_of_rfc_7617() {
        let value = |user: &str, password: &str| {
            authorization(user, password).map(|value| value.to_string())
        };
        let aladdin = "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==";
        assert_eq!(value("Aladdin", "open sesame").as_deref(), Ok(aladdin));
        assert_eq!(value("test", "123\u{a3}").as_deref(), Ok("Basic dGVzdDoxMjPCow=="));
        let latin = authorization("ada", b"p\xe4ss").map(|value| value.to_string());
        assert_eq!(latin.as_deref(), Ok("Basic YWRhOnDkc3M="));
        assert_eq!(value("a", "b:c").as_deref(), Ok("Basic YTpiOmM="));
        assert_eq!(value("a:b", "c"), Err(BasicError::Colon));
        assert_eq!(value("a\r\n", "c"), Err(BasicError::Control));
    }
}
