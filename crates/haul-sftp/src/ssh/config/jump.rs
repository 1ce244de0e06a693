//! The hosts of `-J` and ProxyJump: `[user@]host[:port]` or `ssh://[user@]host[:port]`, separated
//! by commas.

/// A host to connect through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    /// The user on that host, if given.
    pub user: Option<String>,
    /// The host, without the brackets of an IPv6 address.
    pub host: String,
    /// The port, if given.
    pub port: Option<u16>,
}

/// Parses a list, nearest host first.
///
/// # Errors
/// Describes a syntax error.
pub fn parse(list: &str) -> Result<Vec<Hop>, String> {
    list.split(',').map(hop).collect()
}

/// The host that connects to the destination. Empty if the list is not valid, which [`parse`] reports.
pub fn last_host(list: &str) -> String {
    let last = parse(list).ok().and_then(|hops| hops.into_iter().next_back());
    last.map(|hop| hop.host).unwrap_or_default()
}

fn hop(text: &str) -> Result<Hop, String> {
    let wrong = || format!("\"{text}\" is not [user@]host[:port]");
    let body = text.trim();
    let body = body.strip_prefix("ssh://").unwrap_or(body).trim_end_matches('/');
    let (user, address) = match body.rsplit_once('@') {
        Some((user, address)) => (Some(user.to_owned()), address),
        None => (None, body),
    };
    let (host, port) = match address.strip_prefix('[') {
        Some(bracketed) => {
            let (host, after) = bracketed.split_once(']').ok_or_else(wrong)?;
            match after.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if after.is_empty() => (host, None),
                None => return Err(wrong()),
            }
        }
        None => match address.split_once(':') {
            // Several colons without brackets: an IPv6 address without port.
            Some((_, rest)) if rest.contains(':') => (address, None),
            Some((host, port)) => (host, Some(port)),
            None => (address, None),
        },
    };
    let port = port.map(|text| self::port(text).ok_or_else(wrong)).transpose()?;
    if !is_host(host) || user.as_deref().is_some_and(|user| !is_user(user)) {
        return Err(wrong());
    }
    Ok(Hop { user, host: host.to_owned(), port })
}

/// Parses a port: a number, or a name in services(5), as in ssh.
pub fn port(text: &str) -> Option<u16> {
    if let Ok(number) = text.parse() {
        return Some(number).filter(|&port| port != 0);
    }
    // Not every machine has this file.
    let services = std::fs::read_to_string("/etc/services").unwrap_or_default();
    let listed = services.lines().find_map(|line| {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let name = words.next()?;
        let number = words.next()?.strip_suffix("/tcp")?;
        (name == text || words.any(|alias| alias == text)).then(|| number.parse().ok())?
    });
    listed.or_else(|| (text == "ssh").then_some(22))
}

/// Whether a name is valid as a host. Names are inserted into the command lines of ProxyCommand and
/// `Match exec`, so shell metacharacters are refused, as in OpenSSH since 9.6, and so is a leading
/// dash, which would make it an option. A comma would make it a list.
pub fn is_host(name: &str) -> bool {
    !name.starts_with('-')
        && !name.is_empty()
        && !name.contains(|c: char| {
            c.is_whitespace() || c.is_control() || "'`\"$\\;&<>|(){},".contains(c)
        })
}

/// Whether the name by which a host key is looked up would mean something else in a known_hosts
/// file: a pattern or a list, which would cover other hosts too, a marker, a hash or a comment.
pub fn is_pattern(name: &str) -> bool {
    name.starts_with(['#', '@', '|'])
        || name.contains(|c: char| c.is_control() || "*?!,".contains(c))
}

/// Whether a name is valid as a user. Names of Windows domains contain dollars and backslashes.
pub fn is_user(name: &str) -> bool {
    !name.starts_with('-')
        && !name.is_empty()
        && !name.ends_with('\\')
        && !name.contains(" -")
        && !name.contains(|c: char| c.is_control() || "'`\";&<>|(){}".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> (Option<String>, String, Option<u16>) {
        let hop = parse(text).unwrap().remove(0);
        (hop.user, hop.host, hop.port)
    }

    #[test]
    fn users_ports_and_addresses_are_distinguished() {
        assert_eq!(one("host"), (None, "host".into(), None));
        assert_eq!(one("me@host:23"), (Some("me".into()), "host".into(), Some(23)));
        assert_eq!(one("[::1]:23"), (None, "::1".into(), Some(23)));
        assert_eq!(one("fe80::1"), (None, "fe80::1".into(), None));
        assert_eq!(one("ssh://a@b@host:23/"), (Some("a@b".into()), "host".into(), Some(23)));
        assert_eq!(parse("a,b:2,c").unwrap().len(), 3);
    }

    #[test]
    fn invalid_hosts_are_refused() {
        for text in [
            "", "a,", ":22", "$(x)", "a;b", "u`x`@a", "-u@a", "a:0", "a:x", "@host", "-oX", "[::1",
            "[::1]x", "a b", "a|b",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
