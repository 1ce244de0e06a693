//! Assigns the secrets of the environment to hosts.
//!
//! ```text
//! HAUL_PASSWORD_NAME, HAUL_TOKEN_NAME → the [remote.NAME] of the configuration
//! HAUL_PASSWORD, HAUL_TOKEN           → the only host of the command without a secret of its own; if there are
//!                                       several, the only one with USER@. A list of hosts counts as one
//! ```
//!
//! If it is ambiguous which host a secret is for, that is an error: sending it to the wrong host would reveal
//! it. Every argument is [noted](Secrets::note) before the first location is opened.

use std::collections::{BTreeSet, HashSet};
use std::env;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use haul_net::{PasswordSource, Secret};
use haul_storage::{Error, ErrorKind, Location, Result, Scheme};

/// The secrets, and the hosts of the command.
#[derive(Debug)]
pub(super) struct Secrets {
    password: Option<PasswordSource>,
    token: Option<PasswordSource>,
    /// One for each host, in the order of the arguments.
    hosts: Mutex<Vec<Noted>>,
    /// Whether the recipient of `HAUL_PASSWORD` or `HAUL_TOKEN` has been determined: no further host may be noted then.
    is_assigned: AtomicBool,
}

/// Identifies a host.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Host {
    user: Option<String>,
    name: String,
    port: Option<u16>,
    scheme: Scheme,
}

#[derive(Debug)]
struct Noted {
    host: Host,
    /// For error messages.
    shown: String,
    /// The host lists that contain it, by number; `None` if an argument names it alone.
    lists: Option<BTreeSet<usize>>,
    password: Option<PasswordSource>,
    token: Option<PasswordSource>,
    /// Whether the configuration has a `password_command` for it.
    has_command: bool,
}

impl Secrets {
    /// The secrets in the environment of this process.
    pub(super) fn of_environment() -> Self {
        let (password, token) = (variable("HAUL_PASSWORD"), variable("HAUL_TOKEN"));
        Self { password, token, hosts: Mutex::default(), is_assigned: AtomicBool::new(false) }
    }

    /// Notes a host of the command. `remote` is its name in the configuration, and `list` the number of the host list
    /// that it is from, if any.
    pub(super) fn note(&self, location: &Location, remote: Option<&str>, list: Option<usize>) {
        let Some(host) = host_of(location) else { return };
        let own = |kind: &str| variable(&format!("{kind}_{}", in_capitals(remote?)));
        let (password, token) = (own("HAUL_PASSWORD"), own("HAUL_TOKEN"));
        let mut hosts = self.lock();
        if !hosts.iter().any(|known| known.host == host) {
            let is_late = self.is_assigned.load(Ordering::Acquire);
            debug_assert!(!is_late, "{location} is noted after the secrets were assigned");
            let shown = shown(&host);
            let (host, lists) = (host.clone(), Some(BTreeSet::new()));
            let (password, token, has_command) = (None, None, false);
            hosts.push(Noted { host, shown, lists, password, token, has_command });
        }
        let Some(known) = hosts.iter_mut().find(|known| known.host == host) else { return };
        known.lists = known.lists.take().zip(list).map(|(mut lists, list)| {
            lists.insert(list);
            lists
        });
        known.password = known.password.take().or(password);
        known.token = known.token.take().or(token);
    }

    /// Notes that the configuration has a `password_command` for a host.
    pub(super) fn has_command(&self, location: &Location) {
        let Some(host) = host_of(location) else { return };
        if let Some(known) = self.lock().iter_mut().find(|known| known.host == host) {
            known.has_command = true;
        }
    }

    /// The password of a host, if the environment has it.
    ///
    /// # Errors
    /// It is ambiguous which host `HAUL_PASSWORD` is for.
    pub(super) fn password(&self, location: &Location) -> Result<Option<PasswordSource>> {
        let hosts = self.lock();
        let own = |host: &Noted| host.password.clone();
        let others = hosts.iter().filter(|host| host.password.is_none() && !host.has_command);
        self.is_assigned.fetch_or(self.password.is_some(), Ordering::AcqRel);
        pick_secret("HAUL_PASSWORD", self.password.as_ref(), location, &hosts, own, others)
    }

