//! The cache on disk: full, on a full disk, damaged, and after a kill.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use rustix::fs::{Advice, fadvise};

use crate::content::content;
use crate::lab::{SmallDisk, eventually, form, turn};
use crate::mounted::Mounted;
use crate::source::{Kind, Source};

const MIB: usize = 1 << 20;

/// A file by name, and its content.
type Named = (&'static str, Vec<u8>);

/// A directory to mount with files `a`, `b` and `c`, and their contents. `None` if [`Source::start`] returns that.
fn source() -> Option<(Source, Vec<Named>)> {
    let source = Source::start(Kind::Local)?;
    let length = form(6, 200) * MIB + 1234;
    let files: Vec<Named> = ["a", "b", "c"]
        .into_iter()
        .zip(1..)
        .map(|(name, seed)| (name, content(seed, length)))
        .collect();
    for (name, whole) in &files {
        source.write(name, whole);
    }
    Some((source, files))
}

/// Reads all files through a mount, not from the kernel's page cache, and compares them.
#[track_caller]
fn read_all(mounted: &Mounted, files: &[Named]) {
    for (name, whole) in files {
        let mut file = File::open(mounted.path(name)).unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        let mut read = Vec::new();
        file.read_to_end(&mut read).unwrap();
        assert!(read == *whole, "{name}");
    }
}

/// Reads all files repeatedly until this many blocks are in the cache: blocks that arrive faster than the disk can
/// write them are not cached.
#[track_caller]
fn read_until_cached(mounted: &Mounted, files: &[Named], blocks: u64) {
    eventually("too few blocks are cached", || {
        read_all(mounted, files);
        mounted.status()["cache"]["blocks"].as_u64() >= Some(blocks)
    });
}

#[test]
fn a_full_cache_respects_its_limit() {
    let Some(_turn) = turn() else { return };
    let Some((source, files)) = source() else { return };
    // The cache is smaller than the files, and larger than the memory.
    let mounted = Mounted::start(&source, "--memory 4M --cache-dir cache --cache-size 16M");
    // 16 MiB are 128 blocks of files.
    read_until_cached(&mounted, &files, 100);
    read_all(&mounted, &files);
    let status = mounted.status();
    let cache = &status["cache"];
    assert!(cache["bytes"].as_u64() <= cache["max_bytes"].as_u64(), "{status}");
    assert_eq!(cache["fault"], serde_json::Value::Null, "{status}");
    mounted.end();
}

#[test]
fn a_cache_on_a_full_disk_fails_no_read() {
    let Some(_turn) = turn() else { return };
    let Some((source, files)) = source() else { return };
    fs::create_dir(source.session.path("cache")).unwrap();
    let Some(_disk) = SmallDisk::mount(source.session.path("cache"), "4m") else { return };
    let mounted = Mounted::start(&source, "--memory 4M --cache-dir cache");
    read_all(&mounted, &files);
    eventually("the disk is not full", || mounted.status()["cache"]["fault"].is_string());
    read_all(&mounted, &files);
    mounted.end();
}

/// Corrupts or truncates every block, by turns, and overwrites the list of their order of use. Returns the number of
/// blocks.
fn damage(cache: &Path) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(cache).unwrap().map(Result::unwrap) {
        if !entry.file_type().unwrap().is_dir() {
            continue;
        }
        for block in fs::read_dir(entry.path()).unwrap().map(|block| block.unwrap().path()) {
            let mut bytes = fs::read(&block).unwrap();
            if count % 2 == 0 {
                let middle = bytes.len() / 2;
                bytes[middle] ^= 0x10;
            } else {
                bytes.truncate(bytes.len() / 2);
            }
            fs::write(&block, bytes).unwrap();
            count += 1;
        }
    }
    fs::write(cache.join("order"), content(9, 1000)).unwrap();
    count
}

#[test]
fn damaged_blocks_are_fetched_again_from_the_server() {
    let Some(_turn) = turn() else { return };
    let Some((source, files)) = source() else { return };
    let options = "--memory 4M --cache-dir cache";
    let mounted = Mounted::start(&source, options);
    read_until_cached(&mounted, &files, 100);
    mounted.end();
    let blocks = damage(&source.session.path("cache"));
    assert!(blocks >= 100, "{blocks}");
    let mounted = Mounted::start(&source, options);
    read_all(&mounted, &files);
    let status = mounted.status();
    assert_eq!(status["disk_hits"], 0, "{status}");
    mounted.end();
}

#[test]
fn a_cache_has_no_wrong_bytes_after_kills_of_its_mount() {
    let Some(_turn) = turn() else { return };
    let Some((source, files)) = source() else { return };
    let options = "--memory 4M --cache-dir cache";
    for round in 0..form(3, 20) {
        let mounted = Mounted::start(&source, options);
        let mut part = vec![0; (round + 1) * MIB];
        File::open(mounted.path("a")).unwrap().read_exact(&mut part).unwrap();
        assert!(part == files[0].1[..part.len()], "round {round}");
        mounted.kill();
    }
    let mounted = Mounted::start(&source, options);
    read_all(&mounted, &files);
    mounted.end();
}
