//! `haul mv` removes no file that is not at its destination.

use std::fs;
use std::path::Path;

use haul_bench::guard::unshare_mounts_once;

use crate::dav::{self, servers};
use crate::folding::KINDS;
use crate::ftp::vsftpd::{Tls, Vsftpd};
use crate::image::Image;
use crate::session::{Ran, Session};
use crate::sftp::{Running, SftpSession};

/// A directory in `/dev/shm`; `None` if that is not another file system than that of a session.
fn elsewhere() -> Option<tempfile::TempDir> {
    let memory = tempfile::tempdir_in("/dev/shm").ok()?;
    let default = tempfile::tempdir().ok()?;
    let device = |path: &Path| std::os::unix::fs::MetadataExt::dev(&fs::metadata(path).unwrap());
    let is_other = device(memory.path()) != device(default.path());
    if !is_other {
        eprintln!("SKIPPED: /dev/shm is no file system of its own");
    }
    is_other.then_some(memory)
}

/// Formerly, the first file was renamed and then replaced by the second.
#[test]
fn two_sources_with_the_same_name_are_refused() {
    let session = Session::new().file("a/f", "A").file("b/f", "B").directory("d");
    session.haul("mv a/f b/f d").status(2).stderr_has("another source has the name f too");
    assert_eq!((session.read("a/f"), session.read("b/f")), ("A".into(), "B".into()));
    assert!(!session.has("d/f"));
}

/// Formerly, such a file was renamed, and not split.
#[test]
fn a_file_that_has_to_be_split_is_copied_on_one_disk_too() {
    let session = Session::new().file("big", vec![7; 2500]).file("d/big", vec![8; 1001]);
    session.haul("mv -q --split 1000 big parts").status(0);
    assert_eq!(session.haul("ls parts/").out(), "00\n01\n02\n");
    session.haul("mv -q --split 1000 d tree").status(0);
    assert_eq!(session.haul("ls tree/big/").out(), "00\n01\n");
    assert!(!session.has("big") && !session.has("d"));
    session.write("small", vec![9; 1000]);
    let out = session.haul("mv --json --split 1000 small short").status(0).out();
    assert!(out.contains("\"event\":\"renamed\""), "{out}");
    assert_eq!(fs::read(session.path("short")).unwrap(), [9; 1000]);
}

#[test]
fn a_change_of_case_loses_nothing_where_case_is_ignored() {
    // exfat-fuse 1.3 terminates at the first of these renames.
    for (name, make, mount) in &KINDS[..1] {
        let session = Session::new();
        let Some(_image) = Image::new(&session, name, make, mount) else { continue };
        session.write(format!("{name}/readme"), "precious");
        session.write(format!("{name}/dir/x"), "x");
        session.haul(&format!("mv {name}/readme {name}/README"));
        session.haul(&format!("mv {name}/dir {name}/Dir"));
        session.haul(&format!("mv --overwrite never {name}/readme {name}/ReadMe"));
        session.haul(&format!("mv --overwrite different {name}/readme {name}/ReadMe"));
        let names: Vec<_> = fs::read_dir(session.path(name)).unwrap().flatten().collect();
        assert_eq!(names.len(), 2, "{name}: {names:?}");
        assert_eq!(session.read(&format!("{name}/readme")), "precious", "{name}");
        assert_eq!(session.read(&format!("{name}/dir/x")), "x", "{name}");
    }
}

#[test]
fn a_directory_gets_the_new_name_also_on_another_disk() {
    let Some(other) = elsewhere() else { return };
    let session = Session::new().file("d/sub/f", "f").directory("d/empty");
    let target = other.path().join("new").display().to_string();
    session.haul(&format!("mv d {target}")).status(0);
    assert!(!session.has("d"));
    assert_eq!(fs::read(other.path().join("new/sub/f")).unwrap(), b"f");
    assert!(other.path().join("new/empty").is_dir());
    // Back, into an existing directory.
    session.haul(&format!("mv {target} .")).status(0);
    assert_eq!(session.read("new/sub/f"), "f");
    assert!(!other.path().join("new").exists());
}

