//! The algorithms to offer, in order of preference: haul's defaults, changed by the configuration
//! ([`choice`](super::choice)).

use haul_storage::{Error, ErrorKind, Result};

use super::choice::{
    CERTIFICATE, CIPHERS_WITH_AES, CIPHERS_WITHOUT_AES, Choice, HOST_KEYS, KEX, MACS,
};
use super::config::HostConfig;

/// Names as on the wire, most preferred first (RFC 4253, 7.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Algorithms {
    pub kex: Vec<&'static str>,
    pub host_keys: Vec<&'static str>,
    pub ciphers: Vec<&'static str>,
    pub macs: Vec<&'static str>,
    /// Whether `zlib@openssh.com` is offered.
    pub compression: bool,
}

impl Algorithms {
    /// The lists for one host. Certificates come first, then the host key types that are known for
    /// the host, so that it presents a key that can be verified.
    ///
    /// # Errors
    /// If an option leaves nothing to offer.
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
        // An order given by the user remains.
        let is_ordered = |spec: &String| !spec.starts_with(['+', '-']);
        if !config.host_key_algorithms.as_ref().is_some_and(is_ordered) {
            host_keys.sort_by_key(|name| {
                let known = known_types.iter().any(|known| known == key_type(name));
                (!name.ends_with(CERTIFICATE), !known)
            });
        }
        Ok(Self {
            kex: select(&KEX, &config.kex_algorithms)?,
            host_keys,
            ciphers: select(&ciphers, &config.ciphers)?,
            macs: select(&MACS, &config.macs)?,
            compression: config.compression,
        })
    }
}

/// The key type of a signature algorithm: RSA keys have one type and several signature algorithms
/// (RFC 8332).
fn key_type(algorithm: &str) -> &str {
    let algorithm = algorithm.strip_suffix(CERTIFICATE).unwrap_or(algorithm);
    if algorithm.starts_with("rsa-sha2-") { "ssh-rsa" } else { algorithm }
}

fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    false
}
