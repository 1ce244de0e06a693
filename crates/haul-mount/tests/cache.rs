//! Real mounts: the cache on disk, the state, the kernel's read-ahead and `noexec`; as root where `/dev/fuse` exists.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![expect(clippy::print_stderr, reason = "a skipped test prints that")]

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use haul_mount::{Mount, MountBuilder};
use haul_storage::memory::{MemoryStorage, Operation};
use haul_storage::{ErrorKind, Metadata, RelPath, Storage};
use rustix::process::geteuid;
use tempfile::TempDir;

use common::{eventually, try_mount};

const PATIENCE: Duration = Duration::from_secs(60);
const BLOCK: usize = 64 << 10;

fn builder(storage: &Arc<MemoryStorage>) -> MountBuilder {
    let storage: Arc<dyn Storage> = Arc::clone(storage) as _;
    Mount::builder(storage).attribute_age(Duration::ZERO).missing_age(Duration::ZERO)
}

fn cached_blocks(mount: &Mount) -> usize {
    mount.observer().status().unwrap().cache.unwrap().blocks
}

#[test]
fn a_file_is_read_from_the_disk_by_the_next_mount() {
    let whole: Vec<u8> = (0..8 * BLOCK).map(|at| (at ^ (at >> 9)) as u8).collect();
    let storage = MemoryStorage::new();
    storage.add_file("file", &whole);
    let (point, cache) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let with_cache = || builder(&storage).cache(cache.path().to_owned(), 64 << 20);
    let Some(mount) = try_mount(with_cache(), point.path()) else { return };
    let path = point.path().join("file");
    assert!(fs::read(&path).unwrap() == whole);
    eventually(PATIENCE, "not cached", || cached_blocks(&mount) == 8);
    mount.unmount().unwrap();
    let reads = storage.faults().count(Operation::Read);
    let mount = try_mount(with_cache(), point.path()).unwrap();
    assert!(fs::read(&path).unwrap() == whole);
    assert_eq!(storage.faults().count(Operation::Read), reads);
    assert_eq!(mount.observer().status().unwrap().reads.disk_hits, 8);
    // The same size, another content.
    let other: Vec<u8> = whole.iter().map(|byte| byte ^ 0xff).collect();
    storage.add_file("file", &other);
    assert!(fs::read(&path).unwrap() == other);
    mount.unmount().unwrap();
}

#[test]
fn a_second_mount_on_the_same_cache_is_refused() {
    let storage = MemoryStorage::new();
    let (point, cache) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let with_cache = || builder(&storage).cache(cache.path().to_owned(), 64 << 20);
    let Some(mount) = try_mount(with_cache(), point.path()) else { return };
    let other = TempDir::new().unwrap();
    let error = with_cache().mount(other.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.to_string().contains("another mount uses this cache"), "{error}");
    mount.unmount().unwrap();
    try_mount(with_cache(), other.path()).unwrap().unmount().unwrap();
}

#[test]
fn a_cache_below_the_mount_point_is_refused() {
    let storage = MemoryStorage::new();
    let point = TempDir::new().unwrap();
    let cache = point.path().join("cache");
    let error = builder(&storage).nonempty(true).cache(cache, 64 << 20).mount(point.path());
    assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidInput);
}

