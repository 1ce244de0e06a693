//! `Content-Encoding` (RFC 9110, 8.4), and whether it is a file's own or was put on for the way.
//!
//! Apache says `Content-Encoding: x-gzip` of every `.tar.gz` when it is configured with `AddEncoding`,
//! as many are: what it sends is the file as it is stored. A proxy that compresses says the same of a
//! file that is stored plain.

/// How the bytes of an answer are encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Coding {
    /// gzip (RFC 1952).
    Gzip,
    /// Something else, in small letters.
    Other(String),
}

/// Endings of names of files that are encoded so, without the dot.
const ENDINGS: &[(&str, &[&str])] = &[
    ("gzip", &["gz", "gzip", "tgz", "taz", "svgz", "emz", "wmz", "cpgz"]),
    ("compress", &["z", "taz"]),
    ("bzip2", &["bz2", "bz", "tbz", "tbz2"]),
    ("xz", &["xz", "txz"]),
    ("lzma", &["lzma", "tlz"]),
    ("zstd", &["zst", "tzst"]),
    ("br", &["br"]),
    ("deflate", &["zz"]),
];

impl Coding {
    /// Reads the value of the field; `None` if it says that nothing is encoded.
    pub fn parse(value: &str) -> Option<Self> {
        let value = value.trim().to_ascii_lowercase();
        match value.strip_prefix("x-").unwrap_or(&value) {
            "" | "identity" => None,
            "gzip" => Some(Self::Gzip),
            other => Some(Self::Other(other.to_owned())),
        }
    }

    /// As it is called.
    pub fn name(&self) -> &str {
        match self {
            Self::Gzip => "gzip",
            Self::Other(name) => name,
        }
    }

    /// Whether a file of this name is stored so. Any of its endings counts: Apache looks at all of them,
    /// and calls `a.tar.gz.asc` gzip, which it is not.
    pub fn is_of_name(&self, name: &[u8]) -> bool {
        let known = ENDINGS.iter().find(|(coding, _)| *coding == self.name());
        let Some((_, endings)) = known else { return false };
        name.split(|byte| *byte == b'.')
            .skip(1)
            .any(|ending| endings.iter().any(|known| ending.eq_ignore_ascii_case(known.as_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_nothing_is_no_coding() {
        assert_eq!(Coding::parse(" Identity "), None);
        assert_eq!(Coding::parse(""), None);
        assert_eq!(Coding::parse("X-GZip"), Some(Coding::Gzip));
        assert_eq!(Coding::parse("gzip, br"), Some(Coding::Other("gzip, br".to_owned())));
    }

    #[test]
    fn the_name_says_whether_a_coding_is_the_files_own() {
        let is =
            |coding: &str, name: &str| Coding::parse(coding).unwrap().is_of_name(name.as_bytes());
        assert!(is("x-gzip", "pkg.tar.gz") && is("gzip", "PKG.TGZ") && is("gzip", "a.gz.asc"));
        assert!(is("x-compress", "old.tar.Z") && is("br", "app.js.br") && is("zstd", "x.zst"));
        assert!(!is("gzip", "data.csv") && !is("gzip", "gz") && !is("br", "pkg.tar.gz"));
        assert!(!is("gzip, gzip", "a.gz"));
    }
}