/// Formerly, only the top directory was checked.
#[test]
fn a_source_that_is_mounted_below_the_destination_is_not_removed() {
    let session = Session::new().file("s/p/in/f", "f").directory("d/p/in");
    unshare_mounts_once().unwrap();
    let (inner, outer) = (session.path("s/p/in"), session.path("d/p/in"));
    let mount =
        std::process::Command::new("mount").arg("--bind").args([&inner, &outer]).output().unwrap();
    if !mount.status.success() {
        eprintln!("SKIPPED: nothing can be mounted here");
        return;
    }
    let ran = session.haul("mv s/p d");
    session.tool(&format!("umount {}", outer.display()));
    ran.status(1).stderr_has("source and destination are the same file");
    assert_eq!(session.read("s/p/in/f"), "f");
}

/// Asserts that moving files onto links to themselves loses nothing. `root` is the local directory behind the location
/// `base`; it gets the source, and links that lead back to it.
fn link_back_loses_nothing(session: &Session, root: &Path, base: &str, run: impl Fn(&str) -> Ran) {
    let source = root.join("source");
    fs::create_dir_all(source.join("p/in")).unwrap();
    fs::write(source.join("p/in/f"), "f").unwrap();
    fs::write(source.join("g"), "g").unwrap();
    fs::create_dir_all(root.join("to/p")).unwrap();
    std::os::unix::fs::symlink("../../source/p/in", root.join("to/p/in")).unwrap();
    std::os::unix::fs::symlink("../source/g", root.join("to/g")).unwrap();
    session.tool(&format!("chmod -R a+rwX {}", root.display()));
    run(&format!("mv {}/p {base}to", source.display()));
    assert_eq!(fs::read(source.join("p/in/f")).unwrap(), b"f", "{base}");
    for overwrite in ["never", "different", "always"] {
        run(&format!("mv --overwrite {overwrite} {}/g {base}to/g", source.display()));
        let found = fs::read(root.join("to/g"));
        assert_eq!(found.unwrap_or_default(), b"g", "{base} {overwrite}");
    }
    // A move of a directory into itself, through its location on the server.
    fs::create_dir_all(source.join("deep/sub")).unwrap();
    fs::write(source.join("deep/f"), "f").unwrap();
    session.tool(&format!("chmod -R a+rwX {}", root.display()));
    let ran = run(&format!("mv {}/deep {base}source/deep/sub", source.display())).status(1);
    ran.stderr_has("is the same directory, or inside it");
    assert_eq!(fs::read(source.join("deep/f")).unwrap(), b"f", "{base}");
    assert_eq!(fs::read_dir(source.join("deep/sub")).unwrap().count(), 0, "{base}");
}

#[test]
fn a_link_on_a_server_that_leads_back_to_the_source_loses_nothing() {
    let sftp = SftpSession::start();
    link_back_loses_nothing(&sftp.session, &sftp.session.path("far"), "@/", |line| sftp.haul(line));
    let session = Session::new();
    let haul = dav::haul(&session);
    link_back_loses_nothing(&session, &haul.root, &haul.url, |line| session.haul(line));
    for server in [dav::other("Apache", servers::apache()), dav::other("nginx", servers::nginx())] {
        let (Some(server), session) = (server, Session::new()) else { continue };
        eprintln!("{}", server.name);
        link_back_loses_nothing(&session, &server.root, &server.url, |line| session.haul(line));
    }
    let Some(server) = Vsftpd::start(Tls::None, &[]) else { return };
    let base = format!("ftp://127.0.0.1:{}/up/", server.port());
    link_back_loses_nothing(&session, &server.root(), &base, |line| session.haul(line));
}

/// FTP servers follow a link in requests for its name.
#[test]
fn a_link_on_an_ftp_server_is_removed_and_not_its_target() {
    let Some(server) = Vsftpd::start(Tls::None, &[]) else { return };
    let session = Session::new();
    let root = server.root();
    fs::create_dir_all(root.join("real")).unwrap();
    fs::write(root.join("real/a"), "a").unwrap();
    std::os::unix::fs::symlink("real", root.join("top")).unwrap();
    session.tool(&format!("chmod -R a+rwX {}", root.display()));
    let base = format!("ftp://127.0.0.1:{}/up/", server.port());
    session.haul(&format!("mv {base}top here")).status(1);
    assert!(root.join("real/a").exists());
    session.haul(&format!("rm -r {base}top")).status(0);
    assert!(root.join("real/a").exists() && fs::symlink_metadata(root.join("top")).is_err());
}

