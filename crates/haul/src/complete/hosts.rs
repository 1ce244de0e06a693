//! Hosts that SSH knows by name: those in `~/.ssh/config` (without the files that it includes), and those in
//! `~/.ssh/known_hosts`.

use std::fs;
use std::path::Path;

/// The names of these hosts, sorted. Files that cannot be read are ignored.
pub(super) fn known(home: &Path) -> Vec<String> {
    let ssh = home.join(".ssh");
    let read = |name: &str| fs::read_to_string(ssh.join(name)).unwrap_or_default();
    let mut hosts = configured(&read("config"));
    hosts.extend(remembered(&read("known_hosts")));
    hosts.sort();
    hosts.dedup();
    hosts
}

/// The names after `Host` that are neither patterns nor in quotes. A `#` at the start of a word begins a comment.
fn configured(config: &str) -> Vec<String> {
    let lines = config.lines().filter_map(|line| {
        let (keyword, names) = line.trim().split_once([' ', '\t', '='])?;
        keyword.eq_ignore_ascii_case("host").then_some(names)
    });
    let names = lines.flat_map(|names| words(names).take_while(|name| !name.starts_with('#')));
    let is_name = |name: &&str| !name.is_empty() && !name.contains(['*', '?', '!', '"', '\'']);
    names.filter(is_name).map(ToOwned::to_owned).collect()
}

/// The words of a line. Those in quotes keep their spaces and quotes.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let mut quote = None;
    line.split(move |c: char| {
        match quote {
            Some(opened) if c == opened => quote = None,
            None if matches!(c, '"' | '\'') => quote = Some(c),
            _ => {}
        }
        quote.is_none() && matches!(c, ' ' | '\t' | '=')
    })
}

/// The names in known_hosts of hosts at the default port; those that are hashed, patterns and addresses are left out.
fn remembered(known_hosts: &str) -> Vec<String> {
    let lines = known_hosts.lines().filter(|line| !line.starts_with(['#', '@', '|']));
    let names = lines.filter_map(|line| line.split_whitespace().next());
    let names = names.flat_map(|names| names.split(','));
    let is_name = |name: &&str| {
        !name.is_empty() && !name.contains(['*', '?', '!', '[', ':']) && !is_address(name)
    };
    names.filter(is_name).map(ToOwned::to_owned).collect()
}

fn is_address(name: &str) -> bool {
    name.parse::<std::net::IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_configuration_are_hosts_and_patterns_are_not() {
        let config = "Host nas backup *.example !x\n  HostName 10.0.0.1\nhost=web\nMatch host y\n";
        assert_eq!(configured(config), ["nas", "backup", "web"]);
        // Formerly, the words of the comment were hosts too.
        // Formerly, a word inside quotes was a host too.
        assert_eq!(configured("Host \"a b c\" nas 'd e f' web\n"), ["nas", "web"]);
        assert_eq!(configured("Host nas # my box\nHost a#b #c\n#Host x\n"), ["nas", "a#b"]);
    }

    #[test]
    fn names_of_known_hosts_are_hosts_unless_they_are_hashed_or_have_a_port() {
        let known = "# x\nnas,10.0.0.1 ssh-ed25519 AAAA\n|1|a=|b= ssh-ed25519 AAAA\n\
                     [web]:2222 ssh-ed25519 AAAA\n@cert-authority *.example ssh-rsa AAAA\n\
                     git.example ssh-rsa AAAA\n";
        assert_eq!(remembered(known), ["nas", "git.example"]);
    }
}
