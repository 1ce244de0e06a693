//! TLS, with curl on the other side.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use bytes::Bytes;
use haul_http::server::ServerTls;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::site::{Site, has_tool, run};

/// A site with a certificate, and the certificate as a file beside it.
fn secure() -> Site {
    let tls = ServerTls::self_signed(&[]).unwrap();
    let certificate = tls.certificate().to_owned();
    let site = Site::with(|builder| builder.tls(tls));
    fs::write(site.outside("ca.pem"), certificate).unwrap();
    site.write("file", "content");
    site
}

fn curl(site: &Site, args: &[&str]) -> (bool, String) {
    run(&site.outside(""), "curl", &[&["-sS", "--max-time", "30"], args].concat())
}

#[test]
fn who_trusts_the_certificate_gets_files_by_both_versions_of_http() {
    if !has_tool("curl") {
        return;
    }
    let site = secure();
    for version in ["--http1.1", "--http2"] {
        let format = " %{http_version} %{response_code}";
        let args = [version, "--cacert", "ca.pem", "-w", format, &site.url("file")];
        let (_, said) = curl(&site, &args);
        // curl offers both, and the server takes the one that is faster.
        assert_eq!(said, "content 1.1 200", "{version}");
    }
    let (_, said) = curl(&site, &["--cacert", "ca.pem", "-T", "ca.pem", &site.url("up")]);
    assert_eq!(said, "");
    assert_eq!(site.read("up"), fs::read_to_string(site.outside("ca.pem")).unwrap());
}

#[test]
fn who_speaks_only_http2_is_understood() {
    let site = secure();
    let content: Vec<u8> = (0..5_000_000u32).map(|at| (at % 251) as u8).collect();
    site.write("large", &content);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut sender = http2(&site).await;
        let ask = |method: &str, path: &str, body: Bytes| {
            let request = Request::builder().method(method).uri(site.url(path));
            sender.clone().send_request(request.body(Full::new(body)).unwrap())
        };
        let (got, put, listed) = tokio::join!(
            ask("GET", "large", Bytes::new()),
            ask("PUT", "up", content.clone().into()),
            ask("GET", "", Bytes::new()),
        );
        assert!(got.unwrap().into_body().collect().await.unwrap().to_bytes() == content);
        assert_eq!(put.unwrap().status(), 201);
        assert_eq!(listed.unwrap().status(), 200);
        let foreign = Request::get("https://evil.example/large").body(Full::new(Bytes::new()));
        assert_eq!(sender.send_request(foreign.unwrap()).await.unwrap().status(), 421);
    });
    assert!(fs::read(site.path("up")).unwrap() == content);
}

/// A connection by HTTP/2 alone, to whoever has the certificate.
async fn http2(site: &Site) -> SendRequest<Full<Bytes>> {
    let mut roots = RootCertStore::empty();
    let pem = fs::read(site.outside("ca.pem")).unwrap();
    roots.add(CertificateDer::from_pem_slice(&pem).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = config.unwrap().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let socket = tokio::net::TcpStream::connect(site.server().address()).await.unwrap();
    let name = "127.0.0.1".try_into().unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, socket).await.unwrap();
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

#[test]
fn who_does_not_trust_it_or_speaks_no_tls_gets_nothing() {
    if !has_tool("curl") {
        return;
    }
    let site = secure();
    let (worked, said) = curl(&site, &[&site.url("file")]);
    assert!(!worked && said.contains("certificate"), "{said}");
    let plain = site.url("file").replace("https", "http");
    let (worked, said) = curl(&site, &[&plain]);
    assert!(!worked && !said.contains("content"), "{said}");
    let (worked, said) = curl(&site, &["-k", "--tls-max", "1.1", &site.url("file")]);
    assert!(!worked, "{said}");
}

#[test]
fn the_fingerprint_is_that_which_openssl_prints() {
    if !has_tool("openssl") {
        return;
    }
    let site = secure();
    let args = ["x509", "-in", "ca.pem", "-noout", "-fingerprint", "-sha256"];
    let (_, said) = run(&site.outside(""), "openssl", &args);
    assert!(said.trim().ends_with(site.server().fingerprint().unwrap()), "{said}");
}

#[test]
fn a_certificate_of_ones_own_is_used_and_its_key_has_to_be_private() {
    if !has_tool("openssl") || !has_tool("curl") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (made, said) = run(
        directory.path(),
        "openssl",
        &[
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            "key.pem",
            "-out",
            "cert.pem",
            "-days",
            "2",
            "-subj",
            "/CN=x",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
        ],
    );
    assert!(made, "{said}");
    let (certificate, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
    let error = ServerTls::read(&certificate, &key).unwrap_err().to_string();
    assert!(error.contains("lets others read it; make it 0600"), "{error}");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let tls = ServerTls::read(&certificate, &key).unwrap();
    let site = Site::with(|builder| builder.tls(tls));
    site.write("file", "content");
    let (_, said) = curl(&site, &["--cacert", certificate.to_str().unwrap(), &site.url("file")]);
    assert_eq!(said, "content");
}
