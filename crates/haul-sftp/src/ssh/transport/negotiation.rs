//! Algorithm negotiation: the offers in the KEXINIT of both sides, and the algorithms that follow from
//! them (RFC 4253, 7.1).

use super::cipher::Suite;
use super::end::End;
use super::wire::{Put, Reader, message};
use crate::ssh::algorithms::Algorithms;
use crate::ssh::choice::CERTIFICATE;

/// Requests EXT_INFO, which lists the signature algorithms of the server (RFC 8308, 2.1).
const WANTS_EXTENSIONS: &str = "ext-info-c";

/// Strict key exchange, the fix for CVE-2023-48795 (Terrapin): packet numbers restart with new keys, and no
/// other messages are accepted during the first exchange.
const STRICT: &str = "kex-strict-c-v00@openssh.com";
const STRICT_SERVER: &str = "kex-strict-s-v00@openssh.com";

const NONE: &str = "none";
const ZLIB: &str = "zlib@openssh.com";

/// Random bytes behind the message number of a KEXINIT.
const COOKIE: usize = 16;

/// What haul offers to one server.
#[derive(Debug, Clone)]
pub struct Offer {
    kex: Vec<&'static str>,
    host_keys: Vec<&'static str>,
    ciphers: Vec<&'static str>,
    macs: Vec<&'static str>,
    compressions: Vec<&'static str>,
}

/// The negotiated algorithms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreed {
    /// The key exchange.
    pub kex: &'static str,
    /// The host key algorithm.
    pub host_key: String,
    /// From us to the server.
    pub out: Suite,
    /// From the server to us.
    pub into: Suite,
    /// Whether our messages are compressed after authentication.
    pub deflate: bool,
    /// Whether the server's messages are.
    pub inflate: bool,
    /// Whether the server supports strict key exchange too.
    pub strict: bool,
    /// The server's next packet is a wrong guess, to be skipped.
    pub skip: bool,
    /// The key exchange and the host key algorithm that the server prefers.
    pub preferred: [String; 2],
    /// Whether these are what we prefer, so that a guess of either side is right (RFC 4253, 7).
    pub guess_is_right: bool,
}

/// The expected result of a negotiation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guess {
    /// The key exchange.
    pub kex: &'static str,
    /// The key exchange and the host key algorithm that the server names first.
    pub preferred: [String; 2],
}

impl Offer {
    /// An offer of the configured algorithms. `certified`: host certificates are requested as well,
    /// because there is an authority to check them with.
    pub fn new(algorithms: &Algorithms, certified: bool) -> Self {
        let mut host_keys = algorithms.host_keys.clone();
        host_keys.retain(|name| certified || !name.ends_with(CERTIFICATE));
        if host_keys.is_empty() {
            // Only certificates are allowed: `HostKeyJudge` reports why none can be trusted.
            host_keys.clone_from(&algorithms.host_keys);
        }
        Self {
            kex: algorithms.kex.clone(),
            host_keys,
            ciphers: algorithms.ciphers.clone(),
            macs: algorithms.macs.clone(),
            compressions: if algorithms.compression { vec![ZLIB, NONE] } else { vec![NONE] },
        }
    }

    /// Whether both sides prefer the same algorithms, so that a guess is right by RFC 4253, 7.
    pub fn prefers(&self, guess: &Guess) -> bool {
        self.kex.first() == Some(&guess.kex)
            && guess.preferred[0] == guess.kex
            && self.host_keys.first() == Some(&guess.preferred[1].as_str())
    }

    /// A KEXINIT with a fresh cookie. `guess_follows`: the next message is our half of the key exchange
    /// that both sides prefer.
    ///
    /// # Errors
    /// No random bytes are available.
    pub fn message(&self, guess_follows: bool) -> Result<Vec<u8>, End> {
        let mut cookie = [0; COOKIE];
        aws_lc_rs::rand::fill(&mut cookie)?;
        let mut out = vec![message::KEXINIT];
        out.extend_from_slice(&cookie);
        out.names(&[&self.kex[..], &[WANTS_EXTENSIONS, STRICT]].concat());
        out.names(&self.host_keys);
        for list in [&self.ciphers, &self.macs, &self.compressions] {
            // One for each direction.
            out.names(list);
            out.names(list);
        }
        out.names(&[]);
        out.names(&[]);
        out.boolean(guess_follows);
        out.u32(0);
        Ok(out)
    }

