//! `Authorization: Basic` (RFC 7617).

use data_encoding::BASE64;
use zeroize::Zeroizing;

/// Why user and password cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BasicError {
    /// RFC 7617, section 2: what is behind the first colon would be taken for the password.
    #[error("a user with a ':' in it cannot log in with Basic authentication")]
    Colon,
    /// RFC 7617, section 2: not allowed in either.
    #[error("a user or password has control characters in it")]
    Control,
}

/// The header's value, in UTF-8 whatever the challenge says: it is what servers expect today.
pub fn authorization(user: &str, password: &str) -> Result<Zeroizing<String>, BasicError> {
    if user.contains(':') {
        return Err(BasicError::Colon);
    }
    if user.chars().chain(password.chars()).any(char::is_control) {
        return Err(BasicError::Control);
    }
    let both = Zeroizing::new(format!("{user}:{password}"));
    let mut value = Zeroizing::new(String::with_capacity(6 + both.len().div_ceil(3) * 4));
    value.push_str("Basic ");
    BASE64.encode_append(both.as_bytes(), &mut value);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_rfc_7617_are_met() {
        let value = |user, password| authorization(user, password).map(|value| value.to_string());
        let aladdin = "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==";
        assert_eq!(value("Aladdin", "open sesame").as_deref(), Ok(aladdin));
        assert_eq!(value("test", "123\u{a3}").as_deref(), Ok("Basic dGVzdDoxMjPCow=="));
        assert_eq!(value("a", "b:c").as_deref(), Ok("Basic YTpiOmM="));
        assert_eq!(value("a:b", "c"), Err(BasicError::Colon));
        assert_eq!(value("a\r\n", "c"), Err(BasicError::Control));
    }
}
