//! Manifests: `sha256sum` and `b3sum` accept them, and new entries are merged into an existing manifest.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![expect(clippy::print_stderr, reason = "a test that cannot run prints that")]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use haul_engine::digest::Digest;
use haul_engine::manifest::{FinishOptions, Finished, ManifestReader, ManifestWriter, listed_path};
use haul_storage::memory::{MemoryStorage, Operation};
use haul_storage::{DigestKind, ErrorKind, Metadata, RelPath, Result, WorkPool};

const MERGE: FinishOptions =
    FinishOptions { merge: true, beside: true, sync: false, private: false };

/// Names that need care: blanks, escapes, other line formats, bytes that are not UTF-8.
const HARD_NAMES: [&[u8]; 19] = [
    b"plain",
    b"dir/below",
    b" leading blank",
    b"  two leading blanks",
    b"trailing blank ",
    b"-dash",
    b"*star",
    b"#hash",
    b"new\nline",
    b"back\\slash",
    b"back\\nslash",
    b"\\leading backslash",
    b"carriage\rreturn",
    b"carriage return at the end\r",
    b"tab\tname",
    b"\xff\xfe not utf-8",
    b"a) = b",
    "gr\u{fc}\u{df}e".as_bytes(),
    b"SHA256 (x) = y",
];

fn path(bytes: impl AsRef<[u8]>) -> RelPath {
    RelPath::parse(bytes).unwrap()
}

fn digest(content: impl AsRef<[u8]>) -> Digest {
    Digest::of(DigestKind::Sha256, content.as_ref())
}

fn pool() -> WorkPool {
    WorkPool::new("manifest-test", 1).unwrap()
}

/// A storage for a manifest, and a scratch directory for entries that do not fit in memory.
struct Bench {
    storage: Arc<MemoryStorage>,
    scratch: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { storage: MemoryStorage::new(), scratch: tempfile::tempdir().unwrap() }
    }

    fn writer(&self) -> ManifestWriter {
        let base = RelPath::root();
        ManifestWriter::new(DigestKind::Sha256, base, self.scratch.path(), pool())
    }

    async fn finish(&self, writer: ManifestWriter) -> Result<Finished> {
        writer.finish(&*self.storage, &path("SHA256SUMS"), MERGE).await
    }

    /// Writes the manifest of a run that transferred these files, each with its own name as content.
    async fn run(&self, names: &[&str]) -> Result<Finished> {
        let mut writer = self.writer();
        for name in names {
            writer.add(&path(name), &digest(name)).unwrap();
        }
        self.finish(writer).await
    }

    fn text(&self) -> String {
        String::from_utf8(self.storage.content("SHA256SUMS").to_vec()).unwrap()
    }

    async fn names(&self) -> Vec<String> {
        let manifest = path("SHA256SUMS");
        let mut reader =
            ManifestReader::open(&*self.storage, &manifest, DigestKind::Sha256).await.unwrap();
        let mut names = Vec::new();
        while let Some(line) = reader.next().await.unwrap() {
            names.push(listed_path(&line.listed.unwrap().name).unwrap().to_string());
        }
        names
    }
}

/// Runs a tool; `None` if it is not installed.
fn tool(name: &str, directory: &Path, arguments: &[&OsStr]) -> Option<std::process::Output> {
    match Command::new(name).current_dir(directory).args(arguments).output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("no {name} here: nothing is tested");
            None
        }
        Err(error) => panic!("{name}: {error}"),
    }
}

#[tokio::test]
async fn sha256sum_accepts_a_manifest() {
    let bench = Bench::new();
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("dir")).unwrap();
    let mut writer = bench.writer();
    for name in HARD_NAMES {
        std::fs::write(directory.path().join(OsStr::from_bytes(name)), name).unwrap();
        writer.add(&path(name), &digest(name)).unwrap();
    }
    let finished = bench.finish(writer).await.unwrap();
    assert_eq!(finished.files, HARD_NAMES.len() as u64);
    let text = bench.storage.content("SHA256SUMS");
    assert_eq!(finished.bytes, text.len() as u64);
    std::fs::write(directory.path().join("SHA256SUMS"), &text).unwrap();
    let arguments = ["--check", "--strict", "SHA256SUMS"].map(OsStr::new);
    let Some(output) = tool("sha256sum", directory.path(), &arguments) else { return };
    assert!(output.status.success(), "{output:?}");
}

