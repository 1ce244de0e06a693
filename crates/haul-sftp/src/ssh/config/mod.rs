//! The configuration of a host.
//!
//! ```text
//! SshOptions + ~/.ssh/config + /etc/ssh/ssh_config → Reader → Settings → HostConfig
//! ```
//!
//! [`HostConfig`] has all values, with paths and tokens expanded; no code below it reads the
//! configuration.

pub mod account;
pub mod describe;
mod expand;
mod guard;
pub mod jump;
mod lexer;
mod origin;
mod reader;
mod settings;
mod world;

use std::path::{Path, PathBuf};
use std::time::Duration;

use haul_net::Family;
use haul_storage::{Error, ErrorKind, Result};

use self::account::Query;
use self::expand::Tokens;
pub use self::jump::Hop;
use self::origin::Origin;
use self::reader::Reader;
pub use self::settings::StrictHostKeys;
use self::settings::{Canonicalize, Proxy, Settings};
use self::world::{RealWorld, World};
use super::choice;
use super::options::{ConfigFile, SshOptions};

/// Default of ServerAliveInterval; with four keepalives, an unreachable server is noticed within a
/// minute.
const ALIVE_INTERVAL: Duration = Duration::from_secs(15);
const ALIVE_COUNT: u32 = 4;

/// Default of ConnectTimeout. Linux abandons a TCP connect after some two minutes; established
/// connections also get a minute of silence.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// The minimum that OpenSSH accepts.
const RSA_BITS: u32 = 1024;

/// Names of the default key files, in OpenSSH's order (without its `id_xmss` and `id_dsa`).
const IDENTITIES: [&str; 5] = ["id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk"];

/// The resolved configuration of a host. Fields without a comment are options of ssh_config(5).
#[derive(Debug, Clone)]
pub struct HostConfig {
    /// The host as the user wrote it.
    pub alias: String,
    pub host_name: String,
    pub port: u16,
    pub user: String,
    /// Key files in the order in which they are tried.
    pub identity_files: Vec<PathBuf>,
    /// Whether the user named them; otherwise they are the defaults.
    pub identities_named: bool,
    pub certificate_files: Vec<PathBuf>,
    pub identities_only: bool,
    /// The agent's socket, if an agent may be used.
    pub agent: Option<PathBuf>,
    pub route: Route,
    pub user_known_hosts: Vec<PathBuf>,
    pub global_known_hosts: Vec<PathBuf>,
    pub strict_host_keys: StrictHostKeys,
    pub hash_known_hosts: bool,
    pub host_key_alias: Option<String>,
    pub ciphers: Option<String>,
    pub macs: Option<String>,
    pub kex_algorithms: Option<String>,
    pub host_key_algorithms: Option<String>,
    /// CASignatureAlgorithms, as names.
    pub ca_signatures: Vec<&'static str>,
    /// PubkeyAcceptedAlgorithms, as names.
    pub user_keys: Vec<&'static str>,
    /// RequiredRSASize.
    pub required_rsa_bits: u32,
    /// `None`: no limit but the system's.
    pub connect_timeout: Option<Duration>,
    /// `None`: no keepalives.
    pub alive_interval: Option<Duration>,
    pub alive_count: u32,
    pub compression: bool,
    /// The enabled methods, most preferred first.
    pub methods: Vec<Method>,
    /// Whether the order of `methods` was configured.
    pub methods_named: bool,
    pub batch_mode: bool,
    pub family: Family,
    pub bind_address: Option<String>,
    pub password_prompts: u32,
    /// Bytes after which keys are exchanged again. `None`: 16 GiB, which is also the most.
    pub rekey_limit: Option<u64>,
}

impl HostConfig {
    /// How long the peer may be silent before the connection counts as lost. `None`: forever.
    pub fn silence_limit(&self) -> Option<Duration> {
        let interval = self.alive_interval.filter(|_| self.alive_count > 0)?;
        Some(interval.saturating_mul(self.alive_count))
    }
}

/// The route to a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// By TCP.
    Direct,
    /// Through these hosts, nearest first.
    Jump(Vec<Hop>),
    /// Through a command's standard input and output; tokens are expanded.
    Command(String),
}

/// An authentication method (RFC 4252, RFC 4256).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    PublicKey,
    KeyboardInteractive,
    Password,
}

