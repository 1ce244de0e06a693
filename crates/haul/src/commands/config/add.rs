//! `haul config add`.
//!
//! ```text
//! arguments, prompts → a remote → the text of the file with it → a test connection → the file
//! ```

use std::path::Path;

use haul_http::parse::href::encode_path;
use haul_storage::{Error, Location, Scheme};

use super::connect::{connect, locate};
use super::file;
use super::prompter::Prompter;
use crate::args::{ConfigAddArgs, ProtocolArg};
use crate::backends::{Storages, location_of, settings_of};
use crate::config::edit::{self, NewRemote};
use crate::config::{Config, check_name, location, user_name};
use crate::exit::{Exit, Stop};
use crate::output::{Printer, json};

const NO_TICKET: &str = "the configuration holds no tickets\n\
                         hint: haul peers add NAME TICKET stores one, for peer:NAME";

/// Runs `haul config add`.
pub(super) async fn run(
    args: &ConfigAddArgs,
    named: Option<&Path>,
    printer: &Printer,
) -> Result<Exit, Stop> {
    let config_file = file::require_path(named)?;
    let (text, config) = file::text(&config_file)?;
    let name = &args.name;
    let usage = |cause: String| Stop::Usage(format!("'{}': {cause}", name.escape_debug()));
    check_name(name).map_err(usage)?;
    let refuse_another = |config: &Config| match config.remote.get(name) {
        Some(remote) => Err(Stop::Usage(format!(
            "{}:{}: there is a remote '{name}' already\nhint: haul config remove {name} removes it, haul config \
             edit opens the file",
            config_file.path.display(),
            remote.line
        ))),
        None => Ok(()),
    };
    refuse_another(&config)?;
    let prompter = Prompter::find();
    let new = Inputs { args, config: &config, prompter: prompter.as_ref() }.remote().await?;
    let before = text.as_deref().unwrap_or_default();
    let edited = edit::with_remote(before, name, &new).map_err(usage)?;
    let (config, _) = Config::parse(&config_file.path, &edited);
    if !args.no_test && !is_reached(args, &config, prompter.as_ref(), printer).await? {
        printer.note(format!("{} is unchanged", config_file.path.display()));
        return Ok(Exit::Failed);
    }
    let edited = file::change(&config_file, |text, config| {
        refuse_another(config)?;
        edit::with_remote(text, name, &new).map_err(usage)
    })?;
    let (config, _) = Config::parse(&config_file.path, &edited);
    let remote = config.named(name).map_err(Stop::Usage)?;
    let (at, file) = (location_of(remote).to_string(), config_file.path.display().to_string());
    if printer.is_json() {
        printer.object(&json::Event::remote(name, at, file, remote.line));
    } else {
        printer.note(format!("added '{name}' to {file}: {at}"));
    }
    let ssh = &args.connection.ssh;
    let is_all_stored = ssh.identities.is_empty()
        && ssh.options.is_empty()
        && ssh.jump.is_none()
        && ssh.port.is_none();
    if !is_all_stored && !printer.is_json() {
        printer.note(
            "-i, -o, -J and -P are not stored with a remote: set them for its host in ~/.ssh/config",
        );
    }
    Ok(Exit::Done)
}

/// Whether the remote can be connected to, or the user wants to add it anyway.
async fn is_reached(
    args: &ConfigAddArgs,
    config: &Config,
    prompter: Option<&Prompter>,
    printer: &Printer,
) -> Result<bool, Stop> {
    let storages = Storages::for_names(config, &args.connection, printer)?;
    let (name, location) = locate(&storages, &args.name)?;
    let tried = connect(&storages, name, location).await;
    match &tried.outcome {
        Ok(_) if printer.is_json() => Ok(true),
        Ok(_) => {
            tried.print(printer);
            Ok(true)
        }
        Err(error) => {
            let hint = "--no-test adds it without connecting";
            match (prompter, error.hint()) {
                (Some(prompter), _) => {
                    printer.failure_of(Some(name), error);
                    prompter.agrees("Add it anyway", false).await
                }
                (None, None) => {
                    printer.failure_of(Some(name), &error.again().hinting(hint));
                    Ok(false)
                }
                (None, Some(own)) => {
                    let both = format!("{own}; {hint}");
                    printer.failure_of(Some(name), &error.again().hinting(both));
                    Ok(false)
                }
            }
        }
    }
}

