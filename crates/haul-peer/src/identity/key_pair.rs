//! The key pair of a peer, stored as a PEM file that OpenSSL can read too (`openssl pkey -in FILE -text`).

use std::fmt;
use std::path::Path;

use aws_lc_rs::error::Unspecified;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use data_encoding::BASE64;
use haul_storage::{Error, ErrorKind, Result};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use zeroize::{Zeroize as _, Zeroizing};

use super::file::PrivateFile;
use crate::ticket::PeerKey;

/// Precedes an Ed25519 public key in a SubjectPublicKeyInfo (RFC 8410, section 4):
/// `SEQUENCE { SEQUENCE { OID 1.3.101.112 }, BIT STRING }`.
const SPKI_PREFIX: [u8; 12] =
    [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// An Ed25519 key pair, which identifies a peer.
pub struct Identity {
    pkcs8: Zeroizing<Vec<u8>>,
    key: PeerKey,
}

impl Identity {
    /// A new key pair, which is not saved.
    ///
    /// # Errors
    /// If it cannot be generated.
    pub fn ephemeral() -> Result<Self> {
        let failed = |error: Unspecified| {
            Error::new(ErrorKind::Other, "make an identity").with_source(error)
        };
        let pair = Ed25519KeyPair::generate().map_err(failed)?;
        // Version 1: OpenSSL does not read version 2.
        let document = pair.to_pkcs8v1().map_err(failed)?;
        let pkcs8 = Zeroizing::new(document.as_ref().to_vec());
        Ok(Self::of_pair(&pair, pkcs8))
    }

    /// Reads the key pair at `path`, or creates one there with mode 0600, in directories with mode 0700. If several
    /// processes do so at once, all get the same one. Blocks on the disk, and for up to 10 s on another process.
    ///
    /// # Errors
    /// If it cannot be read or saved, is malformed, is accessible to others or belongs to another user.
    pub fn read_or_create(path: &Path) -> Result<Self> {
        let file = file(path);
        if let Some(identity) = Self::read_from(&file)? {
            return Ok(identity);
        }
        let lock = file.lock()?;
        // Another process may have created it meanwhile.
        if let Some(identity) = Self::read_from(&file)? {
            return Ok(identity);
        }
        let identity = Self::ephemeral()?;
        let code = Zeroizing::new(BASE64.encode(&identity.pkcs8));
        let pem = Zeroizing::new(format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
            *code
        ));
        file.replace(pem.as_bytes(), &lock)?;
        Ok(identity)
    }

    /// Reads the key pair at `path`; `None` if there is none.
    ///
    /// # Errors
    /// As for [`Identity::read_or_create`].
    pub fn read(path: &Path) -> Result<Option<Self>> {
        Self::read_from(&file(path))
    }

    /// The public key.
    pub const fn key(&self) -> PeerKey {
        self.key
    }

    /// The private key in PKCS #8 version 1 or 2 (DER), as TLS needs it.
    pub fn pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }

    /// The public key as SubjectPublicKeyInfo (DER), which TLS sends in place of a certificate (RFC 7250).
    pub fn spki(&self) -> Vec<u8> {
        [&SPKI_PREFIX[..], self.key.as_bytes()].concat()
    }

    fn read_from(file: &PrivateFile) -> Result<Option<Self>> {
        let Some(pem) = file.content()? else { return Ok(None) };
        let malformed = || file.refused("it is not an Ed25519 private key in PEM (PKCS #8)");
        let mut der = PrivatePkcs8KeyDer::from_pem_slice(&pem).map_err(|_| malformed())?;
        let pkcs8 = Zeroizing::new(der.secret_pkcs8_der().to_vec());
        der.zeroize();
        let pair = Ed25519KeyPair::from_pkcs8(&pkcs8).map_err(|_| malformed())?;
        Ok(Some(Self::of_pair(&pair, pkcs8)))
    }

    fn of_pair(pair: &Ed25519KeyPair, pkcs8: Zeroizing<Vec<u8>>) -> Self {
        let mut key = [0; 32];
        key.copy_from_slice(pair.public_key().as_ref());
        Self { pkcs8, key: PeerKey(key) }
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.key)
    }
}

/// The key in a SubjectPublicKeyInfo (DER) that came from outside; `None` if that is anything but an Ed25519 key, or
/// the key is a weak one ([`PeerKey::checked`]).
pub fn key_of_spki(spki: &[u8]) -> Option<PeerKey> {
    let key = spki.strip_prefix(&SPKI_PREFIX)?;
    PeerKey::checked(key.try_into().ok()?)
}

fn file(path: &Path) -> PrivateFile {
    PrivateFile { path: path.to_owned(), read: "read the identity", change: "save the identity" }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    #[test]
    fn an_identity_is_created_once_and_is_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state/haul/identity.pem");
        assert!(Identity::read(&path).unwrap().is_none());
        let made = Identity::read_or_create(&path).unwrap();
        let read = Identity::read_or_create(&path).unwrap();
        assert_eq!(made.key(), read.key());
        assert_eq!(made.pkcs8(), read.pkcs8());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_ne!(made.key(), Identity::ephemeral().unwrap().key());
    }

    #[test]
    fn threads_that_create_an_identity_at_once_get_the_same_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("haul/identity.pem");
        let keys: Vec<PeerKey> = std::thread::scope(|scope| {
            let create = || Identity::read_or_create(&path).unwrap().key();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(create)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    }

    #[test]
    fn an_identity_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("identity.pem");
        Identity::read_or_create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = Identity::read_or_create(&path).unwrap_err().to_string();
        assert!(error.contains("cannot read the identity (mode 0644 gives others"), "{error}");
    }

    #[test]
    fn a_malformed_identity_is_refused_and_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("identity.pem");
        let certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let empty = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        for text in ["", "nonsense", certificate, empty] {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            let error = Identity::read_or_create(&path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}: {error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn the_key_is_found_in_its_subject_public_key_info() {
        let identity = Identity::ephemeral().unwrap();
        let spki = identity.spki();
        assert_eq!((spki.len(), key_of_spki(&spki)), (44, Some(identity.key())));
        let mut other = spki.clone();
        // X25519 has the object identifier 1.3.101.110.
        other[8] = 0x6e;
        let weak = [&SPKI_PREFIX[..], &[0; 32]].concat();
        for wrong in [&other[..], &weak, &spki[..43], &[&spki[..], &[0]].concat(), &[]] {
            assert_eq!(key_of_spki(wrong), None, "{wrong:x?}");
        }
    }

    #[test]
    fn debug_output_has_the_fingerprint_only() {
        let identity = Identity::ephemeral().unwrap();
        assert_eq!(format!("{identity:?}"), format!("Identity({})", identity.key()));
    }
}
