//! TLS for clients: which servers to trust, and client certificates.
//!
//! ```text
//! TlsOptions → client_config → a handshake → explain (why it failed)
//! ```

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use haul_storage::{Error, ErrorKind, Result, Retry};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore,
    SignatureScheme,
};

/// Buffer size for reading below TLS ([`tokio::io::BufReader`]): rustls reads a few thousand bytes
/// at a time.
pub const READ_AHEAD: usize = 128 << 10;

/// The user's TLS options.
#[derive(Debug, Clone, Default)]
pub struct TlsOptions {
    /// PEM files with the authorities to trust instead of the system's.
    pub authorities: Vec<PathBuf>,
    /// Accept any certificate.
    pub insecure: bool,
    /// A client certificate with its chain, and its key (PEM), for servers that request one.
    pub identity: Option<Identity>,
}

/// A certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The certificate and its chain.
    pub certificate: PathBuf,
    /// The private key; may be in the same file.
    pub key: PathBuf,
}

impl TlsOptions {
    /// A configuration that offers these protocols by ALPN (RFC 7301), in order of preference.
    /// Connections that share it resume each other's sessions.
    ///
    /// # Errors
    /// If a file cannot be read or contains no usable certificate or key, or if the system has no trusted
    /// authorities.
    pub fn client_config(&self, protocols: &[&[u8]]) -> Result<Arc<ClientConfig>> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(unusable)?;
        let trusted = self.trusted(&provider)?;
        let verifier = Arc::new(Verifier { provider, trusted });
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let chain = certificates(&identity.certificate)?;
                let key = PrivateKeyDer::from_pem_file(&identity.key)
                    .map_err(|error| unreadable(&identity.key, "no private key", error))?;
                builder.with_client_auth_cert(chain, key).map_err(|error| {
                    Error::new(ErrorKind::InvalidInput, "use the client certificate")
                        .at(identity.certificate.display())
                        .with_source(error)
                })?
            }
        };
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(Arc::new(config))
    }

    fn trusted(&self, provider: &Arc<CryptoProvider>) -> Result<Trusted> {
        if self.insecure {
            return Ok(Trusted::Any);
        }
        let mut named = Vec::new();
        for file in &self.authorities {
            named.extend(certificates(file)?);
        }
        let (roots, provider) = (Arc::new(self.roots()?), Arc::clone(provider));
        let by_authority = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
        let by_authority = by_authority
            .map_err(|error| Error::new(ErrorKind::Other, "set up TLS").with_source(error))?;
        Ok(Trusted::Known { by_authority, named })
    }

    fn roots(&self) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        for file in &self.authorities {
            for certificate in certificates(file)? {
                roots.add(certificate).map_err(|error| {
                    Error::new(ErrorKind::InvalidInput, "trust the authority")
                        .at(file.display())
                        .with_source(error)
                })?;
            }
        }
        if self.authorities.is_empty() {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                let why = found.errors.first().map(|error| format!(" ({error})"));
                return Err(Error::new(ErrorKind::NotFound, "load trusted authorities")
                    .because(format!("this system has none{}", why.unwrap_or_default()))
                    .hinting("name them with --cacert FILE"));
            }
        }
        Ok(roots)
    }
}

/// The name that a host's certificate must be valid for. The zone of an IPv6 address is local and
/// not part of it (RFC 6874, 4).
///
/// # Errors
/// If it is neither a name nor an address.
pub fn server_name(host: &str) -> Result<ServerName<'static>> {
    let name = match host.split_once('%') {
        Some((address, _)) if address.parse::<std::net::Ipv6Addr>().is_ok() => address,
        _ => host,
    };
    ServerName::try_from(name.to_owned())
        .map_err(|error| Error::new(ErrorKind::InvalidInput, "connect").at(host).with_source(error))
}

