//! The conformance suite over SSH: haul's client against haul's server (that of `haul serve sftp`) and
//! against OpenSSH's sshd. It covers what a connection adds: the first requests in one flight, what is
//! remembered of a server, key re-exchange, compression, a jailed root, few handles and few sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use haul_sftp::SshDial;
use haul_sftp::server::{ClientAction, Credentials, Password, SftpServer, SftpServerBuilder};
use haul_sftp::ssh::{NoPrompter, SshHost, SshOptions};
use haul_storage::{Storage, conformance};

use crate::opened;
use crate::peer;
use crate::pipe::SFTP_SERVER;
use crate::sshd::{Builder, Sshd};

/// The number of lanes of the storage.
const LANES: usize = 3;

/// Runs the suite in the directory `path` of a server.
async fn conforms(host: SshHost, path: &str) {
    let journals = tempfile::tempdir().unwrap();
    let storage = opened(SshDial::new(Arc::new(host)), path.as_bytes(), &journals).await;
    storage.set_lanes(LANES);
    conformance::run_all(storage).await;
}

/// Runs the suite against haul's own server.
async fn conforms_on_haul(settings: impl FnOnce(SftpServerBuilder) -> SftpServerBuilder) {
    let [served, here] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let credentials = Credentials::new("me").with_password(Password::new(peer::PASSWORD));
    let builder = SftpServer::builder(served.path()).credentials(credentials);
    let server = settings(builder).bind().await.unwrap();
    let port = server.address().port();
    let known = here.path().join("known_hosts");
    std::fs::write(&known, format!("[127.0.0.1]:{port} {}\n", server.public_key())).unwrap();
    let memory = Some(here.path().join("memory"));
    let options = SshOptions { memory, ..peer::options(&known, &[]) };
    conforms(peer::host(Some("me"), port, &options), "/").await;
    assert_eq!(std::fs::read_dir(served.path()).unwrap().count(), 0, "files were left");
    server.stop().await;
}

/// Runs the suite through an sshd; `path` returns the client's path of the directory `served`.
async fn conforms_through_sshd(
    builder: Builder,
    more: &[&str],
    path: impl FnOnce(&Sshd) -> String,
) {
    let sshd = builder.start();
    std::fs::create_dir(sshd.path("served")).unwrap();
    let mut options = sshd.options();
    options.options.extend(more.iter().map(|&option| option.to_owned()));
    options.memory = Some(sshd.path("memory"));
    let host =
        SshHost::resolve(None, &sshd.host(), Some(sshd.port()), &options, Arc::new(NoPrompter))
            .unwrap();
    conforms(host, &path(&sshd)).await;
    assert!(sshd.connections() >= LANES, "each lane is a connection");
    assert_eq!(std::fs::read_dir(sshd.path("served")).unwrap().count(), 0, "files were left");
}

fn served(sshd: &Sshd) -> String {
    sshd.path("served").display().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_conforms_on_hauls_own_server() {
    let logins = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&logins);
    conforms_on_haul(|builder| {
        builder.observer(move |event| {
            if matches!(event.action, ClientAction::LoggedIn { .. }) {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        })
    })
    .await;
    assert!(logins.load(Ordering::Relaxed) >= LANES, "each lane is a connection");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_conforms_on_hauls_own_server_with_few_handles_per_session() {
    // The suite writes twenty files at once, which then need at least ten lanes.
    for handles in [1, 2] {
        conforms_on_haul(|builder| builder.max_handles(handles).max_sessions(64)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_conforms_on_hauls_own_server_with_one_session() {
    conforms_on_haul(|builder| builder.max_sessions(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_conforms_through_openssh_sshd() {
    if Sshd::is_installed() {
        conforms_through_sshd(Sshd::builder(), &[], served).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_conforms_through_openssh_sshd_with_rekeying_and_compression() {
    if Sshd::is_installed() {
        let subsystem = format!("Subsystem sftp {SFTP_SERVER}");
        let builder = Sshd::builder().line(&subsystem).line("RekeyLimit 1M");
        conforms_through_sshd(builder, &["RekeyLimit=1500K", "Compression=yes"], served).await;
    }
}
