//! Reads configuration files and applies every relevant line to the [`Settings`].
//!
//! ```text
//! -o lines, then files → lexer → Host / Match: do the lines below apply? → Settings (first wins)
//!                          ↑ Include: the files it names, in place
//! ```
//!
//! It does no I/O itself: files, globs and the commands of `Match exec` go through a [`World`],
//! which tests replace.

use std::path::Path;

use haul_storage::{Error, ErrorKind, Result};

use super::account::Query;
use super::expand::Tokens;
use super::lexer::{self, Line};
use super::origin::Origin;
use super::settings::{Refusal, Settings};
use super::world::World;
use crate::ssh::pattern;

/// Depth of nested includes, as in OpenSSH.
const MAX_DEPTH: usize = 16;

/// Reads all files for one host.
#[derive(Debug)]
pub struct Reader<'a, W> {
    world: &'a W,
    query: &'a Query,
    settings: Settings,
    /// The origin of each keyword.
    origins: Vec<(String, Origin)>,
    /// The name that patterns of `Host` are matched against.
    name: String,
    /// Whether this is the pass in which `Match final` and `Match canonical` hold.
    is_final: bool,
    wants_final: bool,
}

/// The location of a line, for messages.
#[derive(Debug, Clone, Copy)]
struct LineLocation<'a> {
    file: &'a Path,
    number: usize,
}

impl LineLocation<'_> {
    fn error(self, cause: impl Into<String>) -> Error {
        Error::new(ErrorKind::InvalidInput, "read the SSH configuration")
            .at(format!("{}:{}", self.file.display(), self.number))
            .because(cause)
    }
}

/// Options of OpenSSH for features that haul does not have: terminals, forwarding, shared connections, messages. Files
/// may have any option; on the command line, an option that is neither supported nor listed here is an error.
const WITHOUT_EFFECT: [&str; 40] = [
    "addkeystoagent",
    "clearallforwardings",
    "controlmaster",
    "controlpath",
    "controlpersist",
    "dynamicforward",
    "enableescapecommandline",
    "escapechar",
    "exitonforwardfailure",
    "forkafterauthentication",
    "forwardagent",
    "forwardx11",
    "forwardx11timeout",
    "forwardx11trusted",
    "gatewayports",
    "ignoreunknown",
    "ipqos",
    "localcommand",
    "localforward",
    "loglevel",
    "logverbose",
    "obscurekeystroketiming",
    "permitlocalcommand",
    "permitremoteopen",
    "protocol",
    "remoteforward",
    "requesttty",
    "sendenv",
    "sessiontype",
    "setenv",
    "stdinnull",
    "streamlocalbindmask",
    "streamlocalbindunlink",
    "syslogfacility",
    "tcpkeepalive",
    "tunnel",
    "tunneldevice",
    "updatehostkeys",
    "visualhostkey",
    "xauthlocation",
];

impl<'a, W: World> Reader<'a, W> {
    /// Starts with nothing set.
    pub fn new(world: &'a W, query: &'a Query) -> Self {
        let settings = Settings::default();
        let name = query.host.clone();
        let origins = Vec::new();
        Self { world, query, settings, origins, name, is_final: false, wants_final: false }
    }

    /// Applies one `Name=value` from the command line.
    ///
    /// # Errors
    /// If the value is invalid or the option unknown.
    pub fn option(&mut self, text: &str) -> Result<()> {
        let refuse = |cause: String| {
            Error::new(ErrorKind::InvalidInput, "read the SSH options")
                .at(format!("-o {text}"))
                .because(cause)
        };
        let line = lexer::split(text).map_err(refuse)?;
        let line = line.ok_or_else(|| refuse("it is empty".to_owned()))?;
        if matches!(line.keyword.as_str(), "host" | "match" | "include") {
            return Err(refuse(format!("{} is not allowed on the command line", line.keyword)));
        }
        match self.apply(&line, || Origin::CommandLine) {
            Ok(true) => Ok(()),
            Ok(false) if WITHOUT_EFFECT.contains(&line.keyword.as_str()) => Ok(()),
            Ok(false) => Err(refuse(format!("haul does not know the option {}", line.keyword))),
            Err(refusal) => Err(refuse(refusal.cause())),
        }
    }

