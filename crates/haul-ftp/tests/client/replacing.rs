//! Replacing files on servers whose rename does not replace.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use haul_ftp::{FtpOptions, FtpStorage};
use haul_storage::{Block, CommitOptions, CreateOptions, ErrorKind, Metadata, RelPath, Storage};
use tempfile::TempDir;

use crate::scripted::{Script, Scripted};
use crate::{host, opened};

fn replacing(replace: bool) -> CommitOptions {
    CommitOptions { metadata: Metadata::default(), replace, sync: false, expected: None }
}

fn path(name: &str) -> RelPath {
    RelPath::parse(name).unwrap()
}

fn is_aside(path: &str) -> bool {
    path == "/up/.f.haul-old"
}

/// Whether it is the part file of a small or a long upload.
fn is_part(path: &str) -> bool {
    path.starts_with("/up/.f.") && (path.ends_with(".haul-temp") || path.ends_with(".haul-upload"))
}

/// A server whose rename does not replace.
fn non_replacing() -> Script {
    Script {
        replies: &[("SYST", "215 Windows_NT")],
        renames: |_, _, exists| !exists,
        ..Script::default()
    }
}

async fn storage(script: Script) -> (Scripted, TempDir, Arc<FtpStorage>) {
    let server = Scripted::start(script).await;
    let (journals, storage) = opened(&host(server.port(), FtpOptions::default())).await;
    (server, journals, storage)
}

/// Writes "new" as `f`: as a small file if `whole`, otherwise as a long one.
async fn write(storage: &FtpStorage, whole: bool, replace: bool) -> haul_storage::Result<()> {
    let (name, new) = (path("f"), Bytes::from_static(b"new"));
    if whole {
        return storage.write_whole(&name, new, &replacing(replace)).await;
    }
    let writer = storage.create(&name, &CreateOptions::default()).await?;
    writer.write_at(0, Block::from(new)).await?;
    let committed = writer.commit(3, &replacing(replace)).await;
    if committed.is_err() {
        writer.abort(false).await?;
    }
    committed
}

#[tokio::test]
async fn the_old_file_is_renamed_aside_and_removed_when_the_new_one_has_the_name() {
    for whole in [true, false] {
        let (server, _journals, storage) = storage(non_replacing()).await;
        server.put("/up/f", b"old");
        write(&storage, whole, true).await.unwrap();
        assert_eq!(server.names(), ["/up/f"]);
        assert_eq!(server.content("/up/f").unwrap(), b"new");
        let removed = server.commands().iter().any(|line| line == "DELE /up/f");
        assert!(!removed, "the old file was removed before the new one had the name");
    }
}

/// Formerly, it was an error of the file, which had arrived.
#[tokio::test]
async fn an_old_file_that_cannot_be_removed_is_a_warning() {
    for whole in [true, false] {
        let replies = &[("SYST", "215 Windows_NT"), ("DELE /up/.f.haul-old", "550 Denied")];
        let server = Scripted::start(Script { replies, ..non_replacing() }).await;
        let host = host(server.port(), FtpOptions::default());
        let (warnings, received) = std::sync::mpsc::channel();
        host.warn_through(move |message| warnings.send(message.to_owned()).unwrap());
        let (_journals, storage) = opened(&host).await;
        server.put("/up/f", b"old");
        write(&storage, whole, true).await.unwrap();
        assert_eq!(server.content("/up/f").unwrap(), b"new");
        assert_eq!(server.content("/up/.f.haul-old").unwrap(), b"old");
        assert_eq!(server.names().len(), 2, "{:?}", server.names());
        let warnings: Vec<_> = received.try_iter().collect();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        let expected = "the old version of a replaced file stays as /up/.f.haul-old (";
        assert!(warnings[0].starts_with(expected), "{warnings:?}");
    }
}

/// Any refusal of the new name used to remove the old file.
#[tokio::test]
async fn the_old_file_is_renamed_back_if_the_new_one_cannot_get_the_name() {
    for whole in [true, false] {
        let renames = |from: &str, _: &str, _: bool| !is_part(from);
        let (server, _journals, storage) = storage(Script { renames, ..Script::default() }).await;
        server.put("/up/f", b"old");
        let error = write(&storage, whole, true).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        assert_eq!(server.content("/up/f").unwrap(), b"old", "{error}");
        assert_eq!(server.names(), ["/up/f"], "{error}");
    }
}

/// What another machine does when it replaces `f`: it renames the present file aside.
fn set_aside(files: &mut HashMap<String, Vec<u8>>) {
    if let Some(present) = files.remove("/up/f") {
        files.insert("/up/.f.haul-old".to_owned(), present);
    }
}

/// Formerly, what was aside was removed before the present file was set aside, even if it was another machine's, whose
/// new file had no name yet.
#[tokio::test]
async fn what_another_machine_has_set_aside_meanwhile_stays() {
    for (whole, accepts_any_rnfr) in [(true, false), (true, true), (false, false), (false, true)] {
        let renames = |from: &str, _: &str, _: bool| !is_part(from);
        // After this machine has seen that the name is taken.
        let meanwhile: fn(&str, &mut HashMap<String, Vec<u8>>) = |line, files| {
            if matches!(line, "DELE /up/.f.haul-old" | "RNFR /up/f") {
                set_aside(files);
            }
        };
        let script = Script { renames, accepts_any_rnfr, meanwhile, ..Script::default() };
        let (server, _journals, storage) = storage(script).await;
        server.put("/up/f", b"old");
        write(&storage, whole, true).await.unwrap_err();
        let names = server.names();
        assert_eq!(server.content("/up/.f.haul-old").as_deref(), Some(&b"old"[..]), "{names:?}");
    }
}

