//! Which algorithms are offered to a server, and in which order: haul's own order, changed by what
//! the configuration says in the forms of ssh_config(5) (`+`, `-`, `^`, or a list).
//!
//! Names that haul does not have are passed over, since a configuration is shared with OpenSSH; a
//! list of which nothing is left is an error.

use haul_storage::{Error, ErrorKind, Result};

use super::config::HostConfig;
use super::pattern;

/// Names as they go over the wire, most preferred first (RFC 4253, 7.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Algorithms {
    pub kex: Vec<&'static str>,
    pub host_keys: Vec<&'static str>,
    pub ciphers: Vec<&'static str>,
    pub macs: Vec<&'static str>,
    /// Whether `zlib@openssh.com` is offered.
    pub compression: bool,
}

/// A list that can be configured: what is offered, and what else could be.
struct Choice {
    option: &'static str,
    offered: &'static [&'static str],
    more: &'static [&'static str],
}

/// What rests on SHA-1, and the group exchange, which costs a round trip more than a fixed group,
/// are not among them: whoever had nothing newer would be a server from before 2016.
const KEX: Choice = Choice {
    option: "KexAlgorithms",
    offered: &[
        "mlkem768x25519-sha256",
        "curve25519-sha256",
        "curve25519-sha256@libssh.org",
        "ecdh-sha2-nistp256",
        "ecdh-sha2-nistp384",
        "ecdh-sha2-nistp521",
        "diffie-hellman-group16-sha512",
        "diffie-hellman-group18-sha512",
        "diffie-hellman-group14-sha256",
    ],
    more: &[],
};

/// The key exchange of a name, if haul has it.
pub fn kex_named(name: &str) -> Option<&'static str> {
    KEX.offered.iter().chain(KEX.more).copied().find(|known| *known == name)
}

const HOST_KEYS: Choice = Choice {
    option: "HostKeyAlgorithms",
    offered: &[
        "ssh-ed25519",
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp521",
        "rsa-sha2-512",
        "rsa-sha2-256",
    ],
    more: &["ssh-rsa"],
};

/// With AES instructions AES-GCM is the fastest by far.
const CIPHERS_WITH_AES: Choice = Choice {
    option: "Ciphers",
    offered: &[
        "aes128-gcm@openssh.com",
        "aes256-gcm@openssh.com",
        "chacha20-poly1305@openssh.com",
        "aes128-ctr",
        "aes192-ctr",
        "aes256-ctr",
    ],
    more: &[],
};

const CIPHERS_WITHOUT_AES: Choice = Choice {
    option: "Ciphers",
    offered: &[
        "chacha20-poly1305@openssh.com",
        "aes128-gcm@openssh.com",
        "aes256-gcm@openssh.com",
        "aes128-ctr",
        "aes192-ctr",
        "aes256-ctr",
    ],
    more: CIPHERS_WITH_AES.more,
};

const MACS: Choice = Choice {
    option: "MACs",
    offered: &[
        "hmac-sha2-256-etm@openssh.com",
        "hmac-sha2-512-etm@openssh.com",
        "hmac-sha2-256",
        "hmac-sha2-512",
        "hmac-sha1-etm@openssh.com",
        "hmac-sha1",
    ],
    more: &[],
};

impl Algorithms {
    /// The lists for one host. Types of host keys that the host is known by come first, so that it
    /// shows a key that can be checked.
    ///
    /// # Errors
    /// An option that leaves nothing to offer.
    pub fn choose(config: &HostConfig, known_types: &[String]) -> Result<Self> {
        let ciphers = if has_aes() { CIPHERS_WITH_AES } else { CIPHERS_WITHOUT_AES };
        let refuse = |cause: String| {
            Error::new(ErrorKind::InvalidInput, "choose the algorithms")
                .at(&config.alias)
                .because(cause)
        };
        let select =
            |choice: &Choice, spec: &Option<String>| choice.select(spec.as_deref()).map_err(refuse);
        let mut host_keys = select(&HOST_KEYS, &config.host_key_algorithms)?;
        host_keys.sort_by_key(|name| !known_types.iter().any(|known| known == key_type(name)));
        Ok(Self {
            kex: select(&KEX, &config.kex_algorithms)?,
            host_keys,
            ciphers: select(&ciphers, &config.ciphers)?,
            macs: select(&MACS, &config.macs)?,
            compression: config.compression,
        })
    }
}

/// The type of the key that a signature algorithm is for: RSA keys have one type and sign in
/// several ways (RFC 8332).
fn key_type(algorithm: &str) -> &str {
    if algorithm.starts_with("rsa-sha2-") { "ssh-rsa" } else { algorithm }
}

impl Choice {
    fn select(&self, spec: Option<&str>) -> Result<Vec<&'static str>, String> {
        let Some(spec) = spec else { return Ok(self.offered.to_vec()) };
        let has =
            |list: &str, name: &str| list.split(',').any(|pattern| pattern::matches(pattern, name));
        let named = |list: &str| -> Vec<&'static str> {
            let all = || self.offered.iter().chain(self.more).copied();
            // Certificates are asked for wherever there is an authority to check them with, so the
            // name of a certificate's algorithm stands for that of its key.
            let plain = |wanted: &'_ str| wanted.replace("-cert-v01@openssh.com", "");
            let wanted = list.split(',').map(plain);
            wanted.filter_map(|wanted| all().find(|name| **name == *wanted)).collect()
        };
        let mut selected = match spec.split_at_checked(1) {
            Some(("+", list)) => [self.offered, &named(list)].concat(),
            Some(("-", list)) => {
                self.offered.iter().copied().filter(|name| !has(list, name)).collect()
            }
            Some(("^", list)) => [&named(list), self.offered].concat(),
            _ => named(spec),
        };
        let mut seen = Vec::new();
        selected.retain(|name| {
            let new = !seen.contains(name);
            seen.push(name);
            new
        });
        if selected.is_empty() {
            return Err(format!("haul has none of what {} {spec} leaves", self.option));
        }
        Ok(selected)
    }
}

fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_replaced_extended_cut_and_reordered() {
        let select = |spec: &str| MACS.select(Some(spec)).unwrap();
        assert_eq!(select("hmac-sha1,hmac-md5"), ["hmac-sha1"]);
        assert_eq!(select("-hmac-sha1*,*-etm@openssh.com"), ["hmac-sha2-256", "hmac-sha2-512"]);
        assert_eq!(select("^hmac-sha1")[..2], ["hmac-sha1", "hmac-sha2-256-etm@openssh.com"]);
        assert_eq!(select("^hmac-sha1").len(), MACS.offered.len());
        let keys = HOST_KEYS.select(Some("+ssh-rsa,ssh-ed25519")).unwrap();
        assert_eq!(keys.len(), HOST_KEYS.offered.len() + 1);
        assert_eq!(keys.last(), Some(&"ssh-rsa"));
    }

    #[test]
    fn the_algorithm_of_a_certificate_stands_for_that_of_its_key() {
        let list = "ssh-rsa-cert-v01@openssh.com,ssh-ed25519-cert-v01@openssh.com,ssh-ed25519";
        assert_eq!(HOST_KEYS.select(Some(list)).unwrap(), ["ssh-rsa", "ssh-ed25519"]);
    }

    #[test]
    fn a_list_of_which_nothing_is_left_is_an_error() {
        assert!(MACS.select(Some("hmac-md5")).is_err());
        assert!(MACS.select(Some("-*")).is_err());
        assert!(MACS.select(Some("")).is_err());
    }
}
