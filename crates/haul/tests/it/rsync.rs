//! Options of rsync and scp do the same in haul.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::session::Session;

/// Gives a file a time, in seconds since 1970.
fn set_time(session: &Session, path: &str, seconds: u64) {
    let file = File::options().write(true).open(session.path(path)).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
}

fn mode(session: &Session, path: &str) -> u32 {
    fs::metadata(session.path(path)).unwrap().permissions().mode() & 0o7777
}

/// `s/f` and `d/f` with these contents and times.
fn two(source: (&str, u64), destination: (&str, u64)) -> Session {
    let session = Session::new().file("s/f", source.0).file("d/f", destination.0);
    set_time(&session, "s/f", source.1);
    set_time(&session, "d/f", destination.1);
    session
}

#[test]
fn bundles_of_rsync_copy_a_tree() {
    for bundle in ["-avz", "-avP", "-rtp", "-aHAX", "-rvP --partial --progress", "-aWS"] {
        let session = Session::new().file("s/d/f", "f");
        session.haul(&format!("cp {bundle} s d")).status(0);
        assert_eq!(session.read("d/s/d/f"), "f", "{bundle}");
    }
    let session = Session::new().file("s/f", "f");
    session.haul("sync -a -P s d").status(0);
    session.haul("cp --numeric-ids --whole-file --links --no-inplace -E s e").status(0);
    assert_eq!((session.read("d/f"), session.read("e/s/f")), ("f".into(), "f".into()));
}

#[test]
fn update_leaves_newer_files() {
    for option in ["-u", "--update"] {
        let session = two(("old", 100), ("newer", 200));
        session.haul(&format!("sync {option} s d")).status(0);
        assert_eq!(session.read("d/f"), "newer");
        let session = two(("newer", 200), ("old", 100));
        session.haul(&format!("sync {option} s d")).status(0);
        assert_eq!(session.read("d/f"), "newer");
    }
    Session::new().haul("cp -u --overwrite always a b").status(2);
}

#[test]
fn ignore_existing_skips_files_and_ignore_times_replaces_them() {
    let session = two(("s", 100), ("there", 50)).file("s/new", "new");
    session.haul("sync --ignore-existing s d").status(0);
    assert_eq!((session.read("d/f"), session.read("d/new")), ("there".into(), "new".into()));
    let session = two(("abc", 100), ("xyz", 100));
    session.haul("sync s d").status(0);
    assert_eq!(session.read("d/f"), "xyz");
    session.haul("sync -I s d").status(0).stderr_has("1 replaced");
    assert_eq!(session.read("d/f"), "abc");
}

#[test]
fn checksum_compares_contents_and_sets_the_time_of_equal_files() {
    let session = two(("abc", 100), ("xyz", 100));
    session.haul("sync -c -v s d").status(0).stdout_has("copied f (content, 3 B)");
    assert_eq!(session.read("d/f"), "abc");
    let session = two(("abc", 100), ("abc", 200));
    let ran = session.haul("sync --checksum --json s d").status(0);
    assert_eq!(
        (&ran.summary()["unchanged"], &ran.summary()["moved_bytes"]),
        (&1.into(), &0.into())
    );
    assert_eq!(fs::metadata(session.path("d/f")).unwrap().mtime(), 100);
    session.haul("sync -cn s d").status(0).stdout("");
    let big = "0123456789abcdef".repeat(200_000);
    let session = Session::new().file("s/f", &big).file("d/f", big.replacen('0', "1", 1));
    session.haul("sync -cv s d").status(0).stdout_has("content");
    assert_eq!(session.read("d/f"), big);
    session.haul("sync -c --overwrite never s d").status(2).stderr_has("omit one of them");
}

#[test]
fn size_only_compares_nothing_else() {
    let session = two(("abc", 100), ("xyz", 200)).file("s/longer", "12").file("d/longer", "1");
    session.haul("sync --size-only s d").status(0);
    assert_eq!((session.read("d/f"), session.read("d/longer")), ("xyz".into(), "12".into()));
    // Otherwise a later comparison by time would treat them as equal.
    assert_eq!(fs::metadata(session.path("d/f")).unwrap().mtime(), 200);
}

#[test]
fn existing_creates_nothing() {
    let session = two(("new", 200), ("old", 100))
        .file("s/other", "x")
        .file("s/sub/x", "x")
        .file("s/have/y", "new")
        .file("d/have/y", "older");
    session.haul("sync --existing s d").status(0).stderr_has("2 files");
    assert_eq!((session.read("d/f"), session.read("d/have/y")), ("new".into(), "new".into()));
    assert!(!session.has("d/other") && !session.has("d/sub"));
    session.haul("sync --existing s none").status(0);
    assert!(!session.has("none"));
    session.haul("cp --existing s/f none/deep/f").status(0);
    assert!(!session.has("none"));
}