/// The name was free. Formerly, a server that accepts RNFR for every name was told to remove what is aside without a
/// look, although that may be the new file, for which another machine has no replacement in place yet.
#[tokio::test]
async fn a_new_file_that_another_machine_sets_aside_at_once_stays() {
    for whole in [true, false] {
        let meanwhile: fn(&str, &mut HashMap<String, Vec<u8>>) = |line, files| {
            if line.ends_with(" /up/.f.haul-old") && !line.starts_with("RNFR") {
                set_aside(files);
            }
        };
        // This server is assumed to replace, so nothing is looked for before the rename.
        let script = Script { accepts_any_rnfr: true, replies: &[], meanwhile, ..non_replacing() };
        let (server, _journals, storage) = storage(script).await;
        write(&storage, whole, true).await.unwrap();
        let names = server.names();
        assert_eq!(server.content("/up/.f.haul-old").as_deref(), Some(&b"new"[..]), "{names:?}");
    }
}

/// The other machine's new file finds the name taken.
#[tokio::test]
async fn the_name_is_taken_between_the_renames_of_another_machine() {
    for whole in [true, false] {
        let meanwhile: fn(&str, &mut HashMap<String, Vec<u8>>) = |line, files| {
            if line == "RNFR /up/f"
                && let Some(old) = files.remove("/up/f")
            {
                files.insert("/up/.f.haul-old".to_owned(), old);
            }
        };
        let script = Script { meanwhile, ..non_replacing() };
        let (server, _journals, storage) = storage(script).await;
        server.put("/up/f", b"old");
        write(&storage, whole, true).await.unwrap();
        assert_eq!(server.names(), ["/up/f"]);
        assert_eq!(server.content("/up/f").unwrap(), b"new");
    }
}

#[tokio::test]
async fn if_nothing_can_be_renamed_back_nothing_is_removed() {
    // The old file can be renamed away, and after that nothing can get its name.
    let renames = |_: &str, to: &str, _: bool| to != "/up/f";
    let (server, _journals, storage) = storage(Script { renames, ..Script::default() }).await;
    server.put("/up/f", b"old");
    let error = write(&storage, true, true).await.unwrap_err();
    let names = server.names();
    assert_eq!(names.len(), 2, "{names:?}: {error}");
    let part = names.iter().find(|name| is_part(name)).unwrap();
    assert_eq!(server.content(part).unwrap(), b"new");
    let aside = names.iter().find(|name| is_aside(name)).unwrap();
    assert_eq!(server.content(aside).unwrap(), b"old");
    assert!(error.to_string().contains(aside) && error.to_string().contains(part), "{error}");
}

/// The name under which haul puts `f` aside, read from a server where it cannot be renamed back.
async fn aside() -> String {
    let renames = |_: &str, to: &str, _: bool| to != "/up/f";
    let (server, _journals, storage) = storage(Script { renames, ..Script::default() }).await;
    server.put("/up/f", b"old");
    write(&storage, true, true).await.unwrap_err();
    server.names().into_iter().find(|name| is_aside(name)).unwrap()
}

#[tokio::test]
async fn a_file_left_aside_by_a_killed_run_is_removed_once_the_name_is_taken() {
    let aside = aside().await;
    for whole in [true, false] {
        for newer in [false, true] {
            let (server, _journals, storage) = storage(non_replacing()).await;
            server.put(&aside, b"old");
            if newer {
                server.put("/up/f", b"newer");
            }
            write(&storage, whole, true).await.unwrap();
            assert_eq!(server.names(), ["/up/f"]);
            assert_eq!(server.content("/up/f").unwrap(), b"new");
        }
    }
}

#[tokio::test]
async fn a_file_left_aside_by_a_killed_run_is_renamed_back_if_not_replacing() {
    let aside = aside().await;
    // A server that calls itself UNIX is expected to replace.
    let systems: [&[_]; 2] = [&[("SYST", "215 Windows_NT")], &[("SYST", "215 UNIX Type: L8")]];
    for replies in systems {
        for whole in [true, false] {
            let (server, _journals, storage) = storage(Script { replies, ..non_replacing() }).await;
            server.put(&aside, b"old");
            let error = write(&storage, whole, false).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{replies:?}: {error}");
            assert_eq!(server.content("/up/f").unwrap(), b"old", "{replies:?}");
            assert_eq!(server.names(), ["/up/f"], "{replies:?}");
        }
    }
}

#[tokio::test]
async fn a_file_left_aside_by_a_killed_run_is_renamed_back_when_a_write_begins() {
    let aside = aside().await;
    let (server, _journals, storage) = storage(non_replacing()).await;
    server.put(&aside, b"old");
    let writer = storage.create(&path("f"), &CreateOptions::default()).await.unwrap();
    writer.write_at(0, Block::from(Bytes::from_static(b"ne"))).await.unwrap();
    assert_eq!(server.content("/up/f").unwrap(), b"old");
    writer.abort(false).await.unwrap();
    assert_eq!(server.names(), ["/up/f"]);
}
