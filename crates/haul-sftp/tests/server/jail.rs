//! Clients cannot leave the served directory, and a read-only share refuses every change.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use haul_sftp::codec::{Attrs, Extended, OpenFlags, Request, Response, Status};
use haul_sftp::server::ShareOptions;

use crate::pipe::{Client, NEW, ServedDir, bytes, open, posix_rename};

#[tokio::test]
async fn no_path_and_no_link_leads_out_of_the_served_directory() {
    let dir = ServedDir::new();
    let outside = dir.outside("");
    symlink("..", dir.path("up")).unwrap();
    symlink(&outside, dir.path("absolute")).unwrap();
    symlink(dir.outside("secret"), dir.path("file")).unwrap();
    symlink("../secret", dir.path("relative")).unwrap();
    symlink("/proc/self/root", dir.path("magic")).unwrap();
    let mut client = dir.session().await;
    let secret = dir.outside("secret").display().to_string();
    for path in [
        "../secret",
        "/../secret",
        "a/../../secret",
        "up/secret",
        "absolute/secret",
        "file",
        "relative",
        &format!("magic{secret}"),
        &secret,
    ] {
        let status = client.status(&open(path, OpenFlags::READ)).await;
        assert_eq!(status, Status::NoSuchFile, "{path}");
        let status = client.status(&Request::Stat(bytes(path))).await;
        assert_eq!(status, Status::NoSuchFile, "{path}");
    }
    // Changes through links upwards stay inside: `..` of the root is the root.
    assert_eq!(
        client.status(&Request::Mkdir(bytes("up/made"), Attrs::default())).await,
        Status::Ok
    );
    assert!(dir.path("made").is_dir());
    assert_eq!(client.status(&posix_rename("made", "../../moved")).await, Status::Ok);
    assert!(dir.path("moved").is_dir());
    assert_eq!(client.status(&Request::Remove(bytes("../secret"))).await, Status::NoSuchFile);
    let size = Attrs { size: Some(0), ..Attrs::default() };
    assert_eq!(client.status(&Request::Setstat(bytes("file"), size)).await, Status::NoSuchFile);
    assert_eq!(fs::read_to_string(dir.outside("secret")).unwrap(), "secret");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 2);
}

#[tokio::test]
async fn paths_are_reported_relative_to_the_served_root() {
    let dir = ServedDir::new();
    fs::create_dir(dir.path("dir")).unwrap();
    fs::write(dir.path("dir/file"), "").unwrap();
    symlink("/dir", dir.path("link")).unwrap();
    symlink(dir.path("dir"), dir.path("host")).unwrap();
    let mut client = dir.session().await;
    for (path, real) in [
        ("", "/"),
        (".", "/"),
        ("/..", "/"),
        ("link/file", "/dir/file"),
        ("/link/../new", "/new"),
        ("dir/./new/", "/dir/new"),
    ] {
        let found = client.path(&Request::Realpath(bytes(path))).await;
        assert_eq!(String::from_utf8(found).unwrap(), real, "{path}");
    }
    let home = Request::Extended(Extended::ExpandPath(bytes("~/dir")));
    assert_eq!(client.path(&home).await, b"/dir");
    assert_eq!(client.path(&Request::Readlink(bytes("link"))).await, b"/dir");
    assert_eq!(client.path(&Request::Readlink(bytes("host"))).await, b"/dir");
    assert_eq!(client.status(&Request::Realpath(bytes("no/such"))).await, Status::NoSuchFile);
}

#[tokio::test]
async fn the_parent_of_the_root_is_listed_with_the_roots_attributes() {
    let dir = ServedDir::new();
    let mut client = dir.session().await;
    let Response::Handle(handle) = client.call(&Request::Opendir(bytes("/"))).await else {
        panic!("no handle")
    };
    let Response::Names(names) = client.call(&Request::Readdir(handle)).await else {
        panic!("no names")
    };
    let of = |name: &str| names.iter().find(|entry| entry.name == name).unwrap().attrs.clone();
    assert_eq!(of(".."), of("."));
    assert_eq!(names.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_replaced_during_an_open_does_not_lead_outside() {
    let dir = ServedDir::new();
    fs::create_dir(dir.path("real")).unwrap();
    fs::write(dir.path("real/secret"), "inside").unwrap();
    symlink(dir.outside(""), dir.path("bad")).unwrap();
    symlink("real", dir.path("way")).unwrap();
    let ends = Arc::new(AtomicBool::new(false));
    let (root, until) = (dir.path(""), Arc::clone(&ends));
    let swapping = std::thread::spawn(move || {
        while !until.load(Ordering::Relaxed) {
            for target in ["bad", "real", ".."] {
                symlink(target, root.join("next")).unwrap();
                fs::rename(root.join("next"), root.join("way")).unwrap();
            }
        }
    });
    let mut client = dir.session().await;
    // On a busy disk the link may stay the same during thousands of opens.
    let (mut opened, mut refused, mut changes, mut was_opened) = (0, 0, 0, true);
    while opened + refused < 2_000 || changes < 200 {
        assert!(opened + refused < 2_000_000, "{opened} opened, {refused} refused");
        let before = opened;
        match client.call(&open("way/secret", OpenFlags::READ)).await {
            Response::Handle(handle) => {
                opened += 1;
                let read = Request::Read { handle: handle.clone(), offset: 0, length: 100 };
                let Response::Data(data) = client.call(&read).await else { panic!("no data") };
                assert_eq!(data.into_bytes(), &b"inside"[..]);
                assert_eq!(client.status(&Request::Close(handle)).await, Status::Ok);
            }
            Response::Status { .. } => refused += 1,
            other => panic!("{other:?}"),
        }
        if std::mem::replace(&mut was_opened, opened > before) != was_opened {
            changes += 1;
        }
    }
    ends.store(true, Ordering::Relaxed);
    swapping.join().unwrap();
}

#[tokio::test]
async fn read_only_refuses_every_change() {
    let dir = ServedDir::new();
    fs::write(dir.path("file"), "content").unwrap();
    let options = ShareOptions { read_only: true, ..ShareOptions::default() };
    let mut client = Client::begin(&dir.share(options)).await;
    let attrs = || Attrs { permissions: Some(0o600), ..Attrs::default() };
    let handle = client.open("file", OpenFlags::READ).await;
    let changes = [
        open("new", NEW),
        open("file", OpenFlags::WRITE),
        open("file", OpenFlags::READ.and(OpenFlags::TRUNCATE)),
        open("file", OpenFlags::APPEND),
        crate::pipe::write(&handle, 0, "x"),
        Request::Setstat(bytes("file"), attrs()),
        Request::Fsetstat(handle.clone(), attrs()),
        Request::Remove(bytes("file")),
        Request::Mkdir(bytes("dir"), attrs()),
        Request::Rmdir(bytes("dir")),
        Request::Rename { from: bytes("file"), to: bytes("other") },
        Request::Symlink { target: bytes("file"), link: bytes("link") },
        posix_rename("file", "other"),
        Request::Extended(Extended::Hardlink { from: bytes("file"), to: bytes("other") }),
        Request::Extended(Extended::Lsetstat(bytes("file"), attrs())),
        Request::Extended(Extended::CopyData {
            from: handle.clone(),
            from_offset: 0,
            length: 1,
            to: handle.clone(),
            to_offset: 3,
        }),
    ];
    for change in &changes {
        assert_eq!(client.status(change).await, Status::PermissionDenied, "{change:?}");
    }
    assert_eq!(client.content("file").await, b"content");
    assert_eq!(fs::read_dir(dir.path("")).unwrap().count(), 1);
}
