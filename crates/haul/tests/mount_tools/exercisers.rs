//! Programs that exercise a file system with random operations, and check what they read: fsx, fio, stress-ng.

use std::fs;
use std::path::Path;

use crate::lab::{form, run, seed, tool, turn};
use crate::mounted::Mounted;
use crate::source::{Kind, Source};

/// Where the programs run.
const KINDS: &[Kind] = &[Kind::Local, Kind::OpenSsh];

/// The configuration of fsx.
const FSX: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mount_tools/fsx.toml");

#[test]
fn fsx_reads_what_it_has_written() {
    let Some(_turn) = turn() else { return };
    let Some(fsx) = tool("fsx") else { return };
    let seed = seed().to_string();
    for kind in KINDS {
        let Some(source) = Source::start(*kind) else { continue };
        let mounted = Mounted::start(&source, "--read-write");
        let file = mounted.path("file");
        let directory = source.session.path("");
        let arguments =
            ["-f", FSX, "-N", form("700", "10000"), "-S", &seed, "-P", ".", file.to_str().unwrap()];
        run(&fsx, &arguments, &directory);
        mounted.uploaded();
        assert!(fs::read(&file).unwrap() == fs::read(source.far("file")).unwrap(), "{kind:?}");
        mounted.end();
    }
}

/// Runs fio, which writes and verifies files in a directory, with further options.
fn fio(program: &Path, directory: &Path, more: &[&str]) {
    let directory = format!("--directory={}", directory.display());
    let size = form("--filesize=4m", "--filesize=256m");
    let mut arguments = vec![
        "--name=verify",
        &directory,
        size,
        "--nrfiles=4",
        "--ioengine=psync",
        "--rw=randwrite",
        "--bsrange=4k-64k",
        "--fallocate=none",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0",
        "--output-format=terse",
    ];
    arguments.extend(more);
    run(program, &arguments, Path::new("/"));
}

#[test]
fn files_written_by_fio_verify_on_the_mount_and_on_the_server() {
    let Some(_turn) = turn() else { return };
    let Some(program) = tool("fio") else { return };
    for kind in KINDS {
        let Some(source) = Source::start(*kind) else { continue };
        let mounted = Mounted::start(&source, "--read-write");
        // fio reads everything back after writing all of it.
        fio(&program, &mounted.path(""), &["--end_fsync=1"]);
        mounted.end();
        fio(&program, &source.far(""), &["--verify_only"]);
        // A new mount reads from the server.
        let mounted = Mounted::start(&source, "--read-write --memory 8M");
        fio(&program, &mounted.path(""), &["--verify_only"]);
        mounted.end();
    }
}

/// The stressors of the short form, and how many bytes they write.
const STRESSORS: &str = "--access 1 --chmod 1 --dentry 1 --dentries 64 --dir 1 \
                         --fallocate 1 --fallocate-bytes 4M --fcntl 1 --flock 1 --fstat 1 \
                         --getdent 1 --hdd 1 --hdd-bytes 4M --open 1 --rename 1 --touch 1 \
                         --utime 1 --timeout 2s";

/// The whole class for ten minutes: 44 stressors for 13 s each. A mount has neither hard links nor extended attributes.
const CLASS: &str = "--class filesystem --sequential 1 --exclude link,xattr --timeout 13s \
                     --copy-file-bytes 128M --fallocate-bytes 64M --hdd-bytes 64M \
                     --iomix-bytes 64M --sync-file-bytes 16M";

#[test]
fn stress_ng_finds_no_fault() {
    let Some(_turn) = turn() else { return };
    let Some(program) = tool("stress-ng") else { return };
    for kind in form(&KINDS[..1], KINDS) {
        let Some(source) = Source::start(*kind) else { continue };
        // With --allow-other, the kernel checks permission bits.
        let mounted = Mounted::start(&source, "--read-write --allow-other");
        let directory = mounted.path("");
        let mut arguments = vec!["--verify", "--temp-path", directory.to_str().unwrap()];
        arguments.extend(form(STRESSORS, CLASS).split_whitespace());
        run(&program, &arguments, &source.session.path(""));
        mounted.end();
    }
}