/// The arguments, and the terminal that prompts for the rest.
struct Inputs<'a> {
    args: &'a ConfigAddArgs,
    config: &'a Config,
    prompter: Option<&'a Prompter>,
}

impl Inputs<'_> {
    async fn remote(&self) -> Result<NewRemote, Stop> {
        let args = self.args;
        let (url, base, is_given) = match &args.location {
            Some(written) => {
                let written = written.to_str().ok_or_else(|| usage("the location is not UTF-8"))?;
                let (url, base) = self.written(written)?;
                (url, base, true)
            }
            None => {
                let url = self.url().await?;
                let base = location(url.clone()).map_err(Stop::Usage)?;
                (url, base, false)
            }
        };
        let Location::Remote { scheme, user, host, port, .. } = &base else {
            if args.user.is_some() || args.server_port.is_some() || args.password_command.is_some()
            {
                return Err(usage("a local path has no --user, --port or --password-command"));
            }
            return Ok(NewRemote { url, ..NewRemote::default() });
        };
        if user.is_some() && args.user.is_some() || port.is_some() && args.server_port.is_some() {
            return Err(usage("the location has a user or port already; omit --user and --port"));
        }
        let user_given =
            args.user.clone().map(user_name).transpose().map_err(|cause| usage(&cause))?;
        let (mut new_port, mut new_user) = (args.server_port, user_given);
        let mut command = args.password_command.clone();
        if let Some(prompter) = self.prompter {
            if new_port.is_none() && !is_given {
                let prompt = format!("Port [{}]", scheme.default_port());
                new_port = prompter.prompt(&prompt, |input| optional(input, port_number)).await?;
            }
            if new_user.is_none() && user.is_none() {
                let default = self.default_user(*scheme, host, new_port.or(*port));
                let prompt = format!("User [{default}]");
                let check = |input: &str| optional(input, |name| user_name(name.to_owned()));
                new_user = prompter.prompt(&prompt, check).await?;
            }
            let signs_in = *scheme == Scheme::Sftp || new_user.is_some() || user.is_some();
            if command.is_none() && signs_in {
                let default = if *scheme == Scheme::Sftp {
                    "none: keys, or a prompt"
                } else {
                    "none: a prompt"
                };
                let prompt = format!("Command that prints the password [{default}]");
                command =
                    prompter.prompt(&prompt, |input| optional(input, |c| Ok(c.to_owned()))).await?;
            }
        }
        Ok(NewRemote { url, user: new_user, port: new_port, password_command: command })
    }

    /// The URL to store for a location, and its parsed form.
    fn written(&self, text: &str) -> Result<(String, Location), Stop> {
        let parsed = Location::parse(text).map_err(|error| Stop::Usage(error.to_string()))?;
        if let Location::Named { name, .. } = &parsed
            && self.config.remote.contains_key(name)
        {
            return Err(Stop::Usage(format!(
                "'{name}:' is a remote itself\nhint: haul config show {name} prints its location"
            )));
        }
        let is_ticket =
            matches!(&parsed, Location::Named { name, .. } if matches!(&**name, "ticket" | "peer"));
        if is_ticket {
            return Err(usage(NO_TICKET));
        }
        match parsed.as_ssh_host() {
            Location::Local(path) => {
                let absolute = std::path::absolute(&path)
                    .map_err(|error| Error::from_io("find", error).at(path.display()))?;
                let url = absolute.to_str().ok_or_else(|| usage("the path is not UTF-8"))?;
                Ok((url.to_owned(), Location::Local(absolute.clone())))
            }
            Location::Peer { .. } => Err(usage(NO_TICKET)),
            // A URL is stored as typed: its displayed form may omit parts.
            remote if text.contains("://") => Ok((text.to_owned(), remote)),
            remote => Ok((remote.to_string(), remote)),
        }
    }

    /// The URL from the options, or from prompts.
    async fn url(&self) -> Result<String, Stop> {
        let args = self.args;
        let Some(prompter) = self.prompter else { return self.url_of_options() };
        let protocol = match args.protocol {
            Some(protocol) => protocol,
            None => {
                let prompt =
                    format!("Protocol ({}) [sftp]", PROTOCOLS.map(|(name, _)| name).join(", "));
                prompter.prompt(&prompt, protocol_named).await?
            }
        };
        let Some(scheme) = scheme_of(protocol) else {
            let path = match &args.path {
                Some(path) => path.clone(),
                None => prompter.prompt("Directory", |input| needed(input, "a directory")).await?,
            };
            return self.written(&local(&path)).map(|(url, _)| url);
        };
        let host = match &args.host {
            Some(host) => check_host(host).map_err(|cause| usage(&cause))?,
            None => prompter.prompt("Host", check_host).await?,
        };
        let path = match &args.path {
            Some(path) => path.clone(),
            None => {
                let default = if scheme == Scheme::Sftp { "home directory" } else { "/" };
                prompter.prompt(&format!("Path [{default}]"), |input| Ok(input.to_owned())).await?
            }
        };
        Ok(url_of(scheme, &host, &path))
    }

    fn url_of_options(&self) -> Result<String, Stop> {
        let args = self.args;
        let is_local = args.protocol == Some(ProtocolArg::Local);
        let mut missing = Vec::new();
        if args.protocol.is_none() {
            missing.push("--protocol");
        }
        if args.host.is_none() && !is_local {
            missing.push("--host");
        }
        if args.path.is_none() && is_local {
            missing.push("--path");
        }
        let (Some(protocol), true) = (args.protocol, missing.is_empty()) else {
            let (names, verb) =
                (missing.join(" and "), if missing.len() == 1 { "is" } else { "are" });
            return Err(Stop::Usage(format!(
                "{names} {verb} missing, and there is no terminal to prompt on\nhint: haul \
                 config add {} LOCATION",
                args.name
            )));
        };
        let path = args.path.as_deref().unwrap_or_default();
        let Some(scheme) = scheme_of(protocol) else {
            return self.written(&local(path)).map(|(url, _)| url);
        };
        let host = check_host(args.host.as_deref().unwrap_or_default());
        Ok(url_of(scheme, &host.map_err(|cause| usage(&cause))?, path))
    }

    /// The default user, for the prompt.
    fn default_user(&self, scheme: Scheme, host: &str, port: Option<u16>) -> String {
        match scheme {
            Scheme::Sftp => {
                // Errors in ssh_config are reported when connecting.
                let settings =
                    settings_of(None, host, port, &self.args.connection).unwrap_or_default();
                let user = settings.into_iter().find(|setting| setting.name == "user");
                user.map_or_else(|| "as ssh does".to_owned(), |setting| setting.value)
            }
            Scheme::Ftp | Scheme::Ftps => "anonymous".to_owned(),
            _ => "none".to_owned(),
        }
    }
}

