//! How programs read: players, readers of archives, git, rsync and tar; also while a file changes on the server.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::content::content;
use crate::lab::{Ending, eventually, form, has_tools, shell, turn};
use crate::mounted::Mounted;
use crate::source::{Kind, Source};

const MIB: usize = 1 << 20;

/// The two kinds that differ most for a reader.
const KINDS: &[Kind] = &[Kind::OpenSsh, Kind::Local];

/// The kinds on which slow programs run.
fn kinds() -> &'static [Kind] {
    form(&KINDS[..1], KINDS)
}

#[test]
fn a_player_reads_head_tail_and_then_all() {
    let Some(_turn) = turn() else { return };
    for kind in KINDS {
        let Some(source) = Source::start(*kind) else { continue };
        let whole = content(1, form(16, 512) * MIB + 77);
        source.write("film.mp4", &whole);
        let mounted = Mounted::start(&source, "");
        let file = File::open(mounted.path("film.mp4")).unwrap();
        let read = |at: usize, length: usize| {
            let mut bytes = vec![0; length.min(whole.len() - at)];
            file.read_exact_at(&mut bytes, at as u64).unwrap();
            assert!(bytes == whole[at..at + bytes.len()], "{kind:?}: {length} at {at}");
        };
        read(0, 64 << 10);
        read(whole.len() - (512 << 10), 512 << 10);
        (64 << 10..whole.len()).step_by(64 << 10).for_each(|at| read(at, 64 << 10));
        // A viewer jumps to other positions.
        for at in [whole.len() / 2, whole.len() / 3, 0, whole.len() - 10] {
            read(at, 64 << 10);
        }
        drop(file);
        if whole.len() < 100 * MIB {
            let fetched = mounted.status()["fetched_bytes"].as_u64().unwrap();
            let most = (whole.len() + 4 * MIB) as u64;
            assert!(fetched <= most, "{kind:?}: {fetched} bytes were fetched");
        }
        mounted.end();
    }
}

#[test]
fn one_file_of_an_archive_is_read_without_the_rest() {
    let Some(_turn) = turn() else { return };
    if !has_tools(&["zip", "unzip"]) {
        return;
    }
    for kind in kinds() {
        let Some(source) = Source::start(*kind) else { continue };
        for number in 0..32 {
            source.session.write(format!("members/{number}"), content(number, MIB));
        }
        shell("cd members; zip -q -0 ../far/a.zip *", &source.session.path(""));
        let mounted = Mounted::start(&source, "");
        shell("unzip -l mnt/a.zip >list; grep -q 31 list", &source.session.path(""));
        let fetched = || mounted.status()["fetched_bytes"].as_u64().unwrap();
        // The central directory of a zip file is at its end.
        let (listed, most) = (fetched(), 4 * MIB as u64);
        assert!(listed <= most, "{kind:?}: {listed} bytes were fetched for the list");
        shell("unzip -p mnt/a.zip 20 | cmp - members/20", &source.session.path(""));
        let (one, most) = (fetched(), 16 * MIB as u64);
        assert!(one <= most, "{kind:?}: {one} bytes were fetched for one file");
        shell("unzip -tqq mnt/a.zip", &source.session.path(""));
        mounted.end();
    }
}

#[test]
fn a_repository_is_clean_and_can_be_cloned_from_a_mount() {
    let Some(_turn) = turn() else { return };
    if !has_tools(&["git"]) {
        return;
    }
    let script = "git init -q -b main far/repository; cd far/repository; mkdir -p src/deep; \
                  for n in $(seq 300); do echo content $n >src/deep/$n; done; ln -s deep src/link; \
                  git add .; git commit -qm one; git mv src/deep/1 src/one; git commit -qm two";
    for kind in kinds() {
        let Some(source) = Source::start(*kind) else { continue };
        let directory = source.session.path("");
        shell(script, &directory);
        let mounted = Mounted::start(&source, "");
        let status = "git --no-optional-locks -C mnt/repository status --porcelain";
        assert_eq!(shell(status, &directory), "", "{kind:?}");
        shell("git -C mnt/repository fsck --strict --no-progress", &directory);
        let clone = "git clone -q file://$PWD/mnt/repository clone; \
                     diff -r clone/src far/repository/src";
        shell(clone, &directory);
        mounted.end();
    }
}

#[test]
fn rsync_and_tar_copy_a_tree_from_a_mount() {
    let Some(_turn) = turn() else { return };
    if !has_tools(&["rsync", "tar"]) {
        return;
    }
    for kind in kinds() {
        let Some(source) = Source::start(*kind) else { continue };
        tree(&source, "far/tree");
        let mounted = Mounted::start(&source, "");
        let directory = source.session.path("");
        shell("mkdir got; rsync -a mnt/tree/ got/rsync", &directory);
        shell("tar -cf tar -C mnt tree; tar -xpf tar -C got", &directory);
        for (one, other) in [("mnt", "rsync"), ("far", "rsync"), ("far", "tree")] {
            let line = format!("rsync -anci --delete {one}/tree/ got/{other}/");
            assert_eq!(shell(&line, &directory), "", "{kind:?}: $ {line}");
        }
        mounted.end();
    }
}

/// Creates a tree with all kinds of entries that are copied. All times are whole seconds.
pub(crate) fn tree(source: &Source, top: &str) {
    for number in 0..40_usize {
        let name = format!("{top}/d{}/e{}/file {number}", number % 3, number % 5);
        source.session.write(name, content(number as u64, number * number * 150));
    }
    let script = format!(
        "cd {top}; : >empty; mkdir -p none/at/all; ln -s d1/e1 link; ln -s nowhere broken; \
         echo x >'näme with späces'; chmod 600 empty; chmod 755 d0/e0/*; chmod 711 none; \
         find . -depth -exec touch -h -d @1500000000 {{}} +"
    );
    shell(&script, &source.session.path(""));
}

#[test]
fn the_new_content_of_a_file_that_changes_on_the_server_is_soon_read() {
    let Some(_turn) = turn() else { return };
    for kind in KINDS {
        let Some(source) = Source::start(*kind) else { continue };
        let version = |number: u8| vec![b'a' + number; 400_000 + 50_000 * usize::from(number)];
        let replace = |number: u8| {
            source.write("new", version(number));
            fs::rename(source.far("new"), source.far("file")).unwrap();
        };
        replace(0);
        let mounted = Mounted::start(&source, "--attribute-age 0");
        let (is_done, reads) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            let ending = Ending(&is_done);
            // While a version is replaced, a reader may get a mixture, zeros at the end, or an error; it must go on.
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    let read = fs::read(mounted.path("file")).unwrap_or_default();
                    let known = |byte: &u8| (b'a'..b'a' + 10).contains(byte);
                    let shortest = read.len().min(version(0).len());
                    assert!(read[..shortest].iter().all(known), "{kind:?}: bytes of no version");
                    let rest = &read[shortest..];
                    assert!(rest.iter().all(|byte| *byte == 0 || known(byte)), "{kind:?}");
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
            for number in 1..form(3, 10) {
                replace(number);
                let is_new =
                    || fs::read(mounted.path("file")).is_ok_and(|read| read == version(number));
                eventually("the mount still has the old version", is_new);
                // From then on, only reads that began earlier may return the old version.
                let before = reads.load(Ordering::Relaxed);
                eventually("the reader has stopped", || {
                    reads.load(Ordering::Relaxed) >= before + 2
                });
                thread::sleep(Duration::from_millis(100));
                assert!((0..3).all(|_| is_new()), "{kind:?}: the old version is back");
            }
            drop(ending);
        });
        mounted.end();
    }
}
