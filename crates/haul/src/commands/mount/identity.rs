//! What identifies a mounted location: files that wait for one server must never be uploaded to another one.

use haul_storage::Location;

use crate::args::SshArgs;

/// Options of SSH that can make a host name mean another server, or another account.
const ROUTES: [&str; 5] = ["user", "proxyjump", "proxycommand", "hostname", "hostkeyalias"];

/// The identity of a location that is reached with these options of SSH. With a ticket it contains the secret, by which
/// the shares of one sharer differ.
pub(super) fn identity(location: &Location, ssh: &SshArgs, options: &[String]) -> String {
    let mut identity = match location {
        Location::Peer { ticket, path } => {
            format!("{}/{}", ticket.share(), path.escape_ascii())
        }
        other => other.to_string(),
    };
    let path = identity.trim_end_matches('/').len();
    // `/` and `NAME:/` keep their slash.
    if !identity[..path].is_empty() && !identity[..path].ends_with(':') {
        identity.truncate(path);
    }
    let query = match location {
        Location::Remote { query, .. } => query.as_deref(),
        _ => None,
    };
    let mut add = |name: &str, value: &str| {
        identity.push_str(&format!("\0{name} {value}"));
    };
    if let Some(query) = query {
        add("query", query);
    }
    if let Some(jump) = &ssh.jump {
        add("proxyjump", jump);
    }
    if let Some(file) = &ssh.config_file {
        let absolute = std::path::absolute(file).unwrap_or_else(|_| file.into());
        add(
            "config",
            if file == "none" { file.into() } else { absolute.to_string_lossy() }.as_ref(),
        );
    }
    for (name, value) in options.iter().filter_map(|option| split(option)) {
        if ROUTES.contains(&&*name) {
            add(&name, value);
        }
    }
    identity
}

/// The port of `-P`, or of `-o Port` among the options of SSH.
pub(super) fn port(ssh: &SshArgs, options: &[String]) -> Option<u16> {
    let of_option = |option: &String| {
        let (name, value) = split(option)?;
        value.parse().ok().filter(|_| name == "port")
    };
    ssh.port.or_else(|| options.iter().find_map(of_option))
}

/// The name of an option in lower case, and its value: `Port=22`, `port 22`, `Port = 22`.
fn split(option: &str) -> Option<(String, &str)> {
    let (name, value) = option.trim().split_once(['=', ' ', '\t'])?;
    let value = value.trim_start_matches([' ', '\t']);
    let value = value.strip_prefix('=').unwrap_or(value).trim();
    Some((name.to_ascii_lowercase(), value.trim_matches('"')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(location: &str, jump: Option<&str>, options: &[&str]) -> String {
        let ssh = SshArgs { jump: jump.map(str::to_owned), ..SshArgs::default() };
        let options: Vec<_> = options.iter().map(|option| (*option).to_owned()).collect();
        identity(&Location::parse(location).unwrap(), &ssh, &options)
    }

    #[test]
    fn a_final_slash_and_options_that_do_not_select_the_server_do_not_matter() {
        let plain = of("sftp://h/d", None, &[]);
        assert_eq!(of("sftp://h/d//", None, &["Compression=yes", "Ciphers x"]), plain);
        assert_eq!(of("/", None, &[]), "/");
        assert_eq!(of("sftp://h/", None, &[]), of("sftp://h//", None, &[]));
    }

    #[test]
    fn a_name_that_is_reached_in_another_way_is_another_server() {
        let all = [
            of("sftp://vm/d", None, &[]),
            of("sftp://vm:2222/d", None, &[]),
            of("sftp://vm/d", Some("one"), &[]),
            of("sftp://vm/d", Some("two"), &[]),
            of("sftp://vm/d", None, &["ProxyCommand=nc a 22"]),
            of("sftp://vm/d", None, &["hostname 10.0.0.7"]),
            of("sftp://vm/d", None, &["User = alice"]),
            of("sftp://vm/d", None, &["User = bob"]),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(one), "{one}");
        }
        for option in ["ProxyJump one", "proxyjump=one", "ProxyJump = one", "ProxyJump\tone"] {
            assert_eq!(of("sftp://vm/d", None, &[option]), of("sftp://vm/d", Some("one"), &[]));
        }
    }

    /// Formerly, only the first characters of a ticket counted, which the shares of one sharer have in common.
    #[test]
    fn two_shares_of_one_sharer_are_two_locations() {
        let ticket = |key: &str, secret: &str, rest: &str| {
            let text = format!("haul1{}{}{rest}", key.repeat(57), secret.repeat(27));
            of(&format!("{text}/d"), None, &[])
        };
        let [one, other] = ["c", "d"].map(|secret| ticket("b", secret, "eeeeeeeeeeeeeee"));
        assert_ne!(one, other);
        assert_eq!(one, ticket("b", "c", "fffffffffffffff"), "only the addresses differ");
    }

    #[test]
    fn the_port_may_be_an_option_of_ssh() {
        let port = |port, options: &[&str]| {
            let options: Vec<_> = options.iter().map(|option| (*option).to_owned()).collect();
            super::port(&SshArgs { port, ..SshArgs::default() }, &options)
        };
        assert_eq!(port(Some(9012), &[]), Some(9012));
        assert_eq!(port(None, &["Compression=yes", "port 9012"]), Some(9012));
        assert_eq!(port(Some(1), &["Port=9012"]), Some(1));
        assert_eq!(port(None, &["Port = 9012"]), Some(9012));
        assert_eq!(port(None, &["PortX=9012"]), None);
    }
}
