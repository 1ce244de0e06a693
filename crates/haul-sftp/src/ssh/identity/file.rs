//! Private keys in files: reading them, checking their permissions, decrypting them.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use data_encoding::BASE64_MIME;
use russh::keys::{PrivateKey, PublicKey, decode_secret_key, load_public_key};

use super::pem::{self, Encrypted};
use super::short;
use crate::ssh::options::Secret;

/// Largest key file that is read. RSA keys of 16 384 bits have 13 kB.
const LARGEST: u64 = 1 << 20;

/// The result of reading a path of IdentityFile.
#[derive(Debug)]
pub enum Found {
    /// No such file.
    Missing,
    /// A private key, perhaps encrypted.
    Private(KeyFile),
    /// Only the public key.
    PublicOnly(PublicKey),
    /// An unusable key, with the reason and, if known, the public key.
    Unusable(String, Option<PublicKey>),
}

/// A private key in a file.
#[derive(Debug, Clone)]
pub struct KeyFile {
    /// The path of the file.
    pub path: PathBuf,
    /// The public key, from the private key or from the `.pub` file beside it.
    pub public: Option<PublicKey>,
    /// Whether it needs a passphrase.
    pub encrypted: bool,
    text: Secret,
    /// The encryption of a PEM key.
    pem: Option<Encrypted>,
}

/// Reads the key at a path of IdentityFile.
pub fn read(path: &Path) -> Found {
    let public = load_public_key(beside(path, ".pub")).ok();
    match text(path) {
        Ok(text) => from_text(path, &text, public),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match public {
            Some(public) => Found::PublicOnly(public),
            None => Found::Missing,
        },
        Err(error) => Found::Unusable(error.to_string(), public),
    }
}

/// The path with a suffix appended.
pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn from_text(path: &Path, text: &Secret, public: Option<PublicKey>) -> Found {
    if let Ok(public) = PublicKey::from_openssh(text.expose().trim()) {
        return Found::PublicOnly(public);
    }
    if let Some(why) = exposed(path) {
        return Found::Unusable(why, public);
    }
    let file = |public, encrypted, pem| {
        let path = path.to_owned();
        Found::Private(KeyFile { path, public, text: text.clone(), encrypted, pem })
    };
    let unreadable = |with: &str| {
        let convert = format!("ssh-keygen -p -f {}", path.display());
        format!(
            "it is encrypted with {with}, which haul cannot read; \"{convert}\" rewrites it in a supported form"
        )
    };
    // OpenSSH's format has an unencrypted public key.
    if let Ok(key) = PrivateKey::from_openssh(text.expose()) {
        return file(Some(key.public_key().clone()), key.is_encrypted(), None);
    }
    if let Some(key) = short::read(text.expose(), None) {
        return file(Some(key.public_key().clone()), false, None);
    }
    if let Some(cipher) = openssh_cipher(text.expose()) {
        return Found::Unusable(unreadable(&cipher), public);
    }
    match pem::encryption(text.expose()) {
        Some(Ok(encrypted)) => return file(public, true, Some(encrypted)),
        Some(Err(with)) => return Found::Unusable(unreadable(&with), public),
        None => {}
    }
    match decode_secret_key(text.expose(), None) {
        Ok(key) => file(Some(key.public_key().clone()), false, None),
        Err(_) if text.expose().contains("ENCRYPTED") => file(public, true, None),
        Err(error) => Found::Unusable(format!("not a key that haul can read: {error}"), public),
    }
}

/// The cipher of an encrypted key in OpenSSH's format (its file PROTOCOL.key).
fn openssh_cipher(text: &str) -> Option<String> {
    let (_, body) = text.split_once("-----BEGIN OPENSSH PRIVATE KEY-----")?;
    let (body, _) = body.split_once("-----END")?;
    let bytes = BASE64_MIME.decode(body.trim().as_bytes()).ok()?;
    let rest = bytes.strip_prefix(b"openssh-key-v1\0")?;
    let (length, rest) = rest.split_first_chunk()?;
    let name = rest.get(..usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    let name = str::from_utf8(name).ok().filter(|name| *name != "none" && name.len() <= 64)?;
    name.chars().all(|c| c.is_ascii_graphic()).then(|| name.to_owned())
}

fn text(path: &Path) -> io::Result<Secret> {
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() || metadata.len() > LARGEST {
        return Err(io::Error::other("not a key file"));
    }
    std::fs::read_to_string(path).map(Secret::new)
}

/// As in OpenSSH, a user's own key that others can read is ignored.
fn exposed(path: &Path) -> Option<String> {
    let metadata = std::fs::metadata(path).ok()?;
    let mine = metadata.uid() == rustix::process::getuid().as_raw();
    let mode = metadata.mode() & 0o777;
    (mine && mode & 0o077 != 0).then(|| {
        format!(
            "UNPROTECTED PRIVATE KEY FILE: permissions {mode:04o} are too open, others can read \
             it; the key is ignored (chmod 600)"
        )
    })
}

impl KeyFile {
    /// The key, if it is not encrypted.
    ///
    /// # Errors
    /// Explains why it cannot be decoded.
    pub fn plain(&self) -> Result<Option<PrivateKey>, String> {
        if self.encrypted {
            return Ok(None);
        }
        match decode_secret_key(self.text.expose(), None) {
            Ok(key) => Ok(Some(key)),
            Err(error) => match short::read(self.text.expose(), None) {
                Some(key) => Ok(Some(key)),
                None => Err(error.to_string()),
            },
        }
    }

    /// Decrypts the key with its passphrase.
    ///
    /// # Errors
    /// Explains what is wrong, usually the passphrase.
    pub fn unlock(&self, passphrase: &Secret) -> Result<PrivateKey, String> {
        if let Some(pem) = &self.pem {
            let plain = pem.decrypt(passphrase).ok_or("the passphrase is wrong")?;
            return decode_secret_key(plain.expose(), None)
                .map_err(|error| format!("not a key that haul can read: {error}"));
        }
        let (text, passphrase) = (self.text.expose(), passphrase.expose());
        decode_secret_key(text, Some(passphrase))
            .ok()
            .or_else(|| short::read(text, Some(passphrase)))
            .ok_or_else(|| "the passphrase is wrong".to_owned())
    }
}
