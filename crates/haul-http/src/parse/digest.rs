//! `Authorization: Digest` (RFC 7616, section 3.4), and without `qop` as in RFC 2069.
//!
//! A [`DigestSession`] is made from one challenge and used for all requests until the server reports
//! its nonce as stale. Requests on several connections share it: each takes the next nonce count, which
//! a server may refuse to see twice.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use data_encoding::HEXLOWER;
use md5::Md5;
use sha2::Sha256;
use zeroize::Zeroizing;

use super::challenge::{Algorithm, DigestChallenge};

/// Why no digest can be computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    /// A control character in the user name or in a value from the server could inject another header.
    #[error("a control character in the {0} of Digest authentication")]
    Control(&'static str),
    /// The user name of a netrc is not UTF-8.
    #[error("a user name that is not UTF-8 cannot be used with Digest authentication")]
    NotText,
    /// The nonce count has eight digits and is used up. A new challenge is needed.
    #[error("the nonce of Digest authentication is used up")]
    Exhausted,
}

/// Responds to one challenge for any number of requests.
pub struct DigestSession {
    challenge: DigestChallenge,
    /// The user name as sent: in plain text or hashed.
    user: String,
    /// H(A1), which suffices to log in, so it is as secret as the password.
    secret: Zeroizing<String>,
    /// The client's random text.
    cnonce: String,
    used: AtomicU32,
}

impl DigestSession {
    /// Responds to `challenge` as `user`. `cnonce` is random text of at least 64 bits, in characters
    /// that need no quoting (hexadecimal, base64).
    ///
    /// # Errors
    /// If a text has control characters, or the user name is not UTF-8.
    pub fn new(
        challenge: DigestChallenge,
        user: impl AsRef<[u8]>,
        password: impl AsRef<[u8]>,
        cnonce: &str,
    ) -> Result<Self, DigestError> {
        // The header contains it as text.
        let user = std::str::from_utf8(user.as_ref()).map_err(|_| DigestError::NotText)?;
        let opaque = challenge.opaque.as_deref().unwrap_or_default();
        for (field, text) in [
            ("user", user),
            ("realm", &challenge.realm[..]),
            ("nonce", &challenge.nonce),
            ("opaque value", opaque),
            ("client's nonce", cnonce),
        ] {
            if text.chars().any(char::is_control) {
                return Err(DigestError::Control(field));
            }
        }
        let algorithm = challenge.algorithm;
        let realm = &challenge.realm;
        let mut secret = hash(algorithm, &[user.as_bytes(), realm.as_bytes(), password.as_ref()]);
        if algorithm.is_session() {
            let nonce = challenge.nonce.as_bytes();
            secret = hash(algorithm, &[secret.as_bytes(), nonce, cnonce.as_bytes()]);
        }
        let user = match challenge.userhash {
            true => hash(algorithm, &[user.as_bytes(), realm.as_bytes()]).to_string(),
            false => user.to_owned(),
        };
        let cnonce = cnonce.to_owned();
        Ok(Self { challenge, user, secret, cnonce, used: AtomicU32::new(0) })
    }

    /// The header's value for one request; `target` as in the request line.
    ///
    /// # Errors
    /// If `target` has control characters, or the nonce is used up.
    pub fn authorization(&self, method: &str, target: &str) -> Result<String, DigestError> {
        if target.chars().any(char::is_control) {
            return Err(DigestError::Control("target"));
        }
        let next = |used: u32| used.checked_add(1);
        let used = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let count = used.map_err(|_| DigestError::Exhausted)? + 1;
        let count = format!("{count:08x}");

        let DigestChallenge { realm, nonce, opaque, algorithm, qop_auth, userhash, .. } =
            &self.challenge;
        let of = |parts: &[&str]| hash_of(*algorithm, parts);
        let request = of(&[method, target]);
        let response = if *qop_auth {
            of(&[&self.secret, nonce, &count, &self.cnonce, "auth", &request])
        } else {
            of(&[&self.secret, nonce, &request])
        };
        // RFC 7616, section 3.4, defines which values are quoted.
        let mut value = format!(
            "Digest username={}, realm={}, nonce={}, uri={}, algorithm={}, response=\"{}\"",
            quoted(&self.user),
            quoted(realm),
            quoted(nonce),
            quoted(target),
            algorithm.name(),
            *response,
        );
        if *qop_auth {
            value.push_str(", qop=auth, nc=");
            value.push_str(&count);
        }
        if *qop_auth || algorithm.is_session() {
            value.push_str(", cnonce=");
            value.push_str(&quoted(&self.cnonce));
        }
        if let Some(opaque) = opaque {
            value.push_str(", opaque=");
            value.push_str(&quoted(opaque));
        }
        if *userhash {
            value.push_str(", userhash=true");
        }
        Ok(value)
    }
}

impl fmt::Debug for DigestSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let algorithm = self.challenge.algorithm;
        f.debug_struct("DigestSession").field("algorithm", &algorithm).finish_non_exhaustive()
    }
}

/// The hash of the parts joined by colons, in hexadecimal.
fn hash(algorithm: Algorithm, parts: &[&[u8]]) -> Zeroizing<String> {
    Zeroizing::new(match algorithm {
        Algorithm::Md5 | Algorithm::Md5Sess => hash_with::<Md5>(parts),
        Algorithm::Sha256 | Algorithm::Sha256Sess => hash_with::<Sha256>(parts),
    })
}

fn hash_of(algorithm: Algorithm, parts: &[&str]) -> Zeroizing<String> {
    let parts: Vec<_> = parts.iter().map(|part| part.as_bytes()).collect();
    hash(algorithm, &parts)
}

