//! TLS, with the requirements of vsftpd.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use haul_ftp::{FtpOptions, TlsMode};
use haul_net::tls::TlsOptions;
use haul_storage::{CommitOptions, ErrorKind, Metadata, RelPath, Storage};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use crate::vsftpd::{Tls, Vsftpd};
use crate::{host, opened, secured};

fn path(name: &str) -> RelPath {
    RelPath::parse(name).unwrap()
}

/// Each TLS 1.3 ticket is valid for one connection. A client that does not read new ones runs out of them after two
/// connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_resumes_its_tls_session_any_number_of_times() {
    let Some(server) = Vsftpd::start(Tls::Explicit, &[]) else { return };
    let host = host(server.port(), secured(TlsMode::Always, server.certificate()));
    let (_journals, storage) = opened(&host).await;
    let options =
        CommitOptions { metadata: Metadata::default(), replace: true, sync: false, expected: None };
    for n in 0..30_u8 {
        // No TLS record, and several.
        let content = vec![n; usize::from(n % 3) * 50_000];
        let name = path(&format!("f{n}"));
        storage.write_whole(&name, Bytes::from(content.clone()), &options).await.unwrap();
        assert_eq!(storage.read_whole(&name, 1 << 20).await.unwrap().bytes, content);
    }
    let lost = host.link().refused;
    assert_eq!(lost, 0, "lanes were lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_uploads_do_not_use_up_tls_tickets() {
    let Some(server) = Vsftpd::start(Tls::Explicit, &[]) else { return };
    let host = host(server.port(), secured(TlsMode::Always, server.certificate()));
    let (_journals, storage) = opened(&host).await;
    let options =
        CommitOptions { metadata: Metadata::default(), replace: true, sync: false, expected: None };
    for _ in 0..10 {
        let refused = storage.write_whole(&path("no/f"), Bytes::new(), &options).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::NotFound);
        let name = path("f");
        storage.write_whole(&name, Bytes::from_static(b"content"), &options).await.unwrap();
    }
}

#[tokio::test]
async fn an_untrusted_certificate_is_refused() {
    let Some(server) = Vsftpd::start(Tls::Explicit, &[]) else { return };
    let other = tempfile::tempdir().unwrap();
    let (certificate, _key) = crate::vsftpd::certificate(other.path());
    for tls in [TlsMode::Always, TlsMode::Auto] {
        let options = secured(tls, certificate.clone());
        let error = host(server.port(), options).resolve(b"/up").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
        assert!(error.to_string().contains("certificate"), "{error}");
    }
    let trust = TlsOptions { insecure: true, ..TlsOptions::default() };
    let options = FtpOptions { tls: TlsMode::Always, trust, ..FtpOptions::default() };
    assert!(host(server.port(), options).resolve(b"/up").await.unwrap().kind.is_some());
}

#[tokio::test]
async fn tls_is_used_if_the_server_offers_it() {
    let Some(server) = Vsftpd::start(Tls::Explicit, &[]) else { return };
    // The server refuses logins without TLS.
    let never = FtpOptions { tls: TlsMode::Never, ..FtpOptions::default() };
    assert!(host(server.port(), never).resolve(b"/up").await.is_err());
    let auto = secured(TlsMode::Auto, server.certificate());
    assert!(host(server.port(), auto).resolve(b"/up").await.unwrap().kind.is_some());
}

/// Starts an attacker on the path, who forwards the first connection and refuses TLS on all others. Returns the
/// attacker's port and the lines received on the other connections.
async fn without_tls_later(server: u16) -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let lines_sent = Arc::new(Mutex::new(Vec::new()));
    let received = Arc::clone(&lines_sent);
    tokio::spawn(async move {
        for n in 0.. {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
            let received = Arc::clone(&received);
            tokio::spawn(async move {
                if n == 0 {
                    // Either side may close its connection.
                    drop(copy_bidirectional(&mut client, &mut server).await);
                    return;
                }
                client.write_all(b"220 (vsFTPd 3.0.3)\r\n").await.unwrap();
                let mut lines = BufReader::new(client);
                let mut line = String::new();
                while lines.read_line(&mut line).await.is_ok_and(|length| length > 0) {
                    received.lock().unwrap().push(std::mem::take(&mut line));
                    if lines.get_mut().write_all(b"431 Not now.\r\n").await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (port, lines_sent)
}

/// Once the first lane uses TLS, an attacker must not get the password from a later one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_one_connection_with_tls_only_auth_is_sent_without_it() {
    let Some(server) = Vsftpd::start(Tls::Explicit, &[]) else { return };
    let (port, sent) = without_tls_later(server.port()).await;
    let host = host(port, secured(TlsMode::Auto, server.certificate()));
    let (_journals, storage) = opened(&host).await;
    storage.set_lanes(4);
    let options =
        CommitOptions { metadata: Metadata::default(), replace: true, sync: false, expected: None };
    let write = |n: u8| {
        let (storage, options) = (&storage, &options);
        let name = path(&format!("f{n}"));
        async move { storage.write_whole(&name, Bytes::from(vec![n; 10_000]), options).await }
    };
    futures_util::future::try_join_all((0..20).map(write)).await.unwrap();
    while host.link().refused == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let sent = sent.lock().unwrap().clone();
    assert!(!sent.is_empty() && sent.iter().all(|line| line == "AUTH TLS\r\n"), "{sent:?}");
}
