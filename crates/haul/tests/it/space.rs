//! Destinations without enough space, on file systems of their own: a transfer is refused or stopped as soon as it is
//! known not to fit, and none that fits is refused.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

use haul_bench::guard::unshare_mounts_once;

use crate::content::content;
use crate::dav;
use crate::faults::{Mounted, Slow};
use crate::session::{Session, isolate};
use crate::sftp::SftpSession;

const MIB: usize = 1 << 20;

/// A file system of 20 MiB. `None`, with the reason printed, without the right to mount.
fn small(session: &Session, name: &str) -> Option<Mounted> {
    Mounted::tmpfs(session, name, "size=20m")
}

fn used(disk: &Mounted) -> u64 {
    let found = rustix::fs::statvfs(disk.path()).unwrap();
    (found.f_blocks - found.f_bfree) * found.f_frsize
}

fn file(session: &Session, path: &str, mib: usize) {
    session.write(path, content(path.len() as u64, mib * MIB));
}

/// The names in a directory.
fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).unwrap().flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_file_that_does_not_fit_is_refused_before_its_first_byte() {
    let session = Session::new();
    let Some(small) = small(&session, "small") else { return };
    file(&session, "big", 30);
    let ran = session.haul("cp big small/").status(1);
    ran.stderr_has(
        "haul: [ROOT]/small/big: cannot copy (it needs 30.0 MiB, and 20.0 MiB is free)\n",
    )
    .stderr_has("hint: free space there, or use --no-space-check to copy as much as fits\n")
    .stderr_has("1 failed; 0 files, 0 B; moved 0 B");
    assert_eq!(used(&small), 0);
    // A new directory below has the same space.
    session.haul("cp big small/new/name").status(1).stderr_has("cannot copy (it needs 30.0 MiB");
    let json = session.haul("cp --json big small/").status(1);
    assert!(json.objects().iter().any(|object| object["event"] == "error"), "{}", json.out());
    assert_eq!(json.summary()["moved_bytes"], 0);
    session.haul("cp --no-space-check big small/").status(1).stderr_has("No space left on device");
}

/// Formerly, the sizes of more than 64 sources were not added up if they were files.
#[test]
fn the_sizes_of_a_hundred_sources_are_added_up_while_the_first_are_copied() {
    let session = Session::new().directory("d");
    let Some(small) = small(&session, "small") else { return };
    for number in 0..100 {
        file(&session, &format!("d/{number}"), 1);
    }
    let files: Vec<String> = (0..100).map(|number| format!("d/{number}")).collect();
    let ran = session.haul(&format!("cp --bwlimit 1M {} small", files.join(" ")));
    ran.status(1).stderr_has("cannot copy (it needs at least ").stderr_has(" MiB is free)");
    assert!(names(small.path()).len() < 20);
}

#[test]
fn the_sizes_of_all_sources_are_added_up() {
    let session = Session::new();
    let Some(small) = small(&session, "small") else { return };
    for name in ["a", "b", "c"] {
        file(&session, name, 8);
    }
    session.haul("cp a b c small").status(1).stderr_has("it needs 24.0 MiB, and 20.0 MiB is free");
    assert_eq!(names(small.path()), [""; 0]);
    session.haul("cp a b small").status(0);
    // Two of them exist already.
    session.haul("cp a b c small").status(1).stderr_has("it needs 8.00 MiB, and 4.00 MiB is free");
    std::fs::remove_file(session.path("small/a")).unwrap();
    session.haul("cp b c small").status(0);
}

#[test]
fn a_tree_that_does_not_fit_is_stopped_as_soon_as_it_is_listed() {
    let session = Session::new();
    let Some(small) = small(&session, "small") else { return };
    for number in 0..30 {
        file(&session, &format!("tree/{number}/f"), 1);
    }
    file(&session, "tree/large", 90);
    for line in ["cp tree small/", "cp tree/ small", "sync tree small", "sync tree small/deeper"] {
        let ran = session.haul(line).status(1);
        ran.stderr_has("cannot copy (it needs at least ")
            .stderr_has(" is free)\n")
            .stderr_has("--no-space-check");
        assert!(!session.has("small/large") && !session.has("small/tree/large"), "{line}");
        for name in names(small.path()) {
            session.tool(&format!("rm -r small/{name}"));
        }
    }
    std::fs::remove_file(session.path("tree/large")).unwrap();
    session.haul("cp --exclude 1* tree small").status(0);
    session.haul("cp --max-size 1000K tree small").status(0);
    session.haul("cp -n tree small").status(0);
}

