//! Servers that violate the protocol, limit connections, fail, or disconnect.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::try_join_all;
use haul_ftp::{FtpHost, FtpOptions, FtpStorage, TlsMode};
use haul_net::{PasswordSource, Secret, Waits};
use haul_storage::{
    Block, CommitOptions, CreateOptions, EntryKind, Error, ErrorKind, Metadata, Range, ReadAt,
    RelPath, Result, Retry, Storage, StorageExt as _, WriteAt,
};
use tempfile::TempDir;

use crate::scripted::{Script, Scripted};
use crate::{host, opened};

const REPLACING: CommitOptions = CommitOptions {
    metadata: Metadata { mode: None, modified: None, owner: None, xattrs: None },
    replace: true,
    sync: false,
    expected: None,
};

async fn storage(script: Script) -> (Scripted, TempDir, Arc<FtpStorage>) {
    let server = Scripted::start(script).await;
    let (journals, storage) = opened(&host(server.port(), FtpOptions::default())).await;
    (server, journals, storage)
}

fn path(name: &str) -> RelPath {
    RelPath::parse(name).unwrap()
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 7 + n / 251) as u8).collect()
}

async fn read(file: &dyn ReadAt, range: Range) -> Result<Vec<u8>> {
    let mut blocks = file.read_at(range);
    let mut all = Vec::new();
    while let Some(block) = blocks.next().await {
        all.extend_from_slice(&block?.into_bytes());
    }
    Ok(all)
}

fn block(bytes: &[u8]) -> Block {
    Block::from(Bytes::copy_from_slice(bytes))
}

#[tokio::test]
async fn a_download_longer_or_shorter_than_announced_is_an_error() {
    for size_is_off_by in [-1, 1, -50_000, 50_000] {
        let script = Script { size_is_off_by, ..Script::default() };
        let (server, _journals, storage) = storage(script).await;
        server.put("/up/f", &content(100_000));
        let file = storage.open(&path("f")).await.unwrap();
        let error = read(&*file, Range::new(0, u64::MAX)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
        let error = storage.read_whole(&path("f"), 1 << 20).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
        assert!(error.location().ends_with("/up/f"), "{error}");
        // Commands and replies still match on that lane.
        assert!(storage.stat(&path("f")).await.is_ok());
    }
}

#[tokio::test]
async fn a_download_that_is_cut_can_be_retried() {
    let cut_download = Some((30_000, "426 Failure writing network stream."));
    let (server, _journals, storage) = storage(Script { cut_download, ..Script::default() }).await;
    server.put("/up/f", &content(100_000));
    let file = storage.open(&path("f")).await.unwrap();
    let error = read(&*file, Range::new(0, 100_000)).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unreachable, Retry::Later), "{error}");
    // Ranges shorter than the cut arrive complete.
    assert_eq!(
        read(&*file, Range::new(50_000, 20_000)).await.unwrap(),
        content(100_000)[50_000..70_000]
    );
}