#[tokio::test]
async fn b3sum_accepts_a_manifest() {
    let bench = Bench::new();
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("dir")).unwrap();
    let base = RelPath::root();
    let mut writer = ManifestWriter::new(DigestKind::Blake3, base, bench.scratch.path(), pool());
    // b3sum cannot check names that are not UTF-8.
    for name in HARD_NAMES.into_iter().filter(|name| std::str::from_utf8(name).is_ok()) {
        std::fs::write(directory.path().join(OsStr::from_bytes(name)), name).unwrap();
        writer.add(&path(name), &Digest::of(DigestKind::Blake3, name)).unwrap();
    }
    writer.finish(&*bench.storage, &path("B3SUMS"), MERGE).await.unwrap();
    std::fs::write(directory.path().join("B3SUMS"), bench.storage.content("B3SUMS")).unwrap();
    let arguments = ["--check", "B3SUMS"].map(OsStr::new);
    let Some(output) = tool("b3sum", directory.path(), &arguments) else { return };
    assert!(output.status.success(), "{output:?}");
}

#[tokio::test]
async fn the_output_of_sha256sum_is_parsed() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("dir")).unwrap();
    for name in HARD_NAMES {
        std::fs::write(directory.path().join(OsStr::from_bytes(name)), name).unwrap();
    }
    for form in [&["--text"][..], &["--binary"], &["--tag"]] {
        let mut arguments: Vec<_> = form.iter().map(OsStr::new).collect();
        arguments.push(OsStr::new("--"));
        arguments.extend(HARD_NAMES.map(OsStr::from_bytes));
        let Some(output) = tool("sha256sum", directory.path(), &arguments) else { return };
        let storage = MemoryStorage::builder().with_read_block(100).build();
        storage.add_file("SHA256SUMS", &output.stdout);
        let manifest = path("SHA256SUMS");
        let mut reader =
            ManifestReader::open(&*storage, &manifest, DigestKind::Sha256).await.unwrap();
        for name in HARD_NAMES {
            let line = reader.next().await.unwrap().unwrap();
            let listed = line.listed.unwrap();
            assert_eq!(listed.name.escape_ascii().to_string(), name.escape_ascii().to_string());
            assert_eq!(listed.digest, digest(name));
        }
        assert_eq!(reader.next().await.unwrap(), None);
    }
}

/// A server may generate a manifest, or compress it in transit. Formerly, it was taken for incomplete.
#[tokio::test]
async fn a_manifest_of_unknown_length_is_read_to_its_end() {
    let storage = MemoryStorage::builder().without_sizes().with_read_block(10).build();
    let manifest = path("SHA256SUMS");
    storage.add_file("SHA256SUMS", format!("{0}  a\n{0}  b", digest("x")));
    let mut reader = ManifestReader::open(&*storage, &manifest, DigestKind::Sha256).await.unwrap();
    for name in [&b"a"[..], b"b"] {
        assert_eq!(reader.next().await.unwrap().unwrap().listed.unwrap().name, name);
    }
    assert_eq!(reader.next().await.unwrap(), None);
}

#[tokio::test]
async fn names_are_sorted_by_their_bytes() {
    let bench = Bench::new();
    bench.run(&["b", "a/z", "a", "B", "a-b"]).await.unwrap();
    assert_eq!(bench.names().await, ["B", "a", "a-b", "a/z", "b"]);
    let line = format!("{}  B\n", digest("B"));
    assert!(bench.text().starts_with(&line), "{}", bench.text());
}