/// The files of such a tree are counted ahead of the transfer.
#[test]
fn a_tree_over_an_older_one_is_stopped_once_it_is_counted() {
    let session = Session::new();
    let Some(small) = small(&session, "small") else { return };
    for number in 0..12 {
        file(&session, &format!("tree/d/{number}"), 1);
        file(&session, &format!("small/tree/d/{number}"), 1);
    }
    for number in 0..14 {
        file(&session, &format!("tree/d/new{number}"), 1);
    }
    let before = used(&small);
    let ran = session.haul("cp --bwlimit 1M tree small").status(1);
    ran.stderr_has("cannot copy (it needs ").stderr_has(" MiB is free)\n");
    assert!(used(&small) < before + 5 * MIB as u64, "{}", used(&small));
    // Files that were copied exist now, and do not count any more.
    for number in 2..14 {
        std::fs::remove_file(session.path(format!("tree/d/new{number}"))).unwrap();
    }
    session.haul("cp --bwlimit 2M tree small").status(0);
}

#[test]
fn a_file_that_is_replaced_needs_space_for_both_versions() {
    let session = Session::new();
    let Some(small) = small(&session, "small") else { return };
    file(&session, "small/f", 11);
    file(&session, "f", 12);
    session.haul("cp f small/").status(1).stderr_has("it needs 12.0 MiB, and 9.00 MiB is free");
    session.haul("cp --overwrite never f small/").status(0);
    file(&session, "small/f", 7);
    session.haul("cp f small/").status(0);
    session.haul("cp f small/").status(0);
    session.haul("cp -I f small/").status(1).stderr_has("it needs 12.0 MiB, and 8.00 MiB is free");
    drop(small);
}

#[test]
fn holes_and_hard_links_take_no_space() {
    let session = Session::new();
    let Some(small) = small(&session, "small") else { return };
    let sparse = File::create(session.path("sparse")).unwrap();
    sparse.set_len(200 << 20).unwrap();
    sparse.write_all_at(b"end", (200 << 20) - 3).unwrap();
    session.haul("cp sparse small/").status(0);
    file(&session, "tree/a", 12);
    for name in ["b", "c"] {
        std::fs::hard_link(session.path("tree/a"), session.path(format!("tree/{name}"))).unwrap();
    }
    session.haul("cp tree small/").status(0);
    assert!(used(&small) < 13 * MIB as u64);
    // A rerun has nothing to copy.
    session.haul("cp --min-free 10M sparse small/").status(0);
    session.haul("cp --preserve=times tree small/other").status(1);
}

/// Preallocated space is in use on the disk, but is read as a hole.
#[test]
fn space_that_is_only_preallocated_is_not_needed() {
    use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
    let session = Session::new();
    let Some(small) = small(&session, "small") else { return };
    let ahead = File::create(session.path("ahead")).unwrap();
    if let Err(error) = fallocate(&ahead, FallocateFlags::empty(), 0, 40 << 20) {
        eprintln!("skipped: {} cannot preallocate ({error})", session.path("").display());
        return;
    }
    if seek(&ahead, SeekFrom::Data(0)).is_ok() {
        eprintln!("skipped: in {}, preallocated space is data", session.path("").display());
        return;
    }
    session.haul("cp ahead small/").status(0);
    session.haul("cp --min-free 10M ahead small/again").status(0);
    session.tool("cmp ahead small/ahead");
    assert!(used(&small) < MIB as u64);
}

#[test]
fn the_space_of_a_part_file_is_not_needed_again() {
    let session = Session::new();
    let Some(small) = small(&session, "small") else { return };
    file(&session, "f", 15);
    let part = small.path().join(".f.haul-part");
    let has_begun = || std::fs::metadata(&part).is_ok_and(|found| found.len() >= 4 * MIB as u64);
    Slow::until(&session, "cp --bwlimit 10M f small/", has_begun).end("KILL");
    file(&session, "small/other", 4);
    // The part file does not count again, neither in the sum nor for --min-free.
    let summary = session.haul("cp --json --min-free 512K f small/").status(0).summary();
    assert!(summary["resumed_bytes"].as_u64().unwrap() > 0, "{summary}");
    session.tool("cmp f small/f");
}

#[test]
fn min_free_is_respected() {
    let session = Session::new();
    let Some(small) = small(&session, "small") else { return };
    file(&session, "f", 12);
    let ran = session.haul("cp --min-free 10M f small/").status(1);
    ran.stderr_has(
        "(it needs 12.0 MiB, and 20.0 MiB is free, of which --min-free keeps 10.0 MiB)\n",
    )
    .stderr_has("hint: free space there, or lower --min-free\n");
    assert_eq!(names(small.path()), [""; 0]);
    session.haul("cp --min-free 8M f small/").status(0);
    // Nothing has to be copied, so nothing is refused.
    session.haul("cp --min-free 10M f small/").status(0);
    session.haul("cp --min-free 10M f /dev/null/x").status(1);
}