const PROTOCOLS: [(&str, ProtocolArg); 8] = [
    ("sftp", ProtocolArg::Sftp),
    ("davs", ProtocolArg::Davs),
    ("dav", ProtocolArg::Dav),
    ("https", ProtocolArg::Https),
    ("http", ProtocolArg::Http),
    ("ftps", ProtocolArg::Ftps),
    ("ftp", ProtocolArg::Ftp),
    ("local", ProtocolArg::Local),
];

fn protocol_named(input: &str) -> Result<ProtocolArg, String> {
    let input = if input.is_empty() { "sftp" } else { input };
    let found = PROTOCOLS.iter().find(|(name, _)| input.eq_ignore_ascii_case(name));
    found.map(|(_, protocol)| *protocol).ok_or_else(|| {
        format!("Please type one of {}.", PROTOCOLS.map(|(name, _)| name).join(", "))
    })
}

/// `None` for local paths.
const fn scheme_of(protocol: ProtocolArg) -> Option<Scheme> {
    Some(match protocol {
        ProtocolArg::Sftp => Scheme::Sftp,
        ProtocolArg::Davs => Scheme::Davs,
        ProtocolArg::Dav => Scheme::Dav,
        ProtocolArg::Https => Scheme::Https,
        ProtocolArg::Http => Scheme::Http,
        ProtocolArg::Ftps => Scheme::Ftps,
        ProtocolArg::Ftp => Scheme::Ftp,
        ProtocolArg::Local => return None,
    })
}

