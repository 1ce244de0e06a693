//! Servers that do not support, or do not allow, optional commands: the client learns the alternative once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use haul_ftp::{FtpOptions, FtpStorage};
use haul_net::Waits;
use haul_storage::{
    Block, CommitOptions, CreateOptions, Entry, ErrorKind, Metadata, Range, ReadAt, RelPath,
    Result, Storage,
};
use tempfile::TempDir;

use crate::scripted::{Script, Scripted};
use crate::{host, opened};

const LINE: &[u8] = b"-rw-r--r--    1 o        g               7 Nov 22 13:50 f\r\n";
const FACTS: &[&str] = &["MLST type*;size*;modify*;", "SIZE", "MDTM", "REST STREAM"];

async fn storage(script: Script) -> (Scripted, TempDir, Arc<FtpStorage>) {
    let server = Scripted::start(script).await;
    server.put("/up/f", b"content");
    let (journals, storage) = opened(&host(server.port(), FtpOptions::default())).await;
    (server, journals, storage)
}

fn path(name: &str) -> RelPath {
    RelPath::parse(name).unwrap()
}

async fn listed(storage: &FtpStorage) -> Result<Vec<Entry>> {
    let batches = storage.list(&RelPath::root()).await?;
    let mut entries: Vec<_> = batches.try_collect::<Vec<_>>().await?.concat();
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(entries)
}

async fn names(storage: &FtpStorage) -> Vec<String> {
    let entries = listed(storage).await.unwrap();
    entries.iter().map(|entry| entry.path.to_string()).collect()
}

async fn read(file: &dyn ReadAt) -> Result<Vec<u8>> {
    let mut blocks = file.read_at(Range::new(0, u64::MAX));
    let mut all = Vec::new();
    while let Some(block) = blocks.next().await {
        all.extend_from_slice(&block?.into_bytes());
    }
    Ok(all)
}

/// Checks all ways to find and read the file `f`.
async fn is_whole(storage: &FtpStorage) {
    let entry = storage.stat(&path("f")).await.unwrap();
    assert!(entry.is_file() && entry.size == 7, "{entry:?}");
    let whole = storage.read_whole(&path("f"), 1 << 20).await.unwrap();
    assert_eq!(whole.bytes, "content");
    let file = storage.open(&path("f")).await.unwrap();
    assert_eq!(file.identity().size, 7);
    assert_eq!(read(&*file).await.unwrap(), b"content");
    let missing = storage.open(&path("missing")).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound, "{missing}");
}

fn sent(server: &Scripted, line: &str) -> usize {
    server.commands().iter().filter(|command| command.starts_with(line)).count()
}

/// Servers that take `-a` for a path used to be listed as empty.
#[tokio::test]
async fn list_is_used_if_list_all_lists_nothing() {
    let empty = Script { listing: LINE, listings: &[("LIST -a", b"")], ..Script::default() };
    let headed = Script { listings: &[("LIST -a", b"total 0\r\n")], ..empty.clone() };
    const ERROR: &[u8] = b"/bin/ls: -a: No such file or directory\r\n";
    let wrong = Script { listings: &[("LIST -a", ERROR)], ..empty.clone() };
    for script in [empty, headed, wrong] {
        let (server, _journals, storage) = storage(script).await;
        for _ in 0..3 {
            assert_eq!(names(&storage).await, ["f"]);
        }
        assert_eq!(sent(&server, "LIST -a"), 1, "an unknown option is sent once");
    }
    // The message of `ls` in place of an empty directory's listing is no error.
    let empty = Script { listing: b"", listings: &[("LIST -a", ERROR)], ..Script::default() };
    let (_server, _journals, storage) = storage(empty).await;
    assert_eq!(names(&storage).await, [""; 0]);
    // Lines that cannot be parsed may be entries that plain `LIST` hides.
    const UNKNOWN: &[u8] = b"?? .hidden ??\r\n";
    let hidden = Script { listing: b"", listings: &[("LIST -a", UNKNOWN)], ..Script::default() };
    let (_server, _journals, storage) = self::storage(hidden).await;
    assert!(listed(&storage).await.is_err());
}