fn hash_with<D: sha2::Digest>(parts: &[&[u8]]) -> String {
    let mut state = D::new();
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            state.update(b":");
        }
        state.update(part);
    }
    HEXLOWER.encode(&state.finalize())
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn challenge(realm: &str, nonce: &str, algorithm: Algorithm) -> DigestChallenge {
        DigestChallenge {
            realm: realm.to_owned(),
            nonce: nonce.to_owned(),
            opaque: Some("op\"aque".to_owned()),
            algorithm,
            qop_auth: true,
            stale: false,
            userhash: false,
        }
    }

    fn rfc_7616(algorithm: Algorithm) -> DigestChallenge {
        let nonce = "7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v";
        challenge("http-auth@example.org", nonce, algorithm)
    }

    const CNONCE: &str = "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ";

    fn header_value(challenge: DigestChallenge, password: &str, cnonce: &str) -> String {
        let session = DigestSession::new(challenge, "Mufasa", password, cnonce).unwrap();
        session.authorization("GET", "/dir/index.html").unwrap()
    }

    #[test]
    fn the_response_matches_the_examples_of_rfc_7616() {
        for (algorithm, response) in [
            (Algorithm::Md5, "8ca523f5e9506fed4657c9700eebdbec"),
            (Algorithm::Sha256, "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
        ] {
            let value = header_value(rfc_7616(algorithm), "Circle of Life", CNONCE);
            assert!(value.contains(&format!("response=\"{response}\"")), "{value}");
            assert!(value.contains(", qop=auth, nc=00000001, cnonce=\"f2/"), "{value}");
            assert!(value.ends_with("opaque=\"op\\\"aque\""), "{value}");
        }
    }

    #[test]
    fn the_response_matches_the_example_of_rfc_2617() {
        let nonce = "dcd98b7102dd2f0e8b11d0f600bfb0c093";
        let challenge = challenge("testrealm@host.com", nonce, Algorithm::Md5);
        let value = header_value(challenge, "Circle Of Life", "0a4f113b");
        assert!(value.contains("response=\"6629fae49393a05397450978507c4ef1\""), "{value}");
    }

    #[test]
    fn without_qop_there_is_no_count() {
        let plain = DigestChallenge { qop_auth: false, opaque: None, ..rfc_7616(Algorithm::Md5) };
        let value = header_value(plain, "Circle of Life", CNONCE);
        assert!(!value.contains("nc=") && !value.contains("cnonce"), "{value}");
        let h = |parts: &[&str]| hash_of(Algorithm::Md5, parts);
        let first = h(&["Mufasa", "http-auth@example.org", "Circle of Life"]);
        let nonce = "7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v";
        let expected = h(&[&first, nonce, &h(&["GET", "/dir/index.html"])]);
        assert!(value.contains(&*expected), "{value}");
    }

    #[test]
    fn a_session_algorithm_hashes_the_nonces_into_a1() {
        let h = |parts: &[&str]| hash_of(Algorithm::Sha256, parts);
        let value = header_value(rfc_7616(Algorithm::Sha256Sess), "Circle of Life", CNONCE);
        let nonce = "7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v";
        let first = h(&["Mufasa", "http-auth@example.org", "Circle of Life"]);
        let first = h(&[&first, nonce, CNONCE]);
        let request = h(&["GET", "/dir/index.html"]);
        let expected = h(&[&first, nonce, "00000001", CNONCE, "auth", &request]);
        assert!(value.contains(&*expected) && value.contains("algorithm=SHA-256-sess"), "{value}");
    }

    #[test]
    fn every_request_has_its_own_nonce_count_until_they_are_used_up() {
        let session = DigestSession::new(rfc_7616(Algorithm::Md5), "a", "b", "c").unwrap();
        let first = session.authorization("GET", "/").unwrap();
        let second = session.authorization("GET", "/").unwrap();
        assert!(first.contains("nc=00000001") && second.contains("nc=00000002"));
        session.used.store(u32::MAX, Ordering::Relaxed);
        assert_eq!(session.authorization("GET", "/"), Err(DigestError::Exhausted));
    }

    #[test]
    fn a_user_name_is_hashed_if_requested_and_the_password_never_shown() {
        let challenge = DigestChallenge { userhash: true, ..rfc_7616(Algorithm::Sha256) };
        let session = DigestSession::new(challenge, "Mufasa", "Circle of Life", CNONCE).unwrap();
        let value = session.authorization("GET", "/").unwrap();
        assert!(!value.contains("Mufasa") && value.ends_with("userhash=true"), "{value}");
        assert_eq!(format!("{session:?}"), "DigestSession { algorithm: Sha256, .. }");
    }

    #[test]
    fn no_value_can_inject_another_header() {
        let user = DigestSession::new(rfc_7616(Algorithm::Md5), "a\r\nX: y", "b", "c");
        assert_eq!(user.unwrap_err(), DigestError::Control("user"));
        let realm = challenge("a\nb", "c", Algorithm::Md5);
        let realm = DigestSession::new(realm, "a", "b", "c");
        assert_eq!(realm.unwrap_err(), DigestError::Control("realm"));
        let session = DigestSession::new(rfc_7616(Algorithm::Md5), "a\"b\\", "b", "c").unwrap();
        assert_eq!(session.authorization("GET", "/\n"), Err(DigestError::Control("target")));
        let value = session.authorization("GET", "/").unwrap();
        assert!(value.starts_with("Digest username=\"a\\\"b\\\\\", realm="), "{value}");
    }
}
