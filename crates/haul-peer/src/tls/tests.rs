//! Tests of handshakes over memory: what they negotiate, which peers they refuse, and proofs bound to them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use haul_storage::{ErrorKind, Retry};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, ResolvesClientCert};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{default_provider, kx_group, sign};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, CertificateType};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS12;
use rustls::{
    AlertDescription, CertificateError, CipherSuite, ClientConfig, NamedGroup, PeerIncompatible,
    ProtocolVersion, RootCertStore, ServerConfig, SignatureScheme,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor, TlsConnector, client, server};

use super::config::{SPKI_PREFIX, client_config_with};
use super::*;

const LIMIT: Duration = Duration::from_secs(30);

struct Identity {
    pkcs8: Vec<u8>,
    spki: Vec<u8>,
    key: [u8; 32],
}

impl Identity {
    fn generate() -> Self {
        let pair = Ed25519KeyPair::generate().unwrap();
        let key: [u8; 32] = pair.public_key().as_ref().try_into().unwrap();
        let pkcs8 = pair.to_pkcs8().unwrap().as_ref().to_vec();
        Self { pkcs8, spki: [&SPKI_PREFIX[..], &key[..]].concat(), key }
    }

    fn server(&self) -> Arc<ServerConfig> {
        server_config(&self.pkcs8, &self.spki).unwrap()
    }

    fn client(&self, expected: &Self) -> Arc<ClientConfig> {
        client_config(&self.pkcs8, &self.spki, expected.key).unwrap()
    }

    /// This private key, presented with `public` in place of its public key.
    fn posing_as(&self, public: &[u8]) -> CertifiedKey {
        let pkcs8 = PrivatePkcs8KeyDer::from(&self.pkcs8[..]);
        let private = sign::any_eddsa_type(&pkcs8).unwrap();
        CertifiedKey::new(vec![CertificateDer::from(public.to_vec())], private)
    }
}

type Sides =
    (io::Result<client::TlsStream<DuplexStream>>, io::Result<server::TlsStream<DuplexStream>>);

async fn handshake(client: Arc<ClientConfig>, server: Arc<ServerConfig>) -> Sides {
    let (near, far) = duplex(64 << 10);
    tokio::join!(connect(near, client, LIMIT), accept(far, server, LIMIT))
}

fn tls_error<T>(result: io::Result<T>) -> rustls::Error {
    let error = result.err().expect("a failed handshake");
    let source = error.get_ref().and_then(|source| source.downcast_ref::<rustls::Error>());
    source.unwrap_or_else(|| panic!("no TLS error: {error}")).clone()
}

#[tokio::test]
async fn a_handshake_shows_each_side_the_key_of_the_other() {
    let (ours, theirs) = (Identity::generate(), Identity::generate());
    let (client, server) = handshake(ours.client(&theirs), theirs.server()).await;
    let (mut client, mut server) = (client.unwrap(), server.unwrap());
    assert_eq!(peer_key(client.get_ref().1), Some(theirs.key));
    assert_eq!(peer_key(server.get_ref().1), Some(ours.key));
    let connections: [&CommonState; 2] = [client.get_ref().1, server.get_ref().1];
    for connection in connections {
        assert_eq!(connection.protocol_version(), Some(ProtocolVersion::TLSv1_3));
        let suite = connection.negotiated_cipher_suite().unwrap().suite();
        assert_eq!(suite, CipherSuite::TLS13_AES_128_GCM_SHA256);
        let group = connection.negotiated_key_exchange_group().unwrap().name();
        assert_eq!(group, NamedGroup::X25519MLKEM768);
        assert_eq!(connection.alpn_protocol(), Some(ALPN));
    }
    client.write_all(b"hello").await.unwrap();
    client.flush().await.unwrap();
    let mut read = [0; 5];
    server.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"hello");
    server.write_all(b"world").await.unwrap();
    server.flush().await.unwrap();
    client.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"world");
    assert_eq!(client.get_ref().1.tls13_tickets_received(), 0);
}

