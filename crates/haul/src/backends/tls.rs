//! The TLS options of the command line.

use haul_net::tls::{Identity, TlsOptions};

use crate::args::TlsArgs;

pub(super) const INSECURE: &str =
    "--insecure: the server is not verified, and anyone on the path can read and change everything";

pub(super) fn tls_options(tls: &TlsArgs) -> TlsOptions {
    let identity = tls.certificate.clone().map(|certificate| Identity {
        key: tls.key.clone().unwrap_or_else(|| certificate.clone()),
        certificate,
    });
    TlsOptions { authorities: tls.authorities.clone(), insecure: tls.insecure, identity }
}