/// Explains why a handshake with a host failed. A refused certificate is not retried.
pub fn explain(error: io::Error, host: &str) -> Error {
    let tls = error.get_ref().and_then(|source| source.downcast_ref::<rustls::Error>());
    let refused = |cause: String| {
        Error::new(ErrorKind::Unauthenticated, "verify the certificate")
            .at(host)
            .because(format!("{cause}; nothing was sent"))
            .with_retry(Retry::Never)
    };
    match tls {
        Some(rustls::Error::InvalidCertificate(why)) => {
            let error = refused(in_words(why, host));
            match hint(why) {
                Some(hint) => error.hinting(hint),
                None => error,
            }
        }
        Some(rustls::Error::AlertReceived(alert)) => {
            Error::new(ErrorKind::Unauthenticated, "negotiate TLS")
                .at(host)
                .because(format!("the server rejected the handshake: {alert:?}"))
                .with_retry(Retry::Never)
        }
        Some(other) => Error::new(ErrorKind::Protocol, "negotiate TLS")
            .at(host)
            .because(format!("{other}; is it a TLS port?"))
            .with_retry(Retry::Never),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            Error::new(ErrorKind::Unreachable, "negotiate TLS")
                .at(host)
                .because("the server closed the connection")
        }
        None => Error::from_io("negotiate TLS", error).at(host),
    }
}

/// How the user can trust an untrusted certificate.
fn hint(why: &CertificateError) -> Option<&'static str> {
    match why {
        CertificateError::UnknownIssuer => Some("name its authority with --cacert FILE"),
        CertificateError::Other(why) if is_authority(why) => Some("trust it with --cacert FILE"),
        _ => None,
    }
}

fn in_words(why: &CertificateError, host: &str) -> String {
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the server's certificate has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the server's certificate is not valid yet: is this machine's clock right?".to_owned()
        }
        CertificateError::NotValidForName => {
            format!("the server's certificate is not for {host}")
        }
        CertificateError::NotValidForNameContext { presented, .. } if !presented.is_empty() => {
            let names: Vec<_> = presented.iter().take(5).map(|name| plain_name(name)).collect();
            format!("the server's certificate is not for {host} but for {}", names.join(", "))
        }
        CertificateError::NotValidForNameContext { .. } => {
            format!("the server's certificate is not for {host}")
        }
        CertificateError::UnknownIssuer => {
            "the server's certificate is not from an authority that is trusted here".to_owned()
        }
        CertificateError::Revoked => "the server's certificate has been revoked".to_owned(),
        // `openssl req -x509` creates such certificates by default.
        CertificateError::Other(why) if is_authority(why) => {
            "the server's certificate is self-signed, or that of an authority".to_owned()
        }
        other => format!("the server's certificate is invalid: {other}"),
    }
}

/// Extracts the name from `DnsName("host.example")` or `IpAddress(192.0.2.1)`, which is how rustls
/// displays names.
fn plain_name(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, inner)| inner.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"')
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = read.map_err(|error| unreadable(file, "no certificate", error))?;
    if certificates.is_empty() {
        let error = Error::new(ErrorKind::InvalidInput, "read").at(file.display());
        return Err(error.because("no certificate in it; PEM is expected"));
    }
    Ok(certificates)
}

fn unreadable(file: &Path, what: &str, error: rustls::pki_types::pem::Error) -> Error {
    use rustls::pki_types::pem::Error as Pem;
    match error {
        Pem::Io(error) => Error::from_io("read", error).at(file.display()),
        other => Error::new(ErrorKind::InvalidInput, "read")
            .at(file.display())
            .because(format!("{what} in it; PEM is expected"))
            .with_source(other),
    }
}

fn unusable(error: rustls::Error) -> Error {
    Error::new(ErrorKind::Other, "set up TLS").with_source(error)
}

/// Verifies server certificates. A signature that was not made by the certificate's key is never
/// accepted.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    trusted: Trusted,
}

#[derive(Debug)]
enum Trusted {
    /// Certificates issued by trusted authorities, and those that the user named. Most self-signed
    /// certificates claim to be authorities, which webpki refuses as a server's; one that the user
    /// named is accepted.
    Known { by_authority: Arc<WebPkiServerVerifier>, named: Vec<CertificateDer<'static>> },
    /// Any (`--insecure`).
    Any,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Trusted::Known { by_authority, named } = &self.trusted else {
            return Ok(ServerCertVerified::assertion());
        };
        let verified = by_authority.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match verified {
            // The verifier has checked the validity period before it returns this error.
            Err(rustls::Error::InvalidCertificate(CertificateError::Other(why)))
                if is_authority(&why) && named.iter().any(|named| named == end_entity) =>
            {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn is_authority(why: &OtherError) -> bool {
    matches!(why.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_zone_is_not_part_of_the_server_name() {
        let without = server_name("fe80::1").unwrap();
        assert_eq!(server_name("fe80::1%eth0").unwrap(), without);
        assert!(server_name("host%eth0").is_err() && server_name("%").is_err());
        assert!(matches!(server_name("host.example").unwrap(), ServerName::DnsName(_)));
    }
}
