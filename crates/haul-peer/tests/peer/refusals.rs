//! Clients and requests that are refused, the reasons that they receive, and the ends of sessions.

use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use futures_util::StreamExt;
use haul_peer::identity::{Identity, Shares, Terms};
use haul_peer::server::{ClientAction, Grant, PeerServer, Route};
use haul_peer::ticket::{Address, Secret, Ticket};
use haul_peer::tls;
use haul_peer::wire::messages::code::Refusal;
use haul_peer::wire::messages::{Empty, Hello, ToClient, ToServer, to_client, to_server};
use haul_peer::wire::{Deframer, Frame, Limits, decode, message_frame};
use haul_storage::memory::MemoryStorage;
use haul_storage::{CommitOptions, ErrorKind, LinkKind, Metadata, Range, Retry, Storage};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::{PATIENCE, open, path, share};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ticket_with_another_secret_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let shared = share(directory.path(), |_| {}).await;
    let wrong = Ticket::new(shared.ticket.key, Secret::generate().unwrap())
        .with_addresses(shared.ticket.addresses().iter().copied());
    let error = open(&wrong).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unauthenticated, Retry::Never));
    assert!(error.to_string().contains("not valid here, or has been revoked"), "{error}");
    open(&shared.ticket).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_machine_at_the_address_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let shared = share(directory.path(), |_| {}).await;
    let other = Identity::ephemeral().unwrap();
    let wrong = Ticket::new(other.key(), shared.ticket.secret.clone())
        .with_addresses(shared.ticket.addresses().iter().copied());
    let error = open(&wrong).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unauthenticated, Retry::Never));
    assert!(error.to_string().contains("another machine answers at this address"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_ticket_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let past = SystemTime::now() - Duration::from_secs(1);
    let shared = share(directory.path(), |grant| grant.expires = Some(past)).await;
    let error = open(&shared.ticket).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unauthenticated, Retry::Never));
    assert!(error.to_string().contains("the ticket has expired"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ticket_for_one_use_admits_one_session() {
    let directory = tempfile::tempdir().unwrap();
    let shared = share(directory.path(), |grant| grant.one_use = true).await;
    let first = open(&shared.ticket).await.unwrap();
    first.set_lanes(3);
    let error = open(&shared.ticket).await.unwrap_err();
    assert!(error.to_string().contains("for one use"), "{error}");
    first.stat(&path("")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_session_ends_when_its_ticket_expires() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), "content").unwrap();
    // Late enough for the session to be opened, also on a busy machine.
    let soon = SystemTime::now() + Duration::from_secs(5);
    let shared = share(directory.path(), |grant| grant.expires = Some(soon)).await;
    let storage = open(&shared.ticket).await.unwrap();
    storage.set_lanes(3);
    storage.stat(&path("file")).await.unwrap();
    // A request may be lost with its lane; the next lane is refused with the reason.
    let start = Instant::now();
    let error = loop {
        let found = storage.stat(&path("file")).await;
        match found {
            Err(error) if error.retry() == Retry::Never => break error,
            _ => assert!(start.elapsed() < PATIENCE, "{found:?}"),
        }
        sleep(Duration::from_millis(50)).await;
    };
    assert!(SystemTime::now() >= soon, "{error}");
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unauthenticated, Retry::Never));
    assert!(error.to_string().contains("the ticket has expired"), "{error}");
}

/// Formerly, the reason was sent only on a further connection, which is not accepted once the share has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_an_ended_share_learns_that_its_ticket_has_expired() {
    let directory = tempfile::tempdir().unwrap();
    // Late enough for the session to be opened, also on a busy machine.
    let soon = SystemTime::now() + Duration::from_secs(5);
    let shared = share(directory.path(), |grant| grant.expires = Some(soon)).await;
    let storage = open(&shared.ticket).await.unwrap();
    storage.stat(&path("")).await.unwrap();
    sleep(Duration::from_millis(5500)).await;
    shared.server.end().await;
    let (start, mut errors) = (Instant::now(), Vec::new());
    while errors.last().is_none_or(|error: &haul_storage::Error| error.retry() != Retry::Never) {
        assert!(start.elapsed() < PATIENCE, "{errors:?}");
        errors.push(storage.stat(&path("")).await.unwrap_err());
        sleep(Duration::from_millis(20)).await;
    }
    let error = errors.last().unwrap();
    assert!(error.to_string().contains("the ticket has expired"), "{error}");
}

