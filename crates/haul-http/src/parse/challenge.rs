//! Authentication challenges: `WWW-Authenticate` (RFC 9110, section 11.6.1), as one header with several
//! challenges or as several headers.
//!
//! The grammar is awkward: commas separate both challenges and the parameters of one, so a comma starts a
//! new challenge only if a word without `=` follows.

mod split;

use split::Raw;

/// The longest header that is parsed, in bytes.
const LONGEST: usize = 16 * 1024;

/// A challenge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Challenge {
    /// User and password in plain text (RFC 7617).
    Basic {
        /// The protection space that they are for, as text for the user.
        realm: Option<String>,
        /// Whether the server requests UTF-8 (`charset="UTF-8"`, the only value defined). haul sends the
        /// bytes as the user gave them, normally UTF-8.
        utf8: bool,
    },
    /// A digest of both (RFC 7616).
    Digest(DigestChallenge),
    /// A token (RFC 6750).
    Bearer {
        /// The protection space that it is for, as text for the user.
        realm: Option<String>,
        /// Why a token was not accepted: `invalid_token` and others.
        error: Option<String>,
    },
    /// Not supported: Negotiate and NTLM (RFC 4559), any other scheme, and Digest with another
    /// algorithm or with `auth-int` only.
    Unsupported {
        /// Its name as written, truncated if long.
        scheme: String,
    },
}

/// The parameters of a digest (RFC 7616, section 3.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DigestChallenge {
    /// The protection space; part of the digest.
    pub realm: String,
    /// The server's random text.
    pub nonce: String,
    /// To be returned unchanged.
    pub opaque: Option<String>,
    /// The hash algorithm.
    pub algorithm: Algorithm,
    /// Whether `qop=auth` is offered. Without any, the form of RFC 2069 is used.
    pub qop_auth: bool,
    /// Whether only the nonce was too old, and the password is right.
    pub stale: bool,
    /// Whether the user name is to be sent hashed.
    pub userhash: bool,
}

/// The hash algorithm of a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// MD5, still the most common.
    Md5,
    /// MD5; the nonces are part of A1, as user, realm and password are (RFC 7616, section 3.4.2).
    Md5Sess,
    /// SHA-256.
    Sha256,
    /// SHA-256; the nonces are part of A1.
    Sha256Sess,
}

impl Algorithm {
    const ALL: [Self; 4] = [Self::Md5, Self::Md5Sess, Self::Sha256, Self::Sha256Sess];

    /// The name in headers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Md5 => "MD5",
            Self::Md5Sess => "MD5-sess",
            Self::Sha256 => "SHA-256",
            Self::Sha256Sess => "SHA-256-sess",
        }
    }

    /// Whether the nonces are part of A1.
    pub const fn is_session(self) -> bool {
        matches!(self, Self::Md5Sess | Self::Sha256Sess)
    }
}

impl Challenge {
    /// Its strength: schemes that do not reveal the password are highest. `None` if it is not supported.
    ///
    /// Only the strongest challenge of a server should be used (RFC 7616, section 5.8), and Basic only
    /// over TLS or if the user allows it, which is not known here.
    pub const fn strength(&self) -> Option<u8> {
        match self {
            Self::Digest(digest) => Some(match digest.algorithm {
                Algorithm::Sha256 | Algorithm::Sha256Sess => 3,
                Algorithm::Md5 | Algorithm::Md5Sess => 2,
            }),
            Self::Bearer { .. } => Some(1),
            Self::Basic { .. } => Some(0),
            Self::Unsupported { .. } => None,
        }
    }
}

/// The challenges of all these headers, in their order. Invalid ones are left out, and so are headers of more than
/// 16 KiB and all headers once more than 64 challenges were found.
pub fn parse<'a>(headers: impl IntoIterator<Item = &'a [u8]>) -> Vec<Challenge> {
    let mut found = Vec::new();
    for header in headers {
        if header.len() > LONGEST || found.len() > 64 {
            continue;
        }
        // A realm can be in any encoding; if it is not UTF-8 it counts as Latin-1, as in early HTTP.
        let text = match std::str::from_utf8(header) {
            Ok(text) => text.to_owned(),
            Err(_) => header.iter().copied().map(char::from).collect(),
        };
        found.extend(split::challenges(&text).iter().filter_map(meaning));
    }
    found
}

fn meaning(raw: &Raw<'_>) -> Option<Challenge> {
    let is = |scheme: &str| raw.scheme.eq_ignore_ascii_case(scheme);
    if is("Basic") {
        let utf8 = raw.value("charset").is_some_and(|value| value.eq_ignore_ascii_case("utf-8"));
        return Some(Challenge::Basic { realm: raw.value("realm").map(str::to_owned), utf8 });
    }
    if is("Digest") {
        let unsupported = || Challenge::Unsupported { scheme: "Digest".to_owned() };
        return Some(digest(raw)?.map_or_else(unsupported, Challenge::Digest));
    }
    if is("Bearer") {
        return Some(Challenge::Bearer {
            realm: raw.value("realm").map(str::to_owned),
            error: raw.value("error").map(str::to_owned),
        });
    }
    Some(Challenge::Unsupported { scheme: raw.scheme.chars().take(40).collect() })
}

/// `None` if it is malformed, `Some(None)` if it is not supported: another algorithm, or `auth-int` only,
/// which requires a digest of the body before it is sent.
fn digest(raw: &Raw<'_>) -> Option<Option<DigestChallenge>> {
    let realm = raw.value("realm")?.to_owned();
    let nonce = raw.value("nonce").filter(|nonce| !nonce.is_empty())?.to_owned();
    let algorithm = raw.value("algorithm").unwrap_or(Algorithm::Md5.name());
    let mut all = Algorithm::ALL.into_iter();
    let Some(algorithm) = all.find(|known| algorithm.eq_ignore_ascii_case(known.name())) else {
        return Some(None);
    };
    let qop = raw.value("qop").unwrap_or_default();
    let qop_auth = qop.split(',').any(|one| one.trim().eq_ignore_ascii_case("auth"));
    if !qop_auth && !qop.trim().is_empty() {
        return Some(None);
    }
    let flag = |name| raw.value(name).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    Some(Some(DigestChallenge {
        realm,
        nonce,
        opaque: raw.value("opaque").map(str::to_owned),
        algorithm,
        qop_auth,
        stale: flag("stale"),
        userhash: flag("userhash"),
    }))
}

#[cfg(test)]
mod tests;