#[tokio::test]
async fn a_directory_named_like_the_option_is_not_listed_instead() {
    const INSIDE: &[u8] = b"-rw-r--r--    1 o        g               7 Nov 22 13:50 inside\r\n";
    let script = Script { listing: LINE, listings: &[("LIST -a", INSIDE)], ..Script::default() };
    let (_server, _journals, storage) = storage(script).await;
    assert_eq!(names(&storage).await, ["f"]);
}

#[tokio::test]
async fn list_is_not_used_if_list_all_works() {
    const ALL: &[u8] = b"drwxr-xr-x    2 o  g  4096 Nov 22 13:50 .\r\n\
        drwxr-xr-x    2 o  g  4096 Nov 22 13:50 ..\r\n\
        -rw-r--r--    1 o        g               7 Nov 22 13:50 .hidden\r\n";
    let script = Script { listing: b"", listings: &[("LIST -a", ALL)], ..Script::default() };
    let (server, _journals, storage) = storage(script).await;
    assert_eq!(names(&storage).await, [".hidden"]);
    assert_eq!(sent(&server, "LIST"), 1);
    // If `LIST -a` does not list the directory itself, entries that plain `LIST` has too show that it works.
    // `LIST` is sent once for that.
    const BOTH: &[u8] =
        b"-rw-r--r--  1 o  g  7 Nov 22 13:50 f\r\n-rw-r--r--  1 o  g  7 Nov 22 13:50 .h\r\n";
    let script = Script { listing: LINE, listings: &[("LIST -a", BOTH)], ..Script::default() };
    let (server, _journals, storage) = self::storage(script).await;
    for _ in 0..3 {
        assert_eq!(names(&storage).await, [".h", "f"]);
    }
    assert_eq!((sent(&server, "LIST -a"), sent(&server, "LIST")), (3, 4));
}

/// Once, those beyond the first hundred were dropped, or reported although the other listing was used.
#[tokio::test]
async fn every_line_that_cannot_be_parsed_counts_in_the_listing_that_is_used() {
    fn and_unknown(line: &[u8]) -> &'static [u8] {
        Box::leak([&b"?? unknown ??\r\n".repeat(150), line].concat().into_boxed_slice())
    }
    fn all(listing: &'static [u8]) -> &'static [(&'static str, &'static [u8])] {
        Box::leak(Box::new([("LIST -a", listing)]))
    }
    let itself = and_unknown(b"drwxr-xr-x    2 o  g  4096 Nov 22 13:50 .\r\n");
    let shows_itself = Script { listing: LINE, listings: all(itself), ..Script::default() };
    let (_server, _journals, storage) = storage(shows_itself).await;
    let listed: Vec<_> = storage.list(&RelPath::root()).await.unwrap().collect().await;
    let errors: Vec<_> = listed.into_iter().filter_map(Result::err).collect();
    assert_eq!(errors.len(), 101);
    assert!(errors[100].to_string().contains("50 further lines"), "{}", errors[100]);
    // Plain `LIST` only confirms that `-a` works.
    let plain = Script { listing: and_unknown(LINE), listings: all(LINE), ..Script::default() };
    let (_server, _journals, storage) = self::storage(plain).await;
    assert_eq!(names(&storage).await, ["f"]);
}

#[tokio::test]
async fn list_is_used_if_list_all_is_refused() {
    for reply in ["550 -a: No such file or directory", "501 What?", "550 No files found", "450 No."]
    {
        let replies = Box::leak(Box::new([("LIST -a", reply)]));
        let script = Script { listing: LINE, replies, ..Script::default() };
        let (_server, _journals, storage) = storage(script).await;
        assert_eq!(names(&storage).await, ["f"], "{reply}");
    }
}