/// Formerly, the client took the end of the share for a lost connection, and tried to connect again for minutes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_learns_that_the_share_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), vec![7; 50_000_000]).unwrap();
    let shared = share(directory.path(), |_| {}).await;
    let storage = open(&shared.ticket).await.unwrap();
    storage.set_lanes(3);
    let file = storage.open(&path("file")).await.unwrap();
    let mut blocks = file.read_at(Range::new(0, 50_000_000));
    blocks.next().await.unwrap().unwrap();
    // The server waits for its clients for 2 s at most.
    tokio::time::timeout(PATIENCE, shared.server.end()).await.unwrap();
    // A request on a lane that is just being closed may be lost with it.
    let (start, mut errors) = (Instant::now(), Vec::new());
    while errors.last().is_none_or(|error: &haul_storage::Error| error.retry() != Retry::Never) {
        assert!(start.elapsed() < PATIENCE, "{errors:?}");
        errors.push(storage.stat(&path("file")).await.unwrap_err());
        sleep(Duration::from_millis(20)).await;
    }
    let error = errors.last().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.to_string().contains("the sharer has ended the share"), "{error}");
    let failed = async { while let Some(Ok(_)) = blocks.next().await {} };
    tokio::time::timeout(PATIENCE, failed).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_are_shown_and_their_end_is_reported() {
    let memory = MemoryStorage::new();
    memory.add_file("file", "x".repeat(300_000));
    let identity = Identity::ephemeral().unwrap();
    let secret = Secret::generate().unwrap();
    let (events, mut reported) = tokio::sync::mpsc::unbounded_channel();
    let server = PeerServer::builder(memory, "share")
        .grant(Grant { writable: true, ..Grant::new(secret.clone()) })
        .observer(move |event| drop(events.send(event)));
    let server = server.bind(&identity).await.unwrap();
    let addresses = server.addresses().iter().map(|one| Address::new(*one).unwrap());
    let ticket = Ticket::new(identity.key(), secret).with_addresses(addresses);
    assert!(server.sessions().status().is_empty());
    let storage = open(&ticket).await.unwrap();
    let file = storage.open(&path("file")).await.unwrap();
    let mut blocks = file.read_at(Range::new(0, 300_000));
    while let Some(block) = blocks.next().await {
        block.unwrap();
    }
    let status = server.sessions().status();
    let [session] = &status[..] else { panic!("{status:?}") };
    assert!(session.address.ip().is_loopback() && session.lanes >= 1, "{session:?}");
    assert_eq!((session.route, session.received), (Route::Direct, 0));
    // The beginning of the file is sent along with the open, and may be read again afterwards.
    assert!((300_000..=600_000).contains(&session.sent), "{session:?}");
    assert_eq!(session.file.as_deref(), Some(&path("file")));
    let options = CommitOptions {
        metadata: Metadata::default(),
        replace: false,
        sync: false,
        expected: None,
    };
    storage.write_whole(&path("new"), Bytes::from_static(b"hello"), &options).await.unwrap();
    let status = server.sessions().status();
    assert_eq!((status[0].received, status[0].file.as_deref()), (5, Some(&path("new"))));
    drop((blocks, file, storage));
    server.end().await;
    let mut ends = Vec::new();
    while let Some(event) = reported.recv().await {
        if let ClientAction::SessionEnded(end) = event.action {
            ends.push(end);
        }
    }
    let [end] = &ends[..] else { panic!("{ends:?}") };
    assert_eq!((end.received, end.route), (5, Route::Direct));
}

