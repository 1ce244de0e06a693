//! The key exchange methods: each sends a public value, receives one, and derives a shared secret.

use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey};
use aws_lc_rs::digest;
use aws_lc_rs::kem::{self, DecapsulationKey, ML_KEM_768};
use zeroize::Zeroizing;

use super::cipher::Material;
use super::end::{End, violation};
use super::groups::{self, Group};
use super::wire::{Put, positive};

/// Bytes of the longest digest, SHA-512.
const MAX_DIGEST: usize = 64;

/// Bytes of an ML-KEM-768 ciphertext (FIPS 203, table 3).
const CIPHERTEXT: usize = 1088;

/// A key exchange that waits for the server's half.
#[derive(Debug)]
pub struct Exchange {
    secret: Secret,
    hash: &'static digest::Algorithm,
    /// The method's name.
    pub name: &'static str,
    /// Our public value: a string, or the bytes of an mpint.
    pub ours: Vec<u8>,
}

/// Secret, hash, and our public value.
type Parts = (Secret, &'static digest::Algorithm, Vec<u8>);

enum Secret {
    Curve(PrivateKey, &'static agreement::Algorithm),
    /// draft-ietf-sshm-mlkem-hybrid-kex: secure if either of the two is.
    Hybrid(Box<DecapsulationKey>, PrivateKey),
    Group(Box<groups::Secret>),
}

impl Exchange {
    /// Begins an exchange by the method `name`.
    ///
    /// # Errors
    /// A name that haul does not offer, or no randomness.
    pub fn begin(name: &'static str) -> Result<Self, End> {
        let begun = match name {
            "mlkem768x25519-sha256" => Self::hybrid(),
            "curve25519-sha256" | "curve25519-sha256@libssh.org" => {
                Self::curve(&agreement::X25519, &digest::SHA256)
            }
            "ecdh-sha2-nistp256" => Self::curve(&agreement::ECDH_P256, &digest::SHA256),
            "ecdh-sha2-nistp384" => Self::curve(&agreement::ECDH_P384, &digest::SHA384),
            "ecdh-sha2-nistp521" => Self::curve(&agreement::ECDH_P521, &digest::SHA512),
            "diffie-hellman-group14-sha256" => Self::group(groups::GROUP_14, &digest::SHA256),
            "diffie-hellman-group16-sha512" => Self::group(groups::GROUP_16, &digest::SHA512),
            "diffie-hellman-group18-sha512" => Self::group(groups::GROUP_18, &digest::SHA512),
            other => Err(violation(format!("unsupported key exchange {other}"))),
        };
        begun.map(|(secret, hash, ours)| Self { secret, hash, name, ours })
    }

    fn curve(
        curve: &'static agreement::Algorithm,
        hash: &'static digest::Algorithm,
    ) -> Result<Parts, End> {
        let key = PrivateKey::generate(curve)?;
        let ours = key.compute_public_key()?.as_ref().to_vec();
        Ok((Secret::Curve(key, curve), hash, ours))
    }

    fn hybrid() -> Result<Parts, End> {
        let lattice = DecapsulationKey::generate(&ML_KEM_768)?;
        let curve = PrivateKey::generate(&agreement::X25519)?;
        let mut ours = lattice.encapsulation_key()?.key_bytes()?.as_ref().to_vec();
        ours.extend_from_slice(curve.compute_public_key()?.as_ref());
        let secret = Secret::Hybrid(Box::new(lattice), curve);
        Ok((secret, &digest::SHA256, ours))
    }

    fn group(group: Group, hash: &'static digest::Algorithm) -> Result<Parts, End> {
        let secret = group.draw()?;
        let ours = positive(&secret.public);
        Ok((Secret::Group(Box::new(secret)), hash, ours))
    }

    /// The shared secret, encoded as in the exchange hash: an mpint, or a string for the hybrid method.
    ///
    /// # Errors
    /// An invalid public value.
    pub fn agree(&self, theirs: &[u8]) -> Result<Zeroizing<Vec<u8>>, End> {
        let mut shared = Zeroizing::new(Vec::new());
        match &self.secret {
            Secret::Curve(key, curve) => {
                shared.string(&Zeroizing::new(positive(&on_curve(key, curve, theirs)?)));
            }
            Secret::Hybrid(lattice, curve) => {
                let (ciphertext, point) = theirs
                    .split_at_checked(CIPHERTEXT)
                    .ok_or_else(|| violation("half a hybrid key exchange"))?;
                let first = lattice.decapsulate(kem::Ciphertext::from(ciphertext))?;
                let second = on_curve(curve, &agreement::X25519, point)?;
                let mut both = digest::Context::new(self.hash);
                both.update(first.as_ref());
                both.update(&second);
                shared.string(both.finish().as_ref());
            }
            Secret::Group(secret) => {
                shared.string(&Zeroizing::new(positive(&secret.agree(theirs)?)));
            }
        }
        Ok(shared)
    }

    /// The exchange hash, which the host key signs (RFC 4253, 8; RFC 5656, 4).
    pub fn hash(&self, exchanged: &Exchanged<'_>, shared: &[u8]) -> Vec<u8> {
        let mut all = Vec::new();
        all.string(exchanged.our_version.as_bytes());
        all.string(exchanged.their_version.as_bytes());
        all.string(exchanged.our_offer);
        all.string(exchanged.their_offer);
        all.string(exchanged.host_key);
        all.string(&self.ours);
        all.string(exchanged.theirs);
        let mut context = digest::Context::new(self.hash);
        context.update(&all);
        context.update(shared);
        context.finish().as_ref().to_vec()
    }

    /// Key material of one direction (RFC 4253, 7.2). `letters` select its IV, key and MAC key.
    pub fn material(
        &self,
        lengths: &Material<usize>,
        letters: [u8; 3],
        shared: &[u8],
        hash: &[u8],
        session_id: &[u8],
    ) -> Material<Zeroizing<Vec<u8>>> {
        let derive = |letter: u8, length: usize| {
            // Allocated at once, because growing would leave an unwiped copy behind.
            let mut key = Zeroizing::new(Vec::with_capacity(length + MAX_DIGEST));
            while key.len() < length {
                let mut context = digest::Context::new(self.hash);
                context.update(shared);
                context.update(hash);
                if key.is_empty() {
                    context.update(&[letter]);
                    context.update(session_id);
                } else {
                    context.update(&key);
                }
                key.extend_from_slice(context.finish().as_ref());
            }
            key.truncate(length);
            key
        };
        Material {
            iv: derive(letters[0], lengths.iv),
            key: derive(letters[1], lengths.key),
            mac: derive(letters[2], lengths.mac),
        }
    }
}

/// The input of the exchange hash, except our public value and the shared secret.
#[derive(Debug)]
pub struct Exchanged<'a> {
    pub our_version: &'a str,
    pub their_version: &'a str,
    pub our_offer: &'a [u8],
    pub their_offer: &'a [u8],
    pub host_key: &'a [u8],
    pub theirs: &'a [u8],
}

/// An elliptic-curve agreement. aws-lc refuses points that are not on the curve, and secrets that are zero.
fn on_curve(
    key: &PrivateKey,
    curve: &'static agreement::Algorithm,
    theirs: &[u8],
) -> Result<Zeroizing<Vec<u8>>, End> {
    let theirs = UnparsedPublicKey::new(curve, theirs);
    let wrong = violation("a public value that is not on its curve");
    agreement::agree(key, theirs, wrong, |shared| Ok(Zeroizing::new(shared.to_vec())))
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
impl Exchange {
    /// An exchange with a given secret, for known-answer tests: the bytes of a private key or exponent;
    /// for the hybrid an expanded ML-KEM key (FIPS 203, 7.1) followed by an X25519 key.
    pub fn with_secret(name: &'static str, secret: &[u8]) -> Self {
        /// Position of the encapsulation key in an expanded key.
        const PUBLIC: std::ops::Range<usize> = 1152..2336;
        let begun = Self::begin(name).unwrap();
        let private = |curve: &'static agreement::Algorithm, secret: &[u8]| {
            let key = PrivateKey::from_private_key(curve, secret).unwrap();
            let public = key.compute_public_key().unwrap().as_ref().to_vec();
            (key, public)
        };
        let (secret, ours) = match &begun.secret {
            Secret::Curve(_, curve) => {
                let (key, public) = private(curve, secret);
                (Secret::Curve(key, curve), public)
            }
            Secret::Hybrid(..) => {
                let (lattice, curve) = secret.split_at(secret.len() - 32);
                let (key, public) = private(&agreement::X25519, curve);
                let ours = [&lattice[PUBLIC], &public].concat();
                let lattice = DecapsulationKey::new(&ML_KEM_768, lattice).unwrap();
                (Secret::Hybrid(Box::new(lattice), key), ours)
            }
            Secret::Group(_) => {
                let group = match name {
                    "diffie-hellman-group14-sha256" => groups::GROUP_14,
                    "diffie-hellman-group16-sha512" => groups::GROUP_16,
                    _ => groups::GROUP_18,
                };
                let secret = group.secret(secret.try_into().unwrap()).unwrap();
                let ours = positive(&secret.public);
                (Secret::Group(Box::new(secret)), ours)
            }
        };
        Self { secret, ours, ..begun }
    }
}

#[cfg(test)]
mod tests {
    use zeroize::ZeroizeOnDrop;

    use super::*;

    /// Accepts only what wipes its bytes when it is dropped.
    fn assert_wiped(_: &impl ZeroizeOnDrop) {}

    /// Checked by the compiler: `assert_wiped` accepts only types that are wiped.
    #[test]
    fn shared_secrets_and_derived_keys_are_wiped_when_dropped() {
        for name in ["curve25519-sha256", "diffie-hellman-group14-sha256"] {
            let [ours, theirs] = [name; 2].map(|name| Exchange::begin(name).unwrap());
            let shared = ours.agree(&theirs.ours).unwrap();
            assert_wiped(&shared);
            match &ours.secret {
                Secret::Curve(key, curve) => {
                    assert_wiped(&on_curve(key, curve, &theirs.ours).unwrap());
                }
                Secret::Group(secret) => assert_wiped(&secret.agree(&theirs.ours).unwrap()),
                Secret::Hybrid(..) => {}
            }
            let lengths = Material { iv: 12, key: 32, mac: 64 };
            let Material { iv, key, mac } = ours.material(&lengths, *b"ACE", &shared, &[], &[]);
            for (part, length) in [(iv, 12), (key, 32), (mac, 64)] {
                assert_wiped(&part);
                assert_eq!(part.len(), length);
            }
        }
    }

    #[test]
    fn malformed_public_values_are_refused_on_curves_in_the_hybrid_and_in_group_14() {
        for name in [
            "mlkem768x25519-sha256",
            "curve25519-sha256",
            "ecdh-sha2-nistp256",
            "ecdh-sha2-nistp384",
            "ecdh-sha2-nistp521",
            "diffie-hellman-group14-sha256",
        ] {
            let exchange = Exchange::begin(name).unwrap();
            for bad in [&[][..], &[0; 32], &[0; 65], &[0; CIPHERTEXT + 32], &[0xff; 2000]] {
                assert!(exchange.agree(bad).is_err(), "{name}, {} bytes", bad.len());
            }
        }
    }
}
