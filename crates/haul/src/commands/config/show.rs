//! `haul config show`: prints each setting and where it comes from. The values of secrets are not printed.

use std::env;
use std::path::{Path, PathBuf};

use haul_sftp::ssh::Origin;
use haul_storage::{Location, Scheme};

use super::defaults;
use crate::args::ConfigShowArgs;
use crate::backends::{location_of, netrc_of, secret_of, settings_of};
use crate::config::{Config, Entry, NamedBy, Section, option_names};
use crate::exit::{Exit, Stop};
use crate::network_switch;
use crate::output::{Printer, json};
use crate::settings::default_profile;

/// A setting, printed as one line.
#[derive(Debug)]
struct Row {
    name: String,
    /// `None` if it could be a secret.
    value: Option<String>,
    source: Source,
}

/// Where a value comes from.
#[derive(Debug)]
enum Source {
    File { file: PathBuf, line: Option<usize> },
    Ssh { file: PathBuf, line: usize },
    Environment(String),
    CommandLine(&'static str),
    Profile(String),
    Default,
}

impl Row {
    fn new(name: &str, value: impl Into<String>, source: Source) -> Self {
        Self { name: name.to_owned(), value: Some(value.into()), source }
    }

    fn secret(name: &str, source: Source) -> Self {
        Self { name: name.to_owned(), value: None, source }
    }
}

/// Runs `haul config show`; `named` is the file of `--config`.
pub(super) fn run(
    args: &ConfigShowArgs,
    config: &Config,
    named: Option<&Path>,
    printer: &Printer,
) -> Result<Exit, Stop> {
    let rows = match &args.remote {
        Some(name) => of_remote(name, args, config, printer)?,
        None => of_transfers(config, named),
    };
    let section = args.remote.as_ref().map(|name| Section::Remote(name.clone()).name());
    if printer.is_json() {
        rows.iter().for_each(|row| printer.object(&json::Event::Setting(row.fields(&section))));
        return Ok(Exit::Done);
    }
    let width = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
    let shown = |row: &Row| row.value.clone().unwrap_or_else(|| "(not shown)".to_owned());
    let names = width(&mut rows.iter().map(|row| row.name.chars().count()));
    let values = width(&mut rows.iter().map(|row| shown(row).chars().count())).min(60);
    for row in &rows {
        printer.result(format!(
            "{:names$}  {:values$}  {}",
            row.name,
            shown(row),
            row.source.words()
        ));
    }
    Ok(Exit::Done)
}

/// The settings of every transfer.
fn of_transfers(config: &Config, named: Option<&Path>) -> Vec<Row> {
    let mut rows = Vec::new();
    if let Some(file) = crate::config::config_path(named) {
        let source = match file.named_by {
            NamedBy::Option => Source::CommandLine("--config"),
            NamedBy::Variable => Source::Environment("HAUL_CONFIG".to_owned()),
            NamedBy::Default => Source::Default,
        };
        let suffix = if config.file.is_some() { "" } else { " (does not exist)" };
        rows.push(Row::new("configuration", format!("{}{suffix}", file.path.display()), source));
    }
    let (own, base) = default_profile(config);
    let own = own.map(|name| Section::Profile(name.to_owned()));
    let file = |entry: &Entry| Row {
        name: entry.key.clone(),
        value: entry.shown.clone(),
        source: in_file(config, entry.line),
    };
    for option in option_names() {
        let in_profile = own.as_ref().and_then(|section| config.entry(section, &option));
        let in_defaults = config.entry(&Section::Defaults, &option);
        if option == "include" || option == "exclude" {
            // The rules of both apply, in this order.
            rows.extend(in_profile.into_iter().chain(in_defaults).map(file));
            continue;
        }
        // The `profile` of a profile is its base, which has been resolved.
        let in_profile = in_profile.filter(|_| option != "profile");
        let row = if let Some(entry) = in_profile {
            file(entry)
        } else if let Some(value) = defaults::of_profile(base, &option) {
            Row::new(&option, value, Source::Profile(base.to_owned()))
        } else if let Some(entry) = in_defaults {
            file(entry)
        } else {
            Row::new(&option, defaults::default_of(&option).unwrap_or_default(), Source::Default)
        };
        rows.push(row);
    }
    rows.extend(config.entry(&Section::Defaults, "bridge").map(file));
    let switches = [
        ("lan", network_switch::LAN, network_switch::uses_lan(false, config)),
        ("port-mapping", network_switch::PORT_MAPPING, network_switch::maps_ports(false, config)),
    ];
    for (key, variable, is_on) in switches {
        if is_set(variable) {
            let value = if is_on { "yes" } else { "no" };
            rows.push(Row::new(key, value, Source::Environment(variable.to_owned())));
        } else {
            rows.extend(config.entry(&Section::Defaults, key).map(file));
        }
    }
    rows.extend(of_environment());
    rows
}

fn is_set(variable: &str) -> bool {
    env::var_os(variable).is_some_and(|value| !value.is_empty())
}

/// Credentials and proxies from the environment. User and password in the URL of a proxy are masked.
fn of_environment() -> Vec<Row> {
    let set = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let mut rows = Vec::new();
    for (name, variable) in [("password", "HAUL_PASSWORD"), ("token", "HAUL_TOKEN")] {
        if is_set(variable) {
            rows.push(Row::secret(name, Source::Environment(variable.to_owned())));
        }
    }
    if let Some(file) = set("NETRC") {
        rows.push(Row::new("netrc", file, Source::Environment("NETRC".to_owned())));
    }
    for variable in ["http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"] {
        let upper = variable.to_uppercase();
        // The client of a CGI script can set `HTTP_PROXY`.
        let is_ignored = variable == "http_proxy" && env::var_os("REQUEST_METHOD").is_some();
        let names = [variable, upper.as_str()];
        let names = names.iter().take(if is_ignored { 1 } else { 2 });
        let value = |name: &str| Some(env::var_os(name)?.to_string_lossy().into_owned());
        // An empty variable hides the one in capitals.
        let found = names.copied().find_map(|name| Some((name, value(name)?)));
        if let Some((name, value)) = found.filter(|(_, value)| !value.trim().is_empty()) {
            let value = match value.rsplit_once('@') {
                Some((before, host)) => {
                    let scheme = before.split_once("://").map_or("", |(scheme, _)| scheme);
                    let scheme = if scheme.is_empty() { "" } else { &format!("{scheme}://") };
                    format!("{scheme}***@{host}")
                }
                None => value,
            };
            rows.push(Row::new(
                &variable.replace('_', "-"),
                value,
                Source::Environment(name.to_owned()),
            ));
        }
    }
    rows
}

/// The settings of a remote that are known before connecting.
fn of_remote(
    name: &str,
    args: &ConfigShowArgs,
    config: &Config,
    printer: &Printer,
) -> Result<Vec<Row>, Stop> {
    let remote = config.named(name).map_err(Stop::Usage)?;
    let section = Section::Remote(name.to_owned());
    let line = |key: &str| config.entry(&section, key).map_or(remote.line, |entry| entry.line);
    let at = |key: &str| in_file(config, line(key));
    let location = location_of(remote);
    let mut rows = vec![Row::new("location", location.to_string(), at("url"))];
    let Location::Remote { scheme, user, host, port, path, .. } = &location else {
        return Ok(rows);
    };
    rows.push(Row::new("protocol", scheme.name(), at("url")));
    rows.push(Row::new("host", host.as_str(), at("url")));
    let in_url = match &remote.base {
        Location::Remote { user, port, .. } => (user.is_some(), port.is_some()),
        _ => (false, false),
    };
    let user_at = || at(if in_url.0 { "url" } else { "user" });
    let port_at = || at(if in_url.1 { "url" } else { "port" });
    if *scheme == Scheme::Sftp {
        let given = port.or(args.connection.ssh.port);
        for setting in settings_of(user.as_deref(), host, given, &args.connection)? {
            let source = match setting.origin {
                Origin::Given if setting.name == "user" => user_at(),
                Origin::Given if port.is_none() => Source::CommandLine("-P"),
                Origin::Given => port_at(),
                Origin::CommandLine => Source::CommandLine("SSH options"),
                Origin::File { path: file, line } => Source::Ssh { file, line },
                Origin::Environment(variable) => Source::Environment(variable.to_owned()),
                Origin::Default => Source::Default,
            };
            rows.push(match setting.name {
                // Like a password command, it may contain a secret.
                "proxy-command" => Row::secret(setting.name, source),
                name => Row::new(name, setting.value, source),
            });
        }
    } else {
        rows.push(match port {
            Some(port) => Row::new("port", port.to_string(), port_at()),
            None => Row::new("port", scheme.default_port().to_string(), Source::Default),
        });
        let default = if is_ftp(*scheme) { "anonymous" } else { "none" };
        rows.push(match user {
            Some(user) => Row::new("user", user.as_str(), user_at()),
            None => Row::new("user", default, Source::Default),
        });
    }
    let path = String::from_utf8_lossy(path);
    let path = match (&*path, scheme) {
        ("", Scheme::Sftp) => "~",
        ("", _) => "/",
        (path, _) => path,
    };
    rows.push(Row::new("path", path, at("url")));
    if let Some(entry) = config.entry(&section, "headers") {
        rows.push(Row::secret("headers", in_file(config, entry.line)));
    }
    rows.extend(sign_in(name, config, &location, printer));
    Ok(rows)
}

/// Where the password or the token comes from: the first source in order of precedence.
fn sign_in(name: &str, config: &Config, location: &Location, printer: &Printer) -> Option<Row> {
    let Location::Remote { scheme, user, host, .. } = location else { return None };
    let is_web = !is_ftp(*scheme) && *scheme != Scheme::Sftp;
    let (own_token, token) = secret_of("HAUL_TOKEN", name);
    if let Some(variable) = own_token.or(token).filter(|_| is_web) {
        return Some(Row::secret("token", Source::Environment(variable)));
    }
    let (own, general) = secret_of("HAUL_PASSWORD", name);
    if let Some(variable) = own {
        return Some(Row::secret("password", Source::Environment(variable)));
    }
    if let Some(entry) = config.entry(&Section::Remote(name.to_owned()), "password-command") {
        return Some(Row::secret("password", in_file(config, entry.line)));
    }
    if let Some(variable) = general {
        return Some(Row::secret("password", Source::Environment(variable)));
    }
    if is_web && let Some(file) = netrc_of(host, user.as_deref(), printer) {
        return Some(Row::secret("password", Source::File { file, line: None }));
    }
    let has_none = user.is_none() && *scheme != Scheme::Sftp;
    let value = match (has_none, scheme) {
        (true, _) => "none",
        (false, Scheme::Sftp) => "keys, then a prompt",
        (false, _) => "a prompt",
    };
    Some(Row::new("password", value, Source::Default))
}

fn in_file(config: &Config, line: usize) -> Source {
    let file = config.file.clone().unwrap_or_default();
    Source::File { file, line: Some(line) }
}

const fn is_ftp(scheme: Scheme) -> bool {
    matches!(scheme, Scheme::Ftp | Scheme::Ftps)
}

impl Source {
    fn words(&self) -> String {
        match self {
            Self::File { file, line: None } => file.display().to_string(),
            Self::File { file, line: Some(line) } => format!("{}:{line}", file.display()),
            Self::Ssh { file, line } => format!("ssh_config {}:{line}", file.display()),
            Self::Environment(variable) => format!("environment {variable}"),
            Self::CommandLine(option) => format!("command line ({option})"),
            Self::Profile(name) => format!("built-in profile {name}"),
            Self::Default => "built-in default".to_owned(),
        }
    }
}

impl Row {
    fn fields(&self, section: &Option<String>) -> json::SettingFields<'_> {
        let (source, file, line, of) = match &self.source {
            Source::File { file, line } => ("file", Some(file), *line, None),
            Source::Ssh { file, line } => ("ssh_config", Some(file), Some(*line), None),
            Source::Environment(variable) => ("environment", None, None, Some(variable.as_str())),
            Source::CommandLine(option) => ("command_line", None, None, Some(*option)),
            Source::Profile(name) => ("profile", None, None, Some(name.as_str())),
            Source::Default => ("default", None, None, None),
        };
        json::SettingFields {
            section: section.clone(),
            name: &self.name,
            value: self.value.as_deref(),
            source,
            file: file.map(|file| file.display().to_string()),
            line,
            of,
        }
    }
}
