//! Which servers the program trusts over TLS, and that nothing is sent to others.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::response::{File, Response};
use super::server::Server;
use super::whole;
use crate::content::content;
use crate::session::{Ran, Session};

const SIZE: usize = 2 << 20;

/// An authority that signs certificates of servers.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// The certificate of a server, as its configuration and as a file.
struct ServerCertificate {
    config: Arc<ServerConfig>,
    pem: String,
}

impl Authority {
    fn named(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate for a host, which may have expired.
    fn certificate(&self, host: &str, expired: bool) -> ServerCertificate {
        let mut params = CertificateParams::new([host.to_owned()]).unwrap();
        if expired {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        with_key(certificate.der().clone(), certificate.pem(), &key)
    }
}

fn self_signed(host: &str) -> ServerCertificate {
    let params = CertificateParams::new([host.to_owned()]).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    with_key(certificate.der().clone(), certificate.pem(), &key)
}

fn with_key(certificate: CertificateDer<'static>, pem: String, key: &KeyPair) -> ServerCertificate {
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    ServerCertificate { config: Arc::new(config), pem }
}

fn serving(certificate: &ServerCertificate) -> Server {
    let file = File::new(content(1, SIZE));
    Server::with_tls(Arc::clone(&certificate.config), move |request| file.respond(request))
}

/// Copies with these authorities, and with a password, which must not be sent to a server that is not trusted.
fn copy(session: &Session, options: &str, server: &Server, authorities: &str) -> Ran {
    session.write("ca.pem", authorities);
    let url = server.url("/f").replacen("://", "://me@", 1);
    let line = format!("cp --lanes 3 --chunk 128K --retries 1 {options} {url} dst/");
    session.haul_where(&line, &[("HAUL_PASSWORD", "open-sesame")])
}

#[test]
fn a_server_with_a_certificate_of_a_named_authority_is_trusted() {
    let authority = Authority::named("one");
    let server = serving(&authority.certificate("127.0.0.1", false));
    let session = Session::new();
    copy(&session, "--cacert ca.pem", &server, &authority.pem).status(0);
    whole(&session, &content(1, SIZE));
}

#[test]
fn a_self_signed_certificate_that_is_named_is_trusted_and_no_other() {
    let certificate = self_signed("127.0.0.1");
    let server = serving(&certificate);
    let session = Session::new();
    copy(&session, "--cacert ca.pem", &server, &certificate.pem).status(0);
    whole(&session, &content(1, SIZE));
    let session = Session::new();
    copy(&session, "--cacert ca.pem", &server, &self_signed("127.0.0.1").pem).status(1);
    assert!(!session.has("dst/f"));
}

#[test]
fn nothing_is_sent_to_a_server_without_a_valid_certificate() {
    let (authority, other) = (Authority::named("one"), Authority::named("another"));
    for (what, certificate, text) in [
        // It has the name of the authority, but another key.
        (
            "a false authority",
            Authority::named("one").certificate("127.0.0.1", false),
            "is invalid",
        ),
        ("another authority", other.certificate("127.0.0.1", false), "not from an authority"),
        ("expired", authority.certificate("127.0.0.1", true), "has expired"),
        ("another host", authority.certificate("example.org", false), "not for 127.0.0.1"),
        ("self-signed", self_signed("127.0.0.1"), "not from an authority"),
    ] {
        let server = serving(&certificate);
        let session = Session::new();
        let ran = copy(&session, "--cacert ca.pem", &server, &authority.pem).status(1);
        // The name alone may lead to either error.
        let is_false = what == "a false authority" && ran.err().contains("not from an authority");
        assert!(is_false || ran.err().contains(text), "{what}: {}", ran.err());
        assert!(ran.err().contains("nothing was sent"), "{what}: {}", ran.err());
        assert!(!session.has("dst/f"));
        assert!(server.requests().is_empty(), "{what}: {:?}", server.requests());
        assert!(server.accepted() <= 2, "{what}: it was tried {} times", server.accepted());
        // It is not trusted with the system's authorities either.
        let ran = copy(&session, "", &server, "").status(1);
        assert!(ran.err().contains("certificate") || ran.err().contains("authorities"));
        assert!(server.requests().is_empty(), "{what}: {:?}", server.requests());
    }
}

#[test]
fn insecure_accepts_any_certificate_with_a_warning() {
    let certificate = Authority::named("one").certificate("example.org", true);
    let server = serving(&certificate);
    let session = Session::new();
    let ran = copy(&session, "--insecure", &server, "").status(0);
    whole(&session, &content(1, SIZE));
    assert!(ran.err().contains("--insecure: the server is not verified"), "{}", ran.err());
    assert_eq!(ran.err().matches("--insecure").count(), 1, "{}", ran.err());
}

#[test]
fn a_redirect_from_https_to_http_is_refused() {
    let file = File::new(content(1, SIZE));
    let plain = Server::start(move |request| file.respond(request));
    let to = plain.url("/f");
    let certificate = self_signed("127.0.0.1");
    let server =
        Server::with_tls(Arc::clone(&certificate.config), move |_| Response::redirect(302, &to));
    let session = Session::new();
    let ran = copy(&session, "--cacert ca.pem", &server, &certificate.pem).status(1);
    assert!(ran.err().contains("redirects from HTTPS to plain HTTP"), "{}", ran.err());
    assert!(!session.has("dst/f"));
    assert_eq!(plain.accepted(), 0);
}

#[test]
fn a_redirect_from_http_to_https_is_followed_and_verified() {
    let certificate = self_signed("127.0.0.1");
    let file = File::new(content(1, SIZE));
    let secure =
        Server::with_tls(Arc::clone(&certificate.config), move |request| file.respond(request));
    let to = secure.url("/f");
    let server = Server::start(move |_| Response::redirect(301, &to));
    let session = Session::new();
    copy(&session, "--cacert ca.pem", &server, &certificate.pem).status(0);
    whole(&session, &content(1, SIZE));
    let session = Session::new();
    let before = secure.requests().len();
    copy(&session, "--cacert ca.pem", &server, &Authority::named("one").pem).status(1);
    assert!(!session.has("dst/f"));
    assert_eq!(secure.requests().len(), before);
}

#[test]
fn a_port_without_tls_is_an_error() {
    let server = Server::start(|_| Response::new(200, "plain"));
    let session = Session::new();
    let url = server.url("/f").replacen("http://", "https://", 1);
    let ran = session.haul(&format!("cp --retries 1 --insecure {url} dst/")).status(1);
    assert!(ran.err().contains("TLS"), "{}", ran.err());
    assert!(!session.has("dst/f"));
}

#[test]
fn an_authority_that_is_no_file_or_no_certificate_is_reported() {
    let server = serving(&self_signed("127.0.0.1"));
    let session = Session::new();
    let ran = copy(&session, "--cacert ca.pem", &server, "no certificate\n").status(1);
    assert!(ran.err().contains("ca.pem"), "{}", ran.err());
    let ran = copy(&session, "--cacert missing.pem", &server, "").status(1);
    assert!(ran.err().contains("missing.pem"), "{}", ran.err());
    assert!(server.requests().is_empty());
}
