//! The server's host key, which identifies it to clients.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use haul_storage::{Error, ErrorKind, Result, create_private};
use russh::keys::ssh_key::LineEnding;
use russh::keys::{Algorithm, HashAlg, PrivateKey};

/// The server's host key.
#[derive(Clone)]
pub struct HostKey {
    pub(super) key: PrivateKey,
}

impl HostKey {
    /// Generates an Ed25519 key.
    ///
    /// # Errors
    /// If it cannot be generated.
    pub fn generate() -> Result<Self> {
        let key = PrivateKey::random(&mut russh::keys::key::safe_rng(), Algorithm::Ed25519)
            .map_err(|error| Error::new(ErrorKind::Other, "make a host key").with_source(error))?;
        Ok(Self { key })
    }

    /// Reads a private key without passphrase, in OpenSSH's format.
    ///
    /// # Errors
    /// If it cannot be read or decoded, has a passphrase, or is accessible to others than its owner.
    pub fn read(path: &Path) -> Result<Self> {
        const OPERATION: &str = "read the host key";
        let failed = |error: io::Error| Error::from_io(OPERATION, error).at(path.display());
        let refused = |cause: String| {
            Error::new(ErrorKind::InvalidInput, OPERATION).at(path.display()).because(cause)
        };
        let mode = fs::metadata(path).map_err(failed)?.mode();
        if mode & 0o077 != 0 {
            let mode = mode & 0o7777;
            return Err(refused(format!("mode {mode:04o} gives others access; make it 0600")));
        }
        let text = fs::read(path).map_err(failed)?;
        let key = PrivateKey::from_openssh(text).map_err(|error| refused(error.to_string()))?;
        if key.is_encrypted() {
            return Err(refused("it has a passphrase; a host key must not have one".to_owned()));
        }
        Ok(Self { key })
    }

    /// Reads the key at `path`, or creates one there with mode 0600, in directories with mode 0700.
    ///
    /// # Errors
    /// As for [`HostKey::read`], or if it cannot be saved.
    pub fn read_or_create(path: &Path) -> Result<Self> {
        match Self::read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Self::create(path),
            outcome => outcome,
        }
    }

    /// The fingerprint `SHA256:…`, as `ssh-keygen -l` prints it.
    pub fn fingerprint(&self) -> String {
        self.key.public_key().fingerprint(HashAlg::Sha256).to_string()
    }

    /// The public key as in a line of `known_hosts`, without the host.
    ///
    /// # Errors
    /// If the key cannot be encoded.
    pub fn public_line(&self) -> Result<String> {
        self.key
            .public_key()
            .to_openssh()
            .map_err(|error| Error::new(ErrorKind::Other, "print the host key").with_source(error))
    }

    fn create(path: &Path) -> Result<Self> {
        let failed =
            |error: io::Error| Error::from_io("save the host key", error).at(path.display());
        let made = Self::generate()?;
        let text = made.key.to_openssh(LineEnding::LF).map_err(|error| {
            Error::new(ErrorKind::Other, "save the host key").at(path.display()).with_source(error)
        })?;
        match create_private(path, text.as_bytes()) {
            Ok(true) => Ok(made),
            // Another process has created it.
            Ok(false) => Self::read(path),
            Err(error) => Err(failed(error)),
        }
    }
}

impl fmt::Debug for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostKey({})", self.fingerprint())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_host_key_is_created_once_and_is_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state/haul/key");
        let made = HostKey::read_or_create(&path).unwrap();
        let read = HostKey::read_or_create(&path).unwrap();
        assert_eq!(made.fingerprint(), read.fingerprint());
        assert!(made.fingerprint().starts_with("SHA256:"), "{}", made.fingerprint());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        assert!(!format!("{made:?}").contains("PRIVATE"));
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        HostKey::read_or_create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = HostKey::read_or_create(&path).unwrap_err().to_string();
        assert!(error.contains("mode 0644 gives others access; make it 0600"), "{error}");
    }

    #[test]
    fn a_malformed_key_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        fs::write(&path, "nonsense").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let error = HostKey::read(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("cannot read the host key"), "{error}");
    }
}
