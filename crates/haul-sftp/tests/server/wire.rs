//! Malformed packets, floods, limits, and the announced extensions.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use bytes::Bytes;
use haul_sftp::codec::{
    Attrs, Extended, FileHash, Limits, OpenFlags, Request, Response, StatVfs, Status, name,
};
use haul_sftp::server::{SessionError, ShareOptions};
use haul_storage::{Digest, DigestKind};

use crate::pipe::{Client, NEW, ServedDir, bytes, open, write};

#[tokio::test]
async fn a_malformed_packet_gets_an_error_and_the_session_continues() {
    let dir = ServedDir::new();
    let mut client = dir.session().await;
    for (packet, expected) in [
        // OPEN that ends within its path; an unknown type; READ with a handle that is too long; a response.
        (&[0, 0, 0, 9, 3, 0, 0, 0, 77, 0, 0, 0, 5][..], Status::BadMessage),
        (&[0, 0, 0, 5, 42, 0, 0, 0, 77][..], Status::Unsupported),
        (&[0, 0, 0, 9, 5, 0, 0, 0, 77, 0, 0, 255, 255][..], Status::BadMessage),
        (&[0, 0, 0, 5, 101, 0, 0, 0, 77][..], Status::Unsupported),
    ] {
        client.send_raw(Bytes::copy_from_slice(packet));
        let (id, response) = client.response().await.unwrap();
        let Response::Status { status, .. } = response else { panic!("{response:?}") };
        assert_eq!((id, status), (77, expected));
    }
    let unknown = Extended::Unknown { name: bytes("nobody@knows"), data: bytes("this") };
    assert_eq!(client.status(&Request::Extended(unknown)).await, Status::Unsupported);
    for handle in ["", "x", "four", "much longer than four"] {
        let status = client.status(&Request::Close(bytes(handle))).await;
        assert_eq!(status, Status::Failure, "{handle}");
    }
    assert!(matches!(client.call(&Request::Stat(bytes("/"))).await, Response::Attrs(_)));
}

#[tokio::test]
async fn a_client_that_does_not_speak_sftp_is_disconnected_and_others_are_not() {
    let dir = ServedDir::new();
    let share = dir.share(ShareOptions::default());
    let mut other = Client::begin(&share).await;
    for packet in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0, 0, 0, 0], &[0, 4, 0, 1, 3]] {
        let mut client = Client::begin(&share).await;
        client.send_raw(Bytes::copy_from_slice(packet));
        assert!(client.response().await.is_none());
        assert!(matches!(client.task.await.unwrap(), Err(SessionError::NotSftp(_))));
    }
    let mut client = Client::connect(&share);
    client.send(&Request::Stat(bytes("/")));
    assert!(client.response().await.is_none());
    assert_eq!(client.task.await.unwrap(), Err(SessionError::NoInit));
    assert!(matches!(other.call(&Request::Stat(bytes("/"))).await, Response::Attrs(_)));
}

#[tokio::test]
async fn the_announced_limits_are_enforced() {
    let dir = ServedDir::new();
    fs::write(dir.path("file"), vec![1; 300_000]).unwrap();
    let options = ShareOptions { handles: 3, ..ShareOptions::default() };
    let mut client = Client::begin(&dir.share(options)).await;
    let Response::Extended(reply) = client.call(&Request::Extended(Extended::Limits)).await else {
        panic!("no limits")
    };
    let limits = Limits::decode(reply).unwrap();
    assert_eq!((limits.packet, limits.read, limits.write), (262_144, 261_120, 261_120));
    assert_eq!(limits.handles, 3);

    let handle = client.open("file", OpenFlags::READ).await;
    let read = Request::Read { handle: handle.clone(), offset: 0, length: u32::MAX };
    let Response::Data(data) = client.call(&read).await else { panic!("no data") };
    assert_eq!(data.len(), 261_120);

    client.open("file", OpenFlags::READ).await;
    assert!(matches!(client.call(&Request::Opendir(bytes("/"))).await, Response::Handle(_)));
    assert_eq!(client.status(&open("file", OpenFlags::READ)).await, Status::Failure);
    assert_eq!(client.status(&Request::Close(handle)).await, Status::Ok);
    client.open("file", OpenFlags::READ).await;
}