#[tokio::test]
async fn a_download_that_ends_early_with_success_is_an_error() {
    let cut_download = Some((30_000, "226 That was all."));
    let (server, _journals, storage) = storage(Script { cut_download, ..Script::default() }).await;
    server.put("/up/f", &content(100_000));
    let file = storage.open(&path("f")).await.unwrap();
    let error = read(&*file, Range::new(0, 100_000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
}

#[tokio::test]
async fn many_dropped_ranges_leave_the_lanes_usable() {
    let (server, _journals, storage) = storage(Script::default()).await;
    let expected = content(8 << 20);
    server.put("/up/f", &expected);
    storage.set_lanes(2);
    let file = storage.open(&path("f")).await.unwrap();
    for n in 0..40_usize {
        let mut dropped = file.read_at(Range::new(n as u64 * 1000, 4 << 20));
        if n % 3 > 0 {
            dropped.next().await.unwrap().unwrap();
        }
        drop(dropped);
        let start = n * 70_000;
        let range = Range::new(start as u64, 100_000);
        assert_eq!(read(&*file, range).await.unwrap(), expected[start..start + 100_000]);
    }
    assert!(storage.link().refused == 0, "{:?}", storage.link());
}

#[tokio::test]
async fn ranges_in_order_on_one_lane_are_one_download() {
    let (server, _journals, storage) = storage(Script::default()).await;
    let expected = content(1 << 20);
    server.put("/up/f", &expected);
    let file = storage.open(&path("f")).await.unwrap();
    for n in 0..16 {
        let range = Range::new(n << 16, 1 << 16);
        let (start, end) = ((n << 16) as usize, ((n + 1) << 16) as usize);
        assert_eq!(read(&*file, range).await.unwrap(), expected[start..end]);
        // Meanwhile the receiving task releases its lane.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let downloads = server.commands().iter().filter(|line| line.starts_with("RETR")).count();
    assert_eq!(downloads, 1);
}

/// A parked download of the old file used to be continued, which mixed both files.
#[tokio::test]
async fn a_parked_download_is_not_continued_for_a_replaced_file() {
    let (server, _journals, storage) = storage(Script::default()).await;
    let (old, new) = (vec![1; 100_000], vec![2; 100_000]);
    server.put("/up/f", &old);
    let file = storage.open(&path("f")).await.unwrap();
    assert_eq!(read(&*file, Range::new(0, 50_000)).await.unwrap(), old[..50_000]);
    server.put("/up/f", &new);
    let file = storage.open(&path("f")).await.unwrap();
    assert_eq!(read(&*file, Range::new(50_000, 50_000)).await.unwrap(), new[50_000..]);
}

/// With several lanes, and a server that is not known to process commands in order, downloads are parked only if the
/// last parked one was used. Formerly, one that timed out did not count as unused.
#[tokio::test]
async fn after_a_parked_download_has_timed_out_none_is_parked() {
    let (server, _journals, storage) = storage(Script::default()).await;
    let expected = content(200_000);
    server.put("/up/f", &expected);
    let file = storage.open(&path("f")).await.unwrap();
    for (lanes, downloads) in [(1, 1), (2, 3)] {
        storage.set_lanes(lanes);
        if lanes > 1 {
            // Longer than a download stays parked.
            tokio::time::sleep(Duration::from_millis(3500)).await;
        }
        for at in [0, 50_000] {
            let half = read(&*file, Range::new(at as u64, 50_000)).await.unwrap();
            assert_eq!(half, expected[at..at + 50_000]);
            // Meanwhile the receiving task releases its lane.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let lines = server.commands();
        let found = lines.iter().filter(|line| line.starts_with("RETR")).count();
        assert_eq!(found, downloads, "{lines:?}");
    }
}

/// An old file that prevents the rename is renamed aside; these failures have other causes.
#[tokio::test]
async fn the_old_file_remains_if_the_rename_fails_for_another_reason() {
    for reply in [("RNFR", "550 Permission denied."), ("RNTO", "450 Busy.")] {
        let replies = Box::leak(Box::new([reply]));
        let (server, _journals, storage) = storage(Script { replies, ..Script::default() }).await;
        server.put("/up/f", b"old");
        let new = Bytes::from_static(b"new");
        let error = storage.write_whole(&path("f"), new, &REPLACING).await.unwrap_err();
        assert_eq!(server.content("/up/f").unwrap(), b"old", "{error}");
    }
}

/// Lists `lines` lines that cannot be parsed, and reads a file after the first of them, while the listing holds the
/// only lane. Returns the number of errors, and the last one.
async fn errors_of(lines: usize) -> (usize, String) {
    let listing = Box::leak("?\r\n".repeat(lines).into_boxed_str()).as_bytes();
    let script = Script { listing, connections: 1, ..Script::default() };
    let (server, _journals, storage) = storage(script).await;
    server.put("/up/f", b"content");
    let mut listed = storage.list(&RelPath::root()).await.unwrap();
    let mut last = listed.next().await.unwrap().unwrap_err();
    assert_eq!(storage.read_whole(&path("f"), 1 << 20).await.unwrap().bytes, "content");
    let mut count = 1;
    while let Some(batch) = listed.next().await {
        last = batch.unwrap_err();
        count += 1;
    }
    (count, last.to_string())
}

#[tokio::test]
async fn a_listing_full_of_errors_does_not_block_the_lane() {
    assert_eq!(errors_of(5000).await.0, 5000);
}

/// Formerly, such a listing was buffered without a limit.
#[tokio::test]
async fn an_endless_listing_whose_lane_another_task_needs_is_cut_off() {
    let (_, last) = errors_of(1_100_000).await;
    assert!(last.contains("another task needs its connection"), "{last}");
}

#[tokio::test]
async fn a_server_with_only_active_mode_is_reported() {
    let replies = &[("EPSV", "500 What?"), ("PASV", "502 Active mode only.")];
    let (server, _journals, storage) = storage(Script { replies, ..Script::default() }).await;
    server.put("/up/f", b"content");
    let error = storage.read_whole(&path("f"), 100).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("active mode"), "{error}");
}

#[tokio::test]
async fn the_address_in_a_reply_to_pasv_is_ignored() {
    let replies = &[("EPSV", "500 What?")];
    // TEST-NET-1 (RFC 5737).
    let script = Script { replies, address: "192,0,2,1", ..Script::default() };
    let (server, _journals, storage) = storage(script).await;
    server.put("/up/f", b"content");
    assert_eq!(storage.read_whole(&path("f"), 100).await.unwrap().bytes, &b"content"[..]);
    let before = server.commands().iter().filter(|line| *line == "EPSV").count();
    storage.read_whole(&path("f"), 100).await.unwrap();
    let after = server.commands().iter().filter(|line| *line == "EPSV").count();
    assert_eq!((before, after), (1, 1), "an unknown command is sent once");
}

async fn refused(script: Script, options: FtpOptions) -> (Scripted, Error) {
    let server = Scripted::start(script).await;
    let error = host(server.port(), options).resolve(b"/").await.unwrap_err();
    (server, error)
}

#[tokio::test]
async fn a_line_or_reply_without_an_end_is_cut_off() {
    let line: &'static str = Box::leak(format!("220 {}", "x".repeat(1 << 20)).into_boxed_str());
    let reply: &'static str = Box::leak("220-and\r\n".repeat(100_000).into_boxed_str());
    let empty: &'static str =
        Box::leak(format!("220-\r\n{}", "\r\n".repeat(100_000)).into_boxed_str());
    let begins: &'static str = Box::leak("150 Here it comes.\r\n".repeat(10_000).into_boxed_str());
    for greeting in [line, reply, empty, begins] {
        let script = Script { greeting, ..Script::default() };
        let (_server, error) = refused(script, FtpOptions::default()).await;
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_speak_ftp_is_reported() {
    let script = Script { greeting: "SSH-2.0-OpenSSH_9.2\r\n", ..Script::default() };
    let (_server, error) = refused(script, FtpOptions::default()).await;
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
}

#[tokio::test]
async fn a_wrong_password_is_reported_but_not_shown() {
    let script = Script { replies: &[("PASS", "530 Login incorrect.")], ..Script::default() };
    let password = Some(PasswordSource::Secret(Secret::new("hunter2")));
    let options = FtpOptions { user: Some("me".to_owned()), password, ..FtpOptions::default() };
    let (server, error) = refused(script, options).await;
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unauthenticated, Retry::Never));
    assert!(!format!("{error:?}").contains("hunter2") && error.to_string().contains("me"));
    let tries = server.commands().iter().filter(|line| line.starts_with("PASS")).count();
    assert_eq!(tries, 1);
}

#[tokio::test]
async fn a_missing_password_is_an_error() {
    let options = FtpOptions { user: Some("me".to_owned()), ..FtpOptions::default() };
    let (_server, error) = refused(Script::default(), options).await;
    assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
}

#[tokio::test]
async fn nothing_but_auth_is_sent_in_plain_text_if_tls_is_required() {
    let options = FtpOptions { tls: TlsMode::Always, ..FtpOptions::default() };
    let (server, error) = refused(Script::default(), options).await;
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert_eq!(server.commands(), ["AUTH TLS"]);
}

#[tokio::test]
async fn data_injected_behind_the_reply_to_auth_is_an_error() {
    let replies = &[("AUTH", "234 Go.\r\n230 In already.")];
    let options = FtpOptions { tls: TlsMode::Always, ..FtpOptions::default() };
    let (_server, error) = refused(Script { replies, ..Script::default() }, options).await;
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
}

#[tokio::test]
async fn a_name_cannot_carry_a_second_command() {
    let (server, _journals, storage) = storage(Script::default()).await;
    server.put("/up/b", b"content");
    let evil = path("a\r\nDELE /up/b");
    let writer = storage.create(&evil, &CreateOptions::default()).await;
    let outcomes = [
        storage.open(&evil).await.err(),
        writer.err(),
        storage.create_dir(&evil).await.err(),
        storage.rename(&path("b"), &evil).await.err(),
        storage.write_whole(&evil, Bytes::new(), &REPLACING).await.err(),
        storage.stat(&evil).await.err(),
        storage.list(&evil).await.err(),
        storage.remove(&evil).await.err(),
    ];
    for error in outcomes {
        let error = error.unwrap();
        assert!(matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::NotFound), "{error}");
    }
    assert!(!server.commands().iter().any(|line| line.starts_with("DELE")));
    assert!(server.content("/up/b").is_some());
}

#[tokio::test]
async fn a_transfer_works_with_fewer_lanes_if_some_are_refused() {
    let script = Script { connections: 2, ..Script::default() };
    let (server, _journals, storage) = storage(script).await;
    let expected = content(50_000);
    server.put("/up/f", &expected);
    storage.set_lanes(6);
    let reads = (0..30).map(|_| async { storage.read_whole(&path("f"), 1 << 20).await });
    for whole in try_join_all(reads).await.unwrap() {
        assert_eq!(whole.bytes, expected);
    }
    let link = storage.link();
    assert!(link.refused > 0 && link.open <= 2, "{link:?}");
}

#[tokio::test]
async fn a_server_that_accepts_no_connection_is_busy() {
    let script = Script { connections: 0, ..Script::default() };
    let (_server, error) = refused(script, FtpOptions::default()).await;
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Busy, Retry::Later), "{error}");
}

