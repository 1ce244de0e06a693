//! A certificate for the server's address, signed by a new certificate authority. A self-signed certificate would not
//! do: openssl marks it as an authority, and not every client accepts an authority as a server.

use std::io;
use std::path::PathBuf;
use std::process::Command;

use super::recipe::{Site, program};
use crate::command::must_run;

/// Certificate and key of a server, and the authority that clients must trust.
pub(super) struct Certificate {
    pub(super) authority: PathBuf,
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

/// Creates a certificate that is valid for one day, unless the directory has one already.
pub(super) fn certificate(site: Site<'_>) -> io::Result<Certificate> {
    let openssl = program("openssl", "openssl")?;
    let at = |name: &str| site.private.join(name);
    let (authority, authority_key) = (at("ca.pem"), at("ca-key.pem"));
    let (certificate, key) = (at("cert.pem"), at("key.pem"));
    if !certificate.exists() {
        let new = |subject: &str| {
            let mut command = Command::new(&openssl);
            command.args(["req", "-x509", "-nodes", "-days", "1", "-subj", subject]).args([
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
            ]);
            command
        };
        must_run(
            new("/CN=haul-bench authority")
                .args(["-addext", "keyUsage=critical,keyCertSign,cRLSign", "-keyout"])
                .arg(&authority_key)
                .arg("-out")
                .arg(&authority),
        )?;
        let name = format!("subjectAltName=IP:{}", site.address);
        must_run(
            new("/CN=haul-bench")
                .args(["-addext", &name, "-addext", "basicConstraints=critical,CA:FALSE", "-CA"])
                .arg(&authority)
                .arg("-CAkey")
                .arg(&authority_key)
                .arg("-keyout")
                .arg(&key)
                .arg("-out")
                .arg(&certificate),
        )?;
    }
    Ok(Certificate { authority, certificate, key })
}
