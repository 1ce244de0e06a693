//! The algorithms that haul supports, by purpose, and the selection by the configuration in the
//! syntax of ssh_config(5) (`+`, `-`, `^`, or a list; names may have wildcards).
//!
//! Unsupported names are ignored, since the configuration is shared with OpenSSH; an empty
//! selection is an error.

use super::pattern;

/// Suffix of a key type in the name of its certificate type.
pub const CERTIFICATE: &str = "-cert-v01@openssh.com";

/// A configurable list: the default, and what else is supported.
#[derive(Clone, Copy)]
pub struct Choice {
    option: &'static str,
    offered: &'static [&'static str],
    more: &'static [&'static str],
}

/// Key exchange algorithms, without those based on SHA-1, and without the group exchange, which costs one RTT more
/// than a fixed group. Only servers from before 2016 have nothing newer.
pub const KEX: Choice = Choice {
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

/// Looks up a key exchange algorithm that haul supports.
pub fn kex_named(name: &str) -> Option<&'static str> {
    KEX.offered.iter().chain(KEX.more).copied().find(|known| *known == name)
}

/// Host key algorithms: certificates first, as in OpenSSH; SHA-1 only if the configuration names it.
pub const HOST_KEYS: Choice = Choice {
    option: "HostKeyAlgorithms",
    offered: &[
        "ssh-ed25519-cert-v01@openssh.com",
        "ecdsa-sha2-nistp256-cert-v01@openssh.com",
        "ecdsa-sha2-nistp384-cert-v01@openssh.com",
        "ecdsa-sha2-nistp521-cert-v01@openssh.com",
        "rsa-sha2-512-cert-v01@openssh.com",
        "rsa-sha2-256-cert-v01@openssh.com",
        "ssh-ed25519",
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp521",
        "rsa-sha2-512",
        "rsa-sha2-256",
    ],
    more: &["ssh-rsa-cert-v01@openssh.com", "ssh-rsa"],
};

/// Signature algorithms of authorities in host certificates: OpenSSH's list.
const CA_SIGNATURES: Choice = Choice {
    option: "CASignatureAlgorithms",
    offered: &[
        "ssh-ed25519",
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp521",
        "sk-ssh-ed25519@openssh.com",
        "sk-ecdsa-sha2-nistp256@openssh.com",
        "rsa-sha2-512",
        "rsa-sha2-256",
    ],
    more: &["ssh-rsa"],
};

/// Signature algorithms of user keys: OpenSSH's list, with SHA-1 only if the configuration names
/// it.
const USER_KEYS: Choice = Choice {
    option: "PubkeyAcceptedAlgorithms",
    offered: &[
        "ssh-ed25519-cert-v01@openssh.com",
        "ecdsa-sha2-nistp256-cert-v01@openssh.com",
        "ecdsa-sha2-nistp384-cert-v01@openssh.com",
        "ecdsa-sha2-nistp521-cert-v01@openssh.com",
        "sk-ssh-ed25519-cert-v01@openssh.com",
        "sk-ecdsa-sha2-nistp256-cert-v01@openssh.com",
        "rsa-sha2-512-cert-v01@openssh.com",
        "rsa-sha2-256-cert-v01@openssh.com",
        "ssh-ed25519",
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp521",
        "sk-ssh-ed25519@openssh.com",
        "sk-ecdsa-sha2-nistp256@openssh.com",
        "rsa-sha2-512",
        "rsa-sha2-256",
    ],
    more: &["ssh-rsa-cert-v01@openssh.com", "ssh-rsa"],
};

/// Accepted signature algorithms of authorities in host certificates, by CASignatureAlgorithms.
///
/// # Errors
/// Explains that nothing is left.
pub fn ca_signatures(spec: Option<&str>) -> Result<Vec<&'static str>, String> {
    CA_SIGNATURES.select(spec)
}

/// Signature algorithms to use with user keys, by PubkeyAcceptedAlgorithms.
///
/// # Errors
/// Explains that nothing is left.
pub fn user_keys(spec: Option<&str>) -> Result<Vec<&'static str>, String> {
    USER_KEYS.select(spec)
}

/// With AES instructions, AES-GCM is the fastest by far.
pub const CIPHERS_WITH_AES: Choice = Choice {
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

pub const CIPHERS_WITHOUT_AES: Choice = Choice {
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

pub const MACS: Choice = Choice {
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

impl Choice {
    /// The default list.
    #[cfg(feature = "fuzzing")]
    pub const fn offered(&self) -> &'static [&'static str] {
        self.offered
    }

    /// The list that results from the option's value, most preferred first.
    ///
    /// # Errors
    /// Explains that nothing is left.
    pub fn select(&self, spec: Option<&str>) -> Result<Vec<&'static str>, String> {
        let Some(spec) = spec else { return Ok(self.offered.to_vec()) };
        let has =
            |list: &str, name: &str| list.split(',').any(|pattern| pattern::matches(pattern, name));
        let named = |list: &str| -> Vec<&'static str> {
            let all = || self.offered.iter().chain(self.more).copied();
            let matching = |wanted| all().filter(move |name| pattern::matches(wanted, name));
            list.split(',').flat_map(matching).collect()
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
            return Err(format!("{} {spec} leaves no algorithm that haul supports", self.option));
        }
        Ok(selected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_replaced_extended_shortened_and_reordered() {
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
    fn wildcards_match_all_names_and_certificates_are_separate() {
        let select = |spec: &str| HOST_KEYS.select(Some(spec)).unwrap();
        assert_eq!(
            select("ssh-rsa*,ssh-ed25519"),
            ["ssh-rsa-cert-v01@openssh.com", "ssh-rsa", "ssh-ed25519"]
        );
        assert!(select("-*-cert-v01@openssh.com").iter().all(|name| !name.contains("cert")));
        assert!(select("-*ed25519").contains(&"ssh-ed25519-cert-v01@openssh.com"));
        assert_eq!(select("^rsa-*")[..2], HOST_KEYS.offered[4..6]);
    }

    #[test]
    fn sha1_signatures_are_used_only_if_the_configuration_names_them() {
        for choice in [HOST_KEYS, CA_SIGNATURES, USER_KEYS] {
            assert!(
                choice.offered.iter().all(|name| !name.starts_with("ssh-rsa")),
                "{}",
                choice.option
            );
            assert!(choice.select(Some("+ssh-rsa")).unwrap().contains(&"ssh-rsa"));
        }
    }

    #[test]
    fn an_empty_selection_is_an_error() {
        assert!(MACS.select(Some("hmac-md5")).is_err());
        assert!(MACS.select(Some("-*")).is_err());
        assert!(MACS.select(Some("")).is_err());
    }
}