#[test]
fn the_configuration_takes_precedence_over_the_defaults_of_mv() {
    let Some(other) = elsewhere() else { return };
    let session =
        Session::new().file("f", "new").file("c.toml", "[defaults]\noverwrite = \"never\"\n");
    fs::write(other.path().join("f"), "valuable").unwrap();
    let line = format!("mv --config c.toml f {}", other.path().display());
    session.haul(&line).status(0).stderr_has("its name exists at the destination");
    assert_eq!(fs::read(other.path().join("f")).unwrap(), b"valuable");
    assert_eq!(session.read("f"), "new");
}

#[test]
fn a_source_that_cannot_be_removed_is_not_copied() {
    let Some(server) = servers::nginx() else { return };
    let session = Session::new();
    fs::write(server.root().join("f"), "f").unwrap();
    let from = server.url.replacen("dav://", "http://", 1);
    session
        .haul(&format!("mv {from}f here"))
        .status(1)
        .stderr_has("could not be removed afterwards");
    assert!(!session.has("here"));
}

#[test]
fn the_marker_files_of_mv_are_removed() {
    let Some(other) = elsewhere() else { return };
    let session = Session::new().file("d/f", "f");
    let time = fs::metadata(session.path("d")).unwrap().modified().unwrap();
    session.haul(&format!("mv d {}/", other.path().display())).status(0);
    let moved = other.path().join("d");
    assert_eq!(fs::read_dir(&moved).unwrap().count(), 1);
    assert_eq!(fs::metadata(&moved).unwrap().modified().unwrap(), time);
    assert!(!session.has("d"));
}

#[test]
fn a_link_into_proc_is_not_replaced() {
    let session = Session::new().link("out", "/proc/self/fd/1").file("f", "f");
    let output = fs::File::create(session.path("redirected")).unwrap();
    let status = session.command("cp f out").stdout(output).status().unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(fs::symlink_metadata(session.path("out")).unwrap().is_symlink());
}

