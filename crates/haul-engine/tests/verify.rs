//! Files are checked against their manifest, and every error is reported.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use haul_engine::Cancel;
use haul_engine::digest::Digest;
use haul_engine::manifest::{ManifestReader, format_line};
use haul_engine::verify::{VerifyEvent, VerifyOptions, VerifySummary, verify};
use haul_storage::memory::{Builder, MemoryStorage, Operation, SimulatedLink};
use haul_storage::{DigestKind, ErrorKind, Medium, RelPath, Result, WorkPool, part_name};

const KINDS: [DigestKind; 2] = [DigestKind::Blake3, DigestKind::Sha256];

fn path(bytes: impl AsRef<[u8]>) -> RelPath {
    RelPath::parse(bytes).unwrap()
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

/// A storage with files and their manifest.
struct Bench {
    storage: Arc<MemoryStorage>,
    kind: DigestKind,
    manifest: Vec<u8>,
    options: VerifyOptions,
    base: RelPath,
    cancel: Cancel,
}

/// Everything but progress, as text.
type Messages = Vec<String>;

impl Bench {
    fn new(kind: DigestKind) -> Self {
        Self::of(kind, MemoryStorage::builder())
    }

    fn of(kind: DigestKind, storage: Builder) -> Self {
        let options = VerifyOptions {
            parallel: 4,
            memory: 8 << 20,
            strict: false,
            retries: 3,
            retry_pause: Duration::from_millis(1),
            scratch: std::env::temp_dir(),
            pool: WorkPool::new("verify-test", 2).unwrap(),
        };
        Self {
            storage: storage.build(),
            kind,
            manifest: Vec::new(),
            options,
            base: RelPath::root(),
            cancel: Cancel::default(),
        }
    }

    fn list(&mut self, name: &str, content: &[u8]) {
        let line = format_line(&path(name), &Digest::of(self.kind, content));
        self.manifest.extend_from_slice(&line);
    }

    /// A file that matches the manifest.
    fn add(&mut self, name: &str, content: &[u8]) {
        self.storage.add_file(self.base.join_path(&path(name)).as_bytes(), content);
        self.list(name, content);
    }

    async fn try_verify(&self) -> (Result<VerifySummary>, Messages) {
        let name = path("manifest");
        if !self.storage.exists("manifest") {
            self.storage.add_file("manifest", &self.manifest);
        }
        let reader = ManifestReader::open(&*self.storage, &name, self.kind).await.unwrap();
        let messages = Mutex::new(Messages::new());
        let sink = |event| {
            let text = match event {
                VerifyEvent::Progress { .. } => return,
                VerifyEvent::Matched { path, bytes, .. } => format!("matched {path} {bytes}"),
                VerifyEvent::Mismatched { path, .. } => format!("mismatched {path}"),
                VerifyEvent::Missing { path } => format!("missing {path}"),
                VerifyEvent::Unreadable { path, error } => format!("unreadable {path}: {error}"),
                VerifyEvent::Extra { path } => format!("extra {path}"),
                VerifyEvent::Malformed { line, error } => format!("malformed {line}: {error}"),
                VerifyEvent::Retry { path, attempt, .. } => format!("retry {path} {attempt}"),
                event => format!("{event:?}"),
            };
            messages.lock().unwrap().push(text);
        };
        let storage = Arc::clone(&self.storage) as _;
        let outcome = verify(storage, &self.base, reader, &self.options, sink, &self.cancel).await;
        let mut messages = messages.into_inner().unwrap();
        messages.sort();
        (outcome, messages)
    }

    async fn verify(&self) -> (VerifySummary, Messages) {
        let (outcome, messages) = self.try_verify().await;
        (outcome.unwrap(), messages)
    }
}

#[tokio::test]
async fn files_of_all_sizes_match_their_digests() {
    for kind in KINDS {
        let mut bench = Bench::new(kind);
        // Empty, one byte, one below, at and above the limit of one read, ranges of 512 KiB without and with a rest.
        let sizes = [0, 1, 65_535, 65_536, 65_537, 4 << 20, (9 << 20) + 7];
        for size in sizes {
            bench.add(&format!("dir/{size}"), &content(size));
        }
        let (summary, messages) = bench.verify().await;
        assert!(summary.is_clean(), "{messages:?}");
        assert_eq!(summary.matched, sizes.len() as u64);
        assert_eq!(summary.bytes, sizes.iter().sum::<usize>() as u64);
        assert!(messages.contains(&"matched dir/65537 65537".to_owned()), "{messages:?}");
    }
}

#[tokio::test]
async fn every_error_is_reported() {
    let mut bench = Bench::new(DigestKind::Sha256);
    bench.add("good", b"good");
    bench.list("gone", b"");
    bench.list("good/below a file", b"");
    bench.add("rotten", b"as it was");
    bench.storage.add_file("rotten", b"as it is!");
    bench.add("big rotten", &content(1 << 20));
    bench.storage.overwrite("big rotten", 777_777, b"!");
    bench.add("refused", b"");
    bench.storage.faults().on(Operation::ReadWhole).path("refused").fail(ErrorKind::Io);
    bench.add("big refused", &content(1 << 20));
    bench.storage.faults().on(Operation::Read).path("big refused").fail(ErrorKind::Io);
    bench.manifest.extend_from_slice(b"no sense\n");
    let hex = Digest::of(DigestKind::Sha256, b"").to_string();
    writeln!(Text(&mut bench.manifest), "{hex}  ../../etc/passwd").unwrap();
    bench.storage.add_dir("directory");
    bench.list("directory", b"");
    bench.storage.add_file("not listed", "");
    let (summary, messages) = bench.verify().await;
    assert!(!summary.is_clean());
    let expected = VerifySummary {
        matched: 1,
        mismatched: 2,
        missing: 2,
        unreadable: 3,
        malformed: 2,
        bytes: 4 + 9 + (1 << 20),
        ..VerifySummary::default()
    };
    assert_eq!(summary, expected, "{messages:#?}");
    let all = messages.join("\n");
    for line in [
        "malformed 9: memory:manifest: cannot use manifest (line 9 has a name",
        "malformed 8: memory:manifest: cannot use manifest (line 8 is not",
        "mismatched big rotten",
        "mismatched rotten",
        "missing gone",
        "missing good/below a file",
        "unreadable big refused: memory:big refused: cannot read",
        "unreadable directory: memory:directory: cannot",
        "unreadable refused: memory:refused: cannot read",
    ] {
        assert!(all.contains(line), "{line} is not in {all}");
    }
}

/// Writes text to bytes.
struct Text<'a>(&'a mut Vec<u8>);

