//! The recorded cases: operations of a client, and the results that they must have. The same operations run against a
//! server of this build while they are recorded, and later against the recorded server.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use haul_peer::client::{PeerHost, PeerStorage};
use haul_storage::memory::MemoryStorage;
use haul_storage::{
    CommitOptions, CreateOptions, DigestKind, EntryKind, ErrorKind, Held, Identity, LinkKind,
    Location, Metadata, Range, RangeSet, ReadAt, RelPath, SmallFile, SourceVersion, Storage,
    StorageExt as _, Timestamp,
};

use super::super::path;

/// A time that a client sets. All others are the server's, and not compared.
pub(super) const SET: Timestamp = Timestamp { seconds: 1_600_000_000, nanos: 5 };

/// An exchange.
pub(super) struct Case {
    pub(super) name: &'static str,
    /// Whether the client may write.
    pub(super) is_writable: bool,
    /// Whether the server knows the ticket's secret.
    pub(super) is_known: bool,
    /// What the client does.
    pub(super) run: fn(Arc<PeerHost>) -> BoxFuture<'static, ()>,
}

/// All exchanges.
pub(super) const CASES: [Case; 9] = [
    Case { name: "look", is_writable: true, is_known: true, run: |host| Box::pin(look(host)) },
    Case { name: "list", is_writable: true, is_known: true, run: |host| Box::pin(list(host)) },
    Case { name: "read", is_writable: true, is_known: true, run: |host| Box::pin(read(host)) },
    Case { name: "early", is_writable: false, is_known: true, run: |host| Box::pin(early(host)) },
    Case { name: "write", is_writable: true, is_known: true, run: |host| Box::pin(write(host)) },
    Case { name: "small", is_writable: true, is_known: true, run: |host| Box::pin(small(host)) },
    Case { name: "change", is_writable: true, is_known: true, run: |host| Box::pin(change(host)) },
    Case {
        name: "read-only",
        is_writable: false,
        is_known: true,
        run: |host| Box::pin(read_only(host)),
    },
    Case {
        name: "refused",
        is_writable: true,
        is_known: false,
        run: |host| Box::pin(refused(host)),
    },
];

/// The shared storage.
pub(super) fn storage() -> Arc<MemoryStorage> {
    let builder = MemoryStorage::builder().with_records().with_capacity(1 << 20).with_list_batch(4);
    let storage = builder.build();
    storage.add_file("file", content());
    storage.set("file", &Metadata { modified: Some(SET), ..Metadata::default() });
    storage.add_file("empty", "");
    storage.add_sparse_file("sparse", 5000, &[(1000, b"data"), (4000, b"more")]);
    storage.add_symlink("link", "file");
    for number in 0..10 {
        storage.add_file(format!("directory/{number}"), format!("content {number}"));
    }
    storage
}

/// Longer than the first pieces of a read, which have 8 KiB.
fn content() -> Vec<u8> {
    (0..20_000_u32).map(|at| (at / 3) as u8).collect()
}

async fn opened(host: Arc<PeerHost>) -> Arc<PeerStorage> {
    let location = Location::parse("sftp://peer/").unwrap();
    PeerStorage::open(host, location, RelPath::root()).await.unwrap()
}

async fn kind<T>(outcome: impl Future<Output = haul_storage::Result<T>>) -> Option<ErrorKind> {
    outcome.await.err().map(|error| error.kind())
}

async fn bytes_of(file: &dyn ReadAt, range: Range) -> Vec<u8> {
    let mut blocks = file.read_at(range);
    let mut bytes = Vec::new();
    while let Some(block) = blocks.next().await {
        bytes.extend_from_slice(&block.unwrap().into_bytes());
    }
    bytes
}

fn commit(replace: bool) -> CommitOptions {
    let metadata = Metadata { mode: Some(0o640), modified: Some(SET), ..Metadata::default() };
    CommitOptions { metadata, replace, sync: true, expected: None }
}