#[tokio::test]
async fn an_empty_directory_may_be_reported_in_several_ways() {
    let over: &[_] = &[("LIST", "226 Transfer complete, nothing there.")];
    let refused: &[_] = &[("LIST", "550 No files found.")];
    let members: &[_] = &[("LIST", "550 No members found.")];
    let both: &[_] = &[("LIST -a", "226 Nothing."), ("LIST", "450 No files found.")];
    let facts: &[_] = &[("MLSD", "226 Nothing."), ("MLST", "250-\r\n type=dir; /up\r\n250 End")];
    for replies in [over, refused, members, both, facts] {
        let features = if replies == facts { FACTS } else { Script::default().features };
        let (_server, _journals, storage) =
            storage(Script { replies, features, ..Script::default() }).await;
        assert!(names(&storage).await.is_empty(), "{replies:?}");
    }
    let replies = &[("LIST", "550 Permission denied.")];
    let (_server, _journals, storage) = storage(Script { replies, ..Script::default() }).await;
    let error = listed(&storage).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
}

/// Formerly, "no files" was taken for an empty directory, whether it existed or not.
#[tokio::test]
async fn a_missing_directory_is_not_found_though_the_server_reports_no_files() {
    const NONE: &str = "550 No files found.";
    for verb in ["MLSD", "CWD"] {
        let features = if verb == "MLSD" { FACTS } else { Script::default().features };
        let missing = [
            (verb, NONE),
            ("MLST /up", "250-\r\n type=dir; /up\r\n250 End"),
            ("MLST", NONE),
            ("CWD /up/missing", NONE),
            ("SIZE", NONE),
            ("MDTM", NONE),
        ];
        // `CWD /up`, and with it the root of the location, works.
        let replies = if verb == "CWD" { &missing[1..] } else { &missing };
        let replies = Box::leak(replies.to_vec().into_boxed_slice());
        let (_server, _journals, storage) =
            storage(Script { replies, features, ..Script::default() }).await;
        let error = storage.list(&path("missing")).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{verb}: {error}");
        assert!(error.cause().contains("No files found"), "{verb}: {error}");
    }
    // It exists.
    let replies = &[("MLSD", NONE), ("MLST", "250-\r\n type=dir; /up\r\n250 End")];
    let script = Script { replies, features: FACTS, ..Script::default() };
    let (_server, _journals, storage) = storage(script).await;
    assert!(names(&storage).await.is_empty());
}

