//! TLS configurations of both sides of a lane.
//!
//! TLS 1.3 (RFC 8446) with raw public keys (RFC 7250) instead of certificates:
//!
//! | | |
//! |---|---|
//! | key exchange | X25519MLKEM768 only |
//! | cipher suites | AES-128-GCM, AES-256-GCM, ChaCha20-Poly1305 |
//! | keys and signatures | Ed25519 only, on both sides |
//! | server's key | exactly the one in the [`Ticket`](crate::ticket::Ticket) |
//! | client's key | any; the server requires one and verifies the client's signature |
//! | ALPN | `haul/1`, required on both sides |
//! | SNI, session tickets, resumption, early data, compression | none |
//!
//! Connections to a bridge, and between peers with a spoken code, have ALPNs of their own. With a spoken code, the
//! client accepts any server key, since it knows none.
//!
//! Both keys travel encrypted. The client sends its own only after it has verified the server's.

use std::net::Ipv4Addr;
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use haul_storage::{Error, ErrorKind, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider, kx_group, sign};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, CommonState, DigitallySignedStruct, DistinguishedName,
    PeerIncompatible, PeerMisbehaved, ServerConfig, SignatureScheme,
};

/// The protocol's name in ALPN (RFC 7301).
pub const ALPN: &[u8] = b"haul/1";

/// The protocol's name in ALPN between a bridge and its clients.
pub const BRIDGE_ALPN: &[u8] = b"haul-bridge/1";

/// The protocol's name in ALPN between two peers that have a spoken code.
pub const CODE_ALPN: &[u8] = b"haul-code/1";

/// The bytes that precede the 32 bytes of an Ed25519 key in its `SubjectPublicKeyInfo` (RFC 8410, 4).
pub(super) const SPKI_PREFIX: [u8; 12] =
    [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The configuration of the TLS client: it presents the identity with this private key
/// (PKCS #8) and public key (`SubjectPublicKeyInfo`), and accepts only a server with the `expected`
/// Ed25519 key.
///
/// # Errors
/// If the identity is no Ed25519 key pair.
pub fn client_config(
    identity_pkcs8: &[u8],
    identity_spki: &[u8],
    expected: [u8; 32],
) -> Result<Arc<ClientConfig>> {
    client_config_with(provider(), identity_pkcs8, identity_spki, expected)
}

/// [`client_config`] with another choice of algorithms, for tests.
pub(super) fn client_config_with(
    provider: CryptoProvider,
    identity_pkcs8: &[u8],
    identity_spki: &[u8],
    expected: [u8; 32],
) -> Result<Arc<ClientConfig>> {
    client_config_for(Some(expected), provider, identity_pkcs8, identity_spki)
}

/// [`client_config_with`], but accepts any server if no key is `expected`.
fn client_config_for(
    expected: Option<[u8; 32]>,
    provider: CryptoProvider,
    identity_pkcs8: &[u8],
    identity_spki: &[u8],
) -> Result<Arc<ClientConfig>> {
    let algorithms = provider.signature_verification_algorithms;
    let identity = AlwaysResolvesClientRawPublicKeys::new(key_pair(identity_pkcs8, identity_spki)?);
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&TLS13])
        .map_err(unusable)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(ExpectedServer { expected, algorithms }))
        .with_client_cert_resolver(Arc::new(identity));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.enable_sni = false;
    config.resumption = Resumption::disabled();
    config.enable_early_data = false;
    config.enable_secret_extraction = false;
    config.cert_compressors.clear();
    config.cert_decompressors.clear();
    Ok(Arc::new(config))
}

/// The configuration of the TLS server: it presents the identity with this private
/// key (PKCS #8) and public key (`SubjectPublicKeyInfo`), and accepts any Ed25519 key of a client.
/// [`peer_key`] returns that key; the proof of the secret decides whether the client may connect.
///
/// # Errors
/// If the identity is no Ed25519 key pair.
pub fn server_config(identity_pkcs8: &[u8], identity_spki: &[u8]) -> Result<Arc<ServerConfig>> {
    let provider = provider();
    let algorithms = provider.signature_verification_algorithms;
    let identity = AlwaysResolvesServerRawPublicKeys::new(key_pair(identity_pkcs8, identity_spki)?);
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&TLS13])
        .map_err(unusable)?
        .with_client_cert_verifier(Arc::new(AnyClient { algorithms }))
        .with_cert_resolver(Arc::new(identity));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_tls13_tickets = 0;
    config.max_early_data_size = 0;
    config.send_half_rtt_data = false;
    config.enable_secret_extraction = false;
    config.cert_compressors.clear();
    config.cert_decompressors.clear();
    Ok(Arc::new(config))
}

/// [`client_config`] for a bridge with the `expected` key: only the ALPN differs.
///
/// # Errors
/// If the identity is no Ed25519 key pair.
pub fn bridge_client_config(
    identity_pkcs8: &[u8],
    identity_spki: &[u8],
    expected: [u8; 32],
) -> Result<Arc<ClientConfig>> {
    let config = client_config(identity_pkcs8, identity_spki, expected)?;
    let mut config = Arc::unwrap_or_clone(config);
    config.alpn_protocols = vec![BRIDGE_ALPN.to_vec()];
    Ok(Arc::new(config))
}