    /// Reads one file, which must exist. Relative names that it includes are below the directory
    /// `base`. `guarded`: the file is refused if other users can write it; included files are always
    /// read with this check.
    ///
    /// # Errors
    /// A bad line, with file and line number; a file that cannot be read or is writable by others.
    pub fn file(&mut self, path: &Path, base: &Path, guarded: bool) -> Result<()> {
        let text = self.text(path, guarded)?;
        self.read_lines(&text, path, base, true, 0)
    }

    /// Whether a `Match final` requests a second pass.
    pub const fn wants_final_pass(&self) -> bool {
        self.wants_final
    }

    /// From now on `Match final` holds, and `Host` is matched against `name`, the host's real name in lower case.
    pub fn begin_final_pass(&mut self, name: String) {
        self.is_final = true;
        self.settings.host_name = Some(name.replace('%', "%%"));
        self.name = name;
    }

    /// The world that it reads from.
    pub const fn world(&self) -> &'a W {
        self.world
    }

    /// The settings so far.
    pub fn settings(&mut self) -> &mut Settings {
        &mut self.settings
    }

    /// Returns the settings, and their origins.
    pub fn finish(self) -> (Settings, Vec<(String, Origin)>) {
        (self.settings, self.origins)
    }

    /// Applies a line unless its option is set already, and records its origin. `false`: the option is not supported.
    fn apply(&mut self, line: &Line, origin: impl FnOnce() -> Origin) -> Result<bool, Refusal> {
        let before = self.settings.clone();
        let known = self.settings.apply(line)?;
        if self.settings != before {
            self.origins.push((line.keyword.clone(), origin()));
        }
        Ok(known)
    }

    fn text(&self, path: &Path, guarded: bool) -> Result<String> {
        self.world
            .read(path, guarded)
            .map_err(|error| Error::from_io("read the SSH configuration", error).at(path.display()))
    }

    fn read_lines(
        &mut self,
        text: &str,
        path: &Path,
        base: &Path,
        live: bool,
        depth: usize,
    ) -> Result<()> {
        let mut applies = live;
        for (index, raw) in text.lines().enumerate() {
            let location = LineLocation { file: path, number: index + 1 };
            let Some(line) = lexer::split(raw).map_err(|cause| location.error(cause))? else {
                continue;
            };
            match line.keyword.as_str() {
                "host" => {
                    let patterns = nonempty(&line).map_err(|cause| location.error(cause))?;
                    applies = live && pattern::matches_list(patterns, &self.name);
                }
                "match" => {
                    let matched =
                        self.matches(&line, live).map_err(|cause| location.error(cause))?;
                    applies = live && matched;
                }
                "include" => self.include(&line, base, applies, depth, location)?,
                _ if applies => {
                    let at = || Origin::File { path: path.to_owned(), line: location.number };
                    let known = self.apply(&line, at);
                    let known = known.map_err(|refusal| location.error(refusal.cause()))?;
                    if known && raw.contains(char::REPLACEMENT_CHARACTER) {
                        return Err(location.error("the line is not UTF-8"));
                    }
                }
                // A bad line is an error in any block, as in OpenSSH. An option that OpenSSH supports
                // and haul does not is no error here.
                _ => match Settings::default().apply(&line) {
                    Err(Refusal::Bad(cause)) => return Err(location.error(cause)),
                    Err(Refusal::Unsupported(_)) | Ok(_) => {}
                },
            }
        }
        Ok(())
    }

    fn include(
        &mut self,
        line: &Line,
        base: &Path,
        applies: bool,
        depth: usize,
        location: LineLocation<'_>,
    ) -> Result<()> {
        if depth >= MAX_DEPTH {
            return Err(location.error("too many files include each other"));
        }
        for argument in nonempty(line).map_err(|cause| location.error(cause))? {
            let named = if argument.starts_with('~') {
                self.tokens().home(argument).map_err(|cause| location.error(cause))?
            } else {
                base.join(argument)
            };
            // A pattern without matches is not an error, as in OpenSSH.
            for file in self.world.glob(&named.to_string_lossy()) {
                let text = self.text(&file, true)?;
                self.read_lines(&text, &file, base, applies, depth + 1)?;
            }
        }
        Ok(())
    }

    /// Whether all criteria of a `Match` line hold. `live` is false in a file that is included in a block that does
    /// not apply: the commands of `Match exec` are not run then.
    fn matches(&mut self, line: &Line, live: bool) -> Result<bool, String> {
        let mut criteria = line.arguments.iter().map(String::as_str);
        let mut holds = true;
        let mut count = 0;
        // The first criterion that haul does not support; an error only if all others hold.
        let mut unknown = None;
        while let Some(word) = criteria.next() {
            let (negated, name) = match word.strip_prefix('!') {
                Some(name) => (true, name),
                None => (false, word),
            };
            let (name, attached) = match name.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (name, None),
            };
            let name = name.to_ascii_lowercase();
            count += 1;
            let result = match name.as_str() {
                "all" => {
                    if criteria.next().is_some() || (count > 1 && !self.only_passes(line)) {
                        return Err("\"all\" must be the only criterion, or follow canonical or \
                                    final"
                            .to_owned());
                    }
                    true
                }
                "canonical" => self.is_final,
                "final" => {
                    self.wants_final = true;
                    self.is_final
                }
                _ => {
                    let value = attached
                        .or_else(|| criteria.next())
                        .ok_or_else(|| format!("\"{name}\" of Match needs a value"))?;
                    if name == "exec" && unknown.is_some() {
                        // OpenSSH runs it only if the unsupported criterion holds, which is unknown.
                        continue;
                    }
                    match self.criterion(&name, value, live && holds) {
                        Ok(result) => result,
                        Err(Refusal::Bad(cause)) => return Err(cause),
                        Err(Refusal::Unsupported(cause)) => {
                            unknown.get_or_insert(cause);
                            continue;
                        }
                    }
                }
            };
            holds &= result != negated;
        }
        if count == 0 {
            return Err("Match needs a criterion".to_owned());
        }
        match unknown.filter(|_| holds && live) {
            Some(cause) => Err(cause),
            None => Ok(holds),
        }
    }

    /// Whether a `Match` line consists of `canonical`, `final` and `all` only.
    fn only_passes(&self, line: &Line) -> bool {
        line.arguments.iter().all(|word| {
            let word = word.trim_start_matches('!').to_ascii_lowercase();
            matches!(word.as_str(), "all" | "canonical" | "final")
        })
    }

    fn criterion(&self, name: &str, value: &str, live: bool) -> Result<bool, Refusal> {
        let tokens = self.tokens();
        let list = |text: &str| pattern::matches_list(value.split(','), text);
        // Unlike those of `Host`, these patterns ignore case.
        let hosts = |host: &str| {
            let patterns = value.to_ascii_lowercase();
            pattern::matches_list(patterns.split(','), &host.to_ascii_lowercase())
        };
        match name {
            "host" => Ok(hosts(&tokens.host_name)),
            "originalhost" => Ok(hosts(&self.query.host)),
            "user" => Ok(list(&tokens.user)),
            "localuser" => Ok(list(&self.query.local_user)),
            "exec" => Ok(live && self.world.succeeds(&tokens.expand(value)?)),
            "tagged" => Ok(list(self.settings.tag.as_deref().unwrap_or_default())),
            // As for `sftp`, which runs ssh.
            "sessiontype" => Ok(list("subsystem")),
            "command" => Ok(list("sftp")),
            "localnetwork" | "version" => Err(Refusal::Unsupported(format!(
                "haul does not support the Match criterion \"{name}\", which decides about this \
                 host"
            ))),
            _ => Err(Refusal::Bad(format!("haul does not know the criterion \"{name}\" of Match"))),
        }
    }

    fn tokens(&self) -> Tokens {
        self.settings.tokens(self.query)
    }
}

fn nonempty(line: &Line) -> Result<impl Iterator<Item = &str>, String> {
    if line.arguments.is_empty() {
        return Err(format!("{} needs a value", line.keyword));
    }
    Ok(line.arguments.iter().map(String::as_str))
}