impl Method {
    /// Its name in the protocol.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PublicKey => "publickey",
            Self::KeyboardInteractive => "keyboard-interactive",
            Self::Password => "password",
        }
    }
}

/// Reads the configuration for one host.
///
/// # Errors
/// A bad line (with file and line number), a bad `-o`, an option that applies to the host and is not supported, a file
/// that cannot be read, a name that no host or user can have, a host that CanonicalizeHostname does not find.
pub fn resolve(
    user: Option<&str>,
    host: &str,
    port: Option<u16>,
    options: &SshOptions,
) -> Result<HostConfig> {
    resolve_in(&RealWorld, &account::query(host), user, port, options)
}

fn resolve_in(
    world: &impl World,
    query: &Query,
    user: Option<&str>,
    port: Option<u16>,
    options: &SshOptions,
) -> Result<HostConfig> {
    let (settings, _) = gather(world, query, user, port, options)?;
    finish(&settings, query, options).map_err(|cause| refused(&query.host, cause))
}

/// The settings for a host, and the origin of each keyword.
fn gather(
    world: &impl World,
    query: &Query,
    user: Option<&str>,
    port: Option<u16>,
    options: &SshOptions,
) -> Result<(Settings, Vec<(String, Origin)>)> {
    let host = &query.host;
    if !jump::is_host(host) {
        return Err(refused(host, "it cannot be the name of a host"));
    }
    if let Some(user) = user.filter(|user| !jump::is_user(user)) {
        return Err(refused(host, format!("\"{user}\" cannot be the name of a user")));
    }
    let mut reader = Reader::new(world, query);
    // The arguments for this host take precedence over everything else.
    reader.settings().user = user.map(str::to_owned);
    reader.settings().port = port;
    if let Some(jump) = &options.jump {
        reader.option(&format!("ProxyJump={jump}"))?;
    }
    for option in &options.options {
        reader.option(option)?;
    }
    read_files(&mut reader, query, options)?;
    let canonical = canonical_name(reader.world(), reader.settings(), query);
    let canonical = canonical.map_err(|cause| refused(host, cause))?;
    if canonical.is_some() || reader.wants_final_pass() {
        let name = canonical.unwrap_or_else(|| reader.settings().tokens(query).host_name);
        reader.begin_final_pass(lower_case(&name));
        read_files(&mut reader, query, options)?;
    }
    Ok(reader.finish())
}

fn refused(host: &str, cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, "read the SSH configuration").at(host).because(cause)
}

fn read_files<W: World>(
    reader: &mut Reader<'_, W>,
    query: &Query,
    options: &SshOptions,
) -> Result<()> {
    let home = query.home.join(".ssh");
    let system = Path::new("/etc/ssh");
    match &options.config {
        ConfigFile::None => Ok(()),
        // A file given by `-F` is used as it is, wherever it is (ssh(1)).
        ConfigFile::Path(path) => reader.file(path, &home, false),
        ConfigFile::Default => {
            for (path, base, guarded) in [
                (home.join("config"), home.as_path(), true),
                (system.join("ssh_config"), system, false),
            ] {
                match reader.file(&path, base, guarded) {
                    Err(error)
                        if error.kind() == ErrorKind::NotFound
                            && error.location() == path.to_string_lossy() => {}
                    result => result?,
                }
            }
            Ok(())
        }
    }
}

