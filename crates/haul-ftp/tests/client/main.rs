//! The client against real servers (vsftpd, ProFTPD, pyftpdlib) and a scripted one.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![expect(clippy::print_stderr, reason = "a skipped test prints that")]

mod conforming;
mod digests;
mod fallbacks;
mod faults;
mod limits;
mod link;
#[path = "../../../haul-net/tests/support/port.rs"]
mod port;
#[path = "../support/proftpd.rs"]
mod proftpd;
#[path = "../support/pyftpdlib.rs"]
mod pyftpdlib;
mod replacing;
#[path = "../support/scripted.rs"]
mod scripted;
mod security;
#[path = "../support/vsftpd.rs"]
mod vsftpd;
mod waits;

use std::path::PathBuf;
use std::sync::Arc;

use haul_ftp::{FtpHost, FtpOptions, FtpStorage, TlsMode};
use haul_net::NoPrompter;
use haul_net::tls::TlsOptions;
use haul_storage::Location;
use tempfile::TempDir;
use tokio::runtime::Handle;

/// The client's view of a server on this machine.
fn host(port: u16, options: FtpOptions) -> Arc<FtpHost> {
    FtpHost::new("127.0.0.1", Some(port), options, Arc::new(NoPrompter), Handle::current())
}

/// The directory `/up` of `host` as a storage, with its journals in a temporary directory.
async fn opened(host: &Arc<FtpHost>) -> (TempDir, Arc<FtpStorage>) {
    let journals = tempfile::tempdir().unwrap();
    let resolved = host.resolve(b"/up").await.unwrap();
    let location = Location::parse("ftp://server/up").unwrap();
    let journal_dir = Some(journals.path().to_owned());
    let storage = FtpStorage::open(Arc::clone(host), location, resolved.path, journal_dir).await;
    (journals, storage.unwrap())
}

/// Options with this TLS mode that trust one certificate.
fn secured(tls: TlsMode, certificate: PathBuf) -> FtpOptions {
    let trust = TlsOptions { authorities: vec![certificate], ..TlsOptions::default() };
    FtpOptions { tls, trust, ..FtpOptions::default() }
}