fn terms(is_one_use: bool) -> Terms {
    let label = "x".to_owned();
    Terms { label, expires: None, is_one_use, is_writable: false, sets_owners: false }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stored_ticket_for_one_use_stays_used_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let shares = Shares::at(&directory.path().join("state/shares.toml"));
    let secret = shares.store(&terms(true), 10).unwrap().secret;
    for is_first in [true, false] {
        let stored = |grant: &mut Grant| {
            grant.secret = secret.clone();
            grant.one_use = true;
            grant.stored = Some(shares.clone());
        };
        let shared = share(directory.path(), stored).await;
        let ticket = Ticket::new(shared.ticket.key, secret.clone())
            .with_addresses(shared.ticket.addresses().iter().copied());
        let opened = open(&ticket).await;
        if is_first {
            opened.unwrap();
        } else {
            let error = opened.unwrap_err();
            assert!(error.to_string().contains("for one use"), "{error}");
        }
        shared.server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stored_ticket_is_refused_once_it_is_revoked() {
    let directory = tempfile::tempdir().unwrap();
    let shares = Shares::at(&directory.path().join("state/shares.toml"));
    let secret = shares.store(&terms(false), 10).unwrap().secret;
    let stored = |grant: &mut Grant| {
        grant.secret = secret.clone();
        grant.stored = Some(shares.clone());
    };
    let shared = share(directory.path(), stored).await;
    let ticket = Ticket::new(shared.ticket.key, secret.clone())
        .with_addresses(shared.ticket.addresses().iter().copied());
    open(&ticket).await.unwrap();
    shares.revoke_all(|_| true, 20).unwrap();
    let error = open(&ticket).await.unwrap_err();
    assert!(error.to_string().contains("has been revoked"), "{error}");
}

/// Otherwise the client of a share could have programs executed with the rights of the sharer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn set_id_bits_are_not_set_for_a_client() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), "content").unwrap();
    let shared = share(directory.path(), |grant| grant.owners = false).await;
    let storage = open(&shared.ticket).await.unwrap();
    assert!(!storage.capabilities().owner);
    let metadata = |mode| Metadata { mode: Some(mode), ..Metadata::default() };
    storage.set_metadata(&path("file"), &metadata(0o6755)).await.unwrap();
    let options =
        CommitOptions { metadata: metadata(0o4711), replace: false, sync: false, expected: None };
    let bytes = Bytes::from_static(b"content");
    storage.write_whole(&path("whole"), bytes, &options).await.unwrap();
    let written = storage.create(&path("written"), &Default::default()).await.unwrap();
    written.commit(0, &options).await.unwrap();
    storage.create_dir_as(&path("directory"), Some(0o2700)).await.unwrap();
    for (name, mode) in
        [("file", 0o755), ("whole", 0o711), ("written", 0o711), ("directory", 0o700)]
    {
        let found = std::fs::metadata(directory.path().join(name)).unwrap();
        assert_eq!(found.mode() & 0o7777, mode, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_share_that_is_not_writable_refuses_changes() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), "content").unwrap();
    let shared = share(directory.path(), |grant| grant.writable = false).await;
    let storage = open(&shared.ticket).await.unwrap();
    assert_eq!(storage.read_whole(&path("file"), 100).await.unwrap().bytes, "content");
    let options =
        CommitOptions { metadata: Metadata::default(), replace: true, sync: false, expected: None };
    let bytes = Bytes::from_static(b"other");
    let link = LinkKind::Symbolic(b"file".to_vec());
    let errors = [
        storage.write_whole(&path("file"), bytes, &options).await.unwrap_err(),
        storage.remove(&path("file")).await.unwrap_err(),
        storage.rename(&path("file"), &path("other")).await.unwrap_err(),
        storage.create_dir_as(&path("d"), None).await.unwrap_err(),
        storage.create_link(&path("link"), &link, false).await.unwrap_err(),
        storage.create(&path("new"), &Default::default()).await.unwrap_err(),
        storage.set_metadata(&path("file"), &Metadata::default()).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    }
    let names: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(names.len(), 1);
}

/// The sharer compares the versions, just before it replaces the file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_appears_after_the_stat_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "old").unwrap();
    let shared = share(directory.path(), |_| {}).await;
    let storage = open(&shared.ticket).await.unwrap();
    assert!(storage.capabilities().conditional_commits);
    let expected = Some(storage.stat(&path("file")).await.unwrap().identity());
    let options =
        CommitOptions { metadata: Metadata::default(), replace: true, sync: false, expected };
    let writer = storage.create(&path("file"), &Default::default()).await.unwrap();
    writer.write_at(0, Bytes::from_static(b"from here").into()).await.unwrap();
    let other = directory.path().join("other");
    std::fs::write(&other, "new").unwrap();
    std::fs::rename(&other, &file).unwrap();
    let whole = Bytes::from_static(b"from here");
    let whole = storage.write_whole(&path("file"), whole, &options).await;
    for outcome in [writer.commit(9, &options).await, whole] {
        let error = outcome.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Changed, Retry::Never), "{error}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
}

/// Formerly, such a lane was closed without a message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_that_begins_without_a_valid_hello_is_refused_with_the_cause() {
    let directory = tempfile::tempdir().unwrap();
    let shared = share(directory.path(), |_| {}).await;
    let short =
        to_server::Body::Hello(Hello { proof: Bytes::from_static(b"x"), ..Hello::default() });
    for (body, cause) in [(to_server::Body::Ping(Empty {}), "not a Hello"), (short, "proof")] {
        let identity = Identity::ephemeral().unwrap();
        let key = *shared.ticket.key.as_bytes();
        let config = tls::client_config(identity.pkcs8(), &identity.spki(), key).unwrap();
        let socket = TcpStream::connect(shared.server.addresses()[0]).await.unwrap();
        let mut stream = tls::connect(socket, config, PATIENCE).await.unwrap();
        let message = message_frame(&ToServer { id: 1, body: Some(body), again: false }).unwrap();
        stream.write_all(&message).await.unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).await.unwrap();
        let mut deframer = Deframer::new(Limits::EARLY);
        deframer.push(received);
        let Ok(Some(Frame::Message(message))) = deframer.next_frame() else { panic!("no message") };
        let Some(to_client::Body::Refused(refused)) = decode::<ToClient>(message).unwrap().body
        else {
            panic!("not refused")
        };
        assert_eq!(Refusal::of(refused.code), Some(Refusal::Hello));
        assert!(refused.text.contains(cause), "{}", refused.text);
    }
}

/// A server has at most 64 sessions. Beyond these, only one whose lanes have ended makes room for another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_its_client_has_closed_leaves_room_for_another() {
    let directory = tempfile::tempdir().unwrap();
    let shared = share(directory.path(), |_| {}).await;
    for _ in 0..80 {
        let start = Instant::now();
        while let Err(error) = open(&shared.ticket).await {
            assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
            // The last sessions may still be closing.
            assert!(start.elapsed() < PATIENCE / 2);
            sleep(Duration::from_millis(50)).await;
        }
    }
    // One that its client has not closed stays for a minute after its lanes have ended.
    let (start, sessions) = (Instant::now(), shared.server.sessions());
    while !sessions.status().is_empty() {
        assert!(start.elapsed() < PATIENCE / 2, "{:?}", sessions.status());
        sleep(Duration::from_millis(50)).await;
    }
}