#[test]
fn files_are_chosen_by_size_and_age() {
    let session = Session::new().file("s/1", "1").file("s/22", "22").file("s/333", "333");
    session.haul("cp --min-size 2 --max-size 2 s/ d").status(0);
    assert_eq!(fs::read_dir(session.path("d")).unwrap().count(), 1);
    assert!(session.has("d/22"));
    // A file that is left out of the copy is still in the source, so it is not removed.
    session.haul("cp s/ e").status(0);
    session.haul("sync --delete --max-size=1 s e").status(0);
    assert!(session.has("e/333"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    set_time(&session, "s/1", now - 3 * 86_400);
    set_time(&session, "s/22", now - 86_400);
    session.haul("cp --max-age 2d --min-age 1h s/ f").status(0);
    assert!(session.has("f/22") && !session.has("f/1") && !session.has("f/333"));
    session.haul("cp --max-age 2020-01-01 s/ g").status(0).stderr_has("3 files");
    session.haul("cp --max-age soon s/ h").status(2).stderr_has("neither an age");
    session.haul("cp --min-size 2 s/1 i").status(0).stderr_has("0 files");
    assert!(!session.has("i"));
}

#[test]
fn patterns_are_read_from_files() {
    let session = Session::new()
        .file("s/a.o", "")
        .file("s/keep.o", "")
        .file("s/a.c", "")
        .file("s/build/x", "")
        .file("list", "# objects\n+ keep.o\n*.o\nbuild/\n")
        .file("ignore", "*.o\n!keep.o\n/build\n");
    for option in ["--exclude-from list", "--ignore-file ignore"] {
        session.haul(&format!("sync --delete {option} s d")).status(0);
        assert!(session.has("d/keep.o") && session.has("d/a.c"), "{option}");
        assert!(!session.has("d/a.o") && !session.has("d/build"), "{option}");
        fs::remove_dir_all(session.path("d")).unwrap();
    }
    session.write("wanted", "*.c\n");
    session.haul("cp --include-from wanted --exclude * s/ e").status(0);
    assert_eq!(fs::read_dir(session.path("e")).unwrap().count(), 1);
    session.haul("cp --exclude-from none s/ f").status(2).stderr_has("none: cannot read patterns");
    session.write("wrong", "a[\n");
    session.haul("cp --exclude-from wrong s/ f").status(2).stderr_has("wrong:1: 'a['");
    session.haul("check --exclude-from list s d").status(1);
}

/// `--include` on its own would copy everything.
#[test]
fn include_without_exclude_is_refused() {
    let session = Session::new().file("s/a.txt", "").file("s/b", "");
    for command in
        ["cp --include *.txt s d", "sync --include *.txt s d", "check --include *.txt s s"]
    {
        session.haul(command).status(2).stderr_has("--exclude '*'");
    }
    assert!(!session.has("d"));
    session.haul("cp --include *.txt --exclude * s/ d").status(0);
    assert!(session.has("d/a.txt") && !session.has("d/b"));
}

#[test]
fn listed_paths_are_copied_and_missing_ones_are_errors() {
    let session = Session::new()
        .file("s/a/b/c", "c")
        .file("s/a/x", "x")
        .file("s/dir/y", "y")
        .file("s/z", "z")
        .file("list", "a/b/c\n./dir/\nmissing\n");
    let ran = session.haul("cp --files-from list s d").status(1);
    ran.stderr_has("haul: missing: cannot copy (").stderr_has("but not in the source");
    assert!(session.has("d/a/b/c") && session.has("d/dir/y"));
    assert!(!session.has("d/a/x") && !session.has("d/z"));
    session.write("list", "z\0");
    session.haul("cp --files-from list s e").status(0);
    assert!(session.has("e/z") && !session.has("e/a"));
    session.write("list", "../x\n");
    session.haul("cp --files-from list s e").status(2).stderr_has("list:1: the path");
    session.write("list", "z\n");
    session.haul("cp --files-from list s/z e").status(2).stderr_has("one SOURCE");
    session.haul("cp --files-from list s s/a e").status(2).stderr_has("one SOURCE");
}

/// Formerly, they were reported as not in the source.
#[test]
fn listed_paths_that_are_excluded_are_not_missing() {
    let session = Session::new()
        .file("s/a.tmp", "a")
        .file("s/b", "b")
        .file("s/dir/c", "c")
        .file("s/deep/dir/d", "d")
        .file("list", "a.tmp\nb\ndir/c\ndeep/dir/d\n");
    session.haul("cp --files-from list --exclude *.tmp --exclude dir/ s d").status(0);
    assert!(session.has("d/b") && !session.has("d/a.tmp") && !session.has("d/dir"));
    session.write("c.toml", "[defaults]\nexclude = [\"*.tmp\", \"dir/\"]\n");
    session.haul("cp --config c.toml --files-from list s e").status(0);
    assert!(session.has("e/b") && !session.has("e/a.tmp") && !session.has("e/dir"));
    // A missing path is still an error, even if it is excluded itself. haul does not list excluded directories, so it
    // does not know what is missing in them.
    session.write("list", "b\nnone\nnone.tmp\ndir/none\n");
    let ran = session.haul("cp --files-from list --exclude *.tmp --exclude dir/ s f").status(1);
    let ran =
        ran.stderr_has("haul: none: cannot copy (").stderr_has("haul: none.tmp: cannot copy (");
    assert!(!ran.err().contains("dir/none"), "{}", ran.err());
}

#[test]
fn backups_keep_replaced_and_removed_files() {
    let session =
        two(("new", 200), ("old", 100)).file("d/extra", "extra").file("d/sub/more", "more");
    session.haul("sync -b --delete s d").status(0);
    assert_eq!((session.read("d/f"), session.read("d/f~")), ("new".into(), "old".into()));
    assert_eq!(
        (session.read("d/extra~"), session.read("d/sub/more~")),
        ("extra".into(), "more".into())
    );
    // The backups stay in later runs.
    session.haul("sync -b --delete s d").status(0);
    assert_eq!(session.read("d/extra~"), "extra");
    session.write("s/f", "newest");
    session.haul("sync --backup s d").status(0);
    assert_eq!((session.read("d/f"), session.read("d/f~")), ("newest".into(), "new".into()));

    let session = two(("new", 200), ("old", 100)).file("d/sub/extra", "extra").link("d/l", "f");
    session.haul("sync --delete --backup-dir .old s d").status(0);
    assert_eq!((session.read("d/f"), session.read("d/.old/f")), ("new".into(), "old".into()));
    assert_eq!(session.read("d/.old/sub/extra"), "extra");
    assert_eq!(fs::read_link(session.path("d/.old/l")).unwrap().as_os_str(), "f");
    session.haul("sync --delete --backup-dir .old s d").status(0);
    assert!(session.has("d/.old/f"));
    session.write("s/f", "newest");
    session.haul("cp --backup-dir .old --suffix .1 s/f d").status(0);
    assert_eq!(session.read("d/.old/f.1"), "new");

    session.haul("cp -b --suffix a/b s d").status(2).stderr_has("cannot contain a slash");
    session.haul("cp --suffix .x s d").status(2).stderr_has("needs --backup");
    session.haul("cp --backup-dir /old s d").status(2).stderr_has("a path below DEST");
    session.haul("cp --backup-dir ../old s d").status(2).stderr_has("a path below DEST");
}

/// Formerly, the backup of `f` replaced the copy of `f~`, or that copy replaced the backup.
#[test]
fn a_backup_never_has_the_name_of_a_copied_file() {
    for order in ["name", "name:desc", "size"] {
        let session = two(("new", 200), ("old", 100))
            .file("s/f~", "new~")
            .file("d/f~", "o~")
            .file("s/f.~2", "new.~2")
            .file("d/f.~2", "o2")
            .file("s/g~", "g~")
            .file("d/g", "extra");
        session.haul(&format!("sync -b --delete --order {order} s d")).status(0);
        session.tool("cmp s/f d/f");
        session.tool("cmp s/f~ d/f~");
        session.tool("cmp s/f.~2 d/f.~2");
        for (path, content) in
            [("d/f.~1~", "old"), ("d/f~~", "o~"), ("d/f.~2~", "o2"), ("d/g.~1~", "extra")]
        {
            assert_eq!(session.read(path), content, "{order} {path}");
        }
        // Neither an earlier backup nor that of another file is replaced.
        session.write("s/f", "newest");
        session.haul("sync -b --delete s d").status(0);
        for (path, content) in [("d/f.~1~", "old"), ("d/f.~2~", "o2"), ("d/f.~3~", "new")] {
            assert_eq!(session.read(path), content, "{order} {path}");
        }
    }
    // Formerly, the backup of the extra `f.~1` replaced that of `f`.
    for order in ["name", "name:desc"] {
        let session = two(("new", 200), ("old", 100)).file("s/f~", "new~").file("d/f.~1", "extra");
        session.haul(&format!("sync -b --delete --order {order} s d")).status(0);
        assert_eq!(
            (session.read("d/f.~1~"), session.read("d/f.~2~")),
            ("extra".into(), "old".into())
        );
    }
    let session = two(("new", 200), ("old", 100)).file("s/.old/f", "copied").file("a/f~", "a");
    session.haul("sync --delete --backup-dir .old s d").status(0);
    assert_eq!((session.read("d/.old/f"), session.read("d/f")), ("copied".into(), "new".into()));
    assert_eq!(session.read("d/.old/f.~1"), "old");
    // Of several sources, another one may have the name.
    session.write("s/f", "newest");
    session.haul("cp -b s/ a/ d").status(0);
    assert_eq!((session.read("d/f~"), session.read("d/f.~1~")), ("a".into(), "new".into()));
}

/// The backup is a hard link where the file system supports hard links. Otherwise the old file is renamed, and renamed
/// back if the new version fails.
#[test]
fn a_large_file_is_backed_up_too() {
    let big = "0123456789abcdef".repeat(400_000);
    let session = Session::new().file("s/f", &big).file("d/f", "old");
    session.haul("sync -b --verify s d").status(0);
    assert!(session.read("d/f") == big && session.read("d/f~") == "old");
}

#[test]
fn chmod_changes_the_modes_of_copies() {
    let session = Session::new().file("s/sub/f", "").file("s/x", "");
    fs::set_permissions(session.path("s/x"), fs::Permissions::from_mode(0o755)).unwrap();
    session.haul("cp --chmod D750,F640 s d").status(0);
    assert_eq!((mode(&session, "d/s"), mode(&session, "d/s/sub")), (0o750, 0o750));
    assert_eq!((mode(&session, "d/s/sub/f"), mode(&session, "d/s/x")), (0o640, 0o640));
    session.haul("cp --chmod go-rwx --chmod a+X s/ e").status(0);
    assert_eq!((mode(&session, "e/sub/f"), mode(&session, "e/x")), (0o600, 0o711));
    // A rerun finds them unchanged.
    session.haul("cp --json --chmod D750,F640 s d").status(0).stdout_has(r#""unchanged":2"#);
    session.haul("cp --chmod 999 s d").status(2).stderr_has("is not a mode");
}

#[test]
fn chown_changes_the_owners_of_copies() {
    let session = Session::new().file("s/f", "");
    let me = fs::metadata(session.path("s/f")).unwrap();
    if me.uid() == 0 {
        session.haul("cp --chown 12345:23456 s d").status(0);
        let owner = |path: &str| {
            let found = fs::metadata(session.path(path)).unwrap();
            (found.uid(), found.gid())
        };
        assert_eq!((owner("d/s"), owner("d/s/f")), ((12345, 23456), (12345, 23456)));
        session.haul("cp --chown :7 s e").status(0);
        assert_eq!(owner("e/s/f"), (0, 7));
        session.haul("cp --group --owner d f").status(0);
        assert_eq!(owner("f/d/s/f"), (12345, 23456));
    } else {
        eprintln!("SKIPPED: only root gives files away");
        session.haul(&format!("cp --chown {} s d", me.uid())).status(0);
    }
    session.haul("cp --chown no-such-user s d").status(2).stderr_has("no user 'no-such-user'");
}

#[test]
fn one_file_system_does_not_cross_mount_points() {
    let session = Session::new().file("s/f", "").directory("s/mounted");
    let mounted = session.path("s/mounted");
    let mount = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "tmpfs"])
        .arg(&mounted)
        .output()
        .unwrap();
    if !mount.status.success() {
        eprintln!("SKIPPED: nothing can be mounted here");
        return;
    }
    session.write("s/mounted/x", "x");
    let ran = session.haul("cp -x s d");
    let both = session.haul("cp s e");
    // With -x, the mounted directory is not listed, so its copy is not removed.
    let synced = session.haul("sync -x --delete s e/s");
    session.tool(&format!("umount {}", mounted.display()));
    ran.status(0);
    both.status(0);
    synced.status(0);
    assert!(session.has("d/s/mounted") && !session.has("d/s/mounted/x"));
    assert!(session.has("e/s/mounted/x"));
}

#[test]
fn sources_are_removed_once_they_are_copied() {
    let big = "0123456789abcdef".repeat(300_000);
    let session = Session::new().file("s/a/f", "f").file("s/big", &big).link("s/l", "big");
    session.tool("ln s/a/f s/a/g");
    session.haul("sync --remove-source-files s d").status(0);
    assert!(session.has("s/a") && fs::read_dir(session.path("s/a")).unwrap().next().is_none());
    assert!(!session.has("s/big") && !session.has("s/l"));
    assert!(session.read("d/big") == big && session.read("d/a/g") == "f" && session.has("d/l"));
    let [f, g] = ["d/a/f", "d/a/g"].map(|name| fs::metadata(session.path(name)).unwrap().ino());
    assert_eq!(f, g);
    // The same size and time, but different content.
    let session = two(("abc", 100), ("xyz", 100));
    session.haul("sync --remove-source-files s d").status(0).stderr_has("1 replaced");
    assert_eq!((session.read("d/f"), session.has("s/f")), ("abc".into(), false));
    let session = two(("abc", 100), ("xyz", 100));
    let ran = session.haul("sync --remove-source-files --ignore-existing s d").status(0);
    ran.stderr_has("is not removed: its name exists at the destination");
    assert_eq!((session.read("d/f"), session.read("s/f")), ("xyz".into(), "abc".into()));
    session.haul("sync -n --remove-source-files s d").status(0);
    assert!(session.has("s/f"));
}

#[test]
fn reasons_and_totals_are_printed() {
    let session = two(("longer", 100), ("old", 100))
        .file("s/new", "new")
        .file("s/same", "same")
        .file("d/extra", "extra");
    session.haul("cp s/same d").status(0);
    let ran = session.haul("sync -n --delete s d").status(0);
    let out = ran.out();
    let mut lines: Vec<_> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        ["would copy f (size, 6 B)", "would copy new (new, 3 B)", "would remove extra"]
    );
    ran.stderr_has("would copy 1, replace 1, remove 1");
    let ran = session.haul("sync --itemize-changes --stats --delete s d").status(0);
    let ran = ran.stdout_has("copied f (size, 6 B)").stdout_has("unchanged same");
    ran.stderr_has("files: 3 (1 new, 1 replaced, 1 unchanged)").stderr_has("removed: 1");
    let changed = session.haul("sync --json s d").status(0).objects();
    let file = changed.iter().find(|object| object["event"] == "file").unwrap();
    assert!(file["reason"].is_null(), "{file}");
}

