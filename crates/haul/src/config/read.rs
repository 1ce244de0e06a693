//! Parses the text of the configuration file to a [`Config`] and a list of faults.
//!
//! ```text
//! text → tables with positions (toml) → each key on its own → valid values, and faults
//! ```

use std::collections::HashSet;
use std::path::Path;

use clap::Args as _;
use haul_http::client::Headers;
use haul_storage::{Location, Scheme};
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer, ValueDeserializer};

use super::contents::{Config, Entry, Remote};
use super::fault::{Fault, Section, did_you_mean};
use crate::args::BridgeArg;
use crate::options::Options;
use crate::profiles::BUILT_IN_PROFILES;
use crate::units::Switch;

/// The top-level tables.
const TABLES: [&str; 3] = ["defaults", "profile", "remote"];

/// The keys of a remote, in the order in which haul writes them.
pub(super) const REMOTE_KEYS: [&str; 5] = ["url", "user", "port", "password-command", "headers"];

/// Whether a text is a TOML key: bare or quoted parts without spaces, separated by dots.
pub(super) fn is_key(text: &str) -> bool {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let mut rest = text;
    loop {
        let end = match rest.chars().next() {
            Some(quote @ ('"' | '\'')) => rest[1..].find(quote).map_or(0, |end| end + 2),
            _ => rest.find(|c: char| !is_bare(c)).unwrap_or(rest.len()),
        };
        let (part, behind) = rest.split_at(end);
        if part.is_empty() || part.contains(char::is_whitespace) {
            return false;
        }
        match behind.strip_prefix('.') {
            Some(next) => rest = next,
            None => return behind.is_empty(),
        }
    }
}

/// The valid part of the configuration, and the faults in order of their lines.
pub(super) fn read(file: &Path, text: &str) -> (Config, Vec<Fault>) {
    let (root, errors) = DeTable::parse_recoverable(text);
    let mut reader = Reader {
        file,
        text,
        config: Config::default(),
        faults: Vec::new(),
        broken: HashSet::new(),
    };
    for error in &errors {
        reader.syntax(error);
    }
    reader.top(root.get_ref());
    reader.check_profile_names();
    let Reader { mut config, mut faults, .. } = reader;
    config.entries.sort_by_key(|entry| entry.line);
    faults.sort_by_key(|fault| fault.line);
    (config, faults)
}

/// The names of the options that both `[defaults]` and `[profile.NAME]` may have.
pub(crate) fn option_names() -> Vec<String> {
    let command = Options::augment_args(clap::Command::new("options"));
    let options = command.get_arguments().filter_map(|arg| arg.get_long().map(str::to_owned));
    options.chain(["include".to_owned(), "exclude".to_owned()]).collect()
}

/// Keys of `[defaults]` that apply to all commands.
const FOR_ALL_COMMANDS: [&str; 3] = ["bridge", "lan", "port-mapping"];

type Value<'a> = Spanned<DeValue<'a>>;

/// The state of parsing. In its methods, `at` is a byte offset in `text`.
struct Reader<'a> {
    file: &'a Path,
    text: &'a str,
    config: Config,
    faults: Vec<Fault>,
    /// Lines with a TOML syntax error. Values that the parser recovered from them are ignored.
    broken: HashSet<usize>,
}