/// The cache is on a file system of 1 MiB, which the file fills.
#[test]
fn a_full_disk_stops_caching_but_no_read() {
    let whole: Vec<u8> = (0..32 * BLOCK).map(|at| (at ^ (at >> 9)) as u8).collect();
    let storage = MemoryStorage::new();
    storage.add_file("file", &whole);
    let (point, cache) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    if !geteuid().is_root() {
        eprintln!("SKIPPED: mounting takes root");
        return;
    }
    haul_bench::guard::unshare_mounts_once().unwrap();
    let mut tmpfs = Command::new("mount");
    tmpfs.args(["-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs"]).arg(cache.path());
    if !tmpfs.status().is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: tmpfs cannot be mounted");
        return;
    }
    let with_cache = builder(&storage).cache(cache.path().to_owned(), 64 << 20);
    if let Some(mount) = try_mount(with_cache, point.path()) {
        let path = point.path().join("file");
        assert!(fs::read(&path).unwrap() == whole);
        let fault = || mount.observer().status().unwrap().cache.unwrap().fault;
        eventually(PATIENCE, "the disk is not full", || fault().is_some());
        assert!(fs::read(&path).unwrap() == whole);
        assert!((1..(1 << 20) / BLOCK).contains(&cached_blocks(&mount)));
        mount.unmount().unwrap();
    }
    eventually(Duration::from_secs(5), "still busy", || {
        let unmounted = Command::new("umount").arg(cache.path()).output().unwrap();
        let error = String::from_utf8_lossy(&unmounted.stderr);
        // A process that another thread has just forked has the files of this one open until it calls exec.
        assert!(unmounted.status.success() || error.contains("busy"), "{error}");
        unmounted.status.success()
    });
}

/// Formerly, the error left a cache behind, so that the mount point was no longer empty.
#[test]
fn a_cache_or_a_spool_below_the_mount_point_is_not_created() {
    let storage = MemoryStorage::new();
    let (point, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let link = other.path().join("link");
    symlink(point.path(), &link).unwrap();
    for hidden in [point.path().join("cache/of/files"), link.join("cache"), link] {
        for builder in
            [builder(&storage).cache(hidden.clone(), 64 << 20), builder(&storage).writable(&hidden)]
        {
            let error = builder.mount(point.path()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            assert!(error.to_string().contains("below the mount point"), "{error}");
            assert_eq!(fs::read_dir(point.path()).unwrap().count(), 0, "{}", hidden.display());
        }
    }
}

#[test]
fn the_state_of_a_mount_names_its_open_files() {
    let storage = MemoryStorage::new();
    storage.add_file("a/file", vec![7; 1000]);
    let point = TempDir::new().unwrap();
    let builder = builder(&storage).memory(8 << 20).root(RelPath::parse("a").unwrap());
    let Some(mount) = try_mount(builder, point.path()) else { return };
    let observer = mount.observer();
    let file = fs::File::open(point.path().join("file")).unwrap();
    std::io::copy(&mut &file, &mut std::io::sink()).unwrap();
    let status = observer.status().unwrap();
    assert_eq!((status.open_files, status.memory.limit), (1, 8 << 20));
    assert_eq!(status.files[0].path.as_bytes(), b"file");
    assert_eq!((status.files[0].size, status.files[0].read), (1000, 1000));
    assert!(status.cache.is_none());
    drop(file);
    eventually(PATIENCE, "still open", || observer.status().unwrap().open_files == 0);
    mount.unmount().unwrap();
    eventually(PATIENCE, "still mounted", || observer.status().is_none());
}

#[test]
fn the_kernel_reads_a_mebibyte_ahead() {
    let storage = MemoryStorage::new();
    let point = TempDir::new().unwrap();
    let Some(mount) = try_mount(builder(&storage), point.path()) else { return };
    let device = fs::metadata(point.path()).unwrap().dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    // In a container, /sys may be read-only.
    if fs::File::options().write(true).open(&path).is_ok() {
        assert_eq!(fs::read_to_string(&path).unwrap().trim(), "1024");
    } else {
        eprintln!("SKIPPED: {path} cannot be written");
    }
    mount.unmount().unwrap();
}

#[test]
fn no_file_is_executed_with_noexec() {
    let storage = MemoryStorage::new();
    storage.add_file("run", "#!/bin/sh\nexit 0\n");
    let mode = Some(0o755);
    storage.set("run", &Metadata { mode, ..Metadata::default() });
    let point = TempDir::new().unwrap();
    for (noexec, works) in [(false, true), (true, false)] {
        let Some(mount) = try_mount(builder(&storage).noexec(noexec), point.path()) else { return };
        let path = point.path().join("run");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(Command::new(&path).status().is_ok(), works);
        mount.unmount().unwrap();
    }
}