/// Checks a host, and returns it as it is written in a URL.
fn check_host(host: &str) -> Result<String, String> {
    let host = needed(host, "a host")?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_ipv6 = host.matches(':').count() > 1;
    let host = if is_ipv6 { format!("[{host}]") } else { host.to_owned() };
    match Location::parse(format!("sftp://{host}/")) {
        Ok(Location::Remote { user: None, port: None, path, .. }) if path == b"/" => Ok(host),
        Ok(_) => Err("that is not just a host name".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn port_number(input: &str) -> Result<u16, String> {
    let port = input.parse().ok().filter(|port| *port > 0);
    port.ok_or_else(|| "a port is a number from 1 to 65535".to_owned())
}

fn needed(input: &str, what: &str) -> Result<String, String> {
    if input.is_empty() { Err(format!("{what} is needed")) } else { Ok(input.to_owned()) }
}

/// `None` for empty input.
fn optional<T>(
    input: &str,
    check: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    if input.is_empty() { Ok(None) } else { check(input).map(Some) }
}

/// A local path as a location: with a colon but without `./` it would be a host. A leading `~` is the home directory.
fn local(path: &str) -> String {
    let home = path.strip_prefix('~').filter(|below| below.is_empty() || below.starts_with('/'));
    let home = home.and_then(|below| {
        let home = std::env::home_dir()?;
        home.to_str().map(|home| format!("{home}{below}"))
    });
    let path = home.unwrap_or_else(|| path.to_owned());
    if path.starts_with('/') { path } else { format!("./{path}") }
}

/// The URL of a path on a server. Without a leading slash it is below the home directory, if the protocol has
/// one. An empty path is the home directory on SFTP, and the root elsewhere.
fn url_of(scheme: Scheme, host: &str, path: &str) -> String {
    let has_home = matches!(scheme, Scheme::Sftp | Scheme::Ftp | Scheme::Ftps);
    let path = match path {
        "" if scheme == Scheme::Sftp => "/~".to_owned(),
        "~" if has_home => "/~".to_owned(),
        // A directory of that name, not the home.
        _ if has_home && path.starts_with("/~") => {
            encode_path(path.as_bytes()).replacen("/~", "/%7E", 1)
        }
        _ if path.starts_with('/') => encode_path(path.as_bytes()),
        _ if has_home && !path.is_empty() => {
            format!("/~/{}", encode_path(path.strip_prefix("~/").unwrap_or(path).as_bytes()))
        }
        _ => format!("/{}", encode_path(path.as_bytes())),
    };
    format!("{}://{host}{path}", scheme.name())
}

fn usage(cause: &str) -> Stop {
    Stop::Usage(cause.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_below_the_home_or_the_root() {
        for (scheme, path, url) in [
            (Scheme::Sftp, "", "sftp://h/~"),
            (Scheme::Sftp, "~/a b", "sftp://h/~/a%20b"),
            (Scheme::Sftp, "photos", "sftp://h/~/photos"),
            (Scheme::Sftp, "/srv/data", "sftp://h/srv/data"),
            (Scheme::Sftp, "/~x", "sftp://h/%7Ex"),
            (Scheme::Sftp, "/~x/a b%41?c/~y", "sftp://h/%7Ex/a%20b%2541%3Fc/~y"),
            (Scheme::Davs, "", "davs://h/"),
            (Scheme::Davs, "files/ada", "davs://h/files/ada"),
            (Scheme::Ftp, "up", "ftp://h/~/up"),
            (Scheme::Ftp, "", "ftp://h/"),
        ] {
            assert_eq!(url_of(scheme, "h", path), url);
            location(url.to_owned()).unwrap();
        }
    }

    #[test]
    fn a_local_path_may_begin_with_the_home_directory() {
        let home = std::env::home_dir().unwrap().to_str().unwrap().to_owned();
        let below = format!("{home}/photos");
        for (path, expected) in [
            ("~", &*home),
            ("~/photos", &below),
            ("~ada", "./~ada"),
            ("a:b", "./a:b"),
            ("/a", "/a"),
        ] {
            assert_eq!(local(path), expected);
        }
    }

    #[test]
    fn a_host_is_a_name_or_an_address_and_nothing_more() {
        assert_eq!(check_host("nas.example"), Ok("nas.example".to_owned()));
        assert_eq!(check_host("::1"), Ok("[::1]".to_owned()));
        for wrong in ["", "ada@nas", "nas:22", "nas/x", "-x", "a b", "nas?x"] {
            assert!(check_host(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn protocols_are_typed_as_in_urls() {
        assert_eq!(protocol_named(""), Ok(ProtocolArg::Sftp));
        assert_eq!(protocol_named("DAVS"), Ok(ProtocolArg::Davs));
        assert!(protocol_named("ssh").is_err());
    }
}