impl std::fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

#[tokio::test]
async fn strict_finds_unlisted_files_only_below_the_base() {
    let mut bench = Bench::new(DigestKind::Blake3);
    bench.base = path("base");
    bench.options.strict = true;
    bench.add("a", b"a");
    bench.add("deep/er/b", b"b");
    bench.list("gone", b"");
    bench.storage.add_file("beside the base", "");
    bench.storage.add_file("base/zero", "");
    bench.storage.add_file("base/deep/.hidden", "");
    bench.storage.add_file("base/deep/er/c", "");
    bench.storage.add_file("base/B3SUMS", "a manifest of another kind");
    bench.storage.add_dir("base/empty");
    bench.storage.add_symlink("base/link", "a");
    let part = [b"base/".as_slice(), &part_name(b"unfinished")].concat();
    bench.storage.add_file(part, "");
    let (summary, messages) = bench.verify().await;
    let extra: Vec<_> = messages.iter().filter(|line| line.starts_with("extra")).collect();
    assert_eq!(extra, ["extra base/deep/.hidden", "extra base/deep/er/c", "extra base/zero"],);
    assert_eq!((summary.matched, summary.missing, summary.extra), (2, 1, 3));
    // The manifest itself, if it is below the base, is not extra.
    bench.base = RelPath::root();
    let (summary, messages) = bench.verify().await;
    assert_eq!(summary.extra, 7, "{messages:?}");
}

#[tokio::test]
async fn a_directory_that_cannot_be_listed_is_reported() {
    let mut bench = Bench::new(DigestKind::Blake3);
    bench.options.strict = true;
    bench.add("closed/a", b"a");
    bench.storage.add_file("open/extra", "");
    bench.storage.faults().on(Operation::List).path("closed").fail(ErrorKind::PermissionDenied);
    let (summary, messages) = bench.verify().await;
    assert_eq!((summary.matched, summary.unreadable, summary.extra), (1, 1, 1), "{messages:?}");
}

#[tokio::test]
async fn strict_compares_more_names_than_fit_in_memory() {
    let mut bench = Bench::of(DigestKind::Blake3, MemoryStorage::builder().with_list_batch(1000));
    bench.options.strict = true;
    for number in 0..20_000 {
        let name = format!("{:02}/{number}", number % 50);
        if number % 100 == 7 {
            bench.storage.add_file(&name, "");
        } else {
            bench.add(&name, b"");
        }
    }
    let (summary, _) = bench.verify().await;
    assert_eq!((summary.matched, summary.extra), (19_800, 200));
}

