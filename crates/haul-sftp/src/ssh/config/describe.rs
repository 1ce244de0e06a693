//! The settings of a host that are known before a connection, with the origin of each, for display.

use std::path::PathBuf;

use haul_storage::Result;

use super::account::Query;
pub use super::origin::Origin;
use super::settings::Settings;
use super::world::RealWorld;
use super::{HostConfig, Route, StrictHostKeys, account, checked_tokens, finish, gather, refused};
use crate::ssh::options::SshOptions;

/// One setting of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// One of `user`, `host-name`, `port`, `identity-file`, `agent`, `jump`, `proxy-command`,
    /// `host-key-checking`.
    pub name: &'static str,
    /// The value, with everything expanded.
    pub value: String,
    /// Where it is set.
    pub origin: Origin,
}

/// The settings that decide where a connection goes, and with which user and keys.
///
/// # Errors
/// As for [`SshHost::resolve`](crate::ssh::SshHost::resolve).
pub fn describe(
    user: Option<&str>,
    host: &str,
    port: Option<u16>,
    options: &SshOptions,
) -> Result<Vec<Setting>> {
    let query = account::query(host);
    let (settings, origins) = gather(&RealWorld, &query, user, port, options)?;
    let config = finish(&settings, &query, options).map_err(|cause| refused(host, cause))?;
    let named = named_files(&settings, &query, &origins).map_err(|cause| refused(host, cause))?;
    let origin_of = |keyword: &str| {
        let found = origins.iter().find(|(name, _)| name == keyword);
        found.map(|(_, origin)| origin.clone())
    };
    let given = |is_given: bool, keyword: &str| match is_given {
        true => Origin::Given,
        false => origin_of(keyword).unwrap_or(Origin::Default),
    };
    let of = |keyword: &str| given(false, keyword);
    let mut list = Vec::new();
    let mut add = |name, value: String, origin| list.push(Setting { name, value, origin });
    if config.host_name != config.alias {
        add("host-name", config.host_name.clone(), of("hostname"));
    }
    add("port", config.port.to_string(), given(port.is_some(), "port"));
    add("user", config.user.clone(), given(user.is_some(), "user"));
    match &config.route {
        Route::Direct => {}
        Route::Jump(hops) => {
            let hops = hops.iter().map(|hop| {
                let user = hop.user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
                format!("{user}{}", haul_net::with_port(&hop.host, hop.port.unwrap_or(0)))
            });
            let origin = if options.jump.is_some() { Origin::CommandLine } else { of("proxyjump") };
            add("jump", hops.collect::<Vec<_>>().join(","), origin);
        }
        Route::Command(command) => add("proxy-command", command.clone(), of("proxycommand")),
    }
    for (file, origin) in identity_files(&config, options, &named) {
        add("identity-file", file.display().to_string(), origin);
    }
    if let Some(agent) = &config.agent {
        let variable = Origin::Environment("SSH_AUTH_SOCK");
        add("agent", agent.display().to_string(), origin_of("identityagent").unwrap_or(variable));
    }
    let checking = match config.strict_host_keys {
        StrictHostKeys::Yes => "yes",
        StrictHostKeys::Ask => "ask",
        StrictHostKeys::AcceptNew => "accept-new",
        StrictHostKeys::No => "no",
    };
    let origin = match config.strict_host_keys {
        StrictHostKeys::AcceptNew if options.accept_new_host_keys => Origin::CommandLine,
        _ => of("stricthostkeychecking"),
    };
    add("host-key-checking", checking.to_owned(), origin);
    Ok(list)
}

/// The files of all `IdentityFile` lines that apply, with their origins; `none` is among them.
fn named_files(
    settings: &Settings,
    query: &Query,
    origins: &[(String, Origin)],
) -> Result<Vec<(PathBuf, Origin)>, String> {
    let tokens = checked_tokens(settings, query)?;
    let origins = origins.iter().filter(|(name, _)| name == "identityfile");
    let lines = settings.identity_files.iter().zip(origins);
    lines.map(|(file, (_, origin))| Ok((tokens.path(file)?, origin.clone()))).collect()
}

/// The key files with their origins. Of the defaults, only those that exist.
fn identity_files(
    config: &HostConfig,
    options: &SshOptions,
    named: &[(PathBuf, Origin)],
) -> Vec<(PathBuf, Origin)> {
    let origin = |file: &PathBuf| {
        if options.identities.contains(file) {
            return Some(Origin::CommandLine);
        }
        if !config.identities_named {
            return file.exists().then_some(Origin::Default);
        }
        let line = named.iter().find(|(path, _)| path == file);
        Some(line.map_or(Origin::Default, |(_, origin)| origin.clone()))
    };
    let files = config.identity_files.iter();
    files.filter_map(|file| Some((file.clone(), origin(file)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssh::options::ConfigFile;

    #[test]
    fn each_setting_has_its_origin() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        let text = "Host other\n Port 1\nHost nas\n HostName 10.0.0.5\n User ada\n \
                    IdentityFile /k/one\n IdentityFile /k/two\n ProxyJump me@gate:23\n\
                    Host *\n User nobody\n IdentityAgent none\n StrictHostKeyChecking yes\n";
        std::fs::write(&path, text).unwrap();
        let config = ConfigFile::Path(path.clone());
        let options =
            SshOptions { config, options: vec!["Port=2222".to_owned()], ..SshOptions::default() };
        let found = describe(None, "nas", None, &options).unwrap();
        let at = |line| Origin::File { path: path.clone(), line };
        let expected = [
            ("host-name", "10.0.0.5", at(4)),
            ("port", "2222", Origin::CommandLine),
            ("user", "ada", at(5)),
            ("jump", "me@gate:23", at(8)),
            ("identity-file", "/k/one", at(6)),
            ("identity-file", "/k/two", at(7)),
            ("host-key-checking", "yes", at(12)),
        ];
        let expected = expected.map(|(name, value, origin)| {
            let value = value.to_owned();
            Setting { name, value, origin }
        });
        assert_eq!(found, expected);
        let found = describe(Some("eve"), "other", None, &options).unwrap();
        assert!(found.iter().any(|it| it.name == "user" && it.origin == Origin::Given));
        let plain = SshOptions { config: ConfigFile::None, ..SshOptions::default() };
        let found = describe(None, "nas", None, &plain).unwrap();
        let port = found.iter().find(|setting| setting.name == "port").unwrap();
        assert_eq!((&port.value[..], &port.origin), ("22", &Origin::Default));
    }

    #[test]
    fn each_key_file_has_the_origin_of_its_own_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        let text = "IdentityFile /k/given\nIdentityFile none\nIdentityFile /k/other\n\
                    IdentityFile /k/%n\nIdentityFile /k/nas\nIdentityFile /k/last\n";
        std::fs::write(&path, text).unwrap();
        let options = SshOptions {
            config: ConfigFile::Path(path.clone()),
            identities: vec![PathBuf::from("/k/given")],
            ..SshOptions::default()
        };
        let found = describe(None, "nas", None, &options).unwrap();
        let found = found.into_iter().filter(|setting| setting.name == "identity-file");
        let found: Vec<_> = found.map(|setting| (setting.value, setting.origin)).collect();
        let at = |line| Origin::File { path: path.clone(), line };
        let expected = [
            ("/k/given", Origin::CommandLine),
            ("/k/other", at(3)),
            ("/k/nas", at(4)),
            ("/k/last", at(6)),
        ];
        assert_eq!(found, expected.map(|(value, origin)| (value.to_owned(), origin)));
    }
}
