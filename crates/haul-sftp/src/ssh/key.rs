//! The key that a host shows, apart from any SSH library: its type and its bytes as they go over
//! the wire (RFC 4253, 6.6), and what a host certificate says (OpenSSH's PROTOCOL.certkeys).

use data_encoding::BASE64_NOPAD;
use sha2::{Digest, Sha256};

/// A host's public key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostKey {
    /// The name of its type, `ssh-ed25519`. Of a certificate, the type of the key in it.
    pub key_type: String,
    /// The key as it goes over the wire. Of a certificate, the key in it.
    pub blob: Vec<u8>,
    /// Bits of the modulus of an RSA key.
    pub rsa_bits: Option<u32>,
    /// The certificate, if it came in one.
    pub certificate: Option<HostCertificate>,
}

/// What a certificate says. Nothing of it counts unless `signature_valid`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostCertificate {
    /// The key of the authority that signed it.
    pub authority: Vec<u8>,
    /// Bits of the modulus of the authority's RSA key.
    pub authority_rsa_bits: Option<u32>,
    /// How the authority signed it.
    pub signature_algorithm: String,
    /// Whether the authority's signature is good.
    pub signature_valid: bool,
    /// Whether it is for a host and not for a user.
    pub for_host: bool,
    /// The names that it is for.
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

    /// The short name of its type: `ED25519`, `RSA`, `ECDSA`.
    pub fn kind(&self) -> String {
        kind(&self.key_type)
    }
}

/// The SHA-256 fingerprint of a key's bytes.
pub fn fingerprint(blob: &[u8]) -> String {
    format!("SHA256:{}", BASE64_NOPAD.encode(&Sha256::digest(blob)))
}

/// The short name of a key type, as in OpenSSH's messages.
pub fn kind(key_type: &str) -> String {
    let name = key_type.strip_prefix("ssh-").unwrap_or(key_type);
    let name = name.split('-').next().unwrap_or(name);
    let name = name.split('@').next().unwrap_or(name);
    name.to_ascii_uppercase()
}