    /// The token of an HTTP or WebDAV host, if the environment has it.
    ///
    /// # Errors
    /// It is ambiguous which host `HAUL_TOKEN` is for.
    pub(super) fn token(&self, location: &Location) -> Result<Option<PasswordSource>> {
        let hosts = self.lock();
        let own = |host: &Noted| host.token.clone();
        let others = hosts.iter().filter(|host| host.token.is_none() && is_web(host.host.scheme));
        self.is_assigned.fetch_or(self.token.is_some(), Ordering::AcqRel);
        pick_secret("HAUL_TOKEN", self.token.as_ref(), location, &hosts, own, others)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Noted>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The secret of a host: its own, or `general` if only this host can be meant. `others` are the hosts of the command
/// without a secret of their own.
fn pick_secret<'a>(
    variable: &str,
    general: Option<&PasswordSource>,
    location: &Location,
    hosts: &[Noted],
    own: impl Fn(&Noted) -> Option<PasswordSource>,
    others: impl Iterator<Item = &'a Noted>,
) -> Result<Option<PasswordSource>> {
    let Some(host) = host_of(location) else { return Ok(None) };
    let noted = hosts.iter().find(|noted| noted.host == host);
    if let Some(own) = noted.and_then(own) {
        return Ok(Some(own));
    }
    let Some(general) = general else { return Ok(None) };
    let candidates: Vec<_> = others.collect();
    // A host list counts as one, represented by its first host. Several arguments may have the same list.
    let mut seen = HashSet::new();
    let is_first =
        |other: &&Noted| other.lists.as_ref().is_none_or(|lists| seen.insert(lists.clone()));
    let others: Vec<_> = candidates.iter().copied().filter(is_first).collect();
    let named: Vec<_> = others.iter().copied().filter(|other| other.host.user.is_some()).collect();
    let only = match (&others[..], &named[..]) {
        ([], _) => return Ok(None),
        ([only], _) => only,
        (_, [only]) => only,
        _ => {
            let all: Vec<_> = others.iter().map(|other| &other.shown[..]).collect();
            let kind = variable.trim_start_matches("HAUL_").to_ascii_lowercase();
            return Err(Error::new(ErrorKind::InvalidInput, "authenticate").at(location).because(
                format!(
                    "{variable} is the {kind} of one host, and there are {}: {}; put USER@ before the \
                     one that it is for (and no other), or call it {variable}_NAME for a [remote.NAME] \
                     of the configuration, or unset it",
                    all.len(),
                    all.join(", ")
                ),
            ));
        }
    };
    let is_only = |noted: &Noted| {
        noted.host == only.host || noted.lists.is_some() && noted.lists == only.lists
    };
    let is_it = candidates.iter().any(|noted| noted.host == host && is_only(noted));
    Ok(is_it.then(|| general.clone()))
}

/// The variables of a kind (`HAUL_PASSWORD`, `HAUL_TOKEN`) that may have the secret of a remote, each if it is
/// set: its own, and the one for the only host of a command.
pub(crate) fn secret_of(kind: &str, remote: &str) -> (Option<String>, Option<String>) {
    let set = |name: String| variable(&name).is_some().then_some(name);
    (set(format!("{kind}_{}", in_capitals(remote))), set(kind.to_owned()))
}

/// The value of a variable, unless it is unset, empty or not UTF-8.
fn variable(name: &str) -> Option<PasswordSource> {
    let text = env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(PasswordSource::Secret(Secret::new(text)))
}

/// The name of a remote as it appears in the name of a variable.
fn in_capitals(remote: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    remote.chars().map(letter).collect()
}

fn host_of(location: &Location) -> Option<Host> {
    let Location::Remote { scheme, user, host, port, .. } = location else { return None };
    // Web schemes that lead to the same server compare equal.
    let scheme = match scheme {
        Scheme::Http | Scheme::Dav => Scheme::Http,
        Scheme::Https | Scheme::Davs => Scheme::Https,
        Scheme::Sftp | Scheme::Ftp | Scheme::Ftps => *scheme,
    };
    let name = host.to_ascii_lowercase();
    Some(Host { user: user.clone(), name, port: port.or(usual_port(scheme)), scheme })
}

/// The port of a location without one. That of SFTP is not known here: ssh_config may set it.
fn usual_port(scheme: Scheme) -> Option<u16> {
    (scheme != Scheme::Sftp).then(|| scheme.default_port())
}

fn shown(host: &Host) -> String {
    let Host { user, name, port, scheme } = host;
    let user = user.as_ref().map_or(String::new(), |user| format!("{}@", user.escape_debug()));
    let name = if name.contains(':') { format!("[{name}]") } else { name.clone() };
    let port = port.filter(|_| *port != usual_port(*scheme));
    let port = port.map_or(String::new(), |port| format!(":{port}"));
    format!("{}://{user}{name}{port}", scheme.name())
}

const fn is_web(scheme: Scheme) -> bool {
    matches!(scheme, Scheme::Http | Scheme::Https)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(locations: &[&str]) -> Secrets {
        let secret = |text: &str| Some(PasswordSource::Secret(Secret::new(text)));
        let (password, token) = (secret("password"), secret("token"));
        let (hosts, is_assigned) = (Mutex::default(), AtomicBool::new(false));
        let secrets = Secrets { password, token, hosts, is_assigned };
        for text in locations {
            let (list, text) = listed(text);
            secrets.note(&Location::parse(text).unwrap(), None, list);
        }
        secrets
    }

    /// The number of the list that a host is from, and its location: `1 sftp://a/x`.
    fn listed(text: &str) -> (Option<usize>, &str) {
        match text.split_once(' ') {
            Some((list, text)) => (Some(list.parse().unwrap()), text),
            None => (None, text),
        }
    }

    /// Whether each of the hosts gets the password.
    fn recipients(locations: &[&str]) -> Result<Vec<bool>, String> {
        let secrets = secrets(locations);
        let each = locations.iter().map(|text| {
            let found = secrets.password(&Location::parse(listed(text).1).unwrap());
            found.map(|found| found.is_some()).map_err(|error| error.to_string())
        });
        each.collect()
    }

    #[test]
    fn a_password_is_for_one_host() {
        assert_eq!(recipients(&["sftp://a/x"]), Ok(vec![true]));
        assert_eq!(recipients(&["sftp://a/x", "/disk"]), Ok(vec![true, false]));
        assert_eq!(recipients(&["sftp://ada@a/x", "sftp://ada@a/y"]), Ok(vec![true, true]));
        assert_eq!(recipients(&["davs://a/x", "https://A:443/y"]), Ok(vec![true, true]));
        // Formerly, FTP had no default port.
        assert_eq!(recipients(&["ftp://a/x", "ftp://A:21/y"]), Ok(vec![true, true]));
        assert_eq!(recipients(&["ftps://a/x", "ftps://a:21/y"]), Ok(vec![true, true]));
        assert_eq!(recipients(&["sftp://a/x", "davs://ada@cloud/"]), Ok(vec![false, true]));
        assert_eq!(recipients(&["sftp://h/x", "sftp://ada@h/x"]), Ok(vec![false, true]));
    }

    #[test]
    fn a_list_of_hosts_counts_as_one() {
        let list = ["1 sftp://n1/x", "1 sftp://n2/x"];
        assert_eq!(recipients(&list), Ok(vec![true, true]));
        let named = ["1 sftp://ada@n1/x", "1 sftp://ada@n2/x", "https://web/f"];
        assert_eq!(recipients(&named), Ok(vec![true, true, false]));
        // Two arguments with the same list.
        let twice = ["1 sftp://n1/x", "2 sftp://n1/y", "1 sftp://n2/x", "2 sftp://n2/y"];
        assert_eq!(recipients(&twice), Ok(vec![true; 4]));
        let two = ["1 sftp://ada@n1/x", "1 sftp://ada@n2/x", "2 sftp://m1/x", "2 sftp://m2/x"];
        assert_eq!(recipients(&two), Ok(vec![true, true, false, false]));
    }

    /// Formerly, all lists of a command counted as one, and the hosts of each got the password.
    #[test]
    fn two_host_lists_do_not_count_as_one() {
        for hosts in [
            ["1 sftp://n1/x", "1 sftp://n2/x", "2 sftp://m1/x", "2 sftp://m2/x"],
            ["1 sftp://n1/x", "2 sftp://n1/x", "1 sftp://n2/x", "2 sftp://n3/x"],
            ["1 sftp://ada@n1/x", "1 sftp://ada@n2/x", "2 sftp://bob@n1/x", "2 sftp://bob@n2/x"],
        ] {
            let error = recipients(&hosts).unwrap_err();
            assert!(error.contains("HAUL_PASSWORD is the password of one host"), "{error}");
        }
    }

    /// Formerly, such a host got the password of its list.
    #[test]
    fn a_listed_host_with_a_password_command_does_not_get_the_general_password() {
        let secrets = secrets(&["1 sftp://a/x", "1 sftp://b/x", "1 sftp://c/x"]);
        let of = |text: &str| Location::parse(text).unwrap();
        secrets.has_command(&of("sftp://b/x"));
        let gets = |text: &str| secrets.password(&of(text)).unwrap().is_some();
        assert_eq!(
            (gets("sftp://a/x"), gets("sftp://b/x"), gets("sftp://c/x")),
            (true, false, true)
        );
    }

    #[test]
    fn a_password_that_could_be_for_several_hosts_is_for_none() {
        for hosts in [
            ["sftp://a/x", "sftp://b/x"],
            ["sftp://ada@a/x", "ftp://ada@b/x"],
            ["1 sftp://a/x", "sftp://b/x"],
            ["1 sftp://a/x", "2 sftp://b/x"],
        ] {
            let error = recipients(&hosts).unwrap_err();
            assert!(error.contains("HAUL_PASSWORD is the password of one host"), "{error}");
            assert!(error.contains("2: "), "{error}");
        }
    }

    #[test]
    fn a_token_is_only_for_http_hosts() {
        let secrets = secrets(&["sftp://a/x", "https://b/x"]);
        let of = |text: &str| secrets.token(&Location::parse(text).unwrap()).unwrap().is_some();
        assert_eq!((of("sftp://a/x"), of("https://b/x")), (false, true));
    }

    #[test]
    fn a_host_with_a_password_command_does_not_get_the_general_password() {
        let secrets = secrets(&["sftp://a/x", "sftp://b/x"]);
        let location = Location::parse("sftp://a/x").unwrap();
        secrets.has_command(&location);
        assert!(secrets.password(&location).unwrap().is_none());
        assert!(secrets.password(&Location::parse("sftp://b/x").unwrap()).unwrap().is_some());
    }

    #[test]
    fn the_name_of_a_remote_is_valid_in_a_variable_name() {
        assert_eq!(in_capitals("my-nas.2"), "MY_NAS_2");
    }
}
