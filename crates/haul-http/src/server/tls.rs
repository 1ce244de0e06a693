//! The server's certificate, which identifies it to clients, and its TLS configuration.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use haul_storage::{Error, ErrorKind, Result, create_private};
use rcgen::{CertificateParams, DnType, KeyPair, PKCS_ECDSA_P256_SHA256, date_time_ymd};
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, aws_lc_rs as provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate with its key.
#[derive(Clone)]
pub struct ServerTls {
    pub(super) config: Arc<ServerConfig>,
    fingerprint: String,
    certificate: String,
}

impl ServerTls {
    /// Reads a certificate (with its chain) and its key, both as PEM.
    ///
    /// # Errors
    /// If they cannot be read or do not match, or if the key is accessible to others than its
    /// owner.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self> {
        let chain = read(certificate, "read the certificate")?;
        let secret = read_secret(key)?;
        Self::new(&chain, &secret).map_err(|cause| {
            Error::new(ErrorKind::InvalidInput, "use the certificate")
                .at(certificate.display())
                .because(cause)
        })
    }

    /// Creates a self-signed certificate for the names of this machine, its loopback addresses, and
    /// `names`.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn self_signed(names: &[String]) -> Result<Self> {
        let pem = make(names)?;
        Self::from_pem(pem.as_bytes()).map_err(|cause| creation_failed().because(cause))
    }

    /// Reads the certificate that an earlier call saved at `path`, or creates one and saves it
    /// there with mode 0600, in directories with mode 0700.
    ///
    /// # Errors
    /// If it cannot be read, created or saved, or if its file is accessible to others than its owner.
    pub fn read_or_create(path: &Path, names: &[String]) -> Result<Self> {
        let read = |path: &Path| {
            let pem = read_secret(path)?;
            Self::from_pem(&pem).map_err(|cause| {
                Error::new(ErrorKind::InvalidInput, "use the certificate")
                    .at(path.display())
                    .because(cause)
            })
        };
        match read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // Another process may create it first.
                create_private(path, make(names)?.as_bytes()).map_err(|error| {
                    Error::from_io("save the certificate", error).at(path.display())
                })?;
                read(path)
            }
            outcome => outcome,
        }
    }

    /// The certificate's SHA-256 fingerprint as browsers and `openssl x509 -fingerprint` print it,
    /// `AB:CD:…`.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The certificate as PEM, for clients that should trust it.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// From PEM text with both certificate and key.
    fn from_pem(pem: &[u8]) -> std::result::Result<Self, String> {
        Self::new(pem, pem)
    }

    fn new(chain: &[u8], key: &[u8]) -> std::result::Result<Self, String> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(chain)
            .collect::<std::result::Result<_, _>>()
            .map_err(|_| "it is not a PEM certificate".to_owned())?;
        let own = chain.first().ok_or("no certificate in it")?.clone();
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|_| "no unencrypted private key in its file".to_owned())?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(preferred()))
            .with_safe_default_protocol_versions()
            .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|error| error.to_string())?;
        config.ignore_client_order = true;
        // Long files transfer faster over HTTP/1.1; clients with HTTP/2 only are served too.
        config.alpn_protocols = vec![b"http/1.1".to_vec(), b"h2".to_vec()];
        let digest = digest(&SHA256, &own);
        let hex: Vec<String> = digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
        let base64 = data_encoding::BASE64.encode(&own);
        // Base64 is ASCII, so every offset is a character boundary.
        let lines: Vec<&str> = (0..base64.len())
            .step_by(64)
            .filter_map(|at| base64.get(at..base64.len().min(at + 64)))
            .collect();
        let body = lines.join("\n");
        Ok(Self {
            config: Arc::new(config),
            fingerprint: hex.join(":"),
            certificate: format!(
                "-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"
            ),
        })
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerTls({})", self.fingerprint)
    }
}

