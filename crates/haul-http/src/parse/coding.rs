//! `Content-Encoding` (RFC 9110, 8.4), and whether it is the file's own or was added in transit.
//!
//! Apache with `AddEncoding`, which is common, sends `Content-Encoding: x-gzip` for every `.tar.gz`: the
//! bytes are the file as stored. A compressing proxy sends the same field for a file that is stored plain.

/// A content coding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Coding {
    /// gzip (RFC 1952).
    Gzip,
    /// Any other, in lower case.
    Other(String),
}

/// File name extensions of each coding, without the dot.
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
    /// Parses the value of the field; `None` if there is no coding.
    pub fn parse(value: &str) -> Option<Self> {
        let value = value.trim().to_ascii_lowercase();
        match value.strip_prefix("x-").unwrap_or(&value) {
            "" | "identity" => None,
            "gzip" => Some(Self::Gzip),
            other => Some(Self::Other(other.to_owned())),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Self::Gzip => "gzip",
            Self::Other(name) => name,
        }
    }

    /// Whether a file of this name is stored with this coding. Any of its extensions counts, as in Apache,
    /// which labels `a.tar.gz.asc` as gzip although it is not.
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
    fn identity_is_no_coding() {
        assert_eq!(Coding::parse(" Identity "), None);
        assert_eq!(Coding::parse(""), None);
        assert_eq!(Coding::parse("X-GZip"), Some(Coding::Gzip));
        assert_eq!(Coding::parse("gzip, br"), Some(Coding::Other("gzip, br".to_owned())));
    }

    #[test]
    fn the_name_shows_whether_a_coding_is_the_files_own() {
        let is =
            |coding: &str, name: &str| Coding::parse(coding).unwrap().is_of_name(name.as_bytes());
        assert!(is("x-gzip", "pkg.tar.gz") && is("gzip", "PKG.TGZ") && is("gzip", "a.gz.asc"));
        assert!(is("x-compress", "old.tar.Z") && is("br", "app.js.br") && is("zstd", "x.zst"));
        assert!(!is("gzip", "data.csv") && !is("gzip", "gz") && !is("br", "pkg.tar.gz"));
        assert!(!is("gzip, gzip", "a.gz"));
    }
}