/// The connections of a program that has just ended may still count for a moment.
#[tokio::test]
async fn a_server_that_is_full_for_a_moment_is_retried() {
    let server = Scripted::start(Script { connections: 1, ..Script::default() }).await;
    let mut other = tokio::net::TcpStream::connect(("127.0.0.1", server.port())).await.unwrap();
    let mut greeting = [0];
    tokio::io::AsyncReadExt::read_exact(&mut other, &mut greeting).await.unwrap();
    let host = host(server.port(), FtpOptions::default());
    let ends = async {
        while server.refused() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(other);
    };
    let (resolved, ()) = tokio::join!(host.resolve(b"/up"), ends);
    assert!(resolved.unwrap().kind.is_some());
}

#[tokio::test]
async fn a_lane_closed_by_the_server_is_replaced() {
    let (server, _journals, storage) =
        storage(Script { max_commands: 12, ..Script::default() }).await;
    server.put("/up/f", b"content");
    for _ in 0..10 {
        assert_eq!(storage.stat(&path("f")).await.unwrap().size, 7);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Such a server used to be taken for one without EPSV and PASV, so that no file could be read any more.
#[tokio::test]
async fn a_crash_of_the_server_process_is_transient() {
    let replies = &[("EPSV", "500 OOPS: vsf_sysutil_bind"), ("PASV", "500 OOPS: no port")];
    let script = Script { replies, ..Script::default() };
    let (server, _journals, storage) = storage(script).await;
    server.put("/up/f", b"content");
    let error = storage.read_whole(&path("f"), 1 << 20).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unreachable, Retry::Later), "{error}");
    assert!(error.to_string().contains("500 OOPS"), "{error}");
    assert!(!server.commands().iter().any(|line| line == "PASV"), "{:?}", server.commands());
}