#[tokio::test]
async fn merging_keeps_other_entries_and_replaces_those_of_the_same_name() {
    let bench = Bench::new();
    let old = format!("# by hand\r\n\n{0} *./same\r\n{0}  other\r\n", digest("old"));
    bench.storage.add_file("SHA256SUMS", old);
    bench.storage.set("SHA256SUMS", &Metadata { mode: Some(0o640), ..Metadata::default() });
    let finished = bench.run(&["same", "new"]).await.unwrap();
    assert_eq!((finished.files, finished.unchanged), (3, 1));
    assert_eq!(bench.names().await, ["new", "other", "same"]);
    assert!(bench.text().contains(&format!("{}  same\n", digest("same"))));
    assert!(bench.text().contains(&format!("{}  other\n", digest("old"))));
    assert_eq!(bench.storage.entry("SHA256SUMS").mode, Some(0o640));
    // A second identical run changes nothing.
    let before = bench.text();
    bench.run(&["same", "new"]).await.unwrap();
    assert_eq!(bench.text(), before);
}

#[tokio::test]
async fn without_merging_only_this_run_is_listed() {
    let bench = Bench::new();
    bench.storage.add_file("SHA256SUMS", "not a manifest at all\n");
    let mut writer = bench.writer();
    writer.add(&path("new"), &digest("new")).unwrap();
    let options = FinishOptions { merge: false, ..MERGE };
    writer.finish(&*bench.storage, &path("SHA256SUMS"), options).await.unwrap();
    assert_eq!(bench.names().await, ["new"]);
}

#[tokio::test]
async fn entries_of_removed_files_and_directories_are_removed() {
    let bench = Bench::new();
    bench.run(&["a", "d", "d-e", "d/a", "d/b/c", "d/b/d", "d.e", "e"]).await.unwrap();
    let mut writer = bench.writer();
    writer.remove(&path("a")).unwrap();
    writer.remove(&path("never there")).unwrap();
    writer.remove_below(&path("d")).unwrap();
    writer.remove_below(&path("d/b")).unwrap();
    writer.add(&path("d/b/new"), &digest("new")).unwrap();
    bench.finish(writer).await.unwrap();
    assert_eq!(bench.names().await, ["d", "d-e", "d.e", "d/b/new", "e"]);
    let mut writer = bench.writer();
    writer.remove_below(&RelPath::root()).unwrap();
    writer.add(&path("last"), &digest("last")).unwrap();
    bench.finish(writer).await.unwrap();
    assert_eq!(bench.names().await, ["last"]);
}