/// The refusal was taken for "not found", so an unreadable file was reported as missing.
#[tokio::test]
async fn a_quoted_name_does_not_make_a_refused_file_missing() {
    let replies = &[
        ("MLST /up/not found.txt", "550 not found.txt: Permission denied"),
        ("MLST", "250-Facts\r\n type=dir; up\r\n250 End"),
    ];
    let script = Script { features: FACTS, replies, ..Script::default() };
    let (_server, _journals, storage) = storage(script).await;
    let error = storage.stat(&path("not found.txt")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
}

/// The quoted name was taken for the server's own words, so a refused directory was listed as empty.
#[tokio::test]
async fn a_quoted_name_does_not_make_a_refused_directory_empty() {
    let replies =
        &[("CWD /up/no files", "250 There."), ("LIST", "550 /up/no files: Permission denied")];
    let (_server, _journals, storage) = storage(Script { replies, ..Script::default() }).await;
    let error = storage.list(&path("no files")).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
}

/// The bytes on the data connection count, whether or not the transfer is announced.
#[tokio::test]
async fn a_transfer_without_a_150_reply_is_complete() {
    let script = Script { listing: LINE, begins: "", ..Script::default() };
    let (_server, _journals, storage) = storage(script).await;
    assert_eq!(names(&storage).await, ["f"]);
    assert_eq!(storage.read_whole(&path("f"), 100).await.unwrap().bytes, "content");
}

#[tokio::test]
async fn commands_announced_but_unknown_are_avoided() {
    for code in ["500", "502", "504"] {
        let reply = |verb: &str| format!("{code} {verb} not understood");
        let both: &'static [_] =
            Box::leak(Box::new([("MLSD", reply("MLSD")), ("MLST", reply("MLST"))]));
        for unknown in [&both[..1], &both[1..], both] {
            let mut replies: Vec<(&'static str, &'static str)> =
                unknown.iter().map(|(verb, reply)| (*verb, &reply[..])).collect();
            if unknown == &both[..1] {
                replies.push(("MLST /up", "250-\r\n type=dir; /up\r\n250 End"));
                replies.push(("MLST /up/f", "250-\r\n type=file;size=7; /up/f\r\n250 End"));
                replies.push(("MLST", "550 Not there."));
            }
            let listings: &[(&str, &[u8])] = &[("MLSD /up", b"type=file;size=7; f\r\n")];
            let replies = Box::leak(replies.into_boxed_slice());
            let script =
                Script { features: FACTS, listing: LINE, listings, replies, ..Script::default() };
            let (server, _journals, storage) = storage(script).await;
            for _ in 0..2 {
                assert_eq!(names(&storage).await, ["f"]);
                is_whole(&storage).await;
            }
            for (verb, reply) in unknown {
                assert_eq!(sent(&server, verb), 1, "{reply}");
            }
        }
    }
}

#[tokio::test]
async fn lengths_come_from_the_listing_if_size_is_refused() {
    let unknown: &[_] = &[("SIZE", "502 No."), ("MDTM", "502 No.")];
    let denied: &[_] = &[("SIZE", "550 SIZE not allowed"), ("MDTM", "550 Operation not permitted")];
    for replies in [unknown, denied] {
        let script = Script { replies, listing: LINE, ..Script::default() };
        let (server, _journals, storage) = storage(script).await;
        let entries = listed(&storage).await.unwrap();
        assert_eq!((entries.len(), entries[0].size), (1, 7));
        is_whole(&storage).await;
        assert!(sent(&server, "SIZE") <= 3, "{:?}", server.commands());
    }
}

/// An assumed length of zero used to make it an empty file.
#[tokio::test]
async fn a_file_of_unknown_length_is_not_empty() {
    let facts: &[_] = &[
        ("MLST /up", "250-\r\n type=dir; /up\r\n250 End"),
        ("MLST /up/f", "250-\r\n type=file; /up/f\r\n250 End"),
        ("MLST", "550 Not there."),
    ];
    let without_size = Box::leak([facts, &[("SIZE", "502 No.")]].concat().into_boxed_slice());
    let listing = b"type=file; f\r\n";
    for (replies, begins) in [
        (facts, "150 Here it comes."),
        (without_size, "150 Opening BINARY mode data connection for f ({} bytes)."),
        (without_size, "150 Here it comes."),
    ] {
        let script = Script { features: FACTS, replies, listing, begins, ..Script::default() };
        let (server, _journals, storage) = storage(script).await;
        is_whole(&storage).await;
        let sent = sent(&server, "SIZE /up/f");
        assert!(sent > 0 && (sent == 1 || replies == facts), "{:?}", server.commands());
    }
    // SIZE is requested for the files of a listing.
    let script = Script { features: FACTS, replies: facts, listing, ..Script::default() };
    let (_server, _journals, storage) = storage(script).await;
    assert_eq!(listed(&storage).await.unwrap()[0].size, 7);
}

#[tokio::test]
async fn a_length_in_a_quoted_name_is_not_that_of_the_file() {
    let replies = &[
        ("MLST /up/f (3 bytes)", "250-\r\n type=file; f (3 bytes)\r\n250 End"),
        ("MLST", "250-\r\n type=dir; up\r\n250 End"),
        ("SIZE", "502 No."),
    ];
    let begins = "150 Opening data channel for \"/up/f (3 bytes)\"";
    let script = Script { features: FACTS, replies, begins, ..Script::default() };
    let (server, _journals, storage) = storage(script).await;
    server.put("/up/f (3 bytes)", b"content");
    assert_eq!(storage.stat(&path("f (3 bytes)")).await.unwrap().size, 7);
}

/// Such a file used to be listed with 0 bytes, so that an existing copy seemed to differ in each run.
#[tokio::test]
async fn a_length_missing_from_a_listing_is_unknown_and_not_zero() {
    let facts: &[_] = &[
        ("MLST /up/f", "250-Facts\r\n type=file;modify=20240203101112; f\r\n250 End"),
        ("MLST /up/missing", "550 Not there."),
        ("MLST", "250-Facts\r\n type=dir; up\r\n250 End"),
        ("SIZE", "502 No."),
    ];
    let listing = b"type=file;modify=20240203101112; f\r\n";
    let script = Script { features: FACTS, replies: facts, listing, ..Script::default() };
    let (_server, _journals, storage) = storage(script).await;
    let entries = listed(&storage).await.unwrap();
    assert_eq!(entries[0].known_size(), None, "{entries:?}");
    is_whole(&storage).await;
}

#[tokio::test]
async fn files_can_be_written_into_a_drop_directory() {
    let replies = &[("LIST", "550 Permission denied."), ("SIZE", "550 No."), ("MDTM", "550 No.")];
    let (server, _journals, storage) = storage(Script { replies, ..Script::default() }).await;
    let options =
        CommitOptions { metadata: Metadata::default(), replace: true, sync: false, expected: None };
    for name in ["a", "b", "c"] {
        assert!(storage.find_missing(&path(name)).await);
        storage.write_whole(&path(name), Bytes::from_static(b"new"), &options).await.unwrap();
        assert_eq!(server.content(&format!("/up/{name}")).unwrap(), b"new");
    }
    assert!(sent(&server, "LIST") <= 3, "{:?}", server.commands());
}

/// One unlistable directory proves nothing about the others.
#[tokio::test]
async fn files_are_found_beside_a_directory_that_cannot_be_listed() {
    let script = Script {
        replies: &[("SIZE", "550 No."), ("MDTM", "550 No.")],
        listing: b"-rw-r--r-- 1 u g 7 Jan 01 2020 f\r\n",
        unlistable: "/up/drop",
        ..Script::default()
    };
    let (server, _journals, storage) = storage(script).await;
    for _ in 0..2 {
        assert!(storage.find_missing(&path("drop/f")).await);
    }
    assert!(sent(&server, "LIST") <= 3, "{:?}", server.commands());
    assert_eq!(storage.stat(&path("f")).await.unwrap().size, 7);
}

/// Formerly, one transient failure of the probe turned SIZE off for the rest of the run.
#[tokio::test]
async fn size_is_still_used_after_a_transient_failure_of_its_probe() {
    let script = Script {
        replies: &[("SIZE /up/x", "550 No."), ("MDTM", "550 No."), ("SIZE /up/f", "450 Busy.")],
        listing: b"-rw-r--r-- 1 u g 7 Jan 01 2020 f\r\n",
        ..Script::default()
    };
    let (server, _journals, storage) = storage(script).await;
    for _ in 0..2 {
        assert!(storage.find_missing(&path("x")).await);
    }
    assert_eq!(sent(&server, "SIZE /up/x"), 2, "{:?}", server.commands());
}

trait Missing {
    async fn find_missing(&self, path: &RelPath) -> bool;
}

impl Missing for FtpStorage {
    async fn find_missing(&self, path: &RelPath) -> bool {
        self.stat(path).await.unwrap_err().kind() == ErrorKind::NotFound
    }
}

#[tokio::test]
async fn a_server_without_rest_is_read_from_the_beginning() {
    let replies = &[("REST", "502 No.")];
    let (server, _journals, storage) = storage(Script { replies, ..Script::default() }).await;
    assert!(storage.capabilities().ranged_reads);
    let file = storage.open(&path("f")).await.unwrap();
    assert!(file.is_ranged());
    for _ in 0..2 {
        let blocks: Vec<Block> = file.read_at(Range::new(3, 4)).try_collect().await.unwrap();
        let bytes: Vec<u8> = blocks.into_iter().flat_map(Block::into_bytes).collect();
        assert_eq!(bytes, b"tent");
    }
    assert_eq!(sent(&server, "REST"), 1);
    assert!(!storage.capabilities().ranged_reads && !storage.capabilities().resume);
    // Formerly, `is_ranged` stayed true, and a mirror read the whole file once for every range.
    assert!(!file.is_ranged());
    // A part file is not resumed on such a server: an upload begins at offset 0.
    let part = format!("/up/{}", String::from_utf8(storage.part_name(&path("g"))).unwrap());
    server.put(&part, b"half");
    let options = CreateOptions { resume: true, size: Some(3), sparse: false, ..<_>::default() };
    let writer = storage.create(&path("g"), &options).await.unwrap();
    assert_eq!(
        writer.write_at(1, Block::from(Bytes::from_static(b"x"))).await.unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    assert_eq!(server.content(&part).unwrap(), b"half");
}

#[tokio::test]
async fn pasv_is_used_if_ports_of_epsv_are_blocked() {
    let script = Script { epsv_leads_nowhere: true, listing: LINE, ..Script::default() };
    let (server, _journals, storage) = storage(script).await;
    for _ in 0..2 {
        is_whole(&storage).await;
        assert_eq!(names(&storage).await, ["f"]);
    }
    let options =
        CommitOptions { metadata: Metadata::default(), replace: true, sync: false, expected: None };
    storage.write_whole(&path("g"), Bytes::from_static(b"new"), &options).await.unwrap();
    assert_eq!(sent(&server, "EPSV"), 1);
}

#[tokio::test]
async fn an_upload_uses_pasv_if_ports_of_epsv_are_blocked() {
    let script = Script { epsv_leads_nowhere: true, ..Script::default() };
    let (server, _journals, storage) = storage(script).await;
    let writer = storage.create(&path("g"), &CreateOptions::default()).await.unwrap();
    writer.write_at(0, Block::from(Bytes::from_static(b"new"))).await.unwrap();
    let options =
        CommitOptions { metadata: Metadata::default(), replace: true, sync: false, expected: None };
    writer.commit(3, &options).await.unwrap();
    assert_eq!(server.content("/up/g").unwrap(), b"new");
}

#[tokio::test]
async fn an_upload_succeeds_without_its_time_if_times_cannot_be_set() {
    let features = &["MFMT", "SIZE", "MDTM", "REST STREAM"];
    let replies = &[("MFMT", "502 No.")];
    let script = Script { features, replies, ..Script::default() };
    let (server, _journals, storage) = storage(script).await;
    assert!(storage.capabilities().times);
    let modified = Some(haul_storage::Timestamp { seconds: 1_000_000_000, nanos: 0 });
    let metadata = Metadata { modified, ..Metadata::default() };
    let options = CommitOptions { metadata, replace: true, sync: false, expected: None };
    for name in ["a", "b"] {
        storage.write_whole(&path(name), Bytes::from_static(b"new"), &options).await.unwrap();
    }
    assert!(!storage.capabilities().times);
    assert_eq!(sent(&server, "MFMT"), 1);
}

#[tokio::test]
async fn a_server_that_loses_pipelined_commands_gets_one_at_a_time() {
    let script = Script { forgetful: true, listing: LINE, ..Script::default() };
    let server = Scripted::start(script).await;
    server.put("/up/f", b"content");
    // The client takes a command for lost after a quarter of this time.
    let silence = Duration::from_secs(4);
    let host = host(
        server.port(),
        FtpOptions { waits: Waits::default().with_silence(silence), ..FtpOptions::default() },
    );
    let (_journals, storage) = opened(&host).await;
    is_whole(&storage).await;
    assert_eq!(names(&storage).await, ["f"]);
    let options =
        CommitOptions { metadata: Metadata::default(), replace: true, sync: false, expected: None };
    storage.write_whole(&path("f"), Bytes::from_static(b"new"), &options).await.unwrap();
    assert_eq!(server.content("/up/f").unwrap(), b"new");
    assert_eq!(sent(&server, "FEAT"), 2, "pipelining continued after the first loss");
}

#[tokio::test]
async fn waiting_for_a_dripping_reply_is_bounded() {
    let replies = &[("FEAT", "211-and")];
    let script = Script { replies, drip: Duration::from_millis(100), ..Script::default() };
    let server = Scripted::start(script).await;
    let silence = Duration::from_millis(300);
    let host = host(
        server.port(),
        FtpOptions { waits: Waits::default().with_silence(silence), ..FtpOptions::default() },
    );
    let error = host.resolve(b"/up").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(error.to_string().contains("reply to FEAT"), "{error}");
}

#[tokio::test]
async fn a_time_refused_for_one_file_is_set_on_the_others() {
    let replies = &[
        ("MDTM 20010909014640 /up/.b.", "550 Could not set file modification time."),
        ("MDTM", "213 File modification time set."),
    ];
    let greeting = "220 (vsFTPd 3.0.3)\r\n";
    let script = Script { greeting, replies, ..Script::default() };
    let (server, _journals, storage) = storage(script).await;
    let modified = Some(haul_storage::Timestamp { seconds: 1_000_000_000, nanos: 0 });
    let metadata = Metadata { modified, ..Metadata::default() };
    let options = CommitOptions { metadata, replace: true, sync: false, expected: None };
    let write =
        async |name| storage.write_whole(&path(name), Bytes::from_static(b"new"), &options).await;
    write("a").await.unwrap();
    let error = write("b").await.unwrap_err();
    assert!(error.to_string().contains("Could not set"), "{error}");
    write("c").await.unwrap();
    assert!(storage.capabilities().times);
    let set = |line: &String| line.starts_with("MDTM 20010909014640 /up/.c.");
    assert!(server.commands().iter().any(set), "{:?}", server.commands());
}

#[tokio::test]
async fn a_command_refused_for_one_name_is_used_for_the_others() {
    let replies = &[
        ("MLST /up/odd", "501 Not that name."),
        ("MLST /up/f", "250-Facts\r\n type=file;modify=20240203101112; f\r\n250 End"),
        ("MLST", "250-Facts\r\n type=dir; up\r\n250 End"),
        ("SIZE /up/odd", "501 Not that name."),
    ];
    let script = Script { features: FACTS, replies, ..Script::default() };
    let (server, _journals, storage) = storage(script).await;
    assert!(storage.stat(&path("odd")).await.is_err());
    for _ in 0..2 {
        assert_eq!(storage.stat(&path("f")).await.unwrap().size, 7);
    }
    assert_eq!(sent(&server, "MLST /up/f"), 2);
    assert_eq!(sent(&server, "SIZE /up/f"), 2);
}

/// Formerly, SIZE was used no more once it had been refused for a name that the listing has.
#[tokio::test]
async fn a_size_refused_for_a_listed_name_is_used_for_the_others() {
    let replies = &[("SIZE /up/odd", "501 Not that name.")];
    let listing = b"-rw-r--r-- 1 u g 9 Jan 02 2024 odd\r\n";
    let script = Script { replies, listing, ..Script::default() };
    let (server, _journals, storage) = storage(script).await;
    assert_eq!(storage.stat(&path("f")).await.unwrap().size, 7);
    assert_eq!(storage.stat(&path("odd")).await.unwrap().size, 9);
    assert_eq!(storage.stat(&path("f")).await.unwrap().size, 7);
    assert_eq!(sent(&server, "SIZE /up/f"), 2);
}