#[tokio::test]
async fn unparsable_lines_of_a_listing_are_reported_one_by_one() {
    let listing = b"total 5\r\n-rw-r--r-- 1 o g 7 Nov 22 13:50 good\r\nnonsense \x1b[31m\r\n\
        -rw-r--r-- 1 o g 7 Nov 22 13:50 ../escape\r\ndrwxr-xr-x 2 o g 7 Nov 22 13:50 ..\r\n\
        drwxr-xr-x 2 o g 7 Nov 22 13:50 dir";
    let (_server, _journals, storage) = storage(Script { listing, ..Script::default() }).await;
    let (mut names, mut errors) = (Vec::new(), Vec::new());
    let mut stream = storage.list(&RelPath::root()).await.unwrap();
    while let Some(batch) = stream.next().await {
        match batch {
            Ok(entries) => names.extend(entries.into_iter().map(|entry| entry.path.to_string())),
            Err(error) => errors.push(error),
        }
    }
    assert_eq!(names, ["good", "dir"]);
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors.iter().all(|error| error.kind() == ErrorKind::Protocol));
    assert!(!errors.iter().any(|error| error.to_string().contains('\x1b')));
}

#[tokio::test]
async fn a_listing_with_facts_has_links_and_rejects_names_that_escape() {
    let features = &["MLST type*;size*;", "REST STREAM"];
    let listing = b"type=cdir; .\r\ntype=pdir; ..\r\ntype=file;size=3;  a \r\n\
        type=OS.unix=slink:/etc; link\r\ntype=file;size=3; a/b\r\ntype=file;size=3; ..\r\n";
    let replies = &[("MLST", "250-Listing\r\n type=dir; /up\r\n250 End")];
    let script = Script { features, listing, replies, ..Script::default() };
    let (_server, _journals, storage) = storage(script).await;
    let (mut entries, mut errors) = (Vec::new(), 0);
    let mut stream = storage.list(&RelPath::root()).await.unwrap();
    while let Some(batch) = stream.next().await {
        match batch {
            Ok(batch) => entries.extend(batch),
            Err(_) => errors += 1,
        }
    }
    assert_eq!(errors, 1);
    assert_eq!(entries.len(), 2);
    assert_eq!((entries[0].path.name(), entries[0].size), (&b" a "[..], 3));
    assert_eq!(entries[1].kind, EntryKind::Symlink(b"/etc".to_vec()));
}