#[tokio::test]
async fn a_client_that_reads_no_responses_gets_its_budget_and_is_disconnected_in_the_end() {
    let dir = ServedDir::new();
    fs::write(dir.path("file"), vec![1; 300_000]).unwrap();
    let share = dir.share(ShareOptions::default());
    let mut slow = Client::begin(&share).await;
    let handle = slow.open("file", OpenFlags::READ).await;
    let read = Request::Read { handle, offset: 0, length: 261_120 };
    for _ in 0..100 {
        slow.send(&read);
    }
    // The pipe accepts everything, but responses count against the budget until the client reads them.
    while slow.unreceived() < 16 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(slow.unreceived(), 16, "full responses, with their heads");
    let mut other = Client::begin(&share).await;
    assert_eq!(other.content("file").await.len(), 200_000, "the budget is each session's own");
    for _ in 0..20_000 {
        slow.send(&read);
    }
    // Nothing was read in the meantime; now all of it is, up to the end.
    let mut responses = 0;
    while slow.response().await.is_some() {
        responses += 1;
    }
    assert!(
        (16..16_384).contains(&responses),
        "{responses}: a disconnected client gets the responses that were ready"
    );
    assert_eq!(slow.task.await.unwrap(), Err(SessionError::TooManyRequests));
}

#[tokio::test]
async fn a_client_that_queues_too_many_bytes_behind_unread_responses_is_disconnected() {
    let dir = ServedDir::new();
    fs::write(dir.path("file"), vec![1; 300_000]).unwrap();
    let share = dir.share(ShareOptions::default());
    let mut client = Client::begin(&share).await;
    let handle = client.open("file", OpenFlags::READ.and(OpenFlags::WRITE)).await;
    // More reads than the budget holds, so that the writes behind them on the same handle have to wait.
    let read = Request::Read { handle: handle.clone(), offset: 0, length: 261_120 };
    for _ in 0..100 {
        client.send(&read);
    }
    let block = Bytes::from(vec![2; 261_120]);
    // A quarter of the limit of 64 MiB is accepted, more than all of it is not.
    for _ in 0..64 {
        client.send(&write(&handle, 0, block.clone()));
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!client.task.is_finished());
    for _ in 0..256 {
        client.send(&write(&handle, 0, block.clone()));
    }
    while client.response().await.is_some() {}
    assert_eq!(client.task.await.unwrap(), Err(SessionError::TooManyBytes));
    let mut other = Client::begin(&share).await;
    assert_eq!(other.content("file").await.len(), 200_000, "other sessions are unaffected");
}

#[tokio::test]
async fn a_full_disk_is_reported_to_the_writes_that_fail() {
    let dir = ServedDir::new();
    let small = Mounted::tmpfs(&dir.path("small"), "1m");
    let Some(_small) = small else {
        eprintln!("SKIPPED: no tmpfs can be mounted here");
        return;
    };
    let mut client = dir.session().await;
    let handle = client.open("small/file", NEW).await;
    let mut sent = Vec::new();
    for n in 0..8u64 {
        sent.push(client.send(&write(&handle, n * 200_000, vec![9; 200_000])));
    }
    let mut failed = 0;
    for _ in &sent {
        let (id, response) = client.response().await.unwrap();
        let Response::Status { status, message } = response else { panic!("{response:?}") };
        let index = sent.iter().position(|sent| *sent == id).unwrap();
        if index < 5 {
            assert_eq!(status, Status::Ok, "write {index}");
        } else {
            failed += 1;
            assert_eq!(status, Status::Failure, "write {index}");
            assert_eq!(message, &b"No space left on device"[..]);
        }
    }
    assert_eq!(failed, 3);
    let Response::Extended(reply) =
        client.call(&Request::Extended(Extended::Statvfs(bytes("small")))).await
    else {
        panic!("no statvfs")
    };
    let found = StatVfs::decode(reply).unwrap();
    assert_eq!(found.blocks * found.frsize, 1 << 20);
    assert!(found.bavail < 13, "{found:?}");
}

/// A file system that is unmounted when it is dropped.
struct Mounted(std::path::PathBuf);

