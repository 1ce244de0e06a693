//! A host's public key, independent of any SSH library: its type, its wire encoding (RFC 4253, 6.6),
//! and the contents of a host certificate (OpenSSH's PROTOCOL.certkeys).

use data_encoding::BASE64_NOPAD;
use sha2::{Digest, Sha256};

/// A host's public key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostKey {
    /// The name of its type, `ssh-ed25519`. For a certificate, the type of the key in it.
    pub key_type: String,
    /// The key in its wire encoding. For a certificate, the key in it.
    pub blob: Vec<u8>,
    /// Bits of the modulus of an RSA key.
    pub rsa_bits: Option<u32>,
    /// The certificate, if the server presented one.
    pub certificate: Option<HostCertificate>,
}

/// The contents of a host certificate. They mean nothing unless `signature_valid`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostCertificate {
    /// The key of the authority that signed it.
    pub authority: Vec<u8>,
    /// Bits of the modulus of the authority's RSA key.
    pub authority_rsa_bits: Option<u32>,
    /// The signature algorithm that the authority used.
    pub signature_algorithm: String,
    /// Whether the authority's signature is valid.
    pub signature_valid: bool,
    /// Whether it is for a host and not for a user.
    pub for_host: bool,
    /// The host names that it is valid for.
    pub principals: Vec<String>,
    /// Seconds since 1970 from which it is valid.
    pub valid_after: u64,
    /// Seconds since 1970 from which it is no longer valid.
    pub valid_before: u64,
    /// Whether it has critical options. None is defined for hosts.
    pub critical_options: bool,
    /// Its name, for messages.
    pub key_id: String,
}

impl HostKey {
    /// The fingerprint as `ssh-keygen -l` prints it.
    pub fn fingerprint(&self) -> String {
        fingerprint(&self.blob)
    }

    /// The short name of its type: `ED25519`, `RSA`, `ECDSA-SK`.
    pub fn kind(&self) -> String {
        kind(&self.key_type)
    }
}

/// The SHA-256 fingerprint of a key's bytes.
pub fn fingerprint(blob: &[u8]) -> String {
    format!("SHA256:{}", BASE64_NOPAD.encode(&Sha256::digest(blob)))
}

/// The short name of a key type, as in OpenSSH's messages; for a certificate, that of its key.
pub fn kind(key_type: &str) -> String {
    let (name, suffix) = match key_type.strip_prefix("sk-") {
        // A key on a security device.
        Some(name) => (name, "-SK"),
        None => (key_type, ""),
    };
    let name = name.strip_prefix("ssh-").unwrap_or(name);
    let name = name.split(['-', '@']).next().unwrap_or(name);
    let name = if name == "dss" { "dsa" } else { name };
    format!("{}{suffix}", name.to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in the table of key types of OpenSSH's sshkey.c, except that a certificate is `ED25519-CERT` there.
    #[test]
    fn types_have_the_short_names_of_openssh() {
        for (key_type, name) in [
            ("ssh-ed25519", "ED25519"),
            ("ssh-rsa", "RSA"),
            ("rsa-sha2-512", "RSA"),
            ("ssh-dss", "DSA"),
            ("ecdsa-sha2-nistp256", "ECDSA"),
            ("ssh-ed25519-cert-v01@openssh.com", "ED25519"),
            ("sk-ssh-ed25519@openssh.com", "ED25519-SK"),
            ("sk-ecdsa-sha2-nistp256@openssh.com", "ECDSA-SK"),
            ("ssh-xmss@openssh.com", "XMSS"),
        ] {
            assert_eq!(kind(key_type), name, "{key_type}");
        }
    }
}