impl Reader<'_> {
    /// The line number of an offset, counted from 1.
    fn line(&self, at: usize) -> usize {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    }

    /// Adds a fault and returns its hint, for the caller to set.
    fn fault(
        &mut self,
        at: usize,
        section: &Section,
        key: Option<&str>,
        cause: impl Into<String>,
    ) -> &mut Option<String> {
        let line = Some(self.line(at));
        let (section, key, cause) = (section.clone(), key.map(str::to_owned), cause.into());
        let at = self.faults.len();
        let file = self.file.to_owned();
        self.faults.push(Fault { file, line, section, key, cause, hint: None });
        &mut self.faults[at].hint
    }

    /// Adds a fault for a syntax error, at most one per line.
    fn syntax(&mut self, error: &toml::de::Error) {
        // An unexpected line end has the position of that line end, and so belongs to the right line.
        let at = error.span().map_or(self.text.len(), |span| span.start.min(self.text.len()));
        let line = self.line(at);
        if !self.broken.insert(line) {
            return;
        }
        let (section, key) = (self.section_at(line), self.key_at(line));
        let cause = error.message().replace('\n', "; ");
        self.fault(at, &section, key.as_deref(), cause);
    }

    /// The table that contains a line, by the nearest header above it or in it.
    fn section_at(&self, line: usize) -> Section {
        let above = self.text.lines().take(line).map(str::trim);
        let header = above.filter(|line| line.starts_with('[')).last();
        let header = header.and_then(|line| line.trim_start_matches('[').split(']').next());
        let header = header.unwrap_or_default().trim();
        let keys: Vec<String> = match toml_edit::Key::parse(header) {
            Ok(keys) => keys.iter().map(|key| key.get().to_owned()).collect(),
            // The fault may be in the header itself.
            Err(_) => header.splitn(2, '.').map(str::to_owned).collect(),
        };
        let mut keys = keys.into_iter();
        match (keys.next().as_deref(), keys.next()) {
            (Some("defaults"), _) => Section::Defaults,
            (Some("profile"), Some(name)) if !name.is_empty() => Section::Profile(name),
            (Some("remote"), Some(name)) if !name.is_empty() => Section::Remote(name),
            _ => Section::Top,
        }
    }

    /// The key of the assignment in a line; `None` if the text before `=` is not a key, as it may be part of a secret.
    fn key_at(&self, line: usize) -> Option<String> {
        let (key, _) = self.text.lines().nth(line - 1)?.split_once('=')?;
        let key = key.trim();
        is_key(key).then(|| key.to_owned())
    }

    /// Whether a key or its value is in a line with a syntax error, so that what was parsed is unreliable.
    fn is_broken(&self, at: usize, value: &Value<'_>) -> bool {
        let is_broken = |at| self.broken.contains(&self.line(at));
        is_broken(at) || is_broken(value.span().start)
    }

    fn top(&mut self, root: &DeTable<'_>) {
        for (key, value) in root {
            let (name, at) = (&**key.get_ref(), key.span().start);
            match name {
                "defaults" => self.config.defaults = self.options(&Section::Defaults, at, value),
                "profile" => self.profiles(at, value),
                "remote" => self.remotes(at, value),
                _ if self.is_broken(at, value) => {}
                _ => {
                    let hint = did_you_mean(name, TABLES).unwrap_or_else(|| {
                        "options are in [defaults] or [profile.NAME], locations in [remote.NAME]"
                            .to_owned()
                    });
                    let is_table = value.get_ref().is_table();
                    let what = if is_table { "unknown table" } else { "unknown key" };
                    *self.fault(at, &Section::Top, Some(name), what) = Some(hint);
                }
            }
        }
    }

    /// The value as a table. If it is not one, adds a fault and returns `None`.
    fn table<'v, 'i>(
        &mut self,
        section: &Section,
        key: Option<&str>,
        at: usize,
        value: &'v Value<'i>,
    ) -> Option<&'v DeTable<'i>> {
        let table = value.get_ref().as_table();
        if table.is_none() && !self.is_broken(at, value) {
            self.fault(at, section, key, "it must be a table, not a value");
        }
        table
    }

    fn profiles(&mut self, at: usize, value: &Value<'_>) {
        let Some(table) = self.table(&Section::Top, Some("profile"), at, value) else { return };
        for (key, value) in table {
            let name = key.get_ref().clone().into_owned();
            let section = Section::Profile(name.clone());
            let options = self.options(&section, key.span().start, value);
            self.config.profile.insert(name, options);
        }
    }

    fn options(&mut self, section: &Section, at: usize, value: &Value<'_>) -> Options {
        let known = option_names();
        let Some(table) = self.table(section, None, at, value) else { return Options::default() };
        let mut valid = DeTable::new();
        for (key, value) in table {
            let (name, at) = (&**key.get_ref(), key.span().start);
            if self.is_broken(at, value) {
                continue;
            }
            if let Some(read) = self.for_all_commands(section, name, value) {
                match read {
                    Ok(()) => self.record(section, name, at, value),
                    Err(cause) => {
                        self.fault(at, section, Some(name), cause);
                    }
                }
                continue;
            }
            if !known.iter().any(|known| known == name) {
                let of_all = FOR_ALL_COMMANDS.iter().filter(|_| *section == Section::Defaults);
                let known: Vec<_> =
                    known.iter().map(String::as_str).chain(of_all.copied()).collect();
                let hint = did_you_mean(name, known.iter().copied());
                let hint = hint.unwrap_or_else(|| format!("the options are {}", known.join(", ")));
                *self.fault(at, section, Some(name), "unknown key") = Some(hint);
                continue;
            }
            let mut alone = DeTable::new();
            alone.insert(key.clone(), value.clone());
            match deserialize::<Options>(alone, value) {
                Ok(_) => {
                    self.record(section, name, at, value);
                    valid.insert(key.clone(), value.clone());
                }
                Err(error) => {
                    let at = error.span().map_or(at, |span| span.start);
                    self.fault(at, section, Some(name), error.message().replace('\n', "; "));
                }
            }
        }
        // Each of them was valid on its own, so this cannot fail.
        deserialize(valid, value).unwrap_or_default()
    }

    /// Reads a key of `[defaults]` that is for all commands, or returns why it is invalid; `None` if it is another key.
    fn for_all_commands(
        &mut self,
        section: &Section,
        name: &str,
        value: &Value<'_>,
    ) -> Option<Result<(), String>> {
        if *section != Section::Defaults {
            return None;
        }
        match name {
            "bridge" => {
                let read = text(value).and_then(|text| text.parse::<BridgeArg>());
                Some(read.map(|bridge| self.config.bridge = Some(bridge)))
            }
            "lan" => Some(switch(value).map(|lan| self.config.lan = Some(lan))),
            "port-mapping" => Some(switch(value).map(|maps| self.config.port_mapping = Some(maps))),
            _ => None,
        }
    }

    fn remotes(&mut self, at: usize, value: &Value<'_>) {
        let Some(table) = self.table(&Section::Top, Some("remote"), at, value) else { return };
        for (key, value) in table {
            let name = key.get_ref().clone().into_owned();
            let (section, at) = (Section::Remote(name.clone()), key.span().start);
            if let Err(cause) = check_name(&name) {
                *self.fault(at, &section, None, cause) =
                    Some("use letters, digits, '-', '_' and '.'".to_owned());
            }
            let Some(table) = self.table(&section, None, at, value) else { continue };
            let line = self.line(at);
            if let Some(remote) = self.remote(&section, at, line, table) {
                self.config.remote.insert(name, remote);
            }
        }
    }

    fn remote(
        &mut self,
        section: &Section,
        at: usize,
        line: usize,
        table: &DeTable<'_>,
    ) -> Option<Remote> {
        let (mut base, mut user, mut port, mut password_command) = (None, None, None, None);
        let (mut fields, mut fields_at) = (None, at);
        // Also set by an invalid `url`, which is a fault already and must not be reported as missing too.
        let mut has_url = false;
        // Position and name of a key that a local path cannot have.
        let mut unused = None;
        for (key, value) in table {
            let (name, at) = (&**key.get_ref(), key.span().start);
            if self.is_broken(at, value) {
                has_url |= name == "url";
                continue;
            }
            let read = match name {
                "url" => {
                    has_url = true;
                    text(value).and_then(location).map(|location| base = Some(location))
                }
                "user" => {
                    unused = Some((at, "user"));
                    text(value).and_then(user_name).map(|name| user = Some(name))
                }
                "port" => {
                    unused = Some((at, "port"));
                    port_number(value).map(|number| port = Some(number))
                }
                "password-command" => {
                    text(value).and_then(command).map(|line| password_command = Some(line))
                }
                "headers" => {
                    fields_at = at;
                    headers(value).map(|given| fields = Some(given))
                }
                _ => {
                    *self.fault(at, section, Some(name), "unknown key") = Some(remote_hint(name));
                    continue;
                }
            };
            match read {
                Ok(()) => self.record(section, name, at, value),
                Err(cause) => {
                    self.fault(at, section, Some(name), cause);
                }
            }
        }
        if !has_url && self.broken.is_empty() {
            let cause = "it is missing";
            *self.fault(at, section, Some("url"), cause) =
                Some("every remote has one: url = \"sftp://HOST/PATH\"".to_owned());
        }
        let base = base?;
        if let (Location::Local(_), Some((at, key))) = (&base, unused) {
            self.fault(at, section, Some(key), "a local path has no user and no port");
        }
        if fields.is_some() && !is_web(&base) {
            let cause = "headers are for http, https, dav and davs";
            self.fault(fields_at, section, Some("headers"), cause);
        }
        Some(Remote { base, user, port, password_command, headers: fields, line })
    }

    /// Records the line of a value for `haul config show`, and the value itself unless it may be a secret.
    fn record(&mut self, section: &Section, key: &str, at: usize, value: &Value<'_>) {
        let raw = self.text.get(value.span()).unwrap_or_default();
        let raw = raw.split_whitespace().collect::<Vec<_>>().join(" ");
        let shown = match (key, value.get_ref()) {
            // A command can contain a password, and the value of a header can be one.
            ("password-command" | "headers" | "on-done", _) => None,
            // The query of a URL can be a signature; `Location` masks it.
            ("url", DeValue::String(url)) => {
                Some(Location::parse(&**url).map_or(raw, |location| location.to_string()))
            }
            (_, DeValue::String(text)) => Some(text.clone().into_owned()),
            _ => Some(raw),
        };
        let (section, key, line) = (section.clone(), key.to_owned(), self.line(at));
        self.config.entries.push(Entry { section, key, line, shown });
    }

    /// Adds a fault for each `profile` that does not exist.
    fn check_profile_names(&mut self) {
        // A profile of the file may have the name of a built-in one, which is listed once.
        let own = self.config.profile.keys();
        let own = own.filter(|name| !BUILT_IN_PROFILES.contains(&name.as_str()));
        let own: Vec<String> = own.cloned().collect();
        let mut unknown = Vec::new();
        for entry in self.config.entries.iter().filter(|entry| entry.key == "profile") {
            let Some(name) = entry.shown.as_deref() else { continue };
            let own = if entry.section == Section::Defaults { &own[..] } else { &[] };
            let known: Vec<_> =
                BUILT_IN_PROFILES.into_iter().chain(own.iter().map(String::as_str)).collect();
            if !known.contains(&name) {
                let hint = did_you_mean(name, known.iter().copied())
                    .unwrap_or_else(|| format!("there are {}", known.join(", ")));
                let cause = format!("unknown profile '{}'", name.escape_debug());
                unknown.push(Fault {
                    file: self.file.to_owned(),
                    line: Some(entry.line),
                    section: entry.section.clone(),
                    key: Some("profile".to_owned()),
                    cause,
                    hint: Some(hint),
                });
            }
        }
        self.faults.extend(unknown);
    }
}

