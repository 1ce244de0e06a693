//! Header fields and cookies of the command line, and cookie files.
//!
//! Errors name the option, the file and the line, and never a value: it may be a secret.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use haul_http::client::Headers;
use haul_http::parse::cookies::{self, Cookie};
use haul_storage::{check_private, io_cause, replace_private};

use crate::args::WebArgs;
use crate::config;

/// The head of a cookie file. curl writes the same first line, and readers require it.
const TITLE: &str = "# Netscape HTTP Cookie File\n# Written by haul. It may contain secrets.\n\n";

/// The header fields and cookies of the command line.
///
/// # Errors
/// The option, or the file and line, whose field cannot be sent, and why; a file that cannot be read.
pub(super) fn from_args(args: &WebArgs) -> Result<Headers, String> {
    let mut headers = Headers::default();
    for (at, text) in args.headers.iter().enumerate() {
        match text.strip_prefix('@') {
            None => headers.add_line(text).map_err(|error| match args.headers.len() {
                1 => format!("--header: {error}"),
                _ => format!("--header number {}: {error}", at + 1),
            })?,
            Some(file) => add_file(&mut headers, Path::new(file))?,
        }
    }
    let add = |headers: &mut Headers, name: &str, value: &Option<String>| match value {
        Some(value) => headers.add(name, value),
        None => Ok(()),
    };
    add(&mut headers, "User-Agent", &args.user_agent)
        .map_err(|error| format!("--user-agent: {error}"))?;
    add(&mut headers, "Referer", &args.referer).map_err(|error| format!("--referer: {error}"))?;
    for text in &args.cookies {
        headers.add_cookies(text).map_err(|error| {
            let hint = if text.contains('=') {
                ""
            } else {
                "\nhint: for a file of cookies write --load-cookies FILE"
            };
            format!("--cookie: {error}{hint}")
        })?;
    }
    Ok(headers)
}

/// Adds the fields of a file, one per line. Empty lines and lines that begin with `#` are skipped.
fn add_file(headers: &mut Headers, file: &Path) -> Result<(), String> {
    let text = fs::read_to_string(file).map_err(|error| unreadable(file, &error))?;
    for (at, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let added = headers.add_line(line);
        added.map_err(|error| format!("{}:{}: {error}", file.display(), at + 1))?;
    }
    Ok(())
}

fn unreadable(file: &Path, error: &io::Error) -> String {
    format!("{}: cannot read ({})", file.display(), io_cause(error))
}

/// The cookie files of a command.
#[derive(Debug)]
pub(super) struct CookieFiles {
    loaded: Vec<Cookie>,
    /// The file to write, with symbolic links resolved.
    save: Option<PathBuf>,
    /// Whether the loaded cookies come from a file other than `save`.
    is_copy: bool,
}

impl CookieFiles {
    /// Reads the file to load, and checks that the file to save can be written.
    ///
    /// # Errors
    /// A file cannot be read or written, or the one to load is not a cookie file.
    pub(super) fn open(args: &WebArgs) -> Result<Self, String> {
        let loaded = match &args.load_cookies {
            None => Vec::new(),
            Some(file) => {
                let bytes = fs::read(file).map_err(|error| unreadable(file, &error))?;
                cookies::read(&bytes).map_err(|error| format!("{}: {error}", file.display()))?
            }
        };
        let mut save = None;
        if let Some(file) = &args.save_cookies {
            let failed = |error: &io::Error| {
                format!("{}: cannot write ({})", file.display(), io_cause(error))
            };
            let target = config::target(file).map_err(|error| failed(&error))?;
            check_private(&target).map_err(|error| failed(&error))?;
            save = Some(target);
        }
        let from = args.load_cookies.as_ref().and_then(|file| config::target(file).ok());
        let is_copy = args.load_cookies.is_some() && from != save;
        Ok(Self { loaded, save, is_copy })
    }

    /// The cookies of the loaded file.
    pub(super) fn loaded(&self) -> &[Cookie] {
        &self.loaded
    }

    /// Whether there is a file to write.
    pub(super) const fn is_saving(&self) -> bool {
        self.save.is_some()
    }

    /// Writes the cookies of all hosts, if there is a file to write. If no host was opened, it is written
    /// only when cookies were loaded from another file.
    ///
    /// # Errors
    /// The file, and why it cannot be written.
    pub(super) fn save(&self, of_hosts: &[Vec<Cookie>]) -> Result<(), (&Path, String)> {
        let Some(file) = &self.save else { return Ok(()) };
        if of_hosts.is_empty() && !self.is_copy {
            return Ok(());
        }
        let mut all: Vec<Cookie> = Vec::new();
        // Each host began with all loaded cookies: one that a host no longer has was removed or replaced by its server.
        let is_kept = |cookie: &&Cookie| of_hosts.iter().all(|host| host.contains(cookie));
        let kept = self.loaded.iter().filter(is_kept);
        let set = of_hosts.iter().flatten().filter(|cookie| !self.loaded.contains(cookie));
        for cookie in kept.chain(set) {
            all.retain(|known| !cookie.replaces(known));
            all.push(cookie.clone());
        }
        let text: String = all.iter().filter_map(Cookie::line).collect();
        replace_private(file, format!("{TITLE}{text}").as_bytes())
            .map_err(|error| (file.as_path(), io_cause(&error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formerly, it came back with the jar of another host of the command.
    #[test]
    fn a_cookie_that_one_server_has_removed_is_not_saved() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("cookies");
        let of = |lines: &[&str]| cookies::read(lines.concat().as_bytes()).unwrap();
        let kept = "example.org\tFALSE\t/\tFALSE\t9999999999\tkept\t1\n";
        let removed = "example.org\tFALSE\t/\tFALSE\t9999999999\tremoved\t1\n";
        let set = "example.org\tFALSE\t/\tFALSE\t9999999999\tset\t1\n";
        let files =
            CookieFiles { loaded: of(&[kept, removed]), save: Some(file.clone()), is_copy: false };
        files.save(&[of(&[kept]), of(&[kept, removed, set])]).unwrap();
        let saved = cookies::read(&fs::read(&file).unwrap()).unwrap();
        assert_eq!(saved, of(&[kept, set]));
    }
}