#[test]
fn the_log_has_every_file_and_every_message() {
    let session = Session::new().file("s/f", "f");
    session.haul("cp --log-file log -q s none d").status(1);
    session.haul("cp --log-file log --json s d").status(0);
    let log = session.read("log");
    let lines: Vec<_> = log.lines().collect();
    assert!(lines[0].contains("haul: ") && lines[0].contains("none: cannot open"), "{log}");
    assert!(lines[1].ends_with(" copied s/f (new, 1 B)"), "{log}");
    let time = lines[1].split(' ').next().unwrap();
    assert!(time.parse::<jiff::Timestamp>().is_ok(), "{time}");
    // Formerly, errors in the arguments or the configuration, and hints, were not logged.
    session.write("c.toml", "[defaults]\nfsnyc = true\n");
    let faults = "cp --log-file faults --config c.toml s d";
    session.haul(faults).status(2).stderr_has("\nhint: did you mean");
    session.haul(&format!("{faults} --json")).status(2).stderr("");
    let log = session.read("faults");
    let lines: Vec<_> = log.lines().filter_map(|line| line.split_once(' ')).collect();
    let (fault, hint) =
        ("haul: c.toml:2: [defaults] fsnyc: unknown key", "hint: did you mean 'fsync'?");
    let words: Vec<_> = lines.iter().map(|(_, words)| *words).collect();
    assert_eq!(words, [fault, hint, fault, hint], "{log}");
    session.haul("cp --log-file no/log s d").status(2).stderr_has("no/log: cannot write the log");
}

#[test]
fn the_rate_limit_of_scp_is_accepted() {
    let session = Session::new().file("a", "a");
    session.haul("cp -p -q -l 8000 a b").status(0).stderr("");
    assert_eq!(session.read("b"), "a");
    session.haul("cp -rlpt a b").status(2).stderr_has("links are always kept");
}

#[test]
fn a_value_after_a_space_is_not_taken_for_a_location() {
    let session = Session::new().file("a", "a").file("b", "b").directory("d");
    let ran = session.haul("cp --manifest SUMS a d").status(2);
    ran.stderr_has("--manifest=SUMS").stderr_has("./SUMS");
    session.haul("cp --verify no a d").status(2).stderr_has("--verify=no");
    session.haul("sync --preserve mode,times d e").status(2).stderr_has("--preserve=mode,times");
    session.haul("cp --manifest a b d").status(0);
    assert!(session.has("d/SHA256SUMS"));
}