/// Checks that a remote of this name can be used in a location.
///
/// # Errors
/// The cause, if it cannot.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    match Location::parse(format!("{name}:")) {
        Ok(Location::Named { name: parsed, path }) if parsed == name && path.is_empty() => Ok(()),
        _ => Err("a remote is used as NAME:PATH, and this name cannot be".to_owned()),
    }
}

/// Deserializes a table. Errors have positions in the file; those without one get that of `at`.
fn deserialize<T: DeserializeOwned>(
    table: DeTable<'_>,
    at: &Value<'_>,
) -> Result<T, toml::de::Error> {
    T::deserialize(Deserializer::from(Spanned::new(at.span(), table)))
}

fn text(value: &Value<'_>) -> Result<String, String> {
    let text = value.get_ref().as_str().map(str::to_owned);
    text.ok_or_else(|| "it must be text, in quotes".to_owned())
}

fn switch(value: &Value<'_>) -> Result<bool, String> {
    match value.get_ref() {
        DeValue::Boolean(on) => Ok(*on),
        DeValue::String(text) => text.parse::<Switch>().map(|on| on.0),
        _ => Err("it must be true or false".to_owned()),
    }
}

/// Parses the value of `url`.
///
/// # Errors
/// If it is not a location. The message does not contain a password.
pub(crate) fn location(url: String) -> Result<Location, String> {
    let location = Location::parse(url).map_err(|error| error.to_string())?;
    Ok(location.as_ssh_host())
}

