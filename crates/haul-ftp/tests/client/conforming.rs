//! The conformance suite on real servers.

use haul_ftp::{FtpOptions, TlsMode};
use haul_net::{PasswordSource, Secret};
use haul_storage::{Storage, conformance};
use std::sync::Arc;

use crate::pyftpdlib::{PASSWORD, Pyftpdlib, USER};
use crate::vsftpd::{Tls, Vsftpd};
use crate::{host, opened, secured};

/// The only case that may fail: both servers can set a file's time but not a directory's, and the suite
/// requires both of a storage that declares times.
const EXPECTED_FAILURE: &str = "metadata::times_of_directories_are_preserved";

async fn conforms(port: u16, options: FtpOptions) {
    let host = host(port, options);
    for lanes in [3, 1] {
        let (_journals, storage) = opened(&host).await;
        storage.set_lanes(lanes);
        let failures = conformance::failures(Arc::clone(&storage) as Arc<dyn Storage>).await;
        let unexpected: Vec<_> = failures
            .iter()
            .filter(|(case, _)| case.name() != EXPECTED_FAILURE)
            .map(|(case, failure)| format!("{}: {failure}", case.name()))
            .collect();
        assert!(unexpected.is_empty(), "{lanes} lanes: {unexpected:#?}");
        assert!(storage.capabilities().times, "times are not preserved");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uploads_of_two_machines_do_not_mix() {
    let Some(server) = Vsftpd::start(Tls::None, &[]) else { return };
    let hosts = [0, 1].map(|_| host(server.port(), FtpOptions::default()));
    let (_journals, one) = opened(&hosts[0]).await;
    let (_others, other) = opened(&hosts[1]).await;
    conformance::two_machines(one, other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_storage_conforms_on_vsftpd() {
    let Some(server) = Vsftpd::start(Tls::None, &[]) else { return };
    conforms(server.port(), FtpOptions::default()).await;
    assert_eq!(std::fs::read_dir(server.root()).unwrap().count(), 0, "something was left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_storage_conforms_on_vsftpd_with_resumed_tls_sessions() {
    let Some(server) = Vsftpd::start(Tls::Explicit, &[]) else { return };
    conforms(server.port(), secured(TlsMode::Always, server.certificate())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_storage_conforms_on_vsftpd_with_implicit_tls() {
    let Some(server) = Vsftpd::start(Tls::Implicit, &[]) else { return };
    conforms(server.port(), secured(TlsMode::Implicit, server.certificate())).await;
}

fn with_password(options: FtpOptions) -> FtpOptions {
    let password = Some(PasswordSource::Secret(Secret::new(PASSWORD)));
    FtpOptions { user: Some(USER.to_owned()), password, ..options }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_storage_conforms_on_pyftpdlib() {
    let Some(server) = Pyftpdlib::start(false) else { return };
    conforms(server.port(), with_password(FtpOptions::default())).await;
    assert_eq!(std::fs::read_dir(server.root()).unwrap().count(), 0, "something was left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_storage_conforms_on_pyftpdlib_with_tls() {
    let Some(server) = Pyftpdlib::start(true) else { return };
    let options = secured(TlsMode::Always, server.certificate());
    conforms(server.port(), with_password(options)).await;
}
