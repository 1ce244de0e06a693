//! A certificate for the server's address, signed by itself.

use std::io;
use std::path::PathBuf;
use std::process::Command;

use super::{Place, program};
use crate::command::must_run;

/// Certificate and key.
pub(super) struct Certificate {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

/// Makes one for a day.
pub(super) fn certificate(place: Place<'_>) -> io::Result<Certificate> {
    let openssl = program("openssl", "openssl")?;
    let files = Certificate {
        certificate: place.private.join("cert.pem"),
        key: place.private.join("key.pem"),
    };
    if !files.certificate.exists() {
        let name = format!("subjectAltName=IP:{}", place.address);
        must_run(
            Command::new(openssl)
                .args(["req", "-x509", "-nodes", "-days", "1", "-subj", "/CN=haul-bench"])
                .args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-addext", &name])
                .arg("-keyout")
                .arg(&files.key)
                .arg("-out")
                .arg(&files.certificate),
        )?;
    }
    Ok(files)
}