/// Checks the value of `user`.
///
/// # Errors
/// If it cannot be a user name.
pub(crate) fn user_name(name: String) -> Result<String, String> {
    let is_invalid = |c: char| c.is_control() || c == '/' || c == ':';
    if name.is_empty() || name.starts_with('-') || name.contains(is_invalid) {
        return Err(
            "it is empty, begins with '-', or has a '/', a ':' or control characters".into()
        );
    }
    Ok(name)
}

fn command(line: String) -> Result<String, String> {
    if line.trim().is_empty() { Err("it is empty".to_owned()) } else { Ok(line) }
}

fn is_web(location: &Location) -> bool {
    use Scheme::{Dav, Davs, Http, Https};
    matches!(location, Location::Remote { scheme: Http | Https | Dav | Davs, .. })
}

/// Parses `headers = { Name = "value" }`. Values may be secrets, so no error message contains one.
fn headers(value: &Value<'_>) -> Result<Headers, String> {
    const NONE: &str = "not a table of names and texts: headers = { Name = \"value\" }";
    let mut headers = Headers::default();
    for (name, value) in value.get_ref().as_table().ok_or(NONE)? {
        let text = match value.get_ref() {
            DeValue::String(text) => text.clone().into_owned(),
            DeValue::Integer(_) => i64::deserialize(ValueDeserializer::from(value.clone()))
                .map_err(|_| NONE)?
                .to_string(),
            _ => return Err(NONE.to_owned()),
        };
        headers.add(name.get_ref(), &text).map_err(|error| error.to_string())?;
    }
    Ok(headers)
}