impl Mounted {
    fn tmpfs(mount_point: &std::path::Path, size: &str) -> Option<Self> {
        haul_bench::guard::unshare_mounts_once().unwrap();
        fs::create_dir(mount_point).unwrap();
        let option = format!("size={size}");
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &option, "none"])
            .arg(mount_point)
            .status();
        mounted.ok().filter(std::process::ExitStatus::success)?;
        Some(Self(mount_point.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily: the session may close its file a moment later.
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test]
async fn all_extensions_are_announced_and_those_for_copies_links_and_syncs_work() {
    let dir = ServedDir::new();
    let share = dir.share(ShareOptions::default());
    let mut client = Client::connect(&share);
    client.send_raw(&[0, 0, 0, 5, 1, 0, 0, 0, 3][..]);
    let Some((_, Response::Version { extensions, .. })) = client.response().await else {
        panic!("no version")
    };
    for name in [
        name::POSIX_RENAME,
        name::FSYNC,
        name::HARDLINK,
        name::STATVFS,
        name::FSTATVFS,
        name::LSETSTAT,
        name::COPY_DATA,
        name::CHECK_FILE_NAME,
        name::EXPAND_PATH,
        name::LIMITS,
    ] {
        assert!(extensions.has(name), "{}", name.escape_ascii());
    }
    fs::write(dir.path("a"), vec![5; 700_000]).unwrap();
    let from = client.open("a", OpenFlags::READ).await;
    let to = client.open("b", NEW).await;
    let copy = |length, to_offset| {
        Request::Extended(Extended::CopyData {
            from: from.clone(),
            from_offset: 100,
            length,
            to: to.clone(),
            to_offset,
        })
    };
    assert_eq!(client.status(&copy(0, 7)).await, Status::Ok);
    assert_eq!(fs::metadata(dir.path("b")).unwrap().len(), 700_000 - 100 + 7);
    assert_eq!(client.status(&copy(10, 0)).await, Status::Ok);
    assert_eq!(fs::read(dir.path("b")).unwrap()[..10], [5; 10]);
    // Formerly, success was reported for a copy that was shorter than requested.
    assert_eq!(client.status(&copy(700_000 - 100, 0)).await, Status::Ok);
    assert_eq!(client.status(&copy(700_000 - 99, 0)).await, Status::Eof);

    let link = Request::Extended(Extended::Hardlink { from: bytes("a"), to: bytes("c") });
    assert_eq!(client.status(&link).await, Status::Ok);
    assert_eq!(fs::metadata(dir.path("a")).unwrap().nlink(), 2);
    let symlink = Request::Symlink { target: bytes("a"), link: bytes("l") };
    assert_eq!(client.status(&symlink).await, Status::Ok);
    let times = Attrs { times: Some((5, 6)), ..Attrs::default() };
    let set = Request::Extended(Extended::Lsetstat(bytes("l"), times));
    assert_eq!(client.status(&set).await, Status::Ok);
    assert_eq!(fs::symlink_metadata(dir.path("l")).unwrap().mtime(), 6);
    assert_ne!(fs::metadata(dir.path("a")).unwrap().mtime(), 6);
    assert_eq!(client.status(&Request::Extended(Extended::Fsync(to.clone()))).await, Status::Ok);
    let found = client.call(&Request::Extended(Extended::Fstatvfs(to))).await;
    assert!(matches!(found, Response::Extended(_)), "{found:?}");
}

#[tokio::test]
async fn a_long_copy_is_complete_and_later_requests_on_the_file_wait_for_it() {
    let dir = ServedDir::new();
    let content: Vec<u8> = (0..70_000_123_u32).map(|at| (at / 251) as u8).collect();
    fs::write(dir.path("a"), &content).unwrap();
    let mut client = dir.session().await;
    let from = client.open("a", OpenFlags::READ).await;
    let to = client.open("b", NEW).await;
    let data = Extended::CopyData {
        from: from.clone(),
        from_offset: 1,
        length: 69_000_000,
        to: to.clone(),
        to_offset: 2,
    };
    let copied = client.send(&Request::Extended(data));
    // Later requests on the same file are processed after it, even if the client closes at once.
    let written = client.send(&write(&to, 0, vec![7; 2]));
    let closed = [client.send(&Request::Close(from)), client.send(&Request::Close(to))];
    for _ in 0..4 {
        let (id, response) = client.response().await.unwrap();
        assert!([copied, written, closed[0], closed[1]].contains(&id));
        assert!(matches!(response, Response::Status { status: Status::Ok, .. }), "{response:?}");
    }
    let found = fs::read(dir.path("b")).unwrap();
    assert_eq!(found[..2], [7; 2]);
    assert!(found[2..] == content[1..69_000_001]);
}

/// `copy_file_range` refuses a target that is open for appending.
#[tokio::test]
async fn a_copy_into_a_file_open_for_appending_is_complete() {
    let dir = ServedDir::new();
    let content: Vec<u8> = (0..700_000_u32).map(|at| (at / 251) as u8).collect();
    fs::write(dir.path("a"), &content).unwrap();
    fs::write(dir.path("log"), "one ").unwrap();
    let mut client = dir.session().await;
    let from = client.open("a", OpenFlags::READ).await;
    let to = client.open("log", OpenFlags::WRITE.and(OpenFlags::APPEND)).await;
    let data = Extended::CopyData { from, from_offset: 0, length: 0, to, to_offset: 0 };
    assert_eq!(client.status(&Request::Extended(data)).await, Status::Ok);
    assert!(fs::read(dir.path("log")).unwrap() == [b"one ".as_slice(), &content].concat());
}

fn digest_of(path: &str) -> Request {
    Request::Extended(Extended::CheckFileName {
        path: bytes(path),
        algorithms: bytes("md5,sha256"),
        offset: 0,
        length: 0,
        block: 0,
    })
}

async fn sha256(client: &mut Client, request: &Request) -> [u8; 32] {
    let Response::Extended(reply) = client.call(request).await else { panic!("no digest") };
    FileHash::decode(reply).unwrap().sha256().unwrap()
}

#[tokio::test]
async fn digests_of_files_and_ranges_are_right_on_a_read_only_share() {
    let dir = ServedDir::new();
    // More than one step of hashing.
    let content: Vec<u8> = (0..20_000_123_u32).map(|at| (at / 251) as u8).collect();
    fs::write(dir.path("file"), &content).unwrap();
    fs::write(dir.path("empty"), "").unwrap();
    let options = ShareOptions { read_only: true, ..ShareOptions::default() };
    let mut client = Client::begin(&dir.share(options)).await;
    let of = |bytes: &[u8]| Digest::of(DigestKind::Sha256, bytes).bytes;
    assert_eq!(sha256(&mut client, &digest_of("file")).await, of(&content));
    assert_eq!(sha256(&mut client, &digest_of("empty")).await, of(b""));
    for (from, count) in [(7, 10), (19_000_000, 9_000_000), (30_000_000, 1)] {
        let Request::Extended(Extended::CheckFileName { path, algorithms, block, .. }) =
            digest_of("file")
        else {
            panic!("another request")
        };
        let (offset, length) = (from as u64, count as u64);
        let range = Extended::CheckFileName { path, algorithms, offset, length, block };
        let end = content.len().min(from + count);
        let expected = of(content.get(from..end).unwrap_or_default());
        assert_eq!(sha256(&mut client, &Request::Extended(range)).await, expected);
    }
}

#[tokio::test]
async fn digest_requests_that_cannot_be_served_are_refused_with_a_fitting_status() {
    let dir = ServedDir::new();
    fs::write(dir.path("file"), "content").unwrap();
    fs::create_dir(dir.path("dir")).unwrap();
    std::os::unix::fs::symlink("../secret", dir.path("out")).unwrap();
    let mut client = dir.session().await;
    assert_eq!(client.status(&digest_of("none")).await, Status::NoSuchFile);
    assert_eq!(client.status(&digest_of("dir")).await, Status::Failure);
    assert_ne!(client.status(&digest_of("out")).await, Status::Ok);
    for (algorithms, block) in [("md5,sha1", 0), ("", 0), ("sha256", 4096)] {
        let (path, algorithms) = (bytes("file"), bytes(algorithms));
        let extended = Extended::CheckFileName { path, algorithms, offset: 0, length: 0, block };
        assert_eq!(client.status(&Request::Extended(extended)).await, Status::Unsupported);
    }
}

/// Hashing a tebibyte takes minutes, so the response to MKDIR and the end of the session would come late if
/// they waited for it.
#[tokio::test]
async fn digests_of_long_files_block_nothing_are_limited_and_end_with_their_session() {
    let dir = ServedDir::new();
    fs::File::create(dir.path("long")).unwrap().set_len(1 << 40).unwrap();
    let options = ShareOptions { handles: 20, ..ShareOptions::default() };
    let mut client = Client::begin(&dir.share(options)).await;
    let sent: Vec<u32> = (0..21).map(|_| client.send(&digest_of("long"))).collect();
    let made = client.send(&Request::Mkdir(bytes("dir"), Attrs::default()));
    let (refused, response) = client.response().await.unwrap();
    assert!(sent.contains(&refused));
    assert!(matches!(response, Response::Status { status: Status::Failure, .. }), "{response:?}");
    let (id, response) = client.response().await.unwrap();
    assert_eq!(id, made);
    assert!(matches!(response, Response::Status { status: Status::Ok, .. }), "{response:?}");
    client.close();
    assert!(client.response().await.is_none());
    assert_eq!(client.task.await.unwrap(), Ok(()));
    let mut other = dir.session().await;
    fs::write(dir.path("short"), "content").unwrap();
    sha256(&mut other, &digest_of("short")).await;
}