/// The default cipher suites, those of TLS 1.3 fastest first on this processor. With AES instructions,
/// AES-128 is the fastest and as safe as any; without them, AES is slow and its timing leaks traces of
/// the key.
fn preferred() -> CryptoProvider {
    use provider::cipher_suite::{
        TLS13_AES_128_GCM_SHA256 as AES_128, TLS13_AES_256_GCM_SHA384 as AES_256,
        TLS13_CHACHA20_POLY1305_SHA256 as CHACHA,
    };
    #[cfg(target_arch = "x86_64")]
    let has_aes = std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    let has_aes = std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let has_aes = false;
    let mut preferred = provider::default_provider();
    let newest = if has_aes { [AES_128, AES_256, CHACHA] } else { [CHACHA, AES_128, AES_256] };
    preferred.cipher_suites.retain(|suite| !newest.contains(suite));
    preferred.cipher_suites.splice(0..0, newest);
    preferred
}

/// A key and a certificate for it, as PEM.
fn make(names: &[String]) -> Result<String> {
    let failed = |error: rcgen::Error| creation_failed().because(error.to_string());
    let mut all = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    if let Ok(name) = rustix::system::uname().nodename().to_str() {
        // A host name that is not a valid DNS name cannot be in a certificate.
        let is_name = |name: &str| {
            !name.is_empty()
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b))
        };
        if is_name(name) {
            all.extend([name.to_owned(), format!("{name}.local")]);
        }
    }
    all.extend(names.iter().cloned());
    all.sort();
    all.dedup();
    let mut params = CertificateParams::new(all).map_err(failed)?;
    params.distinguished_name.push(DnType::CommonName, "haul");
    // Clients remember the fingerprint, so the certificate is valid until it is deleted. The past
    // start date is for clocks that are behind.
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2049, 12, 31);
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    Ok(format!("{}{}", certificate.pem(), key.serialize_pem()))
}

fn creation_failed() -> Error {
    Error::new(ErrorKind::Other, "make a certificate")
}

fn read(path: &Path, operation: &'static str) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| Error::from_io(operation, error).at(path.display()))
}

/// Reads a file; fails if anyone but its owner has access to it.
fn read_secret(path: &Path) -> Result<Vec<u8>> {
    const OPERATION: &str = "read the key of the certificate";
    let failed = |error: io::Error| Error::from_io(OPERATION, error).at(path.display());
    let mode = fs::metadata(path).map_err(failed)?.mode();
    if mode & 0o077 != 0 {
        let mode = mode & 0o7777;
        return Err(Error::new(ErrorKind::InvalidInput, OPERATION)
            .at(path.display())
            .because(format!("mode {mode:04o} gives others access; make it 0600")));
    }
    read(path, OPERATION)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;

    use haul_storage::{temporary_name, unique};

    use super::*;

    #[test]
    fn a_certificate_is_created_once_and_its_key_is_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state/haul/tls.pem");
        let made = ServerTls::read_or_create(&path, &[]).unwrap();
        let read = ServerTls::read_or_create(&path, &["other".to_owned()]).unwrap();
        assert_eq!(made.fingerprint(), read.fingerprint());
        assert_eq!(made.fingerprint().len(), 32 * 3 - 1);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        let saved = fs::read_to_string(&path).unwrap().replace("\r\n", "\n");
        assert!(saved.starts_with(made.certificate()), "the certificate is saved");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = ServerTls::read_or_create(&path, &[]).unwrap_err().to_string();
        assert!(error.contains("mode 0644 gives others access; make it 0600"), "{error}");
    }

    /// Regression: the temporary file of a killed process with the same ID was taken for a certificate that another
    /// process had created.
    #[test]
    fn a_certificate_is_created_beside_the_unfinished_one_of_a_killed_process() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tls.pem");
        // The next temporary names of a process with this ID that started at another time.
        let own = unique();
        let (same, number) = own.rsplit_once('-').unwrap();
        let number: u64 = number.parse().unwrap();
        let earlier = match same.split_once('-') {
            Some((process, _start)) => format!("{process}-0"),
            None => same.to_owned(),
        };
        for number in number..number + 1000 {
            let name = temporary_name(b"tls.pem", &format!("{earlier}-{number}"));
            fs::write(directory.path().join(OsStr::from_bytes(&name)), "").unwrap();
        }
        let made = ServerTls::read_or_create(&path, &[]).unwrap();
        assert!(fs::read_to_string(&path).unwrap().starts_with(made.certificate()));
    }

    #[test]
    fn a_malformed_certificate_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pem");
        fs::write(&path, "nonsense").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let error = ServerTls::read(&path, &path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("no certificate in it"), "{error}");
    }
}
