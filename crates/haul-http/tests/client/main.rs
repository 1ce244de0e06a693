//! The WebDAV client against servers in common use, and against a scripted one that misbehaves.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![expect(clippy::print_stderr, reason = "a skipped test prints that")]

mod conditions;
mod direct;
mod faults;
mod order;
#[path = "../../../haul-net/tests/support/port.rs"]
mod port;
mod quirks;
mod scripted;
#[expect(dead_code, reason = "the tests of the program use the rest")]
mod servers;
mod waits;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use haul_http::client::{Found, HttpHost, HttpOptions, HttpStorage, Nearest};
use haul_http::parse::Url;
use haul_http::server::DavServer;
use haul_net::NoPrompter;
use haul_storage::{
    Block, CommitOptions, CreateOptions, ErrorKind, Held, Identity, Location, Metadata, Range,
    RangeSet, RelPath, Retry, SourceVersion, Storage, StorageExt, Timestamp, Writes, conformance,
    is_part_name,
};
use servers::Server;
use tempfile::TempDir;
use tokio::runtime::Handle;

fn host(url: &str) -> Arc<HttpHost> {
    let origin = Url::parse(url).unwrap().origin;
    HttpHost::new(origin, None, &HttpOptions::default(), Arc::new(NoPrompter), Handle::current())
}

async fn storage(url: &str, journals: &TempDir) -> Arc<HttpStorage> {
    let location = Location::parse("dav://server/").unwrap();
    let directory = Some(journals.path().to_owned());
    HttpStorage::open_dav(host(url), location, Url::parse(url).unwrap(), directory).await.unwrap()
}

fn path(text: &str) -> RelPath {
    RelPath::parse(text).unwrap()
}

fn replacing() -> CommitOptions {
    CommitOptions { metadata: Metadata::default(), replace: true, sync: false, expected: None }
}

/// Whether `requested` is the part file of a small or a long upload of `path`.
fn is_part_of(path: &str, requested: &str) -> bool {
    let (directory, name) = path.rsplit_once('/').unwrap();
    let is_part = requested.ends_with(".haul-upload") || requested.ends_with(".haul-temp");
    is_part && requested.starts_with(&format!("{directory}/.{name}."))
}