#[tokio::test]
async fn an_invalid_manifest_is_an_error_and_stays_unchanged() {
    let hex = digest("");
    for (line, cause) in [
        ("no digest here".to_owned(), "is not a digest and a name"),
        (format!("{hex}  ../up"), "'..'"),
        (format!("{hex}  /etc/passwd"), "absolute"),
        (format!("\\{hex}  a\\tb"), "invalid '\\' escape"),
        (format!("BLAKE3 (a) = {hex}"), "blake3"),
    ] {
        let bench = Bench::new();
        let old = format!("{hex}  good\n{line}\n");
        bench.storage.add_file("SHA256SUMS", &old);
        let error = bench.run(&["new"]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let text = error.to_string();
        assert!(text.contains("SHA256SUMS") && text.contains("line 2"), "{text}");
        assert!(text.contains(cause), "{text}");
        assert_eq!(bench.text(), old);
        assert_eq!(bench.storage.paths(), ["SHA256SUMS"]);
    }
}

#[tokio::test]
async fn a_directory_or_link_with_the_name_of_the_manifest_is_not_replaced() {
    let bench = Bench::new();
    bench.storage.add_dir("SHA256SUMS");
    let error = bench.run(&["new"]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::IsADirectory);
    let bench = Bench::new();
    bench.storage.add_file("target", "");
    bench.storage.add_symlink("SHA256SUMS", "target");
    assert!(bench.run(&["new"]).await.is_err());
    assert_eq!(bench.storage.paths(), ["SHA256SUMS", "target"]);
}

#[tokio::test]
async fn the_old_manifest_survives_any_failed_call() {
    // Fail the first storage call, then the second, and so on, until a run makes fewer calls.
    for nth in 1.. {
        let bench = Bench::new();
        bench.run(&["old"]).await.unwrap();
        let before = bench.text();
        bench.storage.faults().reset_count();
        bench.storage.faults().on_any().nth(nth).fail(ErrorKind::Io);
        let outcome = bench.run(&["new"]).await;
        if bench.storage.faults().count_all() < nth {
            outcome.unwrap();
            assert!(nth > 5);
            break;
        }
        assert!(outcome.is_err(), "call {nth}");
        assert_eq!(bench.text(), before, "call {nth}");
        assert_eq!(bench.storage.paths(), ["SHA256SUMS"], "call {nth}");
    }
}

#[tokio::test]
async fn a_manifest_changed_by_another_program_is_not_overwritten() {
    let bench = Bench::new();
    bench.run(&["old"]).await.unwrap();
    bench.storage.faults().on(Operation::Recheck).nth(1).change();
    let error = bench.run(&["new"]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed);
    assert_eq!(bench.names().await, ["old"]);
}

#[tokio::test]
async fn a_manifest_lists_a_file_of_its_own_name_only_in_another_storage() {
    let bench = Bench::new();
    bench.run(&["SHA256SUMS", "a"]).await.unwrap();
    assert_eq!(bench.names().await, ["a"]);
    let mut writer = bench.writer();
    writer.add(&path("SHA256SUMS"), &digest("")).unwrap();
    let options = FinishOptions { beside: false, ..MERGE };
    writer.finish(&*bench.storage, &path("SHA256SUMS"), options).await.unwrap();
    assert_eq!(bench.names().await, ["SHA256SUMS", "a"]);
}

#[tokio::test]
async fn names_are_relative_to_the_base() {
    let bench = Bench::new();
    bench.storage.add_dir("photos");
    let mut writer =
        ManifestWriter::new(DigestKind::Sha256, path("photos"), bench.scratch.path(), pool());
    writer.add(&path("photos/2024/a"), &digest("a")).unwrap();
    writer.add(&path("photos/SHA256SUMS"), &digest("a")).unwrap();
    assert!(writer.add(&path("photosx/a"), &digest("a")).is_err());
    assert!(writer.add(&path("photos"), &digest("a")).is_err());
    let other = Digest::of(DigestKind::Blake3, b"");
    assert!(writer.add(&path("photos/b"), &other).is_err());
    writer.finish(&*bench.storage, &path("photos/SHA256SUMS"), MERGE).await.unwrap();
    let text = bench.storage.content("photos/SHA256SUMS");
    assert_eq!(text, format!("{}  2024/a\n", digest("a")));
}

#[tokio::test]
async fn a_run_without_files_leaves_the_manifest_alone() {
    let bench = Bench::new();
    assert_eq!(bench.run(&[]).await.unwrap(), Finished::default());
    assert!(!bench.storage.exists("SHA256SUMS"));
    bench.storage.add_file("SHA256SUMS", "not to be read");
    assert_eq!(bench.run(&[]).await.unwrap(), Finished::default());
    assert_eq!(bench.text(), "not to be read");
}

#[tokio::test]
async fn a_large_manifest_is_sorted_on_disk_without_leaving_files() {
    let bench = Bench::new();
    let name = |number: u32| format!("d{:02}/{:06}", number % 37, number.wrapping_mul(7919));
    let mut writer = bench.writer();
    for number in 0..40_000 {
        writer.add(&path(name(number)), &digest(number.to_string())).unwrap();
    }
    bench.finish(writer).await.unwrap();
    let mut writer = bench.writer();
    for number in 20_000..60_000 {
        writer.add(&path(name(number)), &digest("new")).unwrap();
    }
    // Scratch files have no name, even while they are in use.
    assert_eq!(std::fs::read_dir(bench.scratch.path()).unwrap().count(), 0);
    let finished = bench.finish(writer).await.unwrap();
    assert_eq!((finished.files, finished.unchanged), (60_000, 20_000));
    let names = bench.names().await;
    assert_eq!(names.len(), 60_000);
    assert!(names.is_sorted());
    assert_eq!(std::fs::read_dir(bench.scratch.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn the_error_for_a_missing_scratch_directory_names_it() {
    let bench = Bench::new();
    let gone = bench.scratch.path().join("gone");
    let mut writer = ManifestWriter::new(DigestKind::Sha256, RelPath::root(), &gone, pool());
    let outcome =
        (0..20_000).try_for_each(|number: u32| writer.add(&path(number.to_string()), &digest("")));
    assert!(outcome.unwrap_err().to_string().contains("gone"));
}
