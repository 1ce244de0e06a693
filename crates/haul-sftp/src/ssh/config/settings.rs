//! The options of ssh_config(5) that haul supports. The first value of each counts; only identity and certificate
//! files accumulate.
//!
//! [`Settings::apply`] takes one line that applies, and stores its value unless one is set.
//! Unsupported options are ignored, unless that could change where a connection goes, or trust a
//! host key that must not be trusted. Those are refused, but only where they apply: lines for other
//! hosts do not matter.

use std::time::Duration;

use haul_net::Family;

use super::account::Query;
use super::expand::Tokens;
use super::lexer::Line;

/// The settings so far; `None` is not set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    pub host_name: Option<String>,
    pub port: Option<u16>,
    pub user: Option<String>,
    pub identity_files: Vec<String>,
    pub certificate_files: Vec<String>,
    pub identities_only: Option<bool>,
    pub identity_agent: Option<String>,
    /// ProxyJump or ProxyCommand, whichever was first.
    pub proxy: Option<Proxy>,
    pub user_known_hosts_files: Option<Vec<String>>,
    pub global_known_hosts_files: Option<Vec<String>>,
    pub strict_host_key_checking: Option<StrictHostKeys>,
    pub hash_known_hosts: Option<bool>,
    pub host_key_alias: Option<String>,
    pub ciphers: Option<String>,
    pub macs: Option<String>,
    pub kex_algorithms: Option<String>,
    pub host_key_algorithms: Option<String>,
    pub ca_signature_algorithms: Option<String>,
    pub pubkey_accepted_algorithms: Option<String>,
    pub required_rsa_size: Option<u32>,
    pub connect_timeout: Option<Option<Duration>>,
    pub server_alive_interval: Option<Duration>,
    pub server_alive_count_max: Option<u32>,
    pub compression: Option<bool>,
    pub preferred_authentications: Option<String>,
    pub password_authentication: Option<bool>,
    pub pubkey_authentication: Option<bool>,
    pub kbd_interactive_authentication: Option<bool>,
    pub batch_mode: Option<bool>,
    pub address_family: Option<Family>,
    pub bind_address: Option<String>,
    pub number_of_password_prompts: Option<u32>,
    /// Bytes; 0 is the default.
    pub rekey_limit: Option<u64>,
    pub canonicalize: Option<Canonicalize>,
    pub canonical_domains: Option<Vec<String>>,
    pub canonicalize_max_dots: Option<u32>,
    pub canonicalize_fallback_local: Option<bool>,
    pub permitted_cnames: Option<Vec<String>>,
    pub proxy_use_fdpass: Option<bool>,
    pub tag: Option<String>,
}

/// The route to a host, as set by ProxyJump or ProxyCommand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proxy {
    /// Direct (`none`).
    None,
    /// Through other hosts, as written in the option.
    Jump(String),
    /// Through a command's standard input and output.
    Command(String),
}

/// What to do with an unknown host key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StrictHostKeys {
    /// Refuse it.
    Yes,
    /// Prompt the user.
    Ask,
    /// Accept and remember it, unless the host is known by another key; a changed key is refused.
    AcceptNew,
    /// Accept and remember it. Unlike OpenSSH, haul refuses a changed key with this setting too.
    No,
}

/// Why a value is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It is invalid, also for OpenSSH.
    Bad(String),
    /// OpenSSH accepts it, but haul does not support it.
    Unsupported(String),
}

impl Refusal {
    /// The explanation.
    pub fn cause(self) -> String {
        match self {
            Self::Bad(cause) | Self::Unsupported(cause) => cause,
        }
    }
}

impl From<String> for Refusal {
    fn from(cause: String) -> Self {
        Self::Bad(cause)
    }
}

/// Whether a name with at most CanonicalizeMaxDots dots is completed with CanonicalDomains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Canonicalize {
    /// No.
    No,
    /// If the host is reached directly.
    Yes,
    /// Also behind a proxy.
    Always,
}