#[tokio::test]
async fn names_with_backslashes_are_found_with_slashes() {
    let mut bench = Bench::new(DigestKind::Sha256);
    bench.options.strict = true;
    bench.storage.add_file("dir/file", b"x");
    bench.storage.add_file("as\\it\\stands", b"y");
    let x = Digest::of(DigestKind::Sha256, b"x");
    let y = Digest::of(DigestKind::Sha256, b"y");
    let text =
        format!("{x} *dir\\file\r\n{y} *as\\it\\stands\r\n{y} *not\\there\r\n{y} *..\\..\\up\r\n");
    bench.manifest = text.into_bytes();
    let (summary, messages) = bench.verify().await;
    assert_eq!(
        messages,
        [
            "matched as\\it\\stands 1",
            "matched dir/file 1",
            "missing ..\\..\\up",
            "missing not\\there",
        ]
    );
    assert_eq!(summary.extra, 0);
}

#[tokio::test]
async fn a_tag_chooses_the_digest() {
    let mut bench = Bench::new(DigestKind::Sha256);
    bench.storage.add_file("a", b"x");
    bench.storage.add_file("b", b"x");
    let text = format!(
        "BLAKE3 (a) = {}\nSHA256 (b) = {}\n",
        Digest::of(DigestKind::Blake3, b"x"),
        Digest::of(DigestKind::Sha256, b"x"),
    );
    bench.manifest = text.into_bytes();
    let (summary, messages) = bench.verify().await;
    assert_eq!(summary.matched, 2, "{messages:?}");
}

#[tokio::test]
async fn reads_that_fail_transiently_are_retried_where_they_stopped() {
    for kind in KINDS {
        let mut bench = Bench::new(kind);
        bench.add("big", &content(3 << 20));
        bench.add("small", b"small");
        let faults = bench.storage.faults();
        faults.on(Operation::ReadWhole).path("small").first(2).fail(ErrorKind::Busy);
        faults.on(Operation::Open).path("big").nth(1).fail(ErrorKind::Unreachable);
        faults.on(Operation::Read).path("big").nth(2).tear(300_000, ErrorKind::Unreachable);
        let (summary, messages) = bench.verify().await;
        assert_eq!((summary.matched, summary.retries), (2, 4), "{messages:?}");
        assert_eq!(summary.bytes, (3 << 20) + 5);
    }
}

/// Formerly, it counted as unreadable after the first failure.
#[tokio::test]
async fn a_read_that_cannot_be_continued_begins_anew() {
    for kind in KINDS {
        let builders = [
            MemoryStorage::builder().without_sizes(),
            MemoryStorage::builder().with_capabilities(|can| can.ranged_reads = false),
        ];
        for builder in builders {
            let mut bench = Bench::of(kind, builder);
            bench.add("big", &content(3 << 20));
            let faults = bench.storage.faults();
            faults.on(Operation::Read).path("big").nth(1).tear(300_000, ErrorKind::Unreachable);
            faults.on(Operation::Read).path("big").nth(2).fail(ErrorKind::Unreachable);
            let (summary, messages) = bench.verify().await;
            assert_eq!((summary.matched, summary.retries), (1, 2), "{messages:?}");
            assert_eq!(summary.bytes, 3 << 20);
            faults.on(Operation::Read).path("big").fail(ErrorKind::Unreachable);
            let (summary, messages) = bench.verify().await;
            assert_eq!((summary.unreadable, summary.retries), (1, 3), "{messages:?}");
        }
    }
}

#[tokio::test]
async fn a_file_on_an_unreachable_server_fails_after_the_retries() {
    let mut bench = Bench::new(DigestKind::Blake3);
    bench.add("a", b"");
    bench.storage.faults().on(Operation::ReadWhole).fail(ErrorKind::Unreachable);
    let (summary, messages) = bench.verify().await;
    assert_eq!((summary.unreadable, summary.retries), (1, 3), "{messages:?}");
}

#[tokio::test]
async fn a_file_that_changes_while_it_is_read_is_not_reported_as_damaged() {
    for shrink in [false, true] {
        let mut bench = Bench::new(DigestKind::Sha256);
        bench.add("log", &content(3 << 20));
        let read = bench.storage.faults().on(Operation::Read).path("log").nth(2);
        if shrink {
            read.resize(1 << 20);
        } else {
            bench.storage.overwrite("log", 0, b"!");
            read.change();
        }
        let (summary, messages) = bench.verify().await;
        assert_eq!(summary.unreadable, 1, "{messages:?}");
    }
}

#[tokio::test]
async fn holes_are_not_read() {
    for kind in KINDS {
        let mut bench = Bench::new(kind);
        let size = 50 << 20;
        let mut whole = vec![0; size];
        whole[10_000_000..10_000_005].copy_from_slice(b"hello");
        bench.storage.add_sparse_file("sparse", size as u64, &[(10_000_000, b"hello")]);
        bench.list("sparse", &whole);
        bench.storage.add_sparse_file("hole", size as u64, &[]);
        bench.list("hole", &vec![0; size]);
        let (summary, messages) = bench.verify().await;
        assert_eq!((summary.matched, summary.bytes), (2, 2 * size as u64), "{messages:?}");
        assert_eq!(bench.storage.faults().count(Operation::Read), 2, "manifest and data");
    }
}