fn port_number(value: &Value<'_>) -> Result<u16, String> {
    let number = match value.get_ref() {
        DeValue::Integer(_) => u16::deserialize(ValueDeserializer::from(value.clone())).ok(),
        _ => None,
    };
    number
        .filter(|port| *port > 0)
        .ok_or_else(|| "it must be a number from 1 to 65535, without quotes".to_owned())
}

fn remote_hint(key: &str) -> String {
    let is_secret = ["pass", "token", "secret"].iter().any(|part| key.contains(part));
    if is_secret && did_you_mean(key, ["password-command"]).is_none() || key == "password" {
        return "a password does not belong here: write password-command, or set \
                HAUL_PASSWORD_NAME in the environment"
            .to_owned();
    }
    if ["host", "path", "protocol", "scheme"].contains(&key) {
        return "it is part of the url: url = \"sftp://HOST/PATH\"".to_owned();
    }
    did_you_mean(key, REMOTE_KEYS)
        .unwrap_or_else(|| format!("the keys of a remote are {}", REMOTE_KEYS.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        let (_, faults) = read(Path::new("c.toml"), text);
        faults.iter().map(ToString::to_string).collect()
    }

    fn hints(text: &str) -> Vec<Option<String>> {
        let (_, faults) = read(Path::new("c.toml"), text);
        faults.into_iter().map(|fault| fault.hint).collect()
    }

    #[test]
    fn every_fault_is_reported_with_its_line_section_and_key() {
        let text = "top = 1\n\
                    [defaults]\nfsnyc = true\nlanes = 0\nretries = 3\n\
                    [profile.night]\nlanes = \"many\"\nprofile = \"saef\"\n\
                    [remote.nas]\nurl = \"sftp://ada:geheim@nas/\"\nport = \"22\"\nuser = \"\"\n\
                    [remote.cloud]\npasword-command = \"x\"\n\
                    [remote.disk]\nurl = \"/mnt\"\nport = 22\n\
                    [remote.\"a/b\"]\nurl = \"/mnt\"\n";
        let found = faults(text);
        let expected = [
            "c.toml:1: top: unknown key",
            "c.toml:3: [defaults] fsnyc: unknown key",
            "c.toml:4: [defaults] lanes: '0' is not a number between 1 and 256, or write 'auto'",
            "c.toml:7: [profile.night] lanes: 'many' is not a number between 1 and 256, or write 'auto'",
            "c.toml:8: [profile.night] profile: unknown profile 'saef'",
            "c.toml:10: [remote.nas] url: 'sftp://ada:***@nas/': a password does not belong",
            "c.toml:11: [remote.nas] port: it must be a number from 1 to 65535, without quotes",
            "c.toml:12: [remote.nas] user: it is empty, begins with",
            "c.toml:13: [remote.cloud] url: it is missing",
            "c.toml:14: [remote.cloud] pasword-command: unknown key",
            "c.toml:17: [remote.disk] port: a local path has no user and no port",
            "c.toml:18: [remote.\"a/b\"]: a remote is used as NAME:PATH",
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found} is not {expected}");
        }
    }

    /// Formerly, any text before a `=` in a line with a syntax error was printed as its key.
    #[test]
    fn the_fault_of_a_broken_line_contains_no_secret() {
        for line in [
            "headers = {\nX-Token \"c2VjcmV0==\" }",
            "password-command \"echo c2VjcmV0 | base64 --x=y\"",
            "X\"c2VjcmV0\"==",
        ] {
            let found = faults(&format!("[remote.a]\nurl = \"/x\"\n{line}\n"));
            assert!(!found.is_empty() && !format!("{found:?}").contains("c2VjcmV0"), "{found:?}");
        }
        for (text, is) in [
            ("user", true),
            ("a.\"b.c\".d-1", true),
            ("", false),
            ("a b", false),
            ("a\"b\"", false),
            ("\"a", false),
            ("\"a b\"", false),
            ("a.", false),
            ("# a", false),
            ("[a]", false),
        ] {
            assert_eq!(is_key(text), is, "{text}");
        }
    }

    #[test]
    fn an_unknown_key_has_a_hint() {
        let hint = |key: &str| {
            let text = format!("[remote.a]\nurl = \"/x\"\n{key} = \"x\"\n");
            hints(&text).remove(0).unwrap()
        };
        assert_eq!(hint("usr"), "did you mean 'user'?");
        assert_eq!(hint("pasword-command"), "did you mean 'password-command'?");
        assert!(hint("password").contains("password-command"), "{}", hint("password"));
        assert!(hint("host").contains("part of the url"));
        assert!(hint("colour").starts_with("the keys of a remote are url, user"));
        let hint = |text: &str| hints(text).remove(0).unwrap();
        assert_eq!(hint("[defaults]\nfsnyc = true\n"), "did you mean 'fsync'?");
        assert_eq!(hint("[remotes.a]\nurl = \"/x\"\n"), "did you mean 'remote'?");
    }

    #[test]
    fn a_syntax_error_has_a_line_and_does_not_hide_other_faults() {
        let found =
            faults("[defaults]\nlanes = \nfsnyc = true\n[remote.a]\nurl = \"/x\nuser = 1\n");
        assert!(found[0].starts_with("c.toml:2: [defaults] lanes: "), "{found:#?}");
        assert!(found.iter().any(|fault| fault.contains("fsnyc")), "{found:#?}");
        assert!(
            found.iter().any(|fault| fault.starts_with("c.toml:5: [remote.a] url: ")),
            "{found:#?}"
        );
        assert!(!found.iter().any(|fault| fault.contains("missing")), "{found:#?}");
        let twice = faults("[defaults]\nlanes = 1\nlanes = 2\n");
        assert!(
            twice.len() == 1 && twice[0].starts_with("c.toml:3: [defaults] lanes: "),
            "{twice:?}"
        );
    }

    /// Formerly, the quotes counted as a part of the name, and tables of a remote as another remote.
    #[test]
    fn a_syntax_error_has_the_name_of_its_section() {
        for (header, shown) in [
            ("[remote.\"\u{e4}'s\"]", "[remote.\"\u{e4}'s\"]"),
            ("[ remote . 'my.nas' ] # at home", "[remote.\"my.nas\"]"),
            ("[remote.nas.headers]", "[remote.nas]"),
            ("[profile.night]", "[profile.night]"),
        ] {
            let found = faults(&format!("{header}\nurl = \n"));
            let expected = format!("c.toml:2: {shown} url: ");
            assert!(found.iter().any(|fault| fault.starts_with(&expected)), "{found:?} {expected}");
        }
    }

    #[test]
    fn no_fault_contains_a_possible_secret() {
        let found = faults("[remote.a]\nurl = \"/x\"\npassword = \"geheim\"\ntoken = \"geheim\"\n");
        assert_eq!(found.len(), 2);
        let text = format!("{found:?} {:?}", hints("[remote.a]\npassword = \"geheim\"\n"));
        assert!(!text.contains("geheim"), "{text}");
    }

    #[test]
    fn headers_of_a_remote_are_checked_and_their_values_never_printed() {
        let text = |url: &str, line: &str| format!("[remote.a]\nurl = \"{url}\"\n{line}\n");
        let right = text("https://a", "headers = { X-Token = \"geheim\", X-Level = 3 }");
        let (config, faults) = read(Path::new("c.toml"), &right);
        assert!(faults.is_empty(), "{faults:?}");
        let fields = config.remote["a"].headers.as_ref().unwrap().fields();
        assert_eq!(
            (fields["x-token"].as_bytes(), fields["x-level"].as_bytes()),
            (&b"geheim"[..], &b"3"[..])
        );
        assert!(!format!("{config:?}").contains("geheim"));
        for (line, cause) in [
            ("headers = { Host = \"geheim\" }", "host cannot be set"),
            ("headers = { X = \"geheim\\r\\nY: z\" }", "the value of x has a line break"),
            ("headers = \"X: geheim\"", "not a table of names and texts"),
            ("headers = { X = 4.2 }", "not a table of names and texts"),
            ("headers = 42", "not a table of names and texts"),
        ] {
            let found = faults_of_one(&text("https://a", line));
            assert!(found.starts_with("c.toml:3: [remote.a] headers: "), "{found}");
            assert!(found.contains(cause), "{found}");
            assert!(!["geheim", "42", "4.2"].iter().any(|value| found.contains(value)), "{found}");
        }
        let found = faults_of_one(&text("sftp://a", "headers = { X = \"geheim\" }"));
        assert!(found.contains("headers are for http, https, dav and davs"), "{found}");
    }

    fn faults_of_one(text: &str) -> String {
        let mut found = faults(text);
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    #[test]
    fn the_local_network_and_port_mappings_can_be_turned_off_in_the_defaults() {
        for (value, expected) in [("false", false), ("true", true), ("\"no\"", false)] {
            let config = Config::of(&format!("[defaults]\nlan = {value}\n"));
            assert_eq!((config.lan, config.port_mapping), (Some(expected), None), "{value}");
            assert_eq!(config.entries[0].key, "lan");
            let config = Config::of(&format!("[defaults]\nport-mapping = {value}\n"));
            assert_eq!((config.lan, config.port_mapping), (None, Some(expected)), "{value}");
            assert_eq!(config.entries[0].key, "port-mapping");
        }
        for (text, cause) in [
            ("[defaults]\nlan = 0\n", "it must be true or false"),
            ("[defaults]\nlan = \"of\"\n", "'of' is neither yes nor no"),
            ("[profile.night]\nlan = false\n", "unknown key"),
            ("[defaults]\nport-mapping = 0\n", "it must be true or false"),
            ("[profile.night]\nport-mapping = false\n", "unknown key"),
        ] {
            let (config, faults) = Config::parse(Path::new("c.toml"), text);
            assert!(
                config.lan.or(config.port_mapping).is_none() && faults[0].cause.contains(cause),
                "{faults:?}"
            );
        }
    }

    /// Formerly, no hint named the keys that apply to all commands.
    #[test]
    fn a_misspelt_key_of_all_commands_gets_a_hint() {
        let hint = |text: &str| Config::parse(Path::new("c.toml"), text).1[0].hint.clone();
        let mapping = hint("[defaults]\nprot-mapping = false\n").unwrap();
        assert!(mapping.contains("'port-mapping'"), "{mapping}");
        let list = hint("[defaults]\nxyzzy = 1\n").unwrap();
        assert!(FOR_ALL_COMMANDS.iter().all(|key| list.contains(key)), "{list}");
        assert!(!hint("[profile.x]\nxyzzy = 1\n").unwrap().contains("port-mapping"));
    }

    #[test]
    fn the_bridge_of_spoken_codes_is_among_the_defaults() {
        let key = haul_peer::ticket::PeerKey([1; 32]).to_text();
        let config = Config::of(&format!("[defaults]\nbridge = \"bridge.example:4181/{key}\"\n"));
        assert_eq!(config.bridge.unwrap().0.to_string(), "bridge.example:4181");
        assert_eq!(config.entries[0].key, "bridge");
        for (text, cause) in [
            ("[defaults]\nbridge = \"bridge.example:4181\"\n", "write HOST:PORT/KEY"),
            ("[defaults]\nbridge = 4181\n", "it must be text"),
            ("[profile.night]\nbridge = \"bridge.example:4181/KEY\"\n", "unknown key"),
        ] {
            let found = faults_of_one(text);
            assert!(found.starts_with("c.toml:2: ") && found.contains(cause), "{found}");
        }
    }

    #[test]
    fn option_names_lists_exactly_the_keys_that_are_deserialized() {
        let error = toml::from_str::<Options>("none = 1").unwrap_err();
        let (_, list) = error.message().split_once("expected one of ").unwrap();
        let mut read: Vec<_> = list.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        let mut known = option_names();
        read.sort();
        known.sort();
        assert_eq!(known, read);
    }
}
