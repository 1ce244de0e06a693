//! Programs that write through a mount: git, make, SQLite, rsync, tar and zip.

use std::fs;

use crate::lab::{form, has_tools, shell, turn, turn_alone};
use crate::mounted::Mounted;
use crate::reading::tree;
use crate::source::{Kind, Source};

/// Where the programs run: SFTP preserves less about a file than a local disk does.
const KINDS: &[Kind] = &[Kind::OpenSsh, Kind::Local];

fn kinds() -> &'static [Kind] {
    form(&KINDS[..1], KINDS)
}

/// Runs three scripts in the session's directory: `before` mounting, `mounted` while `far` is mounted at `mnt`, and
/// `after` once everything is uploaded.
#[track_caller]
fn works(tools: &[&str], before: &str, mounted: &str, after: &str) {
    let Some(_turn) = turn() else { return };
    if !has_tools(tools) {
        return;
    }
    for kind in kinds() {
        let Some(source) = Source::start(*kind) else { continue };
        let directory = source.session.path("");
        shell(before, &directory);
        let mount = Mounted::start(&source, "--read-write");
        shell(mounted, &directory);
        mount.end();
        shell(after, &directory);
    }
}

#[test]
fn git_clones_commits_and_packs_on_a_mount() {
    let before = "git init -q -b main origin; cd origin; mkdir -p src/deep; \
                  for n in $(seq 150); do echo content $n >src/deep/$n; done; \
                  ln -s deep src/link; git add .; git commit -qm one";
    let mounted = "git clone -q file://$PWD/origin mnt/clone; cd mnt/clone; \
                   test -z \"$(git status --porcelain)\"; \
                   echo changed >>src/deep/1; git rm -q src/deep/2; git mv src/deep/3 src/three; \
                   test \"$(git status --porcelain | wc -l)\" = 3; git commit -qam two; \
                   git checkout -q -b branch HEAD~; echo 4 >src/deep/4; git commit -qam three; \
                   git merge -q -m merged main; git gc -q; \
                   git fsck --strict --no-progress; test -z \"$(git status --porcelain)\"";
    let after = "cd far/clone; git fsck --strict --no-progress; \
                 test -z \"$(git status --porcelain)\"; test \"$(git log --oneline | wc -l)\" = 4; \
                 grep -q changed src/deep/1; test -L src/link";
    works(&["git"], before, mounted, after);
}

#[test]
fn make_builds_on_a_mount_and_knows_what_is_up_to_date() {
    let mounted = "mkdir mnt/project; cd mnt/project; \
                   for n in $(seq 8); do echo \"int f$n(void) { return $n; }\" >f$n.c; done; \
                   printf '%s\\n' '#include <stdio.h>' 'int f7(void);' \
                   'int main(void) { return printf(\"%d\\n\", f7()) != 2; }' >main.c; \
                   printf 'OBJECTS = $(patsubst %%.c,%%.o,$(wildcard *.c))\\n' >Makefile; \
                   printf 'program: $(OBJECTS)\\n\\t$(CC) -o $@ $^\\n' >>Makefile; \
                   make -s -j2; test \"$(./program)\" = 7; make -q; \
                   sleep 1.1; echo 'int f7(void) { return 9; }' >f7.c; \
                   if make -q; then exit 1; fi; make -s; test \"$(./program)\" = 9; make -q";
    let after = "cd far/project; test \"$(./program)\" = 9; make -q";
    works(&["make", "gcc"], "", mounted, after);
}

#[test]
fn sqlite_stores_a_database_on_a_mount() {
    let fill = "CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT); \
                WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 5000) \
                INSERT INTO t SELECT n, hex(randomblob(20)) FROM c; \
                CREATE INDEX i ON t (text); DELETE FROM t WHERE n % 5 = 0; \
                BEGIN; DELETE FROM t; ROLLBACK; UPDATE t SET text = n WHERE n < 100; VACUUM;";
    let check = "PRAGMA integrity_check; SELECT count(*) FROM t;";
    let mounted = format!(
        "cd mnt; for mode in delete wal; do sqlite3 $mode.db 'PRAGMA journal_mode = '$mode'; {fill}'; \
         test \"$(sqlite3 $mode.db '{check}' | tr '\\n' ' ')\" = 'ok 4000 '; done"
    );
    let after = format!(
        "cd far; for mode in delete wal; do \
         test \"$(sqlite3 $mode.db '{check}' | tr '\\n' ' ')\" = 'ok 4000 '; done"
    );
    works(&["sqlite3"], "", &mounted, &after);
}

