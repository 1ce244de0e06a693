//! `--input-file`: a list of sources, one per line, in the format of aria2.
//!
//! ```text
//! # a comment
//! https://one.example/a.iso<TAB>https://two.example/a.iso      mirrors of one file
//!   out=b.iso                                                  its name below DEST
//!   dir=images                                                 a directory below DEST
//!   checksum=sha-256=ba78...                                   the digest that it must have
//! ```

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use haul_engine::digest::Digest;
use haul_storage::{RelPath, io_cause};

use crate::args::ExpectArg;

/// Longest list in bytes: it is read into memory as a whole.
const MAX_BYTES: u64 = 256 << 20;

/// One source in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    /// The line of the list, for errors: `FILE:LINE`.
    pub(crate) at: String,
    /// The location of the source; several are mirrors of one file.
    pub(crate) locations: Vec<OsString>,
    /// The destination directory, below DEST.
    pub(crate) directory: RelPath,
    /// The file's name or path in this directory, if it differs from its name at the source.
    pub(crate) name: Option<RelPath>,
    /// The digest that it must have.
    pub(crate) expected: Option<Digest>,
}

/// Reads a list; `-` is standard input.
///
/// # Errors
/// If the list cannot be read, is too long or has no source, or a line is malformed; the message names that line.
pub(crate) fn read(file: &Path) -> Result<Vec<Listed>, String> {
    let is_stdin = file == Path::new("-");
    let name = if is_stdin { "standard input".to_owned() } else { file.display().to_string() };
    let mut text = Vec::new();
    let read = |from: &mut dyn Read, text: &mut Vec<u8>| from.take(MAX_BYTES + 1).read_to_end(text);
    let outcome = match is_stdin {
        true => read(&mut io::stdin().lock(), &mut text),
        false => File::open(file).and_then(|mut file| read(&mut file, &mut text)),
    };
    outcome.map_err(|error| format!("{name}: cannot read the list ({})", io_cause(&error)))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(format!("{name}: cannot read the list (it is longer than 256 MiB)"));
    }
    let listed = parse(&name, &text)?;
    if listed.is_empty() {
        return Err(format!("{name}: cannot use the list (it has no source)"));
    }
    Ok(listed)
}

fn parse(name: &str, text: &[u8]) -> Result<Vec<Listed>, String> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut all: Vec<Listed> = Vec::new();
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let at = format!("{name}:{}", number + 1);
        let line = line.trim_ascii_end();
        let content = line.trim_ascii_start();
        if content.is_empty() || content.starts_with(b"#") {
            continue;
        }
        if content.len() < line.len() {
            let last = all.last_mut();
            option(last, content).map_err(|cause| format!("{at}: {cause}"))?;
            continue;
        }
        let locations = line.split(|byte| *byte == b'\t').map(<[u8]>::trim_ascii);
        let locations = locations.filter(|one| !one.is_empty());
        all.push(Listed {
            locations: locations.map(|one| OsString::from_vec(one.to_vec())).collect(),
            at,
            directory: RelPath::root(),
            name: None,
            expected: None,
        });
    }
    Ok(all)
}

/// Applies an indented line, given without its indentation, to the source above it.
fn option(listed: Option<&mut Listed>, line: &[u8]) -> Result<(), String> {
    let Some(listed) = listed else {
        return Err(
            "an indented line sets an option of the source above it, and there is none".to_owned()
        );
    };
    let equals = line.iter().position(|byte| *byte == b'=');
    let Some(equals) = equals else {
        return Err(format!("'{}' is not an option; write NAME=VALUE", line.escape_ascii()));
    };
    let (option, value) = (line[..equals].trim_ascii_end(), &line[equals + 1..]);
    match option {
        b"out" => listed.name = Some(below_destination("out", value)?),
        b"dir" => listed.directory = below_destination("dir", value)?,
        b"checksum" => {
            let text = String::from_utf8_lossy(value);
            let expected: ExpectArg =
                text.parse().map_err(|cause| format!("checksum={text}: {cause}"))?;
            listed.expected = Some(expected.0);
        }
        _ => {
            return Err(format!(
                "unknown option '{}'; a list may have out, dir and checksum",
                option.escape_ascii()
            ));
        }
    }
    Ok(())
}

/// Parses a path below DEST. A list may come from an untrusted source, so it must not name other directories.
fn below_destination(option: &str, value: &[u8]) -> Result<RelPath, String> {
    let wrong = |cause: &str| {
        format!("{option}={}: must be a path below DEST, and {cause}", value.escape_ascii())
    };
    if value.starts_with(b"/") {
        return Err(wrong("this one is absolute; name that directory as DEST"));
    }
    let is_directory = option == "dir";
    if value.is_empty() && is_directory {
        return Err(wrong("it is empty"));
    }
    if value.is_empty() || value.ends_with(b"/") && !is_directory {
        return Err(wrong("this one names no file"));
    }
    let mut path = RelPath::root();
    let parts = value.split(|byte| *byte == b'/');
    for part in parts.filter(|part| !part.is_empty() && *part != b".") {
        path = path.join(part).map_err(|error| wrong(&format!("this one {error}")))?;
    }
    if path.is_root() && !is_directory {
        return Err(wrong("this one names no file"));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn parse_error(text: &str) -> String {
        parse("list", text.as_bytes()).unwrap_err()
    }

    #[test]
    fn lines_are_sources_and_indented_lines_are_options_of_the_source_above() {
        let text = format!(
            "\u{feff}# from a mirror\r\n\r\nhttps://a/x\thttps://b/x \t\r\n  out=./y.iso\r\n\tdir=deep//er/\r\n  \
             checksum=sha-256={HEX}\r\n  # indented\nhost:a b\n"
        );
        let all = parse("list", text.as_bytes()).unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].locations, ["https://a/x", "https://b/x"]);
        assert_eq!(all[0].at, "list:3");
        assert_eq!(all[0].name, Some("y.iso".parse().unwrap()));
        assert_eq!(all[0].directory, "deep/er".parse().unwrap());
        assert_eq!(all[0].expected.unwrap().to_string(), HEX);
        assert_eq!(all[1].locations, ["host:a b"]);
        assert_eq!((&all[1].name, all[1].expected), (&None, None));
        assert!(all[1].directory.is_root());
    }

    #[test]
    fn an_error_names_the_malformed_line() {
        assert!(parse_error("x\n\n  header=A: b\n").starts_with("list:3: unknown option 'header'"));
        assert!(parse_error("  out=a\nx\n").starts_with("list:1: an indented line"));
        assert!(parse_error("x\n  out\n").starts_with("list:2: 'out' is not an option"));
        assert!(
            parse_error("x\n  checksum=md5=00\n")
                .contains("list:2: checksum=md5=00: unsupported digest")
        );
        for value in ["../y", "a/../../y", "/etc/passwd", "", "a/", "."] {
            let error = parse_error(&format!("x\n  out={value}\n"));
            assert!(error.starts_with("list:2: out=") && error.contains("below DEST"), "{error}");
        }
        let error = parse_error("x\n  dir=\n");
        assert_eq!(error, "list:2: dir=: must be a path below DEST, and it is empty");
        assert!(parse_error("x\n  dir=/srv\n").contains("name that directory as DEST"));
    }
}
