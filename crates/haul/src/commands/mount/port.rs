//! The port of a mounted location.

use haul_storage::{Location, Scheme};

use crate::args::SshArgs;

/// The location with the port of `-P` or `-o Port`: a spool and a cache are those of a location, and another port may be
/// another server.
pub(super) fn with_port(mut location: Location, ssh: &SshArgs) -> Location {
    if let Location::Remote { scheme: Scheme::Sftp, port: port @ None, .. } = &mut location {
        let of_option = |option: &String| {
            let (name, value) = option.split_once(['=', ' '])?;
            value.trim().parse().ok().filter(|_| name.trim().eq_ignore_ascii_case("port"))
        };
        *port = ssh.port.or_else(|| ssh.options.iter().find_map(of_option));
    }
    location
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formerly, the files that waited for one server were uploaded to another one behind a port of the same host.
    #[test]
    fn servers_at_two_ports_of_a_host_are_two_locations() {
        let at = |text: &str, port, options: &[&str]| {
            let options = options.iter().map(|option| (*option).to_owned()).collect();
            let ssh = SshArgs { port, options, ..SshArgs::default() };
            with_port(Location::parse(text).unwrap(), &ssh).to_string()
        };
        assert_eq!(at("sftp://h/d", Some(9012), &[]), "sftp://h:9012/d");
        assert_eq!(at("sftp://h/d", None, &["Compression=yes", "port 9012"]), "sftp://h:9012/d");
        assert_eq!(at("sftp://h:22/d", Some(9012), &[]), "sftp://h:22/d");
        assert_eq!(at("dav://h/d", Some(9012), &[]), "dav://h/d");
        assert_eq!(at("sftp://h/d", None, &[]), "sftp://h/d");
    }
}