/// Starts a move, kills it once the source has lost two files, and runs it again. `new` is the local directory that
/// gets the content of `d`.
fn killed_and_repeated(session: &Session, line: &str, new: &Path, run: impl Fn(&str) -> Running) {
    for n in 0..6_u8 {
        session.write(format!("d/sub/{n}"), vec![n; 200_000]);
    }
    session.tool("touch -d 2001-02-03 d/sub/0");
    let left = || fs::read_dir(session.path("d/sub")).map_or(0, Iterator::count);
    let mut running = run(&line.replacen("mv", "mv --files 1 --bwlimit 400k", 1));
    while left() > 4 {
        assert!(running.is_running(), "{line}: it ended early");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    running.kill();
    assert!(left() > 0, "it ended before it was killed");
    // As if the kill had come just before the source was removed.
    let complete = fs::read_dir(new.join("sub")).unwrap().flatten();
    let complete = complete.map(|entry| entry.file_name().into_string().unwrap());
    let is_removed = |name: &String| !session.has(&format!("d/sub/{name}"));
    let complete = complete.filter(|name| !name.starts_with('.') && is_removed(name));
    let complete = complete.min().unwrap();
    let moving = session.path(format!("d/sub/.{complete}.7-1a-2.haul-moving"));
    fs::copy(new.join("sub").join(&complete), moving).unwrap();
    // A marker of a run that was killed before it copied anything.
    session.write("d/.haul.mark-7-1700000000000000000.haul-temp", "");
    let output = run(line).finish();
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{line}: {printed}");
    assert!(!session.has("d"), "{line}: {}", session.tool("find d"));
    for n in 0..6_u8 {
        let content = fs::read(new.join("sub").join(n.to_string())).unwrap();
        assert!(content == vec![n; 200_000], "{line}: {n}");
    }
    let found = session.tool(&format!("find {} -mindepth 1", new.display()));
    assert_eq!(found.lines().count(), 7, "{line}: {found}");
    fs::remove_dir_all(new).unwrap();
}

/// Formerly, the second run moved the rest to `new/d`, and files stayed that the first one was about to remove.
#[test]
fn a_killed_move_of_a_directory_to_a_new_name_continues() {
    if let Some(other) = elsewhere() {
        let (session, new) = (Session::new(), other.path().join("new"));
        let line = format!("mv d {}", new.display());
        killed_and_repeated(&session, &line, &new, |line| Running::start(&session, line));
    }
    let sftp = SftpSession::start();
    let new = sftp.session.path("far/new");
    killed_and_repeated(&sftp.session, "mv d @/new", &new, |line| sftp.spawn(line));
    let session = Session::new();
    let server = dav::haul(&session);
    let (line, new) = (format!("mv d {}new", server.url), server.root.join("new"));
    killed_and_repeated(&session, &line, &new, |line| Running::start(&session, line));
    for server in [dav::other("Apache", servers::apache()), dav::other("nginx", servers::nginx())] {
        let (Some(server), session) = (server, Session::new()) else { continue };
        let (line, new) = (format!("mv d {}new", server.url), server.root.join("new"));
        killed_and_repeated(&session, &line, &new, |line| Running::start(&session, line));
    }
    let Some(server) = Vsftpd::start(Tls::None, &[]) else { return };
    let line = format!("mv d ftp://127.0.0.1:{}/up/new", server.port());
    killed_and_repeated(&session, &line, &server.root().join("new"), |line| {
        Running::start(&session, line)
    });
}

#[test]
fn a_directory_is_moved_into_one_that_another_move_has_left() {
    let Some(other) = elsewhere() else { return };
    let session = Session::new().file("d/f", "f").file("d/.haul.move.haul-temp", "1");
    let new = other.path().join("new");
    for note in [None, Some("2")] {
        fs::create_dir_all(&new).unwrap();
        if let Some(note) = note {
            fs::write(new.join(".haul.move.haul-temp"), note).unwrap();
        }
        session.haul(&format!("mv -n d {}", new.display())).status(0);
        session.haul(&format!("cp d {}", new.display())).status(0).without_warnings();
        assert_eq!(fs::read(new.join("d/f")).unwrap(), b"f");
        assert!(!new.join("d/.haul.move.haul-temp").exists());
    }
    session.haul(&format!("mv d {}", new.display())).status(0);
    assert!(new.join("d/f").exists() && !session.has("d"));
}

/// The contents of the files of one letter in two directories, sorted.
fn contents(session: &Session, one: &Path, other: &Path) -> Vec<String> {
    let all = [one, other].into_iter().filter(|path| path.exists());
    let all: Vec<_> = all.map(|path| path.display().to_string()).collect();
    let found = session.tool(&format!("find {} -type f", all.join(" ")));
    let mut contents: Vec<String> = found
        .lines()
        .map(|path| fs::read_to_string(path).unwrap())
        .filter(|content| content.len() == 1)
        .collect();
    contents.sort();
    contents
}

/// Formerly, one replaced the other, and both sources were removed.
#[test]
fn files_that_would_get_the_same_former_name_are_not_lost() {
    let Some(other) = elsewhere() else { return };
    let session = Session::new()
        .file("d/.f.7-1a-1.haul-moving", "A")
        .file("d/.f.7-1a-2.haul-moving", "B")
        .file("d/.F.7-1a-3.haul-moving", "C")
        .file("d/..g.haul-part.7-1a-4.haul-moving", "D");
    // These differ where case matters.
    session.write("d/sub/g", "E");
    session.write("d/sub/G", "F");
    fs::create_dir_all(other.path().join("new/d/sub")).unwrap();
    fs::write(other.path().join("new/d/sub/g"), "old").unwrap();
    let ran = session.haul(&format!("mv d {}/new", other.path().display()));
    ran.stderr_has("another file has that name now").stderr_has("is an unfinished copy of haul");
    assert_eq!(
        contents(&session, &session.path("d"), other.path()),
        ["A", "B", "C", "D", "E", "F"]
    );
    assert!(!session.has("d/sub/g") && !session.has("d/sub/G"));
    assert!(!other.path().join("new/d/.g.haul-part").exists());
    for (name, make, mount) in &KINDS[..1] {
        let session = Session::new();
        let Some(_image) = Image::new(&session, name, make, mount) else { continue };
        let session = session.file("d/F", "A").file("d/.f.7-1a-1.haul-moving", "B");
        let session = session.file("e/F", "A").file("e/f", "B");
        for (from, to) in [("d", "new"), ("e", "newer")] {
            let to = session.path(format!("{name}/{to}"));
            session.haul(&format!("mv {from} {}", to.display())).status(1);
            assert_eq!(contents(&session, &session.path(from), &to), ["A", "B"], "{from}");
        }
    }
}

/// Formerly, the note was removed from the source, and the next run moved the source into the new directory.
#[test]
fn a_directory_that_cannot_be_removed_keeps_its_note() {
    let Some(other) = elsewhere() else { return };
    let session = Session::new().file("real/f", "f").directory("d");
    unshare_mounts_once().unwrap();
    let (real, mounted) = (session.path("real"), session.path("d"));
    let mount = std::process::Command::new("mount").arg("--bind").args([&real, &mounted]).output();
    if !mount.unwrap().status.success() {
        eprintln!("SKIPPED: nothing can be mounted here");
        return;
    }
    let new = other.path().join("new");
    let line = format!("mv d {}", new.display());
    let first = session.haul(&line);
    let kept = session.has("d/.haul.move.haul-temp");
    let second = session.haul(&line);
    session.tool(&format!("umount {}", mounted.display()));
    first.status(1);
    second.status(1);
    assert!(kept && !new.join("d").exists());
    let third = session.haul(&format!("mv real {}", new.display())).status(0);
    drop(third);
    assert_eq!(fs::read(new.join("f")).unwrap(), b"f");
    assert!(!new.join("real").exists() && !new.join(".haul.move.haul-temp").exists());
}

/// Formerly, the source kept a note of a move that had not begun.
#[test]
fn a_move_that_cannot_begin_leaves_no_note() {
    let Some(other) = elsewhere() else { return };
    let session = Session::new().file("d/f", "f");
    let new = other.path().join("file");
    fs::write(&new, "file").unwrap();
    let ran = session.haul(&format!("mv d {}", new.display())).status(1);
    ran.stderr_has("a file is where a directory is needed");
    session.haul(&format!("mv d {}/below", new.display())).status(1);
    assert!(!session.has("d/.haul.move.haul-temp"));
    assert_eq!((session.read("d/f"), fs::read(&new).unwrap()), ("f".into(), b"file".into()));
}

/// Formerly, it was neither copied nor reported, and then removed.
#[test]
fn a_file_with_the_name_of_a_note_and_other_content_stays() {
    let Some(other) = elsewhere() else { return };
    let long = "long".repeat(2000);
    let (note, marker) =
        ("d/sub/.haul.move.haul-temp", "d/sub/.haul.mark-7-1700000000000000000.haul-temp");
    let session = Session::new().file("d/f", "f").file(note, &*long).file(marker, "content");
    let line = format!("mv d {}/new", other.path().display());
    session.haul(&line).stderr_has("is an unfinished copy of haul; not copied");
    assert_eq!((session.read(note), session.read(marker)), (long.clone(), "content".into()));
    let session = Session::new().file("e/f", "f").file("e/.haul.move.haul-temp", &*long);
    let line = format!("mv e {}/newer", other.path().display());
    session.haul(&line).status(1).stderr_has("haul needs its name");
    assert_eq!((session.read("e/f"), session.read("e/.haul.move.haul-temp")), ("f".into(), long));
}

/// Formerly, the new directory stayed private.
#[test]
fn a_directory_from_a_server_without_modes_gets_the_usual_mode() {
    let session = Session::new().directory("usual");
    let server = dav::haul(&session);
    fs::create_dir_all(server.root.join("d")).unwrap();
    fs::write(server.root.join("d/f"), "f").unwrap();
    session.haul(&format!("mv {}d new", server.url)).status(0);
    let mode = |name: &str| {
        let found = fs::metadata(session.path(name)).unwrap();
        std::os::unix::fs::PermissionsExt::mode(&found.permissions())
    };
    assert_eq!(mode("new"), mode("usual"));
}