#[test]
fn a_transfer_ends_when_no_more_than_min_free_is_left_and_complete_files_stay() {
    let session = Session::new();
    let Some(small) = small(&session, "small") else { return };
    for number in 10..40 {
        file(&session, &format!("tree/{number}"), 1);
    }
    let ran = session.haul("cp --no-space-check --min-free 5M --order name tree small").status(1);
    ran.stderr_has("cannot copy (the next file needs 1.00 MiB, and ")
        .stderr_has("--min-free keeps 5.00 MiB)\n");
    let copied = names(&small.path().join("tree"));
    assert!((13..=15).contains(&copied.len()), "{copied:?}");
    for name in &copied {
        session.tool(&format!("cmp tree/{name} small/tree/{name}"));
    }
    assert!(used(&small) <= 15 * MIB as u64);
    // The length of a stream is not known before its end.
    session.tool("rm -r small/tree");
    let line = "head -c 18M /dev/zero | $HAUL cp --bwlimit 6M --min-free 5M - small/stream";
    let mut shell = Command::new("sh");
    isolate(&mut shell).args(["-c", line]).env("HAUL", env!("CARGO_BIN_EXE_haul"));
    let out = shell.current_dir(session.path("")).output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(text.contains(" is free, and --min-free keeps 5.00 MiB"), "{text}");
    assert_eq!(names(small.path()), [""; 0]);
}

#[test]
fn hosts_share_the_space_of_one_file_system() {
    let session = Session::new();
    let Some(small) = small(&session, "small") else { return };
    let mut config = String::new();
    for host in ["n1", "n2"] {
        std::fs::create_dir(small.path().join(host)).unwrap();
        let url = small.path().join(host).display().to_string();
        config.push_str(&format!("[remote.{host}]\nurl = \"{url}\"\n"));
    }
    session.write("config.toml", config);
    file(&session, "f", 12);
    let ran = session.haul("cp --config config.toml f n[1-2]:data/").status(1);
    // One of them may be done before the other begins.
    assert!(ran.err().contains("cannot copy (it needs "), "{}", ran.err());
    assert!(!ran.err().contains("No space left"), "{}", ran.err());
}

#[test]
fn the_free_space_of_an_sftp_server_is_respected() {
    // The server sees the mount.
    unshare_mounts_once().unwrap();
    let sftp = SftpSession::start();
    let Some(small) = small(&sftp.session, "far/small") else { return };
    file(&sftp.session, "big", 30);
    file(&sftp.session, "tree/d/big", 30);
    for line in ["cp big @/small/", "cp big @/small/a/b", "cp tree @/small", "sync tree @/small/x"]
    {
        sftp.haul(line).status(1).stderr_has("30.0 MiB, and 20.0 MiB is free");
    }
    assert!(used(&small) < MIB as u64);
    sftp.haul("cp --min-free 10M --no-space-check tree @/small/min")
        .status(1)
        .stderr_has("--min-free");
    file(&sftp.session, "fits", 12);
    sftp.haul("cp --min-free 5M fits @/small/").status(0);
    sftp.haul("cp -I fits @/small/")
        .status(1)
        .stderr_has("it needs 12.0 MiB, and 8.00 MiB is free");
    sftp.haul("cp fits @/small/").status(0);
}

#[test]
fn the_free_space_of_a_webdav_server_is_respected() {
    let session = Session::new();
    let Some(small) = small(&session, "far") else { return };
    let server = dav::haul(&session);
    file(&session, "big", 30);
    file(&session, "tree/d/big", 30);
    for line in ["cp big @", "cp big @a/b", "cp tree @", "sync tree @x"] {
        let line = line.replace('@', &server.url);
        session.haul(&line).status(1).stderr_has("30.0 MiB, and 20.0 MiB is free");
    }
    assert!(used(&small) < MIB as u64);
    file(&session, "fits", 12);
    session.haul(&format!("cp --min-free 5M fits {}", server.url)).status(0);
}

#[test]
fn where_the_free_space_is_unknown_only_min_free_is_refused() {
    let session = Session::new().file("f", "f");
    let Some(server) = dav::other("Apache", dav::servers::apache()) else { return };
    session.haul(&format!("cp f {}", server.url)).status(0);
    session
        .haul(&format!("cp --min-free 1M f {}g", server.url))
        .status(1)
        .stderr_has("cannot keep space free (the free space is unknown)\nhint: omit --min-free\n");
    assert!(!server.root.join("g").exists());
}

#[test]
fn on_ext4_a_file_that_fits_is_copied_and_one_that_does_not_is_refused() {
    let session = Session::new();
    let Some(_disk) = Mounted::image(&session, "disk", "image") else { return };
    file(&session, "big", 70);
    session.haul("cp big disk/").status(1).stderr_has("cannot copy (it needs 70.0 MiB, and ");
    let found = rustix::fs::statvfs(session.path("disk")).unwrap();
    // The block map of the file needs some of the space.
    let fits = (found.f_bavail * found.f_frsize) as usize - MIB;
    session.write("fits", content(1, fits));
    session.haul("cp fits disk/").status(0);
    session.tool("cmp fits disk/fits");
}