    /// Negotiates this offer with the server's KEXINIT.
    ///
    /// # Errors
    /// The two have no common algorithm, or the message is truncated or malformed. Its number is not checked.
    pub fn agree(&self, theirs: &[u8]) -> Result<Agreed, End> {
        let mut reader = Reader::new(theirs);
        reader.take(1 + COOKIE)?;
        let kexes = reader.names()?;
        let host_keys = reader.names()?;
        let ciphers = [reader.names()?, reader.names()?];
        let macs = [reader.names()?, reader.names()?];
        let compressions = [reader.names()?, reader.names()?];
        reader.names()?;
        reader.names()?;
        let guess_follows = reader.boolean()?;
        reader.u32()?;
        let kex = common("key exchange", &self.kex, &kexes)?;
        let host_key = common("host key", &self.host_keys, &host_keys)?.to_owned();
        let suite = |way: usize| -> Result<Suite, End> {
            let cipher = common("cipher", &self.ciphers, &ciphers[way])?;
            let mac =
                if Suite::is_aead(cipher) { NONE } else { common("MAC", &self.macs, &macs[way])? };
            Ok(Suite { cipher, mac })
        };
        let zlib = |way: usize| {
            common("compression", &self.compressions, &compressions[way]).map(|name| name == ZLIB)
        };
        let guess_is_right =
            kexes.first() == self.kex.first() && host_keys.first() == self.host_keys.first();
        Ok(Agreed {
            out: suite(0)?,
            into: suite(1)?,
            deflate: zlib(0)?,
            inflate: zlib(1)?,
            strict: kexes.contains(&STRICT_SERVER),
            skip: guess_follows && !guess_is_right,
            preferred: [&kexes, &host_keys]
                .map(|names| names.first().copied().unwrap_or_default().to_owned()),
            guess_is_right,
            kex,
            host_key,
        })
    }
}

/// The first of our algorithms that the server supports.
fn common<'a>(kind: &'static str, ours: &[&'a str], theirs: &[&str]) -> Result<&'a str, End> {
    ours.iter().copied().find(|name| theirs.contains(name)).ok_or_else(|| End::NoCommon {
        kind,
        ours: ours.join(","),
        theirs: theirs.join(","),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssh::config;
    use crate::ssh::options::{ConfigFile, SshOptions};

    fn offer(options: &[&str], certified: bool) -> Offer {
        let options = SshOptions {
            config: ConfigFile::None,
            options: options.iter().map(|&option| option.to_owned()).collect(),
            ..SshOptions::default()
        };
        let config = config::resolve(None, "h", None, &options).unwrap();
        Offer::new(&Algorithms::choose(&config, &[]).unwrap(), certified)
    }

    fn server(lists: [&str; 8], guess: bool) -> Vec<u8> {
        let mut out = vec![message::KEXINIT];
        out.extend_from_slice(&[7; COOKIE]);
        lists.iter().for_each(|list| out.string(list.as_bytes()));
        out.names(&[]);
        out.names(&[]);
        out.boolean(guess);
        out.u32(0);
        out
    }

    const LISTS: [&str; 8] = [
        "sntrup761x25519-sha512@openssh.com,curve25519-sha256,kex-strict-s-v00@openssh.com",
        "rsa-sha2-512,ssh-ed25519",
        "aes256-ctr",
        "aes128-gcm@openssh.com",
        "hmac-sha2-256",
        "umac-64-etm@openssh.com",
        "none",
        "none,zlib@openssh.com",
    ];

    #[test]
    fn the_clients_first_algorithm_that_the_server_supports_is_chosen_per_direction() {
        let agreed = offer(&["Compression=yes"], false).agree(&server(LISTS, true)).unwrap();
        assert_eq!((agreed.kex, &agreed.host_key[..]), ("curve25519-sha256", "ssh-ed25519"));
        assert_eq!(agreed.out, Suite { cipher: "aes256-ctr", mac: "hmac-sha2-256" });
        // An AEAD needs no common MAC.
        assert_eq!(agreed.into, Suite { cipher: "aes128-gcm@openssh.com", mac: "none" });
        assert_eq!((agreed.deflate, agreed.inflate), (false, true));
        assert!(agreed.strict && agreed.skip);
        assert!(!offer(&[], false).agree(&server(LISTS, false)).unwrap().skip);
    }

    #[test]
    fn every_offered_key_exchange_cipher_and_mac_is_implemented() {
        let offer = offer(&["HostKeyAlgorithms=+ssh-rsa"], true);
        for kex in &offer.kex {
            super::super::kex::Exchange::begin(kex).unwrap();
        }
        for &cipher in &offer.ciphers {
            for &mac in &offer.macs {
                let suite = Suite { cipher, mac };
                let lengths = suite.material();
                let material = super::super::cipher::Material {
                    iv: vec![1; lengths.iv].into(),
                    key: vec![2; lengths.key].into(),
                    mac: vec![3; lengths.mac].into(),
                };
                super::super::cipher::Cipher::new(suite, &material).unwrap();
            }
        }
        assert!(offer.host_keys.contains(&"rsa-sha2-512-cert-v01@openssh.com"));
    }

    #[test]
    fn a_truncated_kexinit_and_one_without_a_common_cipher_are_refused() {
        let (offer, whole) = (offer(&[], false), server(LISTS, false));
        for length in 0..whole.len() {
            assert!(offer.agree(&whole[..length]).is_err(), "{length}");
        }
        let mut lists = LISTS;
        lists[3] = "aes256-cbc";
        let error = offer.agree(&server(lists, false)).unwrap_err();
        assert!(matches!(error, End::NoCommon { kind: "cipher", .. }));
    }
}