#[tokio::test]
async fn a_listing_line_without_an_end_is_cut_off() {
    let listing: &'static [u8] = Box::leak(vec![b'x'; 1 << 20].into_boxed_slice());
    let (_server, _journals, storage) = storage(Script { listing, ..Script::default() }).await;
    let mut stream = storage.list(&RelPath::root()).await.unwrap();
    let error = stream.next().await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
}

/// Writes all of `content` from `offset` on.
async fn write(writer: &dyn WriteAt, content: &[u8], offset: usize) -> Result<()> {
    for (n, piece) in content[offset..].chunks(100_000).enumerate() {
        writer.write_at((offset + n * 100_000) as u64, block(piece)).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_broken_upload_resumes_where_the_part_file_ends() {
    let script = Script { cut_upload: Some((1_234_567, "")), ..Script::default() };
    let (server, _journals, storage) = storage(script).await;
    let expected = content(30 << 20);
    let writer = storage.create(&path("f"), &CreateOptions::default()).await.unwrap();
    let error = write(&*writer, &expected, 0).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.retry()),
        (ErrorKind::Unreachable, Retry::FromStart),
        "{error}"
    );
    drop(writer);
    let options = CreateOptions { resume: true, size: None, sparse: true, ..<_>::default() };
    let writer = storage.create(&path("f"), &options).await.unwrap();
    let stored = writer.reopen(false).await.unwrap().identity().size;
    assert_eq!(stored, 1_234_567);
    write(&*writer, &expected, stored as usize).await.unwrap();
    writer.commit(expected.len() as u64, &REPLACING).await.unwrap();
    assert!(server.content("/up/f").unwrap() == expected);
    assert!(server.commands().contains(&"REST 1234567".to_owned()));
}

