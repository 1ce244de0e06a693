//! Credentials of the server's user: a name and a password.

use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{Digest, SHA256, digest};
use data_encoding::BASE64;
use http::HeaderValue;

/// A user and a password. The password is stored as a digest only.
#[derive(Clone)]
pub struct Credentials {
    user: String,
    /// Digest of `user:password`.
    digest: Digest,
}

impl Credentials {
    /// A user with a password. The name must not contain a colon (RFC 7617, section 2).
    pub fn new(user: impl Into<String>, password: &str) -> Self {
        let user = user.into();
        let digest = digest(&SHA256, format!("{user}:{password}").as_bytes());
        Self { user, digest }
    }

    /// The user name.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Whether name and password are correct. Compares digests in constant time.
    pub(super) fn allow(&self, presented: &Presented) -> bool {
        let presented = digest(&SHA256, &presented.both);
        verify_slices_are_equal(presented.as_ref(), self.digest.as_ref()).is_ok()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({:?}, …)", self.user)
    }
}

/// A name and a password from a request.
pub(super) struct Presented {
    both: Vec<u8>,
}

impl Presented {
    /// Parses the header field `Authorization`; `None` unless it is valid Basic authentication.
    pub(super) fn read(header: &HeaderValue) -> Option<Self> {
        let (scheme, text) = header.to_str().ok()?.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let both = BASE64.decode(text.trim().as_bytes()).ok()?;
        both.contains(&b':').then_some(Self { both })
    }

    /// The name.
    pub(super) fn user(&self) -> String {
        let name = self.both.split(|byte| *byte == b':').next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn presented(both: &str) -> Presented {
        let header = format!("basic {}", BASE64.encode(both.as_bytes()));
        Presented::read(&header.parse().unwrap()).unwrap()
    }

    #[test]
    fn only_the_correct_user_and_password_are_accepted() {
        let credentials = Credentials::new("me", "se:cret ü");
        assert!(credentials.allow(&presented("me:se:cret ü")));
        for wrong in ["me:se:cret", "me:", "you:se:cret ü", ":"] {
            assert!(!credentials.allow(&presented(wrong)), "{wrong}");
        }
        assert!(!format!("{credentials:?}").contains("cret"));
        assert_eq!(presented("me:se:cret").user(), "me");
    }

    #[test]
    fn malformed_or_other_authorization_is_ignored() {
        for header in ["", "Basic", "Basic !", "Basic bWU=", "Bearer bWU6eA=="] {
            assert!(Presented::read(&header.parse().unwrap()).is_none(), "{header}");
        }
    }
}