async fn look(host: Arc<PeerHost>) {
    assert_eq!(host.share_name().await.unwrap(), "share");
    let storage = opened(host).await;
    assert!(storage.stat(&RelPath::root()).await.unwrap().is_dir());
    let found = storage.stat_many(vec![path("file"), path("none"), path("link")]).await;
    let file = found[0].as_ref().unwrap();
    assert_eq!((file.size, file.modified, file.mode), (20_000, Some(SET), Some(0o644)));
    assert_eq!(found[1].as_ref().unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(found[2].as_ref().unwrap().kind, EntryKind::Symlink(b"file".to_vec()));
    assert_eq!(storage.metadata(&path("file")).await.unwrap().modified, Some(SET));
    assert_eq!(storage.digest(&path("file"), DigestKind::Sha256).await.unwrap(), None);
    assert!(storage.space(&path("file")).await.unwrap().is_some());
    assert_eq!(storage.allocated(&path("file")).await.unwrap(), None);
}

async fn names(storage: &PeerStorage, directory: &RelPath) -> Vec<String> {
    let entries = storage.list_sorted(directory).await.unwrap();
    entries.iter().map(|entry| entry.path.to_string()).collect()
}

async fn list(host: Arc<PeerHost>) {
    let storage = opened(host).await;
    let root = names(&storage, &RelPath::root()).await;
    assert_eq!(root, ["directory", "empty", "file", "link", "sparse"]);
    assert_eq!(names(&storage, &path("directory")).await.len(), 10);
    assert_eq!(kind(storage.list(&path("file"))).await, Some(ErrorKind::NotADirectory));
    assert_eq!(kind(storage.list(&path("none"))).await, Some(ErrorKind::NotFound));
}

async fn read(host: Arc<PeerHost>) {
    let storage = opened(host).await;
    let file = storage.open(&path("file")).await.unwrap();
    assert!(bytes_of(&*file, Range::new(0, 20_000)).await == content());
    assert!(bytes_of(&*file, Range::new(5000, 7000)).await == content()[5000..12_000]);
    assert_eq!(file.recheck().await.unwrap(), *file.identity());
    assert_eq!(file.metadata().await.unwrap().mode, Some(0o644));
    drop(file);
    let sparse = storage.open(&path("sparse")).await.unwrap();
    let found = sparse.next_data(0).await.unwrap().unwrap();
    assert_eq!(found.start(), 1000);
    assert_eq!(sparse.next_data(2000).await.unwrap().unwrap().start(), 4000);
    assert_eq!(bytes_of(&*sparse, Range::new(4000, 4)).await, b"more");
    drop(sparse);
    let empty = storage.open(&path("empty")).await.unwrap();
    assert!(bytes_of(&*empty, Range::new(0, 10)).await.is_empty());
    assert_eq!(kind(storage.open(&path("none"))).await, Some(ErrorKind::NotFound));
    assert_eq!(kind(storage.open(&path("directory"))).await, Some(ErrorKind::IsADirectory));
}

/// The client sends these requests along with the Hello.
async fn early(host: Arc<PeerHost>) {
    host.read_first(&path("file"));
    let storage = opened(host).await;
    assert!(storage.stat(&path("file")).await.unwrap().is_file());
    let file = storage.open(&path("file")).await.unwrap();
    assert!(bytes_of(&*file, Range::new(0, 20_000)).await == content());
}

async fn write(host: Arc<PeerHost>) {
    let storage = opened(host).await;
    let content = Bytes::from(content());
    let identity = Identity { size: 20_000, modified: Some(SET), id: None, tag: None };
    let source = SourceVersion { name: "sftp://peer/source".to_owned(), identity };
    let options = CreateOptions {
        source: Some(source),
        resume: true,
        size: Some(20_000),
        ..CreateOptions::default()
    };
    let writer = storage.create(&path("new"), &options).await.unwrap();
    assert_eq!(*writer.held(), Held::Ranges(RangeSet::new()));
    writer.write_at(0, content.slice(..12_000).into()).await.unwrap();
    let mut written = RangeSet::new();
    written.insert(Range::new(0, 12_000));
    writer.record(written.clone()).await.unwrap();
    writer.sync().await.unwrap();
    writer.abort(true).await.unwrap();
    let writer = storage.create(&path("new"), &options).await.unwrap();
    assert_eq!(*writer.held(), Held::Ranges(written));
    assert_eq!(kind(storage.create(&path("new"), &options)).await, Some(ErrorKind::Busy));
    writer.write_at(12_000, content.slice(12_000..).into()).await.unwrap();
    let reader = writer.reopen(false).await.unwrap();
    assert!(bytes_of(&*reader, Range::new(0, 100)).await == content[..100]);
    drop(reader);
    writer.commit(20_000, &commit(false)).await.unwrap();
    let entry = storage.stat(&path("new")).await.unwrap();
    assert_eq!((entry.size, entry.modified, entry.mode), (20_000, Some(SET), Some(0o640)));
    let writer = storage.create(&path("file"), &CreateOptions::default()).await.unwrap();
    writer.write_at(0, Bytes::from_static(b"x").into()).await.unwrap();
    assert_eq!(kind(writer.commit(1, &commit(false))).await, Some(ErrorKind::AlreadyExists));
    writer.commit(1, &commit(true)).await.unwrap();
    let writer = storage.create(&path("other"), &CreateOptions::default()).await.unwrap();
    writer.abort(false).await.unwrap();
}

async fn small(host: Arc<PeerHost>) {
    let storage = opened(host).await;
    let file = |name: &str, content: &'static str| {
        SmallFile::new(path(name), Bytes::from_static(content.as_bytes()), commit(false))
    };
    let files = vec![file("one", "first"), file("two", ""), file("directory/0", "exists")];
    let outcomes = storage.write_many(files).await;
    assert!(outcomes[0].is_ok() && outcomes[1].is_ok());
    assert_eq!(outcomes[2].as_ref().unwrap_err().kind(), ErrorKind::AlreadyExists);
    let paths = ["one", "two", "none", "directory/7"].map(path).to_vec();
    let wholes = storage.read_many(paths, 1000).await;
    assert_eq!(wholes[0].as_ref().unwrap().bytes, "first");
    assert_eq!(wholes[0].as_ref().unwrap().identity.modified, Some(SET));
    assert_eq!(wholes[1].as_ref().unwrap().bytes, "");
    assert_eq!(wholes[2].as_ref().unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(wholes[3].as_ref().unwrap().bytes, "content 7");
    assert_eq!(kind(storage.read_whole(&path("one"), 2)).await, Some(ErrorKind::Changed));
}

async fn change(host: Arc<PeerHost>) {
    let storage = opened(host).await;
    storage.create_dir_as(&path("new"), Some(0o750)).await.unwrap();
    assert_eq!(kind(storage.create_dir(&path("new"))).await, Some(ErrorKind::AlreadyExists));
    let symbolic = LinkKind::Symbolic(b"../file".to_vec());
    storage.create_link(&path("new/symbolic"), &symbolic, false).await.unwrap();
    storage.create_link(&path("new/hard"), &LinkKind::Hard(path("file")), true).await.unwrap();
    assert_eq!(storage.stat(&path("file")).await.unwrap().links, 2);
    storage.rename(&path("new/hard"), &path("new/renamed")).await.unwrap();
    storage.copy(&path("file"), &path("new/copied")).await.unwrap();
    assert_eq!(storage.stat(&path("new/copied")).await.unwrap().size, 20_000);
    let xattrs = vec![(b"user.name".to_vec(), b"value".to_vec())];
    let metadata = Metadata {
        mode: Some(0o600),
        modified: Some(SET),
        owner: Some((7, 8)),
        xattrs: Some(xattrs),
    };
    storage.set_metadata(&path("new/copied"), &metadata).await.unwrap();
    assert_eq!(storage.metadata(&path("new/copied")).await.unwrap(), metadata);
    assert_eq!(kind(storage.remove(&path("new"))).await, Some(ErrorKind::NotEmpty));
    storage.remove(&path("new/copied")).await.unwrap();
    assert_eq!(kind(storage.stat(&path("new/copied"))).await, Some(ErrorKind::NotFound));
}

async fn read_only(host: Arc<PeerHost>) {
    let storage = opened(host).await;
    let denied = Some(ErrorKind::PermissionDenied);
    assert_eq!(kind(storage.remove(&path("file"))).await, denied);
    assert_eq!(kind(storage.create(&path("new"), &CreateOptions::default())).await, denied);
    let whole = storage.write_whole(&path("new"), Bytes::new(), &commit(false)).await;
    assert_eq!(whole.unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert_eq!(storage.read_whole(&path("directory/1"), 100).await.unwrap().bytes, "content 1");
}

async fn refused(host: Arc<PeerHost>) {
    let error = host.share_name().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
}