impl Settings {
    /// Stores the value of a line unless the option is set. `false`: haul does not support the option.
    ///
    /// # Errors
    /// Why the value is refused.
    pub fn apply(&mut self, line: &Line) -> Result<bool, Refusal> {
        match line.keyword.as_str() {
            // These cannot be ignored: the connection would go elsewhere, or a key would be trusted
            // that must not be.
            "revokedhostkeys" | "bindinterface" if is_none(one(line)?) => Ok(true),
            "revokedhostkeys" | "bindinterface" => Err(Refusal::Unsupported(format!(
                "haul does not support {}, and must not ignore it",
                line.keyword
            ))),
            _ => Ok(self.apply_route(line)?
                || self.apply_login(line)?
                || self.apply_trust(line)?
                || self.apply_connection(line)?),
        }
    }

    /// Options for the destination and the route.
    fn apply_route(&mut self, line: &Line) -> Result<bool, Refusal> {
        match line.keyword.as_str() {
            "hostname" => first(&mut self.host_name, one(line)?.to_owned()),
            "port" => {
                let port = one(line)?;
                let wrong = || {
                    format!(
                        "\"{port}\" is not a port: neither a number from 1 to 65535 nor a known \
                         name"
                    )
                };
                first(&mut self.port, super::jump::port(port).ok_or_else(wrong)?);
            }
            "addressfamily" => first(&mut self.address_family, family(one(line)?)?),
            "bindaddress" => first(&mut self.bind_address, one(line)?.to_owned()),
            "proxyjump" => {
                let value = one(line)?;
                let proxy = if is_none(value) {
                    Proxy::None
                } else {
                    super::jump::parse(value).map_err(Refusal::Unsupported)?;
                    Proxy::Jump(value.to_owned())
                };
                first(&mut self.proxy, proxy);
            }
            "proxycommand" => {
                one_or_more(line)?;
                let command = line.rest.trim();
                let proxy =
                    if is_none(command) { Proxy::None } else { Proxy::Command(command.to_owned()) };
                first(&mut self.proxy, proxy);
            }
            "proxyusefdpass" => first(&mut self.proxy_use_fdpass, flag(line)?),
            "canonicalizehostname" => {
                let value = one(line)?;
                let how = match value.to_ascii_lowercase().as_str() {
                    "always" => Canonicalize::Always,
                    _ if flag(line)? => Canonicalize::Yes,
                    _ => Canonicalize::No,
                };
                first(&mut self.canonicalize, how);
            }
            "canonicaldomains" => first(&mut self.canonical_domains, one_or_more(line)?.to_vec()),
            "canonicalizemaxdots" => first(&mut self.canonicalize_max_dots, number(line)?),
            "canonicalizefallbacklocal" => {
                first(&mut self.canonicalize_fallback_local, flag(line)?);
            }
            "canonicalizepermittedcnames" => {
                first(&mut self.permitted_cnames, one_or_more(line)?.to_vec());
            }
            "tag" => first(&mut self.tag, one(line)?.to_owned()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Options for authentication.
    fn apply_login(&mut self, line: &Line) -> Result<bool, Refusal> {
        match line.keyword.as_str() {
            "user" => first(&mut self.user, one(line)?.to_owned()),
            "identityfile" => add(&mut self.identity_files, one(line)?),
            "certificatefile" => add(&mut self.certificate_files, one(line)?),
            "identitiesonly" => first(&mut self.identities_only, flag(line)?),
            "identityagent" => first(&mut self.identity_agent, one(line)?.to_owned()),
            // OpenSSH before 8.5 has the second name.
            "pubkeyacceptedalgorithms" | "pubkeyacceptedkeytypes" => {
                first(&mut self.pubkey_accepted_algorithms, one(line)?.to_owned());
            }
            "preferredauthentications" => {
                first(&mut self.preferred_authentications, one(line)?.to_owned());
            }
            "passwordauthentication" => first(&mut self.password_authentication, flag(line)?),
            "pubkeyauthentication" => {
                // "unbound" and "host-bound" concern agent forwarding, which haul does not do.
                let on = match one(line)? {
                    "unbound" | "host-bound" => true,
                    _ => flag(line)?,
                };
                first(&mut self.pubkey_authentication, on);
            }
            "kbdinteractiveauthentication"
            | "challengeresponseauthentication"
            | "skeyauthentication"
            | "tisauthentication" => {
                first(&mut self.kbd_interactive_authentication, flag(line)?);
            }
            "batchmode" => first(&mut self.batch_mode, flag(line)?),
            "numberofpasswordprompts" => {
                first(&mut self.number_of_password_prompts, number(line)?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Options for trusted host keys.
    fn apply_trust(&mut self, line: &Line) -> Result<bool, Refusal> {
        match line.keyword.as_str() {
            "userknownhostsfile" => {
                first(&mut self.user_known_hosts_files, one_or_more(line)?.to_vec());
            }
            "globalknownhostsfile" => {
                first(&mut self.global_known_hosts_files, one_or_more(line)?.to_vec());
            }
            "stricthostkeychecking" => {
                first(&mut self.strict_host_key_checking, strict(one(line)?)?);
            }
            "hashknownhosts" => first(&mut self.hash_known_hosts, flag(line)?),
            "hostkeyalias" => first(&mut self.host_key_alias, one(line)?.to_owned()),
            "hostkeyalgorithms" => first(&mut self.host_key_algorithms, one(line)?.to_owned()),
            "casignaturealgorithms" => {
                first(&mut self.ca_signature_algorithms, one(line)?.to_owned());
            }
            "requiredrsasize" => first(&mut self.required_rsa_size, number(line)?),
            "checkhostip" => {
                // Host keys are looked up by name only, as in OpenSSH since 8.5 by default.
                flag(line)?;
            }
            "verifyhostkeydns" => {
                // haul does not query SSHFP records, so it trusts fewer keys than OpenSSH, never more.
                if !one(line)?.eq_ignore_ascii_case("ask") {
                    flag(line)?;
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Options for the connection itself.
    fn apply_connection(&mut self, line: &Line) -> Result<bool, Refusal> {
        match line.keyword.as_str() {
            "ciphers" => first(&mut self.ciphers, one(line)?.to_owned()),
            "macs" => first(&mut self.macs, one(line)?.to_owned()),
            "kexalgorithms" => first(&mut self.kex_algorithms, one(line)?.to_owned()),
            "connecttimeout" => {
                first(&mut self.connect_timeout, limit(one(line)?)?);
            }
            "serveraliveinterval" => {
                let interval = limit(one(line)?)?;
                first(&mut self.server_alive_interval, interval.unwrap_or_default());
            }
            "serveralivecountmax" => first(&mut self.server_alive_count_max, number(line)?),
            "compression" => first(&mut self.compression, flag(line)?),
            "rekeylimit" => first(&mut self.rekey_limit, bytes(one_or_more(line)?)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The values of tokens, as far as they are known.
    pub fn tokens(&self, query: &Query) -> Tokens {
        let user = self.user.clone().unwrap_or_else(|| query.local_user.clone());
        let mut tokens = Tokens {
            host_name: query.host.clone(),
            original_host: query.host.clone(),
            host_key_alias: self.host_key_alias.clone().unwrap_or_else(|| query.host.clone()),
            port: self.port.unwrap_or(22),
            user,
            local_user: query.local_user.clone(),
            home: query.home.clone(),
            local_host: query.local_host.clone(),
            jump_host: match &self.proxy {
                Some(Proxy::Jump(list)) => super::jump::last_host(list),
                _ => String::new(),
            },
        };
        // %h in HostName is the name that the user wrote. An unknown token is reported when the
        // name is used.
        if let Some(name) = &self.host_name {
            tokens.host_name = tokens.expand(name).unwrap_or_else(|_| name.clone());
        }
        tokens
    }
}

/// The first value wins.
fn first<T>(slot: &mut Option<T>, value: T) {
    slot.get_or_insert(value);
}

/// Files accumulate, without duplicates.
fn add(files: &mut Vec<String>, value: &str) {
    if !files.iter().any(|file| file == value) {
        files.push(value.to_owned());
    }
}

fn is_none(value: &str) -> bool {
    value.eq_ignore_ascii_case("none")
}

fn one(line: &Line) -> Result<&str, String> {
    match line.arguments.as_slice() {
        [] => Err(format!("{} needs a value", line.keyword)),
        [value] if value.is_empty() => Err(format!("{} needs a value", line.keyword)),
        [value] => Ok(value),
        [_, extra, ..] => {
            Err(format!("unexpected \"{extra}\" after the value of {}", line.keyword))
        }
    }
}

fn one_or_more(line: &Line) -> Result<&[String], String> {
    match line.arguments.as_slice() {
        [] => Err(format!("{} needs a value", line.keyword)),
        values => Ok(values),
    }
}

fn flag(line: &Line) -> Result<bool, String> {
    let value = one(line)?;
    match value.to_ascii_lowercase().as_str() {
        "yes" | "true" => Ok(true),
        "no" | "false" => Ok(false),
        _ => Err(format!("\"{value}\" is neither yes nor no")),
    }
}

fn number(line: &Line) -> Result<u32, String> {
    let value = one(line)?;
    value.parse().map_err(|_| format!("\"{value}\" is not a number"))
}

fn strict(value: &str) -> Result<StrictHostKeys, String> {
    match value.to_ascii_lowercase().as_str() {
        "yes" | "true" => Ok(StrictHostKeys::Yes),
        "ask" => Ok(StrictHostKeys::Ask),
        "accept-new" => Ok(StrictHostKeys::AcceptNew),
        "no" | "false" | "off" => Ok(StrictHostKeys::No),
        _ => Err(format!("\"{value}\" is not one of yes, ask, accept-new, no")),
    }
}

fn family(value: &str) -> Result<Family, String> {
    match value.to_ascii_lowercase().as_str() {
        "any" => Ok(Family::Any),
        "inet" => Ok(Family::V4),
        "inet6" => Ok(Family::V6),
        _ => Err(format!("\"{value}\" is not one of any, inet, inet6")),
    }
}

/// A time limit; `none` and 0 mean no limit.
fn limit(value: &str) -> Result<Option<Duration>, String> {
    if is_none(value) {
        return Ok(None);
    }
    Ok(Some(duration(value)?).filter(|time| !time.is_zero()))
}

/// The time formats of sshd_config(5): `90`, `90s`, `1h30m`.
fn duration(value: &str) -> Result<Duration, String> {
    let wrong = || format!("\"{value}\" is not a time");
    let mut seconds: u64 = 0;
    let mut digits = String::new();
    for c in value.chars() {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        let unit = match c.to_ascii_lowercase() {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            'w' => 604_800,
            _ => return Err(wrong()),
        };
        let count: u64 = digits.parse().map_err(|_| wrong())?;
        seconds = count.checked_mul(unit).and_then(|s| seconds.checked_add(s)).ok_or_else(wrong)?;
        digits.clear();
    }
    if !digits.is_empty() {
        let count: u64 = digits.parse().map_err(|_| wrong())?;
        seconds = seconds.checked_add(count).ok_or_else(wrong)?;
    } else if value.is_empty() {
        return Err(wrong());
    }
    Ok(Duration::from_secs(seconds))
}

/// The amount of RekeyLimit. A time after it is accepted and ignored, since it would only add key
/// exchanges.
fn bytes(values: &[String]) -> Result<u64, String> {
    let value = values.first().map_or("", String::as_str);
    if value.eq_ignore_ascii_case("default") || is_none(value) {
        return Ok(0);
    }
    let wrong = || format!("\"{value}\" is not a size");
    let units = ["", "K", "M", "G", "T", "P", "E"];
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = value[digits.len()..].to_ascii_uppercase();
    let unit = units.iter().position(|known| *known == unit || (unit == "B" && known.is_empty()));
    let unit: u64 = 1 << (10 * unit.ok_or_else(wrong)?);
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    // Fractions of a unit, as in scan_scaled(3).
    let part: f64 = format!("0.{part}").parse().map_err(|_| wrong())?;
    let amount =
        whole.checked_mul(unit).and_then(|amount| amount.checked_add((part * unit as f64) as u64));
    let amount = amount.filter(|&amount| amount == 0 || amount >= 16);
    amount.ok_or_else(|| format!("\"{value}\" is too small or too large a size"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssh::config::lexer;

    fn apply(settings: &mut Settings, text: &str) -> Result<bool, Refusal> {
        settings.apply(&lexer::split(text).unwrap().unwrap())
    }

    #[test]
    fn the_first_value_wins_and_identity_files_accumulate() {
        let mut settings = Settings::default();
        for line in ["Port 2", "Port 3", "IdentityFile a", "IdentityFile b", "IdentityFile a"] {
            assert_eq!(apply(&mut settings, line), Ok(true));
        }
        assert_eq!(settings.port, Some(2));
        assert_eq!(settings.identity_files, ["a", "b"]);
    }

    #[test]
    fn the_first_of_proxy_jump_and_proxy_command_wins() {
        let mut settings = Settings::default();
        apply(&mut settings, "ProxyCommand nc \"%h\" %p").unwrap();
        apply(&mut settings, "ProxyJump bastion").unwrap();
        assert_eq!(settings.proxy, Some(Proxy::Command("nc \"%h\" %p".to_owned())));
    }

    #[test]
    fn invalid_values_are_refused() {
        for line in [
            "Port 0",
            "Port 70000",
            "Port x",
            "Port",
            "Port 1 2",
            "BatchMode perhaps",
            "ConnectTimeout 1y",
            "AddressFamily ipx",
            "StrictHostKeyChecking perhaps",
            "RevokedHostKeys /etc/revoked",
            "CanonicalizeHostname perhaps",
            "VerifyHostKeyDNS perhaps",
            "RekeyLimit 1X",
            "RekeyLimit 15",
            "ProxyJump a,,b",
        ] {
            assert!(apply(&mut Settings::default(), line).is_err(), "{line}");
        }
    }

    #[test]
    fn unsupported_options_are_ignored() {
        assert_eq!(apply(&mut Settings::default(), "ForwardAgent yes"), Ok(false));
    }

    #[test]
    fn amounts_have_units_and_fractions() {
        let bytes = |text: &str| bytes(&[text.to_owned()]);
        for (text, amount) in [
            ("default", 0),
            ("16", 16),
            ("1k", 1024),
            ("1.5G", 3 << 29),
            ("1T", 1 << 40),
            ("20B", 20),
        ] {
            assert_eq!(bytes(text), Ok(amount), "{text}");
        }
        assert!(bytes("1GB").is_err() && bytes("-1").is_err() && bytes("99999999P").is_err());
    }

    #[test]
    fn a_port_may_be_a_service_name_and_0_or_none_means_no_limit() {
        let mut settings = Settings::default();
        for line in ["Port ssh", "ConnectTimeout 0", "ServerAliveInterval none"] {
            assert_eq!(apply(&mut settings, line), Ok(true), "{line}");
        }
        assert_eq!((settings.port, settings.connect_timeout), (Some(22), Some(None)));
        assert_eq!(settings.server_alive_interval, Some(Duration::ZERO));
    }

    #[test]
    fn times_have_the_units_of_sshd() {
        assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("1w2d3"), Ok(Duration::from_secs(777_603)));
        assert!(duration("m").is_err() && duration("").is_err() && duration("-1").is_err());
    }
}