/// [`server_config`] of a bridge: only the ALPN differs.
///
/// # Errors
/// If the identity is no Ed25519 key pair.
pub fn bridge_server_config(
    identity_pkcs8: &[u8],
    identity_spki: &[u8],
) -> Result<Arc<ServerConfig>> {
    let mut config = Arc::unwrap_or_clone(server_config(identity_pkcs8, identity_spki)?);
    config.alpn_protocols = vec![BRIDGE_ALPN.to_vec()];
    Ok(Arc::new(config))
}

/// [`client_config`] for a sharer of which only a spoken code is known: any key is accepted. The other side is
/// unauthenticated until it has proven that it knows the code, bound to the connection's exporter value.
///
/// # Errors
/// If the identity is no Ed25519 key pair.
pub fn code_client_config(
    identity_pkcs8: &[u8],
    identity_spki: &[u8],
) -> Result<Arc<ClientConfig>> {
    let config = client_config_for(None, provider(), identity_pkcs8, identity_spki)?;
    let mut config = Arc::unwrap_or_clone(config);
    config.alpn_protocols = vec![CODE_ALPN.to_vec()];
    Ok(Arc::new(config))
}

/// [`server_config`] of a sharer with a spoken code: only the ALPN differs.
///
/// # Errors
/// If the identity is no Ed25519 key pair.
pub fn code_server_config(
    identity_pkcs8: &[u8],
    identity_spki: &[u8],
) -> Result<Arc<ServerConfig>> {
    let mut config = Arc::unwrap_or_clone(server_config(identity_pkcs8, identity_spki)?);
    config.alpn_protocols = vec![CODE_ALPN.to_vec()];
    Ok(Arc::new(config))
}

/// The Ed25519 key that the other side has proven to own; none before the handshake has finished.
pub fn peer_key(connection: &CommonState) -> Option<[u8; 32]> {
    match connection.peer_certificates()? {
        [key] => ed25519_key(key),
        _ => None,
    }
}

/// A server name for rustls, which requires one. It is not used: servers are identified by their
/// key, and an address is never sent as SNI.
pub fn server_name() -> ServerName<'static> {
    ServerName::from(Ipv4Addr::UNSPECIFIED)
}

fn provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_AES_256_GCM_SHA384,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        kx_groups: vec![kx_group::X25519MLKEM768],
        ..default_provider()
    }
}

fn key_pair(pkcs8: &[u8], spki: &[u8]) -> Result<Arc<CertifiedKey>> {
    let invalid = || Error::new(ErrorKind::InvalidInput, "use the identity");
    let private = sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8))
        .map_err(|_| invalid().because("not an Ed25519 private key"))?;
    if private.public_key().is_none_or(|public| public.as_ref() != spki) {
        return Err(invalid().because("the public key is not that of the private key"));
    }
    Ok(Arc::new(CertifiedKey::new(vec![CertificateDer::from(spki.to_vec())], private)))
}

/// The key in an Ed25519 `SubjectPublicKeyInfo`. DER has only one encoding of it.
fn ed25519_key(spki: &[u8]) -> Option<[u8; 32]> {
    spki.strip_prefix(&SPKI_PREFIX)?.try_into().ok()
}

fn verify_signature(
    message: &[u8],
    key: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, rustls::Error> {
    if signed.scheme != SignatureScheme::ED25519 {
        return Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into());
    }
    let key = SubjectPublicKeyInfoDer::from(key.as_ref());
    verify_tls13_signature_with_raw_key(message, &key, signed, algorithms)
}

fn unusable(error: rustls::Error) -> Error {
    Error::new(ErrorKind::Other, "set up TLS").with_source(error)
}

/// The methods of a verifier of raw public keys that do not depend on its side: signatures are of Ed25519 keys, and
/// TLS 1.2 is refused with this error.
macro_rules! ed25519_signatures {
    ($refusal:ident) => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _key: &CertificateDer<'_>,
            _signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Err(PeerIncompatible::$refusal.into())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            key: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            verify_signature(message, key, signed, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

/// Accepts the server with the expected key, or any that owns its key if none is expected.
#[derive(Debug)]
struct ExpectedServer {
    expected: Option<[u8; 32]>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for ExpectedServer {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let (Some(key), []) = (ed25519_key(key), others) else {
            return Err(CertificateError::BadEncoding.into());
        };
        if let Some(expected) = &self.expected {
            verify_slices_are_equal(&key, expected)
                .map_err(|_| CertificateError::ApplicationVerificationFailure)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    ed25519_signatures!(ServerTlsVersionIsDisabledByOurConfig);
}

/// Accepts any client that owns its Ed25519 key.
#[derive(Debug)]
struct AnyClient {
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        true
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        key: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        match (ed25519_key(key), others) {
            (Some(_), []) => Ok(ClientCertVerified::assertion()),
            _ => Err(CertificateError::BadEncoding.into()),
        }
    }

    ed25519_signatures!(Tls12NotOfferedOrEnabled);
}