#[tokio::test]
async fn many_large_files_share_a_small_budget() {
    for kind in KINDS {
        for memory in [1, 64 << 10, 300_000] {
            let mut bench = Bench::new(kind);
            bench.options.memory = memory;
            bench.options.parallel = 8;
            for number in 0..8 {
                bench.add(&number.to_string(), &content(700_000 + number));
            }
            let verified = tokio::time::timeout(Duration::from_secs(60), bench.verify());
            let (summary, messages) = verified.await.unwrap();
            assert_eq!(summary.matched, 8, "{memory}: {messages:?}");
        }
    }
}

#[tokio::test]
async fn a_file_on_a_storage_without_ranges_is_one_read() {
    for kind in KINDS {
        let builder = MemoryStorage::builder()
            .with_capabilities(|capabilities| capabilities.ranged_reads = false);
        let mut bench = Bench::of(kind, builder);
        bench.add("big", &content(9 << 20));
        let (summary, messages) = bench.verify().await;
        assert_eq!(summary.matched, 1, "{messages:?}");
        assert_eq!(bench.storage.faults().count(Operation::Read), 2, "manifest and file");
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_link_is_filled() {
    let link = SimulatedLink::new(Duration::from_millis(200), 62_500_000);
    // Blocks that are hashed in place: virtual time runs on while a thread of the pool is at work.
    let builder = MemoryStorage::builder().with_link(link).with_read_block(64 << 10);
    let mut bench = Bench::of(DigestKind::Blake3, builder);
    bench.options.memory = 64 << 20;
    bench.options.parallel = 8;
    bench.add("big", &content(100 << 20));
    for number in 0..40 {
        bench.add(&format!("small {number}"), b"x");
    }
    let started = tokio::time::Instant::now();
    let (summary, messages) = bench.verify().await;
    assert_eq!(summary.matched, 41, "{messages:?}");
    // 1.7 s at full rate and some RTTs to begin; one range after the other would take 12 s.
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[tokio::test]
async fn verification_stops_when_it_is_cancelled() {
    let mut bench = Bench::new(DigestKind::Blake3);
    bench.add("a", b"a");
    bench.add("stalled", &content(1 << 20));
    bench.storage.faults().on(Operation::Read).path("stalled").stall();
    let cancel = bench.cancel.clone();
    let stop = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        cancel.cancel();
    };
    let ((summary, messages), ()) = tokio::join!(bench.verify(), stop);
    assert!(summary.interrupted && !summary.is_clean());
    assert_eq!(messages, ["matched a 1"]);
}

#[tokio::test]
async fn a_manifest_that_cannot_be_read_to_its_end_is_an_error() {
    let mut bench = Bench::new(DigestKind::Blake3);
    bench.add("a", b"a");
    bench.storage.faults().on(Operation::Read).path("manifest").cut(10);
    let (outcome, _) = bench.try_verify().await;
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Changed);
}

fn server() -> Builder {
    MemoryStorage::builder().with_digests().with_capabilities(|can| can.medium = Medium::Link)
}

#[tokio::test]
async fn a_file_is_not_read_if_a_server_reports_the_listed_digest() {
    for kind in KINDS {
        let mut bench = Bench::of(kind, server());
        for size in [0, 1, 300_000] {
            bench.add(&format!("{size}"), &content(size));
        }
        let (summary, messages) = bench.verify().await;
        assert!(summary.is_clean(), "{messages:?}");
        assert_eq!((summary.matched, summary.reported, summary.bytes), (3, 3, 0));
        assert_eq!(messages, ["matched 0 0", "matched 1 1", "matched 300000 300000"]);
        let read = bench.storage.faults().calls();
        let read =
            read.iter().filter(|(of, _)| matches!(of, Operation::Read | Operation::ReadWhole));
        assert!(read.into_iter().all(|(_, at)| at == &path("manifest")));
    }
}

#[tokio::test]
async fn another_digest_of_a_server_proves_nothing() {
    let false_digest = Digest::of(DigestKind::Sha256, b"x");
    let mut bench = Bench::of(DigestKind::Sha256, server().with_false_digest(false_digest));
    bench.add("right", &content(300_000));
    bench.storage.add_file("wrong", "content");
    bench.list("wrong", b"another");
    bench.list("missing", b"");
    let (summary, messages) = bench.verify().await;
    assert_eq!(messages, ["matched right 300000", "mismatched wrong", "missing missing"]);
    assert_eq!((summary.matched, summary.reported), (1, 0));
}