/// The canonical name of the host; `None` unless CanonicalizeHostname is set.
fn canonical_name(
    world: &impl World,
    settings: &Settings,
    query: &Query,
) -> Result<Option<String>, String> {
    let name = settings.tokens(query).host_name;
    let is_direct = matches!(settings.proxy, None | Some(Proxy::None));
    match settings.canonicalize {
        None | Some(Canonicalize::No) => return Ok(None),
        Some(Canonicalize::Yes) if !is_direct => return Ok(Some(name)),
        Some(Canonicalize::Yes | Canonicalize::Always) => {}
    }
    let follows =
        settings.permitted_cnames.iter().flatten().any(|rule| !rule.eq_ignore_ascii_case("none"));
    if follows {
        return Err("haul does not support CanonicalizePermittedCNAMEs".to_owned());
    }
    if name.parse::<std::net::IpAddr>().is_ok() {
        return Ok(Some(name));
    }
    if let Some(anchored) = name.strip_suffix('.') {
        return Ok(Some(if world.resolves(&name) { anchored.to_owned() } else { name }));
    }
    let dots = name.matches('.').count();
    if dots > settings.canonicalize_max_dots.unwrap_or(1) as usize {
        return Ok(Some(name));
    }
    let domains = settings.canonical_domains.iter().flatten();
    for domain in domains.take_while(|domain| !domain.eq_ignore_ascii_case("none")) {
        let full = format!("{name}.{}", domain.trim_end_matches('.'));
        if world.resolves(&format!("{full}.")) {
            return Ok(Some(full));
        }
    }
    match settings.canonicalize_fallback_local {
        Some(false) => Err(format!("none of the CanonicalDomains has a host {name}")),
        _ => Ok(Some(name)),
    }
}

/// Fills in defaults and expands tokens.
fn finish(settings: &Settings, query: &Query, options: &SshOptions) -> Result<HostConfig, String> {
    let tokens = checked_tokens(settings, query)?;
    let (identity_files, identities_named) = identities(settings, query, options, &tokens)?;
    let ssh = |name: &str| query.home.join(".ssh").join(name);
    let user_known_hosts = match &settings.user_known_hosts_files {
        Some(files) => paths(files, &tokens)?,
        None => vec![ssh("known_hosts"), ssh("known_hosts2")],
    };
    let global_known_hosts = match &settings.global_known_hosts_files {
        Some(files) => paths(files, &tokens)?,
        None => {
            ["/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"].map(PathBuf::from).to_vec()
        }
    };
    let route = route(settings, &tokens)?;
    let mut strict = settings.strict_host_key_checking.unwrap_or(StrictHostKeys::Ask);
    if options.accept_new_host_keys && strict != StrictHostKeys::No {
        strict = StrictHostKeys::AcceptNew;
    }
    let interval = settings.server_alive_interval.unwrap_or(ALIVE_INTERVAL);
    Ok(HostConfig {
        alias: query.host.clone(),
        host_name: tokens.host_name.clone(),
        port: tokens.port,
        user: tokens.user.clone(),
        identity_files,
        identities_named,
        certificate_files: paths(&settings.certificate_files, &tokens)?,
        identities_only: settings.identities_only.unwrap_or(false),
        agent: agent(settings.identity_agent.as_deref(), &tokens)?,
        route,
        user_known_hosts,
        global_known_hosts,
        strict_host_keys: strict,
        hash_known_hosts: settings.hash_known_hosts.unwrap_or(false),
        host_key_alias: settings.host_key_alias.clone(),
        ciphers: settings.ciphers.clone(),
        macs: settings.macs.clone(),
        kex_algorithms: settings.kex_algorithms.clone(),
        host_key_algorithms: settings.host_key_algorithms.clone(),
        ca_signatures: choice::ca_signatures(settings.ca_signature_algorithms.as_deref())?,
        user_keys: choice::user_keys(settings.pubkey_accepted_algorithms.as_deref())?,
        // Shorter keys are never accepted, as in OpenSSH.
        required_rsa_bits: settings.required_rsa_size.unwrap_or(RSA_BITS).max(RSA_BITS),
        connect_timeout: settings.connect_timeout.unwrap_or(Some(CONNECT_TIMEOUT)),
        alive_interval: Some(interval).filter(|interval| !interval.is_zero()),
        alive_count: settings.server_alive_count_max.unwrap_or(ALIVE_COUNT),
        compression: options.compress || settings.compression.unwrap_or(false),
        methods: methods(settings),
        methods_named: settings.preferred_authentications.is_some(),
        batch_mode: settings.batch_mode.unwrap_or(false),
        family: settings.address_family.unwrap_or(Family::Any),
        bind_address: settings.bind_address.clone(),
        password_prompts: settings.number_of_password_prompts.unwrap_or(3),
        rekey_limit: settings.rekey_limit.filter(|&limit| limit > 0),
    })
}