#[tokio::test]
async fn a_client_hello_names_neither_server_nor_client() {
    let (ours, theirs) = (Identity::generate(), Identity::generate());
    let (near, far) = duplex(64 << 10);
    let acceptor = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), far);
    let seen = async {
        let start = acceptor.await.unwrap();
        let hello = start.client_hello();
        assert_eq!(hello.server_name(), None);
        assert_eq!(hello.alpn().unwrap().collect::<Vec<_>>(), [ALPN]);
        assert_eq!(hello.named_groups().unwrap(), [NamedGroup::X25519MLKEM768]);
        assert_eq!(hello.signature_schemes(), [SignatureScheme::ED25519]);
        let raw = [CertificateType::RawPublicKey];
        assert_eq!(hello.server_cert_types().unwrap(), raw);
        assert_eq!(hello.client_cert_types().unwrap(), raw);
        start.into_stream(theirs.server()).await.unwrap();
    };
    let (client, ()) = tokio::join!(connect(near, ours.client(&theirs), LIMIT), seen);
    client.unwrap();
}

#[tokio::test]
async fn a_server_with_another_key_is_refused_before_any_application_data() {
    let (ours, theirs, other) = (Identity::generate(), Identity::generate(), Identity::generate());
    let (client, server) = handshake(ours.client(&theirs), other.server()).await;
    // The server never learns the client's key.
    let alert = rustls::Error::AlertReceived(AlertDescription::AccessDenied);
    assert_eq!(tls_error(server), alert);
    let error = explain(client.err().unwrap(), "192.0.2.7:4711");
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unauthenticated, Retry::Never));
    let expected = "192.0.2.7:4711: cannot verify the peer (another machine answers at this \
                    address: its key is not that of the ticket; nothing was sent)";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn a_server_that_does_not_own_the_key_that_it_presents_is_refused() {
    let (ours, theirs, thief) = (Identity::generate(), Identity::generate(), Identity::generate());
    let mut config = (*thief.server()).clone();
    let stolen = Arc::new(thief.posing_as(&theirs.spki));
    config.cert_resolver = Arc::new(AlwaysResolvesServerRawPublicKeys::new(stolen));
    let (client, server) = handshake(ours.client(&theirs), Arc::new(config)).await;
    assert!(server.is_err());
    let refused = rustls::Error::InvalidCertificate(CertificateError::BadSignature);
    assert_eq!(tls_error(client), refused);
}

#[tokio::test]
async fn a_client_that_does_not_own_the_key_that_it_presents_is_refused() {
    let (ours, theirs, thief) = (Identity::generate(), Identity::generate(), Identity::generate());
    let mut config = (*thief.client(&theirs)).clone();
    let stolen = Arc::new(thief.posing_as(&ours.spki));
    config.client_auth_cert_resolver = Arc::new(AlwaysResolvesClientRawPublicKeys::new(stolen));
    let (client, server) = handshake(Arc::new(config), theirs.server()).await;
    let refused = rustls::Error::InvalidCertificate(CertificateError::BadSignature);
    assert_eq!(tls_error(server), refused);
    // The client has finished its handshake; it learns of the refusal when it reads.
    let error = client.unwrap().read_u8().await.unwrap_err();
    assert_eq!(explain(error, "peer").kind(), ErrorKind::Unreachable);
}

#[tokio::test]
async fn a_client_without_a_key_is_refused() {
    #[derive(Debug)]
    struct NoKey;
    impl ResolvesClientCert for NoKey {
        fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
            None
        }
        fn only_raw_public_keys(&self) -> bool {
            true
        }
        fn has_certs(&self) -> bool {
            true
        }
    }
    let (ours, theirs) = (Identity::generate(), Identity::generate());
    let mut config = (*ours.client(&theirs)).clone();
    config.client_auth_cert_resolver = Arc::new(NoKey);
    let (_, server) = handshake(Arc::new(config), theirs.server()).await;
    assert_eq!(tls_error(server), rustls::Error::NoCertificatesPresented);
}