/// Runs the conformance suite without the `known` cases, which the server fails for any client. Each
/// has its reason.
async fn conforms(server: Option<Server>, lanes: usize, known: &[(&str, &str)]) {
    let Some(server) = server else { return };
    let journals = tempfile::tempdir().unwrap();
    let storage = storage(&server.url, &journals).await;
    storage.set_lanes(lanes);
    let mut failed = String::new();
    for case in conformance::cases() {
        let applies = case.applies(storage.capabilities());
        if !applies || known.iter().any(|(name, _)| *name == case.name()) {
            continue;
        }
        if let Err(failure) = case.run(Arc::clone(&storage) as Arc<dyn Storage>).await {
            failed += &format!("\n{}: {failure}", case.name());
        }
    }
    assert_eq!(failed, "", "{}", server.url);
    assert_eq!(server.names(), Vec::<String>::new(), "what is left on the server");
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_of_two_machines_do_not_mix() {
    let directory = tempfile::tempdir().unwrap();
    let haul = DavServer::builder(directory.path()).bind().await.unwrap();
    let servers = [servers::apache(), servers::nginx(), servers::rclone()].into_iter().flatten();
    let servers: Vec<_> = servers.collect();
    let mut urls: Vec<_> = servers.iter().map(|server| server.url.clone()).collect();
    urls.push(format!("http://{}/", haul.address()));
    for url in urls {
        let journals = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let (one, other) = (storage(&url, &journals[0]).await, storage(&url, &journals[1]).await);
        conformance::two_machines(one, other).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_conforms_on_apache() {
    conforms(servers::apache(), 3, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_conforms_on_apache_over_one_lane() {
    conforms(servers::apache(), 1, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_conforms_on_nginx() {
    let why = "nginx-dav-ext 3.0 lists no names that begin with a dot";
    let known = [
        ("entries::a_listing_and_stat_agree", why),
        ("names::ordinary_names_are_preserved_byte_for_byte", why),
        ("names::directories_take_the_same_names", why),
    ];
    conforms(servers::nginx(), 3, &known).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_conforms_on_haul() {
    let [directory, journals] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let server = DavServer::builder(directory.path()).bind().await.unwrap();
    let storage = storage(&format!("http://{}/", server.address()), &journals).await;
    storage.set_lanes(3);
    let can = storage.capabilities();
    assert!(can.writes == Writes::AnyOrder && can.resume && can.times && can.rename);
    conformance::run_all(Arc::clone(&storage) as Arc<dyn Storage>).await;
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_conforms_on_rclone() {
    let known = [
        (
            "names::names_up_to_255_bytes_are_preserved",
            "rclone 1.60 cannot list a directory any more in which it has refused a long name",
        ),
        (
            "writing::a_file_appears_only_at_commit",
            "rclone 1.60 cannot list a directory in which a file is being written",
        ),
    ];
    conforms(servers::rclone(), 3, &known).await;
}

/// A download that waits for its reader must not block the request that lets the reader continue.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_removed_over_the_only_lane_while_it_is_read() {
    let Some(server) = servers::apache() else { return };
    let journals = tempfile::tempdir().unwrap();
    let storage = storage(&server.url, &journals).await;
    storage.set_lanes(1);
    let big = vec![7; 4 << 20].into();
    storage.write_whole(&path("file"), big, &replacing()).await.unwrap();
    let file = storage.open(&path("file")).await.unwrap();
    let mut blocks = file.read_at(Range::new(0, 4 << 20));
    blocks.next().await.unwrap().unwrap();
    let name = path("file");
    let removed = storage.remove(&name);
    tokio::time::timeout(Duration::from_secs(20), removed).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn capabilities_follow_the_servers_options() {
    let journals = tempfile::tempdir().unwrap();
    let can = async |server: Server| storage(&server.url, &journals).await.capabilities().clone();
    if let Some(server) = servers::apache() {
        let can = can(server).await;
        assert!(can.writes == Writes::AnyOrder && can.resume && !can.times && can.rename);
    }
    for server in [servers::nginx(), servers::rclone()].into_iter().flatten() {
        let can = can(server).await;
        assert!(can.writes == Writes::InOrder && !can.resume && can.rename && can.server_copy);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_directories_and_the_nearest_existing_directory_are_found() {
    for server in [servers::apache(), servers::nginx(), servers::rclone()].into_iter().flatten() {
        let journals = tempfile::tempdir().unwrap();
        let storage = storage(&server.url, &journals).await;
        storage.create_dir_all(&path("a b/c")).await.unwrap();
        storage.write_whole(&path("a b/file"), "12345".into(), &replacing()).await.unwrap();
        let host = host(&server.url);
        let at = |below: &str| Url::parse(&format!("{}{below}", server.url)).unwrap();
        match host.find_dav(&at("a%20b/file")).await.unwrap() {
            Found::File(file) => assert_eq!(file.facts().size, Some(5)),
            Found::Directory(url) => panic!("{url} is a directory"),
        }
        for directory in ["a%20b", "a%20b/"] {
            match host.find_dav(&at(directory)).await.unwrap() {
                Found::Directory(url) => assert_eq!(url, at("a%20b/")),
                Found::File(file) => panic!("{file:?}"),
            }
        }
        assert!(host.find_dav(&at("nothing")).await.is_err());
        let nearest = host.nearest(&at("a%20b/x/y%20z")).await.unwrap();
        let rest = vec![b"x".to_vec(), b"y z".to_vec()];
        assert_eq!(nearest, Nearest { directory: at("a%20b/"), rest, is_file: false });
        let nearest = host.nearest(&at("a%20b/file")).await.unwrap();
        let rest = vec![b"file".to_vec()];
        assert_eq!(nearest, Nearest { directory: at("a%20b/"), rest, is_file: true });
        assert_eq!(host.nearest(&at("a%20b")).await.unwrap().rest, Vec::<Vec<u8>>::new());
        assert!(host.nearest(&at("a%20b/file/x")).await.is_err());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_real_servers_are_listed() {
    for server in [servers::apache(), servers::nginx(), servers::rclone()].into_iter().flatten() {
        let journals = tempfile::tempdir().unwrap();
        let dav = storage(&server.url, &journals).await;
        dav.create_dir(&path("sub dir")).await.unwrap();
        for (name, size) in
            [("a long name & so on, which is cut off in the text of a link.bin", 70_000), ("x", 3)]
        {
            dav.write_whole(&path(name), vec![7; size].into(), &replacing()).await.unwrap();
        }
        let location = Location::parse("http://server/").unwrap();
        let root = Url::parse(&server.url).unwrap();
        let web = HttpStorage::open_web(host(&server.url), location, root, true);
        let entries = web.list_sorted(&RelPath::root()).await.unwrap();
        let found: Vec<_> =
            entries.iter().map(|e| (e.path.to_string(), e.size, e.is_dir())).collect();
        let long = "a long name & so on, which is cut off in the text of a link.bin".to_owned();
        let expected = vec![
            (long, 70_000, false),
            ("sub dir".to_owned(), 0, true),
            ("x".to_owned(), 3, false),
        ];
        assert_eq!(found, expected, "{}", server.url);
        assert!(web.list_sorted(&path("sub dir")).await.unwrap().is_empty());
    }
}

/// Without ranges, each part would make the server send everything before it again.
#[tokio::test(flavor = "multi_thread")]
async fn range_support_is_detected_on_a_web_servers_first_file() {
    for (server, ranged) in [(servers::python(), false), (servers::nginx(), true)] {
        let Some(server) = server else { continue };
        std::fs::create_dir(server.root().join("sub")).unwrap();
        std::fs::write(server.root().join("sub/file"), "content").unwrap();
        let location = Location::parse("http://server/").unwrap();
        let root = Url::parse(&server.url).unwrap();
        let web = HttpStorage::open_web_directory(host(&server.url), location, root).await;
        assert_eq!(web.capabilities().ranged_reads, ranged, "{}", server.url);
    }
}

/// The new file would have zeros instead of the bytes written before the removal.
#[tokio::test(flavor = "multi_thread")]
async fn a_removed_part_file_is_not_recreated_by_the_next_write() {
    let directory = tempfile::tempdir().unwrap();
    let haul = DavServer::builder(directory.path()).bind().await.unwrap();
    let apache = servers::apache();
    let urls = apache.iter().map(|server| server.url.clone());
    for url in urls.chain([format!("http://{}/", haul.address())]) {
        let journals = tempfile::tempdir().unwrap();
        let storage = storage(&url, &journals).await;
        let writer = storage.create(&path("file"), &CreateOptions::default()).await.unwrap();
        let block = Block::from(bytes::Bytes::from_static(&[5; 1000]));
        writer.write_at(0, block.clone()).await.unwrap();
        let part = path(std::str::from_utf8(&storage.part_name(&path("file"))).unwrap());
        storage.remove(&part).await.unwrap();
        let error = writer.write_at(1000, block).await.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Changed, Retry::FromStart), "{url}");
        assert!(storage.find(&part).await.unwrap().is_none(), "{url}");
    }
}

/// Resuming as the engine does it: the part file outlives the storage.
#[tokio::test(flavor = "multi_thread")]
async fn an_upload_to_apache_resumes_in_another_run() {
    let Some(server) = servers::apache() else { return };
    let journals = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    let block =
        |from: usize, to: usize| Block::from(bytes::Bytes::copy_from_slice(&bytes[from..to]));
    let first = storage(&server.url, &journals).await;
    let modified = Some(Timestamp { seconds: 7, nanos: 9 });
    let identity = Identity { size: 3_000_000, modified, ..Identity::default() };
    let source = Some(SourceVersion { name: "source".to_owned(), identity });
    let options = CreateOptions {
        resume: true,
        size: Some(3_000_000),
        sparse: false,
        source,
        ..<_>::default()
    };
    let writer = first.create(&path("file"), &options).await.unwrap();
    assert_eq!(*writer.held(), Held::Ranges(RangeSet::new()));
    writer.write_at(2_000_000, block(2_000_000, 3_000_000)).await.unwrap();
    let mut written = RangeSet::new();
    written.insert(Range::between(2_000_000, 3_000_000));
    writer.record(written.clone()).await.unwrap();
    drop((writer, first));
    let second = storage(&server.url, &journals).await;
    let writer = second.create(&path("file"), &options).await.unwrap();
    assert_eq!(*writer.held(), Held::Ranges(written));
    writer.write_at(0, block(0, 2_000_000)).await.unwrap();
    writer.commit(3_000_000, &replacing()).await.unwrap();
    assert_eq!(second.read_whole(&path("file"), 4_000_000).await.unwrap().bytes, bytes);
    let left = std::fs::read_dir(journals.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| is_part_name(name.as_encoded_bytes())).collect();
    assert!(left.is_empty(), "the journal is removed: {left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_are_sent_once_despite_announced_connection_ends() {
    const PART: usize = 100_000;
    const KNOWN: usize = 5;
    let Some((server, log)) = servers::apache_that_hangs_up(5) else { return };
    let journals = tempfile::tempdir().unwrap();
    let storage = storage(&server.url, &journals).await;
    storage.set_lanes(2);
    let bytes: Vec<u8> = (0..60 * PART).map(|n| (n % 249) as u8).collect();
    let writer = storage.create(&path("file"), &CreateOptions::default()).await.unwrap();
    let write = |(n, part): (usize, &[u8])| {
        let block = Block::from(bytes::Bytes::copy_from_slice(part));
        writer.write_at((n * PART) as u64, block)
    };
    // The first connection ends during these parts; from then on, its limit is known.
    for part in bytes.chunks(PART).enumerate().take(KNOWN) {
        write(part).await.unwrap();
    }
    // Two requests in flight per lane.
    let mut parts = futures_util::stream::iter(bytes.chunks(PART).enumerate().skip(KNOWN))
        .map(write)
        .buffer_unordered(4);
    while let Some(written) = parts.next().await {
        written.unwrap();
    }
    drop(parts);
    writer.commit(bytes.len() as u64, &replacing()).await.unwrap();
    assert_eq!(storage.read_whole(&path("file"), 8_000_000).await.unwrap().bytes, bytes);
    drop(server);
    let logged = std::fs::read_to_string(&log).unwrap();
    let parts = logged.lines().filter(|line| line.contains("bytes ")).count();
    // The first connection may end before the marker of its last part.
    assert!((60..62).contains(&parts), "each part is taken once:\n{logged}");
}

#[tokio::test(flavor = "multi_thread")]
async fn small_files_arrive_over_connections_that_end_now_and_then() {
    let Some((server, log)) = servers::apache_that_hangs_up(7) else { return };
    let journals = tempfile::tempdir().unwrap();
    let storage = storage(&server.url, &journals).await;
    storage.set_lanes(3);
    let content = |n: usize| bytes::Bytes::from(vec![n as u8; n * 37]);
    let name = |n: usize| path(&format!("file {n}"));
    let options = replacing();
    let names: Vec<_> = (0..100).map(name).collect();
    let each = names.iter().enumerate();
    let writes = each.map(|(n, name)| storage.write_whole(name, content(n), &options));
    for written in futures_util::future::join_all(writes).await {
        written.unwrap();
    }
    let reads = names.iter().map(|name| storage.read_whole(name, 4000));
    for (n, read) in futures_util::future::join_all(reads).await.into_iter().enumerate() {
        assert_eq!(read.unwrap().bytes, content(n), "file {n}");
    }
    let missing = storage.read_whole(&path("none"), 4000).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let longer = storage.read_whole(&name(99), 100).await.unwrap_err();
    assert_eq!(longer.kind(), ErrorKind::Changed);
    drop(server);
    let logged = std::fs::read_to_string(&log).unwrap();
    assert!(logged.lines().filter(|line| line.starts_with("PUT ")).count() >= 100, "{logged}");
}

/// Data from before an interrupted range must remain.
#[tokio::test(flavor = "multi_thread")]
async fn a_range_that_is_cut_off_leaves_the_part_file_of_apache() {
    use tokio::io::AsyncWriteExt;
    let Some(server) = servers::apache() else { return };
    let journals = tempfile::tempdir().unwrap();
    let storage = storage(&server.url, &journals).await;
    let writer = storage.create(&path("file"), &CreateOptions::default()).await.unwrap();
    writer.write_at(0, Block::from(bytes::Bytes::from_static(&[5; 1000]))).await.unwrap();
    let address = server.url.trim_start_matches("http://").trim_end_matches('/');
    let mut raw = tokio::net::TcpStream::connect(address).await.unwrap();
    let part = String::from_utf8(storage.part_name(&path("file"))).unwrap();
    let head = format!(
        "PUT /{part} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\
         Content-Range: bytes 1000-100999/*\r\n\r\n"
    );
    raw.write_all(head.as_bytes()).await.unwrap();
    raw.write_all(&[6; 50_000]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    drop(raw);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let rest = Block::from(bytes::Bytes::from_static(&[7; 100_000]));
    writer.write_at(1000, rest).await.unwrap();
    writer.commit(101_000, &replacing()).await.unwrap();
    let expected = [&[5; 1000][..], &[7; 100_000]].concat();
    assert_eq!(storage.read_whole(&path("file"), 1 << 20).await.unwrap().bytes, expected);
}
