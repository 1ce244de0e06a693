//! Servers that refuse to set attributes of an existing file: a denial concerns that file, not the server's
//! capabilities.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use bytes::Bytes;
use haul_net::HostWaits;
use haul_sftp::codec::{Attrs, Extended, Request, Response, Status};
use haul_sftp::{SftpHost, SftpStorage};
use haul_storage::{
    Block, CommitOptions, CreateOptions, ErrorKind, Location, Metadata, RelPath, Storage,
    StorageExt as _,
};
use tokio::runtime::Handle;

use super::old_and_private;
use super::scripted::{Scripted, status};

/// A storage on a server that responds to some requests with `respond`, and the warnings about the server.
async fn storage(
    respond: fn(&Request) -> Option<Response>,
) -> (Arc<SftpStorage>, Receiver<String>) {
    let waits = HostWaits::default();
    let dial = Scripted { script: |_| Some(Duration::ZERO), respond, waits };
    let host = SftpHost::new(Arc::new(dial), Handle::current());
    let (warnings, received) = channel();
    host.warn_through(Box::new(move |message| warnings.send(message.to_owned()).unwrap()));
    let location = Location::parse("sftp://scripted/").unwrap();
    (SftpStorage::open(host, location, Bytes::from_static(b"/"), None).await.unwrap(), received)
}

fn file() -> RelPath {
    RelPath::parse("f").unwrap()
}

