//! haul's names of algorithms in russh's types.

use std::borrow::Cow;

use russh::keys::Algorithm;
use russh::{AlgorithmKind, Preferred, cipher, compression, kex, mac};

use crate::ssh::algorithms::Algorithms;

/// What is offered. `certified`: host certificates are asked for as well, for there is an authority
/// to check them with.
pub fn preferred(algorithms: &Algorithms, certified: bool) -> Preferred {
    let mut kexes: Vec<kex::Name> = names(&algorithms.kex);
    // Extensions travel in this list (RFC 8308, and the answer to CVE-2023-48795).
    kexes.push(kex::EXTENSION_SUPPORT_AS_CLIENT);
    kexes.push(kex::EXTENSION_OPENSSH_STRICT_KEX_AS_CLIENT);
    let keys: Vec<Algorithm> =
        algorithms.host_keys.iter().filter_map(|name| Algorithm::new(name).ok()).collect();
    let compressions = if algorithms.compression {
        vec![compression::ZLIB_LEGACY, compression::NONE]
    } else {
        vec![compression::NONE]
    };
    Preferred {
        kex: Cow::Owned(kexes),
        host_key_certificates: Cow::Owned(if certified { keys.clone() } else { Vec::new() }),
        key: Cow::Owned(keys),
        cipher: Cow::Owned(names::<cipher::Name>(&algorithms.ciphers)),
        mac: Cow::Owned(names::<mac::Name>(&algorithms.macs)),
        compression: Cow::Owned(compressions),
    }
}

fn names<'a, N: TryFrom<&'a str>>(list: &[&'a str]) -> Vec<N> {
    list.iter().filter_map(|name| N::try_from(name).ok()).collect()
}

/// A kind of algorithm in a word.
pub const fn kind(kind: &AlgorithmKind) -> &'static str {
    match kind {
        AlgorithmKind::Kex => "key exchange",
        AlgorithmKind::Key => "host key",
        AlgorithmKind::Cipher => "cipher",
        AlgorithmKind::Compression => "compression",
        AlgorithmKind::Mac => "MAC",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssh::config;
    use crate::ssh::options::{ConfigFile, SshOptions};

    #[test]
    fn every_algorithm_that_haul_offers_or_can_be_told_to_is_one_of_russh() {
        let everything = [
            "KexAlgorithms=+diffie-hellman-group14-sha1,diffie-hellman-group-exchange-sha1,diffie-hellman-group1-sha1",
            "HostKeyAlgorithms=+ssh-rsa",
            "Ciphers=+aes128-cbc,aes192-cbc,aes256-cbc",
        ];
        let options = SshOptions {
            config: ConfigFile::None,
            options: everything.map(str::to_owned).to_vec(),
            ..SshOptions::default()
        };
        let config = config::resolve(None, "h", None, &options).unwrap();
        let algorithms = Algorithms::choose(&config, &[]).unwrap();
        let preferred = preferred(&algorithms, true);
        assert_eq!(preferred.kex.len(), algorithms.kex.len() + 2);
        assert_eq!(preferred.key.len(), algorithms.host_keys.len());
        assert_eq!(preferred.cipher.len(), algorithms.ciphers.len());
        assert_eq!(preferred.mac.len(), algorithms.macs.len());
    }
}