#[tokio::test]
async fn a_server_with_a_certificate_is_refused() {
    let (ours, theirs) = (Identity::generate(), Identity::generate());
    let mut config = (*theirs.server()).clone();
    config.cert_resolver = Arc::new(SingleCertAndKey::from(theirs.posing_as(&theirs.spki)));
    let (client, server) = handshake(ours.client(&theirs), Arc::new(config)).await;
    let mismatch = PeerIncompatible::IncorrectCertificateTypeExtension;
    assert_eq!(tls_error(server), rustls::Error::PeerIncompatible(mismatch));
    let error = explain(client.err().unwrap(), "peer");
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Protocol, Retry::Never));
}

#[tokio::test]
async fn a_certificate_in_place_of_a_raw_key_is_refused() {
    let (ours, theirs) = (Identity::generate(), Identity::generate());
    // A SEQUENCE that contains the expected key, as a certificate does.
    let certificate = [&[0x30_u8, 44][..], &theirs.spki[..]].concat();
    let mut config = (*theirs.server()).clone();
    let wrapped = Arc::new(theirs.posing_as(&certificate));
    config.cert_resolver = Arc::new(AlwaysResolvesServerRawPublicKeys::new(wrapped));
    let (client, server) = handshake(ours.client(&theirs), Arc::new(config)).await;
    assert!(server.is_err());
    let refused = rustls::Error::InvalidCertificate(CertificateError::BadEncoding);
    assert_eq!(tls_error(client), refused);
}

#[tokio::test]
async fn a_client_of_tls_1_2_is_refused() {
    let theirs = Identity::generate();
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS12])
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    let (client, server) = handshake(Arc::new(config), theirs.server()).await;
    assert!(matches!(tls_error(server), rustls::Error::PeerIncompatible(_)));
    let alert = rustls::Error::AlertReceived(AlertDescription::ProtocolVersion);
    assert_eq!(tls_error(client), alert);
}

#[tokio::test]
async fn a_client_without_the_hybrid_key_exchange_is_refused() {
    let (ours, theirs) = (Identity::generate(), Identity::generate());
    let provider = CryptoProvider { kx_groups: vec![kx_group::X25519], ..default_provider() };
    let config = client_config_with(provider, &ours.pkcs8, &ours.spki, theirs.key).unwrap();
    let (client, server) = handshake(config, theirs.server()).await;
    let mismatch = PeerIncompatible::NoKxGroupsInCommon;
    assert_eq!(tls_error(server), rustls::Error::PeerIncompatible(mismatch));
    assert!(client.is_err());
}

#[tokio::test]
async fn a_peer_with_another_protocol_is_refused() {
    let (ours, theirs) = (Identity::generate(), Identity::generate());
    let mut config = (*ours.client(&theirs)).clone();
    config.alpn_protocols = vec![b"haul/0".to_vec(), b"http/1.1".to_vec()];
    let (client, server) = handshake(Arc::new(config), theirs.server()).await;
    assert_eq!(tls_error(server), rustls::Error::NoApplicationProtocol);
    let error = explain(client.err().unwrap(), "peer");
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Protocol, Retry::Never));
    let expected = "peer: cannot negotiate TLS (the peer does not speak the protocol haul/1)";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn a_client_without_alpn_is_refused() {
    let (ours, theirs) = (Identity::generate(), Identity::generate());
    let mut config = (*ours.client(&theirs)).clone();
    config.alpn_protocols.clear();
    let (near, far) = duplex(64 << 10);
    let connector = TlsConnector::from(Arc::new(config));
    let connecting = connector.connect(server_name(), near);
    let (_client, server) = tokio::join!(connecting, accept(far, theirs.server(), LIMIT));
    assert_eq!(tls_error(server), rustls::Error::NoApplicationProtocol);
}

#[tokio::test]
async fn a_server_without_alpn_is_refused() {
    let (ours, theirs) = (Identity::generate(), Identity::generate());
    let mut config = (*theirs.server()).clone();
    config.alpn_protocols.clear();
    let (near, far) = duplex(64 << 10);
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let accepting = acceptor.accept(far);
    let (client, _server) = tokio::join!(connect(near, ours.client(&theirs), LIMIT), accepting);
    assert_eq!(tls_error(client), rustls::Error::NoApplicationProtocol);
}

