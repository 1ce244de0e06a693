//! `Repr-Digest` and `Want-Repr-Digest` (RFC 9530): dictionaries of structured fields (RFC 9651). Only
//! `sha-256` is used; other functions are skipped.

use data_encoding::{BASE64, BASE64_NOPAD};

/// The key of SHA-256.
const SHA_256: &str = "sha-256";

/// The SHA-256 in the values of `Repr-Digest`. As for all keys, the last one counts; `None` if there is none, or it is
/// malformed.
pub fn sha256<'a>(values: impl Iterator<Item = &'a str>) -> Option<[u8; 32]> {
    let (_, value) = values.flat_map(members).filter(|(key, _)| *key == SHA_256).last()?;
    // A byte sequence, perhaps with parameters: `:…:;a=b`.
    let (base64, rest) = value.strip_prefix(':')?.split_once(':')?;
    if !rest.trim_start_matches([' ', '\t']).is_empty() && !rest.starts_with(';') {
        return None;
    }
    let decode = |encoding: data_encoding::Encoding| encoding.decode(base64.as_bytes()).ok();
    decode(BASE64).or_else(|| decode(BASE64_NOPAD))?.try_into().ok()
}

/// A value of `Repr-Digest`.
pub fn value(sha256: [u8; 32]) -> String {
    format!("{SHA_256}=:{}:", BASE64.encode(&sha256))
}

/// The value of `Want-Repr-Digest` that requests only a SHA-256.
pub const WANT_SHA256: &str = "sha-256=10";

/// Whether values of `Want-Repr-Digest` request a SHA-256. A weight of 0 means that it is not acceptable.
pub fn wants_sha256<'a>(values: impl Iterator<Item = &'a str>) -> bool {
    let wanted = values.flat_map(members).filter(|(key, _)| *key == SHA_256).last();
    let Some((_, weight)) = wanted else { return false };
    let number = weight.split(';').next().unwrap_or_default().trim();
    number.parse::<u8>().is_ok_and(|weight| (1..=10).contains(&weight))
}

/// The members of a dictionary: key, and the text after `=`. A comma within quotes is no separator.
fn members(value: &str) -> impl Iterator<Item = (&str, &str)> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let separates = move |character| {
        let escapes = is_quoted && !is_escaped && character == '\\';
        if character == '"' && !is_escaped {
            is_quoted = !is_quoted;
        }
        is_escaped = escapes;
        character == ',' && !is_quoted
    };
    value.split(separates).filter_map(|member| {
        let (key, value) = member.trim_matches([' ', '\t']).split_once('=')?;
        Some((key, value))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(value: &str) -> Option<[u8; 32]> {
        sha256([value].into_iter())
    }

    /// RFC 9530, appendix B.1: `{"hello": "world"}` and a line feed.
    const EXAMPLE: &str = "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:";

    #[test]
    fn the_example_of_rfc_9530_is_read_and_written() {
        let digest = parsed(EXAMPLE).unwrap();
        assert_eq!((digest[0], digest[31]), (0x44, 0x38));
        assert_eq!(value(digest), EXAMPLE);
        let unpadded = EXAMPLE.replace("=:", ":").replacen(':', "=:", 1);
        assert_eq!(parsed(&unpadded), Some(digest), "{unpadded}");
    }

    #[test]
    fn other_members_parameters_and_lines_are_skipped() {
        let digest = parsed(EXAMPLE);
        for value in [
            format!("sha-512=:AAAA:, {EXAMPLE}"),
            format!("{EXAMPLE};x=1 , unixsum=30637"),
            format!("a=\"sha-256=:AAAA:, \\\" ,\", {EXAMPLE}"),
            format!("sha-256=:AAAA:,{EXAMPLE}"),
        ] {
            assert_eq!(parsed(&value), digest, "{value}");
        }
        assert_eq!(sha256(["sha-512=:AAAA:", EXAMPLE].into_iter()), digest);
        for value in [
            "",
            "sha-256",
            "sha-256=",
            "sha-256=:AAAA:",
            "sha-256=44aff4",
            "SHA-256=:",
            "sha=:AAAA:",
        ] {
            assert_eq!(parsed(value), None, "{value}");
        }
    }

    #[test]
    fn only_a_weight_of_1_to_10_requests_a_digest() {
        let wants = |value: &str| wants_sha256([value].into_iter());
        for value in ["sha-256=1", "sha-512=3, sha-256=10, unixsum=0", "sha-256=5;x", WANT_SHA256] {
            assert!(wants(value), "{value}");
        }
        for value in
            ["", "sha-256", "sha-256=0", "sha-256=11", "sha-256=-1", "sha-512=10", "sha-256=x"]
        {
            assert!(!wants(value), "{value}");
        }
    }

    proptest! {
        #[test]
        fn a_written_digest_is_read_back(digest: [u8; 32], before in "[a-z0-9=:;, \"\\\\-]{0,20}") {
            prop_assert_eq!(parsed(&value(digest)), Some(digest));
            let lines = [before, value(digest)];
            prop_assert_eq!(sha256(lines.iter().map(String::as_str)), Some(digest));
        }

        #[test]
        fn any_value_is_read_or_refused(value in "\\PC{0,60}", weights in "[a-z0-9=:;, -]{0,40}") {
            parsed(&value);
            parsed(&format!("sha-256=:{value}"));
            wants_sha256([value.as_str(), weights.as_str()].into_iter());
        }
    }
}
