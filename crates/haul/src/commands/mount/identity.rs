//! What identifies a mounted location: files that wait for one server must never be uploaded to another one.

use haul_storage::Location;

use crate::args::SshArgs;

/// Options of SSH that can make a host name mean another server.
const ROUTES: [&str; 4] = ["proxyjump", "proxycommand", "hostname", "hostkeyalias"];

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
    // The root of a disk or a server stays.
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
        add("config", file);
    }
    for (name, value) in options.iter().filter_map(|option| option.split_once(['=', ' '])) {
        let name = name.trim().to_ascii_lowercase();
        if ROUTES.contains(&&*name) {
            add(&name, value.trim());
        }
    }
    identity
}

/// The port of `-P`, or of `-o Port` among the options of SSH.
pub(super) fn port(ssh: &SshArgs, options: &[String]) -> Option<u16> {
    let of_option = |option: &String| {
        let (name, value) = option.split_once(['=', ' '])?;
        value.trim().parse().ok().filter(|_| name.trim().eq_ignore_ascii_case("port"))
    };
    ssh.port.or_else(|| options.iter().find_map(of_option))
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
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(one), "{one}");
        }
        let jump = of("sftp://vm/d", None, &["ProxyJump one"]);
        assert_eq!(jump, of("sftp://vm/d", Some("one"), &[]));
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
        assert_eq!(port(None, &["PortX=9012"]), None);
    }
}
