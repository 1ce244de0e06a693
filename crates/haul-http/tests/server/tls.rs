//! TLS, with curl on the other side.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use haul_http::server::ServerTls;

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
    let has = has_tool("curl") && run(Path::new("/"), "curl", &["-V"]).1.contains("HTTP2");
    if !has {
        eprintln!("SKIPPED: curl does not speak HTTP/2");
        return;
    }
    let site = secure();
    let content: Vec<u8> = (0..5_000_000u32).map(|at| (at % 251) as u8).collect();
    site.write("large", &content);
    // Without TLS's choice of protocol curl would speak HTTP/1.1: it is told to know better.
    let args = ["--http2-prior-knowledge", "--cacert", "ca.pem", "-w", "%{http_version}"];
    let (worked, said) = curl(&site, &[&args[..], &["-o", "got", &site.url("large")]].concat());
    if said.starts_with("1.1") {
        eprintln!("SKIPPED: this curl offers HTTP/1.1 whatever it is told");
        return;
    }
    assert!(worked && said == "2", "{said}");
    assert!(fs::read(site.outside("got")).unwrap() == content);
    let (worked, said) = curl(&site, &[&args[..], &["-T", "got", &site.url("up")]].concat());
    assert!(worked, "{said}");
    assert!(fs::read(site.path("up")).unwrap() == content);
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
    assert!(error.ends_with("lets others read it; make it 0600"), "{error}");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let tls = ServerTls::read(&certificate, &key).unwrap();
    let site = Site::with(|builder| builder.tls(tls));
    site.write("file", "content");
    let (_, said) = curl(&site, &["--cacert", certificate.to_str().unwrap(), &site.url("file")]);
    assert_eq!(said, "content");
}
