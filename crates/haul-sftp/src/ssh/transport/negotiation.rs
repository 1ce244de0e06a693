//! Which algorithms are used: what each side offers in its KEXINIT, and what follows from both
//! (RFC 4253, 7.1).

use super::cipher::Suite;
use super::end::End;
use super::wire::{Put, Reader, message};
use crate::ssh::algorithms::Algorithms;

/// The client wants to hear what signatures the server takes (RFC 8308, 2.1).
const WANTS_EXTENSIONS: &str = "ext-info-c";

/// Packet numbers begin anew with each keys, and nothing else is taken in the first exchange: the
/// answer to CVE-2023-48795.
const STRICT: &str = "kex-strict-c-v00@openssh.com";
const STRICT_SERVER: &str = "kex-strict-s-v00@openssh.com";

const NONE: &str = "none";
const ZLIB: &str = "zlib@openssh.com";

/// Bytes after the number of a KEXINIT that are random.
const COOKIE: usize = 16;

/// What haul offers to one server.
#[derive(Debug, Clone)]
pub struct Offer {
    kex: Vec<&'static str>,
    host_keys: Vec<String>,
    ciphers: Vec<&'static str>,
    macs: Vec<&'static str>,
    compressions: Vec<&'static str>,
}

/// What was agreed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreed {
    /// The key exchange.
    pub kex: &'static str,
    /// How the server signs.
    pub host_key: String,
    /// From us to the server.
    pub out: Suite,
    /// From the server to us.
    pub into: Suite,
    /// Whether what we send is compressed after authentication.
    pub deflate: bool,
    /// Whether what the server sends is.
    pub inflate: bool,
    /// Whether the server counts packets anew as well.
    pub strict: bool,
    /// The server's next packet is a guess that was wrong.
    pub skip: bool,
}

impl Offer {
    /// Of what the configuration leaves. `certified`: host certificates are asked for as well, for
    /// there is an authority to check them with.
    pub fn new(algorithms: &Algorithms, certified: bool) -> Self {
        let plain = algorithms.host_keys.iter().map(|&name| name.to_owned());
        let certificates = algorithms.host_keys.iter().filter(|_| certified);
        let certificates = certificates.map(|name| format!("{name}{CERTIFICATE}"));
        Self {
            kex: algorithms.kex.clone(),
            host_keys: certificates.chain(plain).collect(),
            ciphers: algorithms.ciphers.clone(),
            macs: algorithms.macs.clone(),
            compressions: if algorithms.compression { vec![ZLIB, NONE] } else { vec![NONE] },
        }
    }

    /// A KEXINIT with a cookie of its own.
    ///
    /// # Errors
    /// There is no randomness.
    pub fn message(&self) -> Result<Vec<u8>, End> {
        let mut cookie = [0; COOKIE];
        aws_lc_rs::rand::fill(&mut cookie)?;
        let mut out = vec![message::KEXINIT];
        out.extend_from_slice(&cookie);
        out.names(&[&self.kex[..], &[WANTS_EXTENSIONS, STRICT]].concat());
        out.names(&self.host_keys.iter().map(String::as_str).collect::<Vec<_>>());
        for list in [&self.ciphers, &self.macs, &self.compressions] {
            // One for each direction.
            out.names(list);
            out.names(list);
        }
        out.names(&[]);
        out.names(&[]);
        // No guess follows: it is right only if both sides prefer the same methods, and OpenSSH
        // prefers a key exchange that haul does not have (9.0 to 9.9) or, with the keys that it
        // makes, an RSA key.
        out.boolean(false);
        out.u32(0);
        Ok(out)
    }

    /// What follows from this offer and the server's KEXINIT.
    ///
    /// # Errors
    /// Nothing is common, or that is no KEXINIT.
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
        let offered: Vec<&str> = self.host_keys.iter().map(String::as_str).collect();
        let host_key = common("host key", &offered, &host_keys)?.to_owned();
        let suite = |way: usize| -> Result<Suite, End> {
            let cipher = common("cipher", &self.ciphers, &ciphers[way])?;
            let mac =
                if Suite::is_aead(cipher) { NONE } else { common("MAC", &self.macs, &macs[way])? };
            Ok(Suite { cipher, mac })
        };
        let zlib = |way: usize| {
            common("compression", &self.compressions, &compressions[way]).map(|name| name == ZLIB)
        };
        let guess_is_right = kexes.first() == self.kex.first()
            && host_keys.first().copied() == self.host_keys.first().map(String::as_str);
        Ok(Agreed {
            out: suite(0)?,
            into: suite(1)?,
            deflate: zlib(0)?,
            inflate: zlib(1)?,
            strict: kexes.contains(&STRICT_SERVER),
            skip: guess_follows && !guess_is_right,
            kex,
            host_key,
        })
    }
}

/// What follows the name of a key type in that of its certificates.
pub const CERTIFICATE: &str = "-cert-v01@openssh.com";

/// The first of ours that the server has.
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
    fn what_the_client_prefers_and_the_server_has_is_agreed_on_for_each_direction() {
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
    fn every_algorithm_that_haul_offers_is_one_that_it_has() {
        let offer = offer(&["HostKeyAlgorithms=+ssh-rsa"], true);
        for kex in &offer.kex {
            super::super::kex::Exchange::begin(kex).unwrap();
        }
        for &cipher in &offer.ciphers {
            for &mac in &offer.macs {
                let suite = Suite { cipher, mac };
                let lengths = suite.material();
                let material = super::super::cipher::Material {
                    iv: vec![1; lengths.iv],
                    key: vec![2; lengths.key],
                    mac: vec![3; lengths.mac],
                };
                super::super::cipher::Cipher::new(suite, &material).unwrap();
            }
        }
        assert!(offer.host_keys.contains(&"rsa-sha2-512-cert-v01@openssh.com".to_owned()));
    }

    #[test]
    fn a_kexinit_that_is_cut_anywhere_is_refused() {
        let (offer, whole) = (offer(&[], false), server(LISTS, false));
        for length in 0..whole.len() {
            assert!(offer.agree(&whole[..length]).is_err(), "{length}");
        }
        let mut lists = LISTS;
        lists[3] = "aes256-cbc";
        let nothing = offer.agree(&server(lists, false)).unwrap_err();
        assert!(matches!(nothing, End::NoCommon { kind: "cipher", .. }));
    }
}
