//! The features that a server announces (`FEAT`, RFC 2389).

use super::{HashCommand, Reply};

/// The features that haul uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// `MLST` and `MLSD` (RFC 3659).
    pub mlst: bool,
    /// `REST` before `RETR` and `STOR`.
    pub rest: bool,
    /// `SIZE`: the length of a file.
    pub size: bool,
    /// `MDTM`: the modification time of a file.
    pub mdtm: bool,
    /// `MFMT`: sets a file's time (draft-somers-ftp-mfxx).
    pub mfmt: bool,
    /// Names are UTF-8.
    pub utf8: bool,
    /// `EPSV`: passive mode; its reply has a port, but no address.
    pub epsv: bool,
    /// The command for SHA-256 digests of files, if the server has one.
    pub hash: Option<HashCommand>,
}

impl Features {
    /// For a server that does not know `FEAT`: haul tries the commands that are as old as `FEAT` or older.
    pub const OLD: Self = Self {
        mlst: false,
        rest: true,
        size: true,
        mdtm: true,
        mfmt: false,
        utf8: false,
        epsv: true,
        hash: None,
    };

    /// Parses the reply to `FEAT`.
    pub fn parse(reply: &Reply) -> Self {
        if !reply.is_done() {
            return Self::OLD;
        }
        let line = |line: &Vec<u8>| String::from_utf8_lossy(line).trim().to_ascii_uppercase();
        let lines: Vec<String> = reply.lines().iter().map(line).collect();
        let has = |feature: &str| {
            lines.iter().any(|line| {
                line.strip_prefix(feature)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
            })
        };
        Self {
            mlst: has("MLST"),
            rest: has("REST STREAM"),
            size: has("SIZE"),
            mdtm: has("MDTM"),
            mfmt: has("MFMT"),
            utf8: has("UTF8"),
            // EPSV (RFC 2428) is not always announced; a server without it refuses the command.
            epsv: true,
            hash: HashCommand::of(lines.iter().map(String::as_str)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ReplyParser;
    use super::*;

    #[test]
    fn features_are_read_from_lines() {
        let mut parser = ReplyParser::default();
        let mut reply = None;
        for line in ["211-Features:", " MDTM", " REST STREAM", " mlst type*;size*;", "211 End"] {
            reply = parser.line(line.as_bytes()).unwrap();
        }
        let features = Features::parse(&reply.unwrap());
        assert!(features.mdtm && features.rest && features.mlst);
        assert!(!features.size && !features.mfmt && !features.utf8);
    }

    #[test]
    fn without_feat_the_older_commands_are_assumed() {
        let reply = ReplyParser::default().line(b"500 what?").unwrap().unwrap();
        assert_eq!(Features::parse(&reply), Features::OLD);
    }
}