#[test]
fn rsync_tar_and_zip_store_a_tree_on_a_mount() {
    let Some(_turn) = turn() else { return };
    if !has_tools(&["rsync", "tar", "zip", "unzip"]) {
        return;
    }
    // Times of directories change with the uploads into them.
    let same = |directory: &str| format!("test -z \"$(rsync -anciO --delete tree/ {directory})\"");
    for kind in kinds() {
        let Some(source) = Source::start(*kind) else { continue };
        tree(&source, "tree");
        let directory = source.session.path("");
        let mounted = Mounted::start(&source, "--read-write");
        shell("rsync -a tree/ mnt/rsync; rsync -a --inplace tree/ mnt/rsync", &directory);
        shell(&same("mnt/rsync/"), &directory);
        shell("mkdir mnt/tar; tar -cf - -C tree . | tar -xpf - -C mnt/tar", &directory);
        shell(&same("mnt/tar/"), &directory);
        shell("tar -cf mnt/tree.tar -C mnt/rsync .; tar -tf mnt/tree.tar >list", &directory);
        shell("cd mnt/rsync; zip -qry ../tree.zip .; unzip -tqq ../tree.zip", &directory);
        shell("zip -qd mnt/tree.zip empty; unzip -tqq mnt/tree.zip", &directory);
        mounted.end();
        shell(&same("far/rsync/"), &directory);
        shell(&same("far/tar/"), &directory);
        let unpacked = "mkdir unpacked; tar -xpf far/tree.tar -C unpacked; unzip -tqq far/tree.zip";
        shell(unpacked, &directory);
        shell(&same("unpacked/"), &directory);
    }
}

/// Formerly, each signal made the call in progress fail.
#[test]
fn calls_of_a_program_do_not_fail_when_its_timer_sends_signals() {
    let Some(_turn) = turn_alone() else { return };
    if !has_tools(&["python3"]) {
        return;
    }
    for kind in kinds() {
        let Some(source) = Source::start(*kind) else { continue };
        let mounted = Mounted::start(&source, "--read-write");
        // Python does not retry these calls.
        let script = "import os, signal\n\
                      signal.signal(signal.SIGALRM, lambda *_: None)\n\
                      signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)\n\
                      for number in range(200):\n    \
                          os.mkdir('mnt/one')\n    \
                          os.rename('mnt/one', 'mnt/two')\n    \
                          os.rmdir('mnt/two')\n\
                      signal.setitimer(signal.ITIMER_REAL, 0)\n";
        source.session.write("timer.py", script);
        shell("python3 timer.py", &source.session.path(""));
        mounted.end();
    }
}

/// The kernel writes pages of a mapping through any descriptor that may write, even one that appends. Formerly, the
/// pages were appended.
#[test]
fn a_mapping_of_a_file_opened_for_appending_is_written_in_place() {
    let Some(_turn) = turn() else { return };
    if !has_tools(&["python3"]) {
        return;
    }
    let Some(source) = Source::start(Kind::Local) else { return };
    let mut whole = vec![b'.'; 10_000];
    source.write("file", &whole);
    let mounted = Mounted::start(&source, "--read-write");
    let script = "import mmap, os\n\
                  file = os.open('mnt/file', os.O_RDWR | os.O_APPEND)\n\
                  pages = mmap.mmap(file, 8192)\n\
                  pages[5000:5003] = b'NEW'\n\
                  pages.flush()\n\
                  os.write(file, b'end')\n";
    source.session.write("map.py", script);
    shell("python3 map.py", &source.session.path(""));
    whole[5000..5003].copy_from_slice(b"NEW");
    whole.extend_from_slice(b"end");
    mounted.end();
    assert_eq!(fs::read(source.far("file")).unwrap(), whole);
}