/// Once, a denial for a file of another user was stored as "the server does not set times".
#[tokio::test]
async fn a_denied_setstat_is_an_error_of_the_file_and_not_a_limit_of_the_server() {
    let (storage, received) = storage(|request| match request {
        Request::Setstat(_, Attrs { times: Some(_), permissions: Some(_), .. }) => {
            Some(status(Status::Unsupported))
        }
        Request::Setstat(_, Attrs { times: Some(_), .. }) => Some(status(Status::PermissionDenied)),
        _ => None,
    })
    .await;
    let error = storage.set_metadata(&file(), &old_and_private()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert!(storage.capabilities().times);
    assert_eq!(received.try_iter().collect::<Vec<_>>(), [""; 0]);
}

#[tokio::test]
async fn an_attribute_unsupported_for_an_existing_file_is_unsupported_for_all_files() {
    let (storage, received) = storage(|request| match request {
        Request::Setstat(_, Attrs { times: Some(_), .. }) => Some(status(Status::Unsupported)),
        _ => None,
    })
    .await;
    storage.set_metadata(&file(), &old_and_private()).await.unwrap();
    assert!(!storage.capabilities().times);
    let message = "the server does not set times; they are not preserved";
    assert_eq!(received.try_iter().collect::<Vec<_>>(), [message]);
}

/// Formerly, this was `AlreadyExists`, which a mount takes for a conflict of two versions.
#[tokio::test]
async fn a_refused_replacement_is_reported_with_its_reason() {
    let (storage, _received) = storage(|request| match request {
        Request::Extended(Extended::PosixRename { .. }) => Some(status(Status::PermissionDenied)),
        _ => None,
    })
    .await;
    let metadata = Metadata::default();
    let options = CommitOptions { metadata, replace: true, sync: false, expected: None };
    let written = storage.write_whole(&file(), Bytes::from_static(b"new"), &options).await;
    let error = written.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
}

/// Formerly, the handle stayed open until its lane was closed; servers limit their number.
#[tokio::test]
async fn a_small_file_whose_owner_cannot_be_set_is_closed() {
    static CLOSED: AtomicUsize = AtomicUsize::new(0);
    let (storage, _received) = storage(|request| match request {
        Request::Fsetstat(_, Attrs { owner: Some(_), .. }) => Some(status(Status::NoSuchFile)),
        Request::Close(_) => {
            CLOSED.fetch_add(1, Ordering::Relaxed);
            None
        }
        _ => None,
    })
    .await;
    let metadata = Metadata { mode: Some(0o4750), owner: Some((1, 1)), ..old_and_private() };
    let options = CommitOptions { metadata, replace: true, sync: false, expected: None };
    let written = storage.write_whole(&file(), Bytes::from_static(b"new"), &options).await;
    assert_eq!(written.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(CLOSED.load(Ordering::Relaxed), 1);
}

/// Formerly, it was set by the path of the part file, in whose place another user may have put a link.
#[tokio::test]
async fn the_mode_of_a_replaced_file_is_set_by_the_handle_on_a_server_without_lsetstat() {
    static SET: AtomicUsize = AtomicUsize::new(0);
    let (storage, received) = storage(|request| match request {
        Request::Lstat(path) if path.ends_with(b"/f") => Some(attrs(0o100_600)),
        Request::Fsetstat(_, Attrs { permissions: Some(0o600), .. }) => {
            SET.fetch_add(1, Ordering::Relaxed);
            None
        }
        Request::Setstat(..) => Some(status(Status::Failure)),
        _ => None,
    })
    .await;
    let metadata = Metadata { mode: None, ..old_and_private() };
    let options = CommitOptions { metadata, replace: true, sync: false, expected: None };
    storage.write_whole(&file(), Bytes::from_static(b"new"), &options).await.unwrap();
    assert_eq!(SET.load(Ordering::Relaxed), 1);
    let writer = storage.create(&file(), &CreateOptions::default()).await.unwrap();
    writer.write_at(0, Block::from(Bytes::from_static(b"new"))).await.unwrap();
    writer.commit(3, &options).await.unwrap();
    assert_eq!(SET.load(Ordering::Relaxed), 2);
    assert_eq!(received.try_iter().collect::<Vec<_>>(), [""; 0]);
}

/// Once, this was reported as "the server does not set owners".
#[tokio::test]
async fn a_refused_change_of_owner_is_a_warning_and_not_an_error() {
    for mode in [0o640, 0o4750] {
        let (storage, received) = storage(|request| match request {
            Request::Setstat(_, Attrs { owner: Some(_), .. }) => {
                Some(status(Status::PermissionDenied))
            }
            // A set-user-ID bit must not be sent without its owner.
            Request::Setstat(_, Attrs { permissions: Some(0o4750), .. }) => {
                Some(status(Status::Failure))
            }
            _ => None,
        })
        .await;
        let metadata = Metadata { mode: Some(mode), owner: Some((1, 1)), ..old_and_private() };
        storage.set_metadata(&file(), &metadata).await.unwrap();
        let message =
            "the server refuses to change owners of existing entries; they are not preserved";
        assert_eq!(received.try_iter().collect::<Vec<_>>(), [message], "{mode:o}");
    }
}

fn attrs(permissions: u32) -> Response {
    let attrs = Attrs { size: Some(0), permissions: Some(permissions), ..Attrs::default() };
    Response::Attrs(attrs)
}

/// Formerly, the file was moved aside for it, and the error was about the file that could not be removed then.
#[tokio::test]
async fn a_directory_never_replaces_a_file_even_if_the_server_refuses_posix_rename() {
    static ASIDE: AtomicUsize = AtomicUsize::new(0);
    let (storage, _received) = storage(|request| match request {
        Request::Extended(Extended::PosixRename { .. }) => Some(status(Status::Unsupported)),
        Request::Lstat(path) if path.ends_with(b"/directory") => Some(attrs(0o040_755)),
        Request::Rename { to, .. } if to.ends_with(b"/f") => Some(status(Status::Failure)),
        Request::Rename { from, .. } if from.ends_with(b"/f") => {
            ASIDE.fetch_add(1, Ordering::Relaxed);
            None
        }
        _ => None,
    })
    .await;
    let directory = RelPath::parse("directory").unwrap();
    // The server is known then to have no posix-rename.
    storage.rename(&RelPath::parse("g").unwrap(), &RelPath::parse("new").unwrap()).await.unwrap();
    let error = storage.rename(&directory, &file()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    assert_eq!(ASIDE.load(Ordering::Relaxed), 0);
}

/// Another program creates the last directory, or a file of its name, at the same time.
#[tokio::test]
async fn a_directory_that_appears_while_it_is_created_counts_as_existing_and_a_file_is_an_error() {
    static APPEARED: AtomicUsize = AtomicUsize::new(0);
    static HAS_PARENT: AtomicUsize = AtomicUsize::new(0);
    let directory = (appears::<0o040_755> as fn(&Request) -> Option<Response>, Ok(false));
    let file = (appears::<0o100_644> as fn(&Request) -> _, Err(ErrorKind::NotADirectory));
    for (respond, expected) in [directory, file] {
        APPEARED.store(0, Ordering::Relaxed);
        HAS_PARENT.store(0, Ordering::Relaxed);
        let (storage, _received) = storage(respond).await;
        let path = RelPath::parse("parent/below").unwrap();
        let made = storage.create_dir_all(&path).await.map_err(|error| error.kind());
        assert_eq!(made, expected);
    }

    fn appears<const MODE: u32>(request: &Request) -> Option<Response> {
        match request {
            Request::Mkdir(path, _) if path.ends_with(b"parent") => {
                HAS_PARENT.store(1, Ordering::Relaxed);
                None
            }
            Request::Mkdir(..) => {
                APPEARED.store(1, Ordering::Relaxed);
                Some(status(Status::Failure))
            }
            Request::Lstat(path) | Request::Stat(path) if path.len() > 1 => {
                let (seen, mode) = match path.ends_with(b"parent") {
                    true => (&HAS_PARENT, 0o040_755),
                    false => (&APPEARED, MODE),
                };
                let is_there = seen.load(Ordering::Relaxed) > 0;
                Some(if is_there { attrs(mode) } else { status(Status::NoSuchFile) })
            }
            _ => None,
        }
    }
}
