//! The algorithms that haul has, by what they are for, and what of them the configuration leaves in the
//! forms of ssh_config(5) (`+`, `-`, `^`, or a list; names may have wildcards).
//!
//! Names that haul does not have are passed over, since a configuration is shared with OpenSSH; a
//! list of which nothing is left is an error.

use super::pattern;

/// What follows the name of a key type in that of its certificates.
pub const CERTIFICATE: &str = "-cert-v01@openssh.com";

/// A list that can be configured: what is offered, and what else could be.
#[derive(Clone, Copy)]
pub struct Choice {
    option: &'static str,
    offered: &'static [&'static str],
    more: &'static [&'static str],
}

/// What rests on SHA-1, and the group exchange, which costs a round trip more than a fixed group,
/// are not among them: whoever had nothing newer would be a server from before 2016.
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

/// The key exchange of a name, if haul has it.
pub fn kex_named(name: &str) -> Option<&'static str> {
    KEX.offered.iter().chain(KEX.more).copied().find(|known| *known == name)
}

/// Certificates first, as in OpenSSH. What rests on SHA-1 only where the configuration names it.
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

/// How an authority may have signed a host certificate: OpenSSH's list.
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

/// How a user may prove to have a key: OpenSSH's list, and SHA-1 only where the configuration names it.
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

/// How an authority may have signed a host certificate, by CASignatureAlgorithms.
///
/// # Errors
/// A value of which nothing is left, in words.
pub fn ca_signatures(spec: Option<&str>) -> Result<Vec<&'static str>, String> {
    CA_SIGNATURES.select(spec)
}

/// How a user may prove to have a key, by PubkeyAcceptedAlgorithms.
///
/// # Errors
/// A value of which nothing is left, in words.
pub fn user_keys(spec: Option<&str>) -> Result<Vec<&'static str>, String> {
    USER_KEYS.select(spec)
}

/// With AES instructions AES-GCM is the fastest by far.
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
    /// What is offered where the option is not set.
    #[cfg(feature = "fuzzing")]
    pub const fn offered(&self) -> &'static [&'static str] {
        self.offered
    }

    /// What of it the value of its option leaves, most preferred first.
    ///
    /// # Errors
    /// Nothing is left, in words.
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
            return Err(format!("haul has none of what {} {spec} leaves", self.option));
        }
        Ok(selected)
    }
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
    fn names_with_wildcards_stand_for_all_that_match_and_certificates_have_names_of_their_own() {
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
    fn nothing_that_rests_on_sha1_is_taken_unasked() {
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
    fn a_list_of_which_nothing_is_left_is_an_error() {
        assert!(MACS.select(Some("hmac-md5")).is_err());
        assert!(MACS.select(Some("-*")).is_err());
        assert!(MACS.select(Some("")).is_err());
    }
}
