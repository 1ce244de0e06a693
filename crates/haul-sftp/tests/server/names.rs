//! Unusual names, renames, attributes, listings.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};

use bytes::Bytes;
use haul_sftp::codec::{Attrs, OpenFlags, Request, Response, Status};

use crate::pipe::{Client, NEW, ServedDir, bytes, open, posix_rename};

async fn listed(client: &mut Client, path: &str) -> Vec<(Vec<u8>, String)> {
    let Response::Handle(handle) = client.call(&Request::Opendir(bytes(path))).await else {
        panic!("no handle")
    };
    let mut found = Vec::new();
    loop {
        match client.call(&Request::Readdir(handle.clone())).await {
            Response::Names(names) => found.extend(
                names.iter().map(|n| (n.name.to_vec(), String::from_utf8_lossy(&n.long).into())),
            ),
            Response::Status { status: Status::Eof, .. } => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(client.status(&Request::Close(handle)).await, Status::Ok);
    found
}

#[tokio::test]
async fn unusual_names_are_accepted_and_impossible_ones_refused() {
    let dir = ServedDir::new();
    let mut client = dir.session().await;
    let long = vec![b'x'; 255];
    let names: [&[u8]; 5] = [b"new\nline", b"in\xffvalid", b" ", b"\\*?", &long];
    for name in names {
        let path = Bytes::copy_from_slice(name);
        let request = Request::Open { path, flags: NEW, attrs: Attrs::default() };
        assert!(matches!(client.call(&request).await, Response::Handle(_)));
        assert!(dir.path(OsStr::from_bytes(name)).is_file());
    }
    let found: BTreeSet<_> = listed(&mut client, "/").await.into_iter().map(|n| n.0).collect();
    let expected: BTreeSet<_> =
        names.iter().chain(&[&b"."[..], b".."]).map(|name| name.to_vec()).collect();
    assert_eq!(found, expected);
    for (path, status) in [
        ("x".repeat(256), Status::BadMessage),
        ("x/".repeat(5_000), Status::BadMessage),
        ("a\0b".to_owned(), Status::BadMessage),
    ] {
        assert_eq!(client.status(&open(&path, NEW)).await, status);
    }
}

#[tokio::test]
async fn a_long_directory_is_listed_completely_with_lines_like_those_of_ls() {
    let dir = ServedDir::new();
    for n in 0..1_000 {
        fs::write(dir.path(format!("file-{n}")), "abc").unwrap();
    }
    let mut client = dir.session().await;
    let found = listed(&mut client, "/").await;
    assert_eq!(found.len(), 1_002);
    let line = &found.iter().find(|entry| entry.0 == b"file-7").unwrap().1;
    assert!(line.starts_with("-rw-"), "{line}");
    assert!(line.ends_with(" file-7") && line.contains("         3 "), "{line}");
}

#[tokio::test]
async fn a_posix_rename_replaces_the_target_and_a_plain_rename_does_not() {
    let dir = ServedDir::new();
    fs::write(dir.path("a"), "a").unwrap();
    fs::write(dir.path("b"), "b").unwrap();
    let mut client = dir.session().await;
    let rename = |from: &str, to: &str| Request::Rename { from: bytes(from), to: bytes(to) };
    assert_eq!(client.status(&rename("a", "b")).await, Status::Failure);
    assert_eq!(client.status(&rename("a", "c")).await, Status::Ok);
    assert_eq!(client.status(&posix_rename("c", "b")).await, Status::Ok);
    assert_eq!(fs::read(dir.path("b")).unwrap(), b"a");
    assert_eq!(client.status(&rename("none", "d")).await, Status::NoSuchFile);
    for path in ["/", ".", "..", ""] {
        assert_eq!(client.status(&rename(path, "d")).await, Status::Failure, "{path}");
        let mkdir = Request::Mkdir(bytes(path), Attrs::default());
        assert_eq!(client.status(&mkdir).await, Status::Failure, "{path}");
        assert_eq!(client.status(&Request::Rmdir(bytes(path))).await, Status::Failure, "{path}");
    }
}

#[tokio::test]
async fn attributes_are_set_by_path_and_by_handle() {
    let dir = ServedDir::new();
    fs::write(dir.path("file"), "0123456789").unwrap();
    symlink("file", dir.path("link")).unwrap();
    let mut client = dir.session().await;
    let attrs = Attrs {
        size: Some(4),
        permissions: Some(0o100_640),
        times: Some((1_000, 2_000)),
        ..Attrs::default()
    };
    // By the path of a link, on its target.
    assert_eq!(client.status(&Request::Setstat(bytes("link"), attrs)).await, Status::Ok);
    let found = fs::metadata(dir.path("file")).unwrap();
    assert_eq!((found.len(), found.mode() & 0o7777), (4, 0o640));
    assert_eq!((found.atime(), found.mtime()), (1_000, 2_000));

    let handle = client.open("file", OpenFlags::READ.and(OpenFlags::WRITE)).await;
    let attrs = Attrs { size: Some(7), times: Some((1, 2)), ..Attrs::default() };
    assert_eq!(client.status(&Request::Fsetstat(handle.clone(), attrs)).await, Status::Ok);
    let Response::Attrs(found) = client.call(&Request::Fstat(handle)).await else {
        panic!("no attributes")
    };
    assert_eq!((found.size, found.times), (Some(7), Some((1, 2))));
    let Response::Attrs(found) = client.call(&Request::Lstat(bytes("link"))).await else {
        panic!("no attributes")
    };
    assert_eq!(found.permissions.unwrap() & 0o170_000, 0o120_000);
}

/// Formerly, a debug build panicked.
#[tokio::test]
async fn an_owner_of_minus_one_is_left_as_it_is() {
    let dir = ServedDir::new();
    fs::write(dir.path("file"), "x").unwrap();
    let before = fs::metadata(dir.path("file")).unwrap();
    let mut client = dir.session().await;
    let attrs = Attrs { owner: Some((u32::MAX, u32::MAX)), ..Attrs::default() };
    assert_eq!(client.status(&Request::Setstat(bytes("file"), attrs.clone())).await, Status::Ok);
    let handle = client.open("file", OpenFlags::READ.and(OpenFlags::WRITE)).await;
    assert_eq!(client.status(&Request::Fsetstat(handle, attrs)).await, Status::Ok);
    let after = fs::metadata(dir.path("file")).unwrap();
    assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
}

#[tokio::test]
async fn only_regular_files_are_opened_and_exclusive_opens_only_create() {
    let dir = ServedDir::new();
    fs::create_dir(dir.path("dir")).unwrap();
    let fifo = dir.path("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut client = dir.session().await;
    for path in ["dir", "fifo"] {
        let status = client.status(&open(path, OpenFlags::READ)).await;
        assert_eq!(status, Status::Failure, "{path}");
    }
    assert_eq!(client.status(&Request::Opendir(bytes("fifo"))).await, Status::NoSuchFile);
    let exclusive = NEW.and(OpenFlags::EXCLUSIVE);
    client.open("new", exclusive).await;
    assert_eq!(client.status(&open("new", exclusive)).await, Status::Failure);
}

#[tokio::test]
async fn a_write_to_a_file_open_for_appending_goes_to_its_end() {
    let dir = ServedDir::new();
    fs::write(dir.path("log"), "one ").unwrap();
    let mut client = dir.session().await;
    let handle = client.open("log", OpenFlags::WRITE.and(OpenFlags::APPEND)).await;
    for words in ["two ", "three"] {
        assert_eq!(client.status(&crate::pipe::write(&handle, 0, words)).await, Status::Ok);
    }
    assert_eq!(fs::read(dir.path("log")).unwrap(), b"one two three");
}