/// The tokens, after checking the names of the host and the user.
fn checked_tokens(settings: &Settings, query: &Query) -> Result<Tokens, String> {
    let mut tokens = settings.tokens(query);
    if let Some(name) = &settings.host_name {
        tokens.host_name = query.host.clone();
        tokens.host_name = tokens.expand(name)?;
    }
    tokens.host_name = lower_case(&tokens.host_name);
    // With a pattern, an accepted key would also be stored for other hosts.
    let looked_up = settings.host_key_alias.as_ref().unwrap_or(&tokens.host_name);
    if jump::is_pattern(looked_up) {
        return Err(format!("\"{looked_up}\" cannot be the name of one host"));
    }
    if tokens.host_name.starts_with('-') || tokens.host_name.contains(char::is_control) {
        return Err(format!("\"{}\" cannot be the name of a host", tokens.host_name));
    }
    if tokens.user.contains(char::is_control) {
        return Err(format!("\"{}\" cannot be the name of a user", tokens.user));
    }
    Ok(tokens)
}

/// A host name in lower case: as in ssh, the name that is looked up and the value of `%h` do not depend on the case in
/// which it was typed. The zone of an IPv6 address (`fe80::1%eth0`) stays: names of interfaces are case-sensitive.
fn lower_case(name: &str) -> String {
    let (host, zone) = name.split_at(name.find('%').unwrap_or(name.len()));
    host.to_ascii_lowercase() + zone
}

/// The key files, and whether the user named them.
fn identities(
    settings: &Settings,
    query: &Query,
    options: &SshOptions,
    tokens: &Tokens,
) -> Result<(Vec<PathBuf>, bool), String> {
    let mut files = options.identities.clone();
    for path in paths(&settings.identity_files, tokens)? {
        if !files.contains(&path) {
            files.push(path);
        }
    }
    let named = !files.is_empty();
    // "IdentityFile none" names no file, but disables the defaults.
    if !named && settings.identity_files.is_empty() {
        files.extend(IDENTITIES.map(|name| query.home.join(".ssh").join(name)));
    }
    Ok((files, named))
}

fn paths(files: &[String], tokens: &Tokens) -> Result<Vec<PathBuf>, String> {
    let files = files.iter().filter(|file| !file.eq_ignore_ascii_case("none"));
    files.map(|file| tokens.path(file)).collect()
}

fn route(settings: &Settings, tokens: &Tokens) -> Result<Route, String> {
    Ok(match &settings.proxy {
        None | Some(Proxy::None) => Route::Direct,
        Some(Proxy::Jump(list)) => Route::Jump(jump::parse(&tokens.expand(list)?)?),
        Some(Proxy::Command(_)) if settings.proxy_use_fdpass == Some(true) => {
            return Err("haul does not support ProxyUseFdpass".to_owned());
        }
        Some(Proxy::Command(command)) => Route::Command(tokens.expand(command)?),
    })
}

/// Parses IdentityAgent: `none`, `SSH_AUTH_SOCK`, `$NAME`, or a path.
fn agent(setting: Option<&str>, tokens: &Tokens) -> Result<Option<PathBuf>, String> {
    let from_environment =
        |name: &str| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    match setting {
        Some(value) if value.eq_ignore_ascii_case("none") => Ok(None),
        None | Some("SSH_AUTH_SOCK") => Ok(from_environment("SSH_AUTH_SOCK")),
        Some(value) => match value.strip_prefix('$') {
            Some(name) if !name.starts_with('{') => Ok(from_environment(name)),
            _ => tokens.path(value).map(Some),
        },
    }
}

fn methods(settings: &Settings) -> Vec<Method> {
    let allowed = |method: &Method| match method {
        Method::PublicKey => settings.pubkey_authentication.unwrap_or(true),
        Method::KeyboardInteractive => settings.kbd_interactive_authentication.unwrap_or(true),
        Method::Password => settings.password_authentication.unwrap_or(true),
    };
    let all = [Method::PublicKey, Method::KeyboardInteractive, Method::Password];
    let preferred: Vec<Method> = match &settings.preferred_authentications {
        // Unsupported methods, such as gssapi-with-mic, are ignored.
        Some(list) => list
            .split(',')
            .filter_map(|name| all.into_iter().find(|method| method.name() == name.trim()))
            .collect(),
        None => all.to_vec(),
    };
    preferred.into_iter().filter(allowed).collect()
}

#[cfg(test)]
mod tests;