#[tokio::test]
async fn a_full_disk_is_reported() {
    let script = Script { cut_upload: Some((100_000, "452 No more.")), ..Script::default() };
    let (_server, _journals, storage) = storage(script).await;
    let writer = storage.create(&path("f"), &CreateOptions::default()).await.unwrap();
    let error = write(&*writer, &content(30 << 20), 0).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::NoSpace, Retry::Never), "{error}");
    writer.abort(false).await.unwrap();
    assert!(storage.stat(&path("f")).await.is_err());
}

/// Formerly, an error after the last block was reported as an aborted upload.
#[tokio::test]
async fn an_error_at_the_end_of_an_upload_is_reported() {
    for (last, kind, retry) in [
        ("452 No more.", ErrorKind::NoSpace, Retry::Never),
        ("552 Quota.", ErrorKind::NoSpace, Retry::Never),
        ("451 Local error.", ErrorKind::Io, Retry::FromStart),
        ("426 Gone.", ErrorKind::Unreachable, Retry::FromStart),
        ("", ErrorKind::Unreachable, Retry::FromStart),
    ] {
        for reopens in [false, true] {
            let script = Script { cut_upload: Some((5, last)), ..Script::default() };
            let (server, _journals, storage) = storage(script).await;
            let writer = storage.create(&path("f"), &CreateOptions::default()).await.unwrap();
            writer.write_at(0, block(b"content")).await.unwrap();
            let error = match reopens {
                true => writer.reopen(false).await.unwrap_err(),
                false => writer.commit(7, &REPLACING).await.unwrap_err(),
            };
            assert_eq!((error.kind(), error.retry()), (kind, retry), "{last}: {error}");
            assert_eq!(server.content("/up/f"), None);
        }
    }
}

#[tokio::test]
async fn a_truncated_upload_is_not_renamed() {
    let script = Script { cut_upload: Some((5, "226 Got it.")), ..Script::default() };
    let (server, _journals, storage) = storage(script).await;
    let writer = storage.create(&path("f"), &CreateOptions::default()).await.unwrap();
    writer.write_at(0, block(b"content")).await.unwrap();
    let error = writer.commit(7, &REPLACING).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
    assert_eq!(server.content("/up/f"), None);
}

#[tokio::test]
async fn a_truncated_small_upload_is_not_renamed() {
    let script = Script { cut_upload: Some((5, "226 Got it.")), ..Script::default() };
    let (server, _journals, storage) = storage(script).await;
    let bytes = Bytes::from_static(b"content");
    let error = storage.write_whole(&path("f"), bytes, &REPLACING).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
    assert_eq!(server.content("/up/f"), None);
    assert!(server.names().is_empty(), "{:?}", server.names());
}

#[tokio::test]
async fn a_copy_from_a_host_to_itself_works_with_a_target_of_one_lane() {
    let (server, _journals, storage) = storage(Script::default()).await;
    let expected = content(3 << 20);
    server.put("/up/f", &expected);
    let file = storage.open(&path("f")).await.unwrap();
    let writer = storage.create(&path("g"), &CreateOptions::default()).await.unwrap();
    let mut at = 0;
    let mut blocks = file.read_at(Range::new(0, 3 << 20));
    while let Some(block) = blocks.next().await {
        let block = block.unwrap();
        let length = block.len() as u64;
        writer.write_at(at, block).await.unwrap();
        at += length;
        storage.stat(&path("f")).await.unwrap();
    }
    writer.commit(at, &REPLACING).await.unwrap();
    assert!(server.content("/up/g").unwrap() == expected);
}

