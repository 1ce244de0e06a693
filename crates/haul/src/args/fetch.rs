//! The options of `cp` for downloads: lists of sources, mirrors, expected digests.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use haul_engine::digest::Digest;
use haul_storage::DigestKind;

/// Options for the sources of files and their expected digests.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct FetchArgs {
    /// Copy the sources that FILE lists, one per line, into DEST; - reads standard input
    #[arg(long, value_name = "FILE", help_heading = "Downloads")]
    pub(crate) input_file: Option<PathBuf>,

    /// Another location of the same file, read at the same time; may be repeated
    #[arg(long = "mirror", value_name = "URL", help_heading = "Downloads")]
    pub(crate) mirrors: Vec<OsString>,

    /// Digest that the file must have, sha256:HEX or blake3:HEX; otherwise it does not appear at DEST
    #[arg(long, value_name = "DIGEST", help_heading = "Downloads")]
    pub(crate) expect: Option<ExpectArg>,

    /// Require of each file the digest listed in NAME.sha256, NAME.sha256sum or SHA256SUMS next to it
    #[arg(long, conflicts_with = "expect", help_heading = "Downloads")]
    pub(crate) expect_beside: bool,
}

impl FetchArgs {
    /// The first of these options that is given.
    pub(crate) fn first_given(&self) -> Option<&'static str> {
        let all = [
            (self.input_file.is_some(), "--input-file"),
            (!self.mirrors.is_empty(), "--mirror"),
            (self.expect.is_some(), "--expect"),
            (self.expect_beside, "--expect-beside"),
        ];
        all.into_iter().find(|(is_given, _)| *is_given).map(|(_, name)| name)
    }
}

/// Value of `--expect`, and of `checksum=` in an input file: `sha256:HEX`, `blake3:HEX`, or aria2's `sha-256=HEX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExpectArg(pub(crate) Digest);

impl FromStr for ExpectArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((name, hex)) = text.split_once([':', '=']) else {
            return Err("no digest type; write sha256:HEX or blake3:HEX".to_owned());
        };
        let kind = match name.to_ascii_lowercase().as_str() {
            "sha256" | "sha-256" => DigestKind::Sha256,
            "blake3" => DigestKind::Blake3,
            _ => {
                let name = name.escape_debug();
                return Err(format!(
                    "unsupported digest '{name}'; haul supports sha256 and blake3"
                ));
            }
        };
        let digest = Digest::from_hex(kind, hex.as_bytes());
        digest.map(Self).ok_or_else(|| {
            let found = match hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                true => hex.len().to_string(),
                false => "other characters".to_owned(),
            };
            format!("a {} digest has 64 hexadecimal digits, this one has {found}", kind.name())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_accepted_in_the_syntax_of_pip_and_aria2() {
        let hex = "Ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let parse = |name: &str| format!("{name}{hex}").parse::<ExpectArg>();
        let parsed = parse("sha256:").unwrap().0;
        assert_eq!((parsed.kind, parsed.to_string()), (DigestKind::Sha256, hex.to_lowercase()));
        assert_eq!(parse("sha-256="), parse("sha256:"));
        assert_eq!(parse("blake3:").unwrap().0.kind, DigestKind::Blake3);
        assert!(parse("").unwrap_err().contains("write sha256:HEX"));
        assert!(parse("md5:").unwrap_err().contains("'md5'"));
        let error = |hex: &str| format!("sha256:{hex}").parse::<ExpectArg>().unwrap_err();
        assert!(error("00").ends_with("has 64 hexadecimal digits, this one has 2"));
        assert!(error(&"g".repeat(64)).ends_with("digits, this one has other characters"));
    }
}
