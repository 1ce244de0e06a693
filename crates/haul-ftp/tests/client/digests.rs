//! Digests that servers report.

use std::sync::Arc;

use haul_ftp::{FtpOptions, FtpStorage};
use haul_net::{PasswordSource, Secret};
use haul_storage::{Digest, DigestKind, ErrorKind, RelPath, Storage, conformance};
use tempfile::TempDir;

use crate::proftpd::{PASSWORD, Proftpd, USER};
use crate::scripted::{Script, Scripted};
use crate::{host, opened};

const SHA256: DigestKind = DigestKind::Sha256;

fn path(name: &str) -> RelPath {
    RelPath::parse(name).unwrap()
}

async fn passes(more: &str, known: &[&str]) {
    let Some(server) = Proftpd::start(more) else { return };
    let password = Some(PasswordSource::Secret(Secret::new(PASSWORD)));
    let options = FtpOptions { user: Some(USER.to_owned()), password, ..FtpOptions::default() };
    let (_journals, storage) = opened(&host(server.port(), options)).await;
    assert_eq!(storage.capabilities().digests, [SHA256]);
    for case in conformance::cases() {
        if case.name().starts_with("digests::") && !known.contains(&case.name()) {
            let outcome = case.run(Arc::clone(&storage) as Arc<dyn Storage>).await;
            assert!(outcome.is_ok(), "{}: {}", case.name(), outcome.unwrap_err());
        }
    }
    // A name that must not be taken for a range.
    std::fs::write(server.root().join("a 1 2"), "content").unwrap();
    std::fs::write(server.root().join("a"), "xxcontent").unwrap();
    let found = storage.digest(&path("a 1 2"), SHA256).await.unwrap();
    assert!(found.is_none_or(|found| found == Digest::of(SHA256, b"content")), "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proftpd_reports_digests_by_hash() {
    // During a session mod_digest caches digests by path and modification time in seconds. haul
    // requests none twice.
    passes("", &["digests::a_changed_file_has_another_digest"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proftpd_reports_digests_by_hash_with_another_default_function() {
    passes("DigestAlgorithms md5 sha256\nDigestCache off", &[]).await;
}

async fn storage(script: Script) -> (Scripted, TempDir, Arc<FtpStorage>) {
    let server = Scripted::start(script).await;
    server.put("/up/f", b"hello");
    let host = host(server.port(), FtpOptions::default());
    let (journals, storage) = opened(&host).await;
    (server, journals, storage)
}

#[tokio::test]
async fn xsha256_is_used_where_hash_does_not_offer_sha_256() {
    const REPLY: &str = "250 2CF24DBA5FB0A30E26E83B2AC5B9E29E1B161E5C1FA7425E73043362938B9824";
    let script = Script {
        features: &["SIZE", "REST STREAM", "HASH SHA-1*;MD5", "XSHA256"],
        replies: &[("XSHA256", REPLY)],
        ..Script::default()
    };
    let (server, _journals, storage) = storage(script).await;
    let found = storage.digest(&path("f"), SHA256).await.unwrap();
    assert_eq!(found, Some(Digest::of(SHA256, b"hello")));
    assert_eq!(storage.digest(&path("f"), DigestKind::Blake3).await.unwrap(), None);
    // The digits would be taken for the bounds of a range.
    assert_eq!(storage.digest(&path("f 1 2"), SHA256).await.unwrap(), None);
    let sent = server.commands().into_iter().filter(|line| line.starts_with("XSHA256"));
    assert_eq!(sent.collect::<Vec<_>>(), ["XSHA256 /up/f"]);
}

#[tokio::test]
async fn digests_that_are_only_announced_are_requested_once() {
    let script = Script { features: &["SIZE", "HASH SHA-256*"], ..Script::default() };
    let (server, _journals, storage) = storage(script).await;
    for _ in 0..3 {
        assert_eq!(storage.digest(&path("f"), SHA256).await.unwrap(), None);
    }
    let sent = server.commands().into_iter().filter(|line| line.starts_with("HASH"));
    assert_eq!(sent.count(), 1);
}

#[tokio::test]
async fn a_digest_refused_for_one_file_is_requested_for_the_next() {
    const REFUSED: &[(&str, &str)] = &[("HASH", "550 Permission denied.")];
    let script =
        Script { features: &["SIZE", "HASH SHA-256*"], replies: REFUSED, ..Script::default() };
    let (server, _journals, storage) = storage(script).await;
    assert_eq!(storage.digest(&path("f"), SHA256).await.unwrap(), None);
    let error = storage.digest(&path("nothing"), SHA256).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let sent = server.commands().into_iter().filter(|line| line.starts_with("HASH"));
    assert_eq!(sent.count(), 2);
}