#[tokio::test(start_paused = true)]
async fn a_handshake_with_a_silent_peer_times_out() {
    let (ours, theirs) = (Identity::generate(), Identity::generate());
    let (near, _silent) = duplex(64 << 10);
    let error = connect(near, ours.client(&theirs), LIMIT).await.err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    let error = explain(error, "peer");
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unreachable, Retry::Later));
    let (_silent, far) = duplex(64 << 10);
    let error = accept(far, theirs.server(), LIMIT).await.err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}

#[tokio::test]
async fn the_exporter_value_is_the_same_on_both_sides_of_one_connection_only() {
    let (ours, theirs) = (Identity::generate(), Identity::generate());
    let (client_config, server_config) = (ours.client(&theirs), theirs.server());
    let mut values = Vec::new();
    for _ in 0..2 {
        let (client, server) =
            handshake(Arc::clone(&client_config), Arc::clone(&server_config)).await;
        let (client, server) = (client.unwrap(), server.unwrap());
        let value = exporter(client.get_ref().1).unwrap();
        assert_eq!(exporter(server.get_ref().1).unwrap(), value);
        values.push(value);
    }
    assert_ne!(values[0], values[1]);
    assert_ne!(values[0], [0; 32]);
}

#[tokio::test]
async fn a_proof_is_verified_on_its_connection_and_refused_on_another() {
    let (ours, theirs) = (Identity::generate(), Identity::generate());
    let key = ProofKey::from_secret(&[7; 16]).unwrap();
    let mut bindings = Vec::new();
    for _ in 0..2 {
        let (client, server) = handshake(ours.client(&theirs), theirs.server()).await;
        let (client, server) = (client.unwrap(), server.unwrap());
        let near = Binding {
            exporter: exporter(client.get_ref().1).unwrap(),
            client_key: ours.key,
            server_key: peer_key(client.get_ref().1).unwrap(),
            session: [0; 16],
            nonce: [9; 32],
        };
        let far = Binding {
            exporter: exporter(server.get_ref().1).unwrap(),
            client_key: peer_key(server.get_ref().1).unwrap(),
            server_key: theirs.key,
            session: [0; 16],
            nonce: [9; 32],
        };
        let proof = prove(&key, Role::Client, &near);
        assert!(verify(&key, Role::Client, &far, &proof));
        bindings.push(far);
    }
    let replayed = prove(&key, Role::Client, &bindings[0]);
    assert!(!verify(&key, Role::Client, &bindings[1], &replayed));
}

#[test]
fn an_identity_whose_private_and_public_keys_differ_is_refused() {
    let (ours, theirs) = (Identity::generate(), Identity::generate());
    let error = server_config(&ours.pkcs8, &theirs.spki).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(client_config(&ours.pkcs8, &ours.key, theirs.key).is_err());
    assert!(client_config(b"no key", &ours.spki, theirs.key).is_err());
}

#[test]
fn altered_data_is_retried_and_a_port_without_tls_is_not() {
    let explained = |error: rustls::Error| {
        let error = io::Error::new(io::ErrorKind::InvalidData, error);
        let error = explain(error, "peer");
        (error.kind(), error.retry())
    };
    let lost = (ErrorKind::Unreachable, Retry::Later);
    assert_eq!(explained(rustls::Error::DecryptError), lost);
    let alert = rustls::Error::AlertReceived(AlertDescription::BadRecordMac);
    assert_eq!(explained(alert), lost);
    let no_tls = rustls::InvalidMessage::InvalidContentType;
    assert_eq!(explained(no_tls.into()), (ErrorKind::Protocol, Retry::Never));
    let eof = explain(io::ErrorKind::UnexpectedEof.into(), "peer");
    assert_eq!((eof.kind(), eof.retry()), lost);
}