#[tokio::test]
async fn the_nearest_existing_directory_of_a_destination_is_found() {
    let server = Scripted::start(Script::default()).await;
    server.put("/up/f", b"content");
    let host: Arc<FtpHost> = host(server.port(), FtpOptions::default());
    let nearest = host.nearest(b"/up/new/name").await.unwrap();
    assert_eq!((&nearest.directory[..], nearest.kind), (&b"/up"[..], None));
    assert_eq!(nearest.rest, ["new", "name"]);
    let file = host.nearest(b"/up/f").await.unwrap();
    assert_eq!((file.rest.len(), file.kind), (1, Some(haul_ftp::Kind::File)));
    let directory = host.nearest(b"/up/").await.unwrap();
    assert_eq!((directory.rest.len(), directory.kind), (0, Some(haul_ftp::Kind::Directory)));
    let error = host.nearest(b"/up/f/below").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotADirectory, "{error}");
    assert_eq!(host.resolve(b"/~/up/f").await.unwrap().path, "/up/f");
}

/// Regression: a directory without permission was reported as "not a directory".
#[tokio::test]
async fn a_destination_in_a_directory_that_cannot_be_entered_is_denied() {
    const CLOSED: &str = "250-\r\n type=dir; /up/closed\r\n250 End";
    let script = Script {
        features: &["MLST type*;size*;modify*;", "UTF8"],
        replies: &[
            ("MLST /up/closed", CLOSED),
            ("MLST /up/f", "250-\r\n type=file;size=7; /up/f\r\n250 End"),
            ("MLST", "550 Not there."),
            ("CWD /up/closed", "550 Failed to change directory."),
        ],
        ..Script::default()
    };
    let server = Scripted::start(script).await;
    let host = host(server.port(), FtpOptions::default());
    for below in ["", "/new", "/new/name"] {
        let path = format!("/up/closed{below}");
        let error = host.nearest(path.as_bytes()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{path}: {error}");
        assert!(error.to_string().contains("/up/closed: "), "{error}");
        assert!(error.to_string().contains("Failed to change directory"), "{error}");
    }
    let error = host.nearest(b"/up/f/below").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotADirectory, "{error}");
    assert_eq!(host.nearest(b"/up/new/name").await.unwrap().rest, ["new", "name"]);
}

/// A server that falls silent, and a client that waits half a second for it.
async fn silent(silent_at: &'static str) -> (Scripted, Arc<FtpHost>) {
    let server = Scripted::start(Script { silent_at, ..Script::default() }).await;
    server.put("/up/f", &content(1 << 20));
    let silence = Duration::from_millis(500);
    let host = host(
        server.port(),
        FtpOptions { waits: Waits::default().with_silence(silence), ..FtpOptions::default() },
    );
    (server, host)
}

#[tokio::test]
async fn a_silent_server_times_out() {
    for verb in ["USER", "PASS", "FEAT"] {
        let (_server, host) = silent(verb).await;
        let error = host.resolve(b"/up").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(error.to_string().contains("no data in either direction"), "{error}");
    }
    let (_server, host) = silent("RETR").await;
    let (_journals, storage) = opened(&host).await;
    let file = storage.open(&path("f")).await.unwrap();
    let error = read(&*file, Range::new(0, 1 << 20)).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unreachable, Retry::Later), "{error}");

    let (_server, host) = silent("STOR").await;
    let (_journals, storage) = opened(&host).await;
    let writer = storage.create(&path("g"), &CreateOptions::default()).await.unwrap();
    let error = write(&*writer, &content(60 << 20), 0).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
}

#[tokio::test]
async fn a_slow_server_does_not_time_out() {
    let pause = Duration::from_millis(350);
    let server = Scripted::start(Script { pause, ..Script::default() }).await;
    let expected = content(12_000);
    server.put("/up/f", &expected);
    // Less than all pauses together, and more than a busy machine may stall.
    let silence = Duration::from_secs(3);
    let host = host(
        server.port(),
        FtpOptions { waits: Waits::default().with_silence(silence), ..FtpOptions::default() },
    );
    let (_journals, storage) = opened(&host).await;
    let file = storage.open(&path("f")).await.unwrap();
    assert_eq!(read(&*file, Range::new(0, 12_000)).await.unwrap(), expected);
}
