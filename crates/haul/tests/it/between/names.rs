//! Names on servers: globs, `mkdir`, `du`, `check`, `mv`, `rm`, and the standard streams.

use std::io::Write as _;
use std::process::Stdio;

use crate::dav::{self, servers};
use crate::ftp::vsftpd::{Tls, Vsftpd};
use crate::session::{Ran, Session};
use crate::sftp::SftpSession;

/// Runs all cases below `base`, a location that ends with a slash. `root` is the local path of the same
/// directory; `hidden`: the server lists names that begin with a dot (nginx does not).
fn commands_work_with_names(
    session: &Session,
    root: &std::path::Path,
    base: &str,
    hidden: bool,
    run: impl Fn(&str) -> Ran,
) {
    for (name, content) in
        [("a.txt", "aaaa"), ("b.txt", "bb"), ("c.log", "c"), (".hidden.txt", "h")]
    {
        if hidden || !name.starts_with('.') {
            session.write(format!("src/{name}"), content);
        }
    }
    session.write("src/deep/d.txt", "dddd");
    run(&format!("mkdir {base}to")).status(0);
    run(&format!("mkdir {base}to")).status(1);
    run(&format!("mkdir -p {base}to/x/y {base}to")).status(0);
    assert!(root.join("to/x/y").is_dir());
    run(&format!("cp src {base}to/")).status(0);

    // Globs.
    let listed = run(&format!("ls {base}to/src/*.txt")).status(0).out();
    let names: Vec<_> = listed.lines().map(|line| line.rsplit('/').next().unwrap()).collect();
    assert_eq!(names, ["a.txt", "b.txt"]);
    let deeper = run(&format!("ls {base}to/s*/d[a-f]ep/?.txt")).status(0).out();
    assert!(deeper.ends_with("d.txt\n") && deeper.lines().count() == 1, "{deeper}");
    run(&format!("cp {base}to/src/*.txt down/")).status(0);
    assert!(session.has("down/a.txt") && session.has("down/b.txt"));
    assert!(!session.has("down/c.log") && !session.has("down/.hidden.txt"));
    run(&format!("ls {base}to/src/*.none")).status(1).stderr_has("nothing matches this pattern");

    // Disk usage.
    let usage = run(&format!("du -s --json {base}to/src")).status(0).objects().remove(0);
    let expected = if hidden { (&12.into(), &5.into()) } else { (&11.into(), &4.into()) };
    assert_eq!((&usage["bytes"], &usage["files"]), expected);
    assert_eq!(run(&format!("du {base}to")).status(0).out().lines().count(), 5);

    // Comparison.
    run(&format!("check src {base}to/src")).status(0).stdout("");
    run(&format!("check --checksum {base}to/src src")).status(0).stdout("");
    std::fs::write(root.join("to/src/a.txt"), "AAAA").unwrap();
    session.write("src/new", "");
    let ran = run(&format!("check --checksum src {base}to/src")).status(1);
    let out = ran.out();
    let mut lines: Vec<_> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["differs a.txt (content)", "missing new"]);

    streams_and_moves(session, root, base, &run);

    // Removed.
    run(&format!("rm {base}to/src")).status(1).stderr_has("-r removes it");
    run(&format!("rm {base}to/src/*.txt")).status(0);
    assert!(!root.join("to/src/a.txt").exists() && root.join("to/src/c.log").exists());
    run(&format!("rm -rn {base}to")).status(0);
    assert!(root.join("to/src/c.log").exists());
    run(&format!("rm -r {base}to")).status(0);
    assert!(!root.join("to").exists());
    run(&format!("rm {base}to")).status(1);
    run(&format!("rm -f {base}to")).status(0);
}

/// `cat`, `cp` to the standard output, and `mv`, in the directory that [`commands_work_with_names`] has made.
fn streams_and_moves(
    session: &Session,
    root: &std::path::Path,
    base: &str,
    run: impl Fn(&str) -> Ran,
) {
    // The standard streams.
    let big = "0123456789abcdef".repeat(150_000);
    session.write("big", &big);
    run(&format!("cp big {base}to/big")).status(0);
    assert_eq!(
        run(&format!("cat {base}to/big {base}to/src/b.txt")).status(0).out(),
        big.clone() + "bb"
    );
    assert_eq!(run(&format!("cp {base}to/src/c.log -")).status(0).out(), "c");

    // Renamed on the server, moved from it, moved to it.
    run(&format!("mv {base}to/big {base}to/x/renamed")).status(0);
    assert!(root.join("to/x/renamed").is_file() && !root.join("to/big").exists());
    run(&format!("mv {base}to/x/renamed here")).status(0);
    assert!(session.read("here") == big && !root.join("to/x/renamed").exists());
    session.write("local/one", "1");
    session.write("local/two/three", "3");
    run(&format!("mv local {base}to/")).status(0);
    assert!(!session.has("local"));
    assert_eq!(std::fs::read(root.join("to/local/two/three")).unwrap(), b"3");

    // A component '.' stands for the directory itself.
    run(&format!("mv {base}./to/local/one {base}to/local/./uno")).status(0);
    run(&format!("mv {base}to/local/uno {base}to/.")).status(0);
    run(&format!("mv {base}to/uno {base}to/local/one")).status(0);

    // Moved onto itself: both on the server, then from the local path to the server.
    run(&format!("mv {base}to/local {base}to")).status(1);
    run(&format!("mv {base}to/local/one {base}to/local/one")).status(1);
    run(&format!("mv {} {base}to/local/two/", root.join("to/local/two/three").display())).status(1);
    run(&format!("mv {} {base}to/", root.join("to/local").display())).status(1);
    assert_eq!(std::fs::read(root.join("to/local/two/three")).unwrap(), b"3");
    assert_eq!(std::fs::read(root.join("to/local/one")).unwrap(), b"1");
}

#[test]
fn commands_work_with_names_on_an_ssh_server() {
    let sftp = SftpSession::start();
    let root = sftp.session.path("far");
    commands_work_with_names(&sftp.session, &root, "@/", true, |line| sftp.haul(line));
    // The standard input.
    let line = sftp.line("cp - @/in");
    let mut child = sftp.session.command(&line).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"from a pipe").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(sftp.session.read("far/in"), "from a pipe");
}

#[test]
fn commands_work_with_names_on_webdav_servers() {
    let session = Session::new();
    let haul = dav::haul(&session);
    commands_work_with_names(&session, &haul.root, &haul.url, true, |line| session.haul(line));
    for server in [dav::other("Apache", servers::apache()), dav::other("nginx", servers::nginx())] {
        let (Some(server), session) = (server, Session::new()) else { continue };
        eprintln!("{}", server.name);
        commands_work_with_names(
            &session,
            &server.root,
            &server.url,
            server.name != "nginx",
            |line| session.haul(line),
        );
    }
}

#[test]
fn commands_work_with_names_on_an_ftp_server() {
    let Some(server) = Vsftpd::start(Tls::None, &[]) else { return };
    let session = Session::new();
    let base = format!("ftp://127.0.0.1:{}/up/", server.port());
    commands_work_with_names(&session, &server.root(), &base, true, |line| session.haul(line));
}
