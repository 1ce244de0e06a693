//! The local user's name and home directory, from the environment and `/etc/passwd`.

use std::path::PathBuf;

/// A host to look up in `ssh_config`, with the local user and machine that its conditions and tokens
/// refer to.
#[derive(Debug, Clone)]
pub struct Query {
    /// The host as the user wrote it.
    pub host: String,
    /// The name of the local user.
    pub local_user: String,
    /// The local user's home directory.
    pub home: PathBuf,
    /// This machine's name.
    pub local_host: String,
}

/// A query for `host` by the local user.
pub fn query(host: &str) -> Query {
    let entry = own_entry();
    let local_user = name_of(entry.as_deref());
    // HOME takes precedence, so that a container or a test can have its own.
    let home = std::env::home_dir().or_else(|| entry.map(|fields| PathBuf::from(&fields[5])));
    Query {
        host: host.to_owned(),
        local_user: local_user.unwrap_or_else(|| "nobody".to_owned()),
        home: home.unwrap_or_else(|| PathBuf::from("/")),
        local_host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
    }
}

/// The name of the local user.
pub fn local_user() -> Option<String> {
    name_of(own_entry().as_deref())
}

/// `/etc/passwd` takes precedence, as in OpenSSH; the names of users of a directory service are only in the
/// environment.
fn name_of(entry: Option<&[String]>) -> Option<String> {
    let named = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let account = entry.map(|fields| fields[0].clone());
    account.or_else(|| named("USER")).or_else(|| named("LOGNAME"))
}

fn own_entry() -> Option<Vec<String>> {
    passwd(|fields| fields[2].parse() == Ok(rustix::process::getuid().as_raw()))
}

/// The home directory of a user.
pub fn home_of(user: &str) -> Option<PathBuf> {
    passwd(|fields| fields[0] == user).map(|fields| PathBuf::from(&fields[5]))
}

/// The first complete entry for which `wanted` is true; `None` if there is none, or the file cannot be read: some
/// systems have no such file.
fn passwd(wanted: impl Fn(&[String]) -> bool) -> Option<Vec<String>> {
    let text = std::fs::read_to_string("/etc/passwd").ok()?;
    text.lines()
        .map(|line| line.split(':').map(str::to_owned).collect::<Vec<_>>())
        .find(|fields| fields.len() == 7 && wanted(fields))
}
