//! TLS of the server, with curl and an HTTP/2 client.

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

/// A site with a self-signed certificate, which is also written to `ca.pem` outside of the served directory.
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
fn a_client_that_trusts_the_certificate_gets_files() {
    if !has_tool("curl") {
        return;
    }
    let site = secure();
    for version in ["--http1.1", "--http2"] {
        let format = " %{http_version} %{response_code}";
        let args = [version, "--cacert", "ca.pem", "-w", format, &site.url("file")];
        let (_, output) = curl(&site, &args);
        // With --http2 curl offers both versions in ALPN; the server chooses HTTP/1.1, which is faster.
        assert_eq!(output, "content 1.1 200", "{version}");
    }
    let (_, output) = curl(&site, &["--cacert", "ca.pem", "-T", "ca.pem", &site.url("up")]);
    assert_eq!(output, "");
    assert_eq!(site.read("up"), fs::read_to_string(site.outside("ca.pem")).unwrap());
}

#[test]
fn a_client_that_offers_only_http2_is_served() {
    let site = secure();
    let content: Vec<u8> = (0..5_000_000u32).map(|at| (at % 251) as u8).collect();
    site.write("large", &content);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut sender = http2(&site).await;
        let send = |method: &str, path: &str, body: Bytes| {
            let request = Request::builder().method(method).uri(site.url(path));
            sender.clone().send_request(request.body(Full::new(body)).unwrap())
        };
        let (got, put, listed) = tokio::join!(
            send("GET", "large", Bytes::new()),
            send("PUT", "up", content.clone().into()),
            send("GET", "", Bytes::new()),
        );
        assert!(got.unwrap().into_body().collect().await.unwrap().to_bytes() == content);
        assert_eq!(put.unwrap().status(), 201);
        assert_eq!(listed.unwrap().status(), 200);
        let foreign = Request::get("https://evil.example/large").body(Full::new(Bytes::new()));
        assert_eq!(sender.send_request(foreign.unwrap()).await.unwrap().status(), 421);
    });
    assert!(fs::read(site.path("up")).unwrap() == content);
}

/// Connects with HTTP/2 as the only ALPN protocol, trusting only the site's certificate.
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
fn clients_without_trust_or_tls_1_2_get_nothing() {
    if !has_tool("curl") {
        return;
    }
    let site = secure();
    let (worked, output) = curl(&site, &[&site.url("file")]);
    assert!(!worked && output.contains("certificate"), "{output}");
    let plain = site.url("file").replace("https", "http");
    let (worked, output) = curl(&site, &[&plain]);
    assert!(!worked && !output.contains("content"), "{output}");
    let (worked, output) = curl(&site, &["-k", "--tls-max", "1.1", &site.url("file")]);
    assert!(!worked, "{output}");
}

#[test]
fn the_fingerprint_agrees_with_openssl() {
    if !has_tool("openssl") {
        return;
    }
    let site = secure();
    let args = ["x509", "-in", "ca.pem", "-noout", "-fingerprint", "-sha256"];
    let (_, output) = run(&site.outside(""), "openssl", &args);
    assert!(output.trim().ends_with(site.server().fingerprint().unwrap()), "{output}");
}

#[test]
fn a_given_certificate_is_used_if_its_key_is_private() {
    if !has_tool("openssl") || !has_tool("curl") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (made, output) = run(
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
    assert!(made, "{output}");
    let (certificate, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
    let error = ServerTls::read(&certificate, &key).unwrap_err().to_string();
    assert!(error.contains("gives others access; make it 0600"), "{error}");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let tls = ServerTls::read(&certificate, &key).unwrap();
    let site = Site::with(|builder| builder.tls(tls));
    site.write("file", "content");
    let (_, output) = curl(&site, &["--cacert", certificate.to_str().unwrap(), &site.url("file")]);
    assert_eq!(output, "content");
}
