//! `sync --delete` never removes its source, even if the source is inside the destination and only one of them is
//! reached through a server.

use std::fs;
use std::path::Path;

use crate::dav::{self, servers};
use crate::faults::is_root;
use crate::ftp::vsftpd::{Tls, Vsftpd};
use crate::session::{Ran, Session};
use crate::sftp::SftpSession;

/// Makes the trees of a test in `root`, which every user may change: `outer`, and `outer/inner` in it.
fn trees(session: &Session, root: &Path) {
    drop(fs::remove_dir_all(root.join("outer")));
    fs::create_dir_all(root.join("outer/inner/deep/er")).unwrap();
    for (path, content) in
        [("outer/own", "own"), ("outer/inner/precious", "p"), ("outer/inner/deep/er/f", "f")]
    {
        fs::write(root.join(path), content).unwrap();
    }
    session.tool(&format!("chmod -R a+rwX {}", root.join("outer").display()));
}

/// Asserts that nothing is lost or added, whichever of the trees is on the server, and that an excluded source stays.
/// `root` is the local directory behind the location `base`.
fn keeps_the_source(session: &Session, root: &Path, base: &str, run: impl Fn(&str) -> Ran) {
    let local = root.display();
    trees(session, root);
    let before = session.tool(&format!("find {local}/outer"));
    for (source, destination, cause) in [
        (format!("{base}outer/inner"), format!("{local}/outer"), "is a parent of the source"),
        (format!("{local}/outer/inner"), format!("{base}outer"), "is a parent of the source"),
        (format!("{base}outer"), format!("{local}/outer/inner"), "is inside the source"),
        (format!("{local}/outer"), format!("{base}outer/inner/deep"), "is inside the source"),
        (format!("{local}/outer"), format!("{base}outer"), "is the same as the source"),
    ] {
        let line = format!("sync --delete {source} {destination}");
        run(&line).status(1).stderr_has(cause);
        assert_eq!(session.tool(&format!("find {local}/outer")), before, "{line}");
    }
    // Excluded entries stay, and so does the source among them.
    let line = format!("sync -q --delete --exclude /inner {base}outer/inner {local}/outer");
    run(&line).status(0);
    assert_eq!(fs::read(root.join("outer/inner/precious")).unwrap(), b"p", "{base}");
    assert!(root.join("outer/precious").exists() && !root.join("outer/own").exists(), "{base}");
}

/// Formerly, the source was removed.
#[test]
fn a_source_inside_the_destination_is_recognised_through_a_server() {
    let sftp = SftpSession::start();
    keeps_the_source(&sftp.session, &sftp.session.path("far"), "@/", |line| sftp.haul(line));
    let session = Session::new();
    let haul = dav::haul(&session);
    keeps_the_source(&session, &haul.root, &haul.url, |line| session.haul(line));
    for server in [dav::other("Apache", servers::apache()), dav::other("nginx", servers::nginx())] {
        let (Some(server), session) = (server, Session::new()) else { continue };
        eprintln!("{}", server.name);
        keeps_the_source(&session, &server.root, &server.url, |line| session.haul(line));
    }
    let Some(server) = Vsftpd::start(Tls::None, &[]) else { return };
    let base = format!("ftp://127.0.0.1:{}/up/", server.port());
    keeps_the_source(&session, &server.root(), &base, |line| session.haul(line));
}

/// The server shows the source as its root, so the paths do not reveal that it is inside the destination.
#[test]
fn a_source_that_is_the_root_of_a_server_is_not_removed_from_the_directories_above() {
    let session = Session::new().file("top/far/precious", "p").file("top/old", "o");
    let server = dav::haul_for(&session, "top/far");
    let root = session.path("top");
    let run = session.haul(&format!("sync --delete {} {}", server.url, root.display()));
    run.status(1).stderr_has("it is the source of this run, under another path");
    assert_eq!(session.read("top/far/precious"), "p");
    assert!(session.has("top/precious") && !session.has("top/old"));
    // A directory that only looks like the source is removed.
    session.write("top/copy/precious", "p");
    session.haul(&format!("sync --delete {} {}", server.url, root.display())).status(1);
    assert!(session.has("top/far/precious") && !session.has("top/copy"));
}

/// Formerly, such a copy continued into its own copies.
#[test]
fn a_destination_that_is_the_root_of_a_server_in_the_source_is_not_synchronized() {
    let session = Session::new().file("top/far/precious", "p").file("top/new", "n");
    let server = dav::haul_for(&session, "top/far");
    let run = session.haul(&format!("sync --delete --ignore-errors top {}", server.url));
    run.status(1).stderr_has("is inside the source, under another path");
    assert_eq!(session.read("top/far/precious"), "p");
    let listed = session.tool("find top -name *.haul-temp");
    assert_eq!(listed, "", "a marker is left");
}

/// The source `top/far` contains a directory `far`, so `far` is not an extra entry of the destination `top`, although
/// it is the source.
#[test]
fn a_source_is_not_emptied_as_a_directory_of_the_destination() {
    let session = Session::new().file("top/far/far/x", "x").file("top/far/precious", "p");
    let server = dav::haul_for(&session, "top/far");
    let run = session.haul(&format!("sync --delete {} top", server.url));
    run.status(1).stderr_has("it is the source of this run, under another path");
    assert_eq!(session.read("top/far/precious"), "p");
}

/// sshd requires such a directory for `ChrootDirectory`. Formerly, nothing was removed.
#[test]
fn extra_files_are_removed_below_a_directory_in_which_no_marker_can_be_created() {
    if !is_root() {
        eprintln!("skipped: acting as another user needs root");
        return;
    }
    let session = Session::new().file("src/sub/a", "a").file("dst/sub/a", "a");
    let server = dav::haul_for(&session, "src");
    let as_user = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    session.write("dst/sub/gone", "g");
    session.tool("mkdir home");
    session.tool("chmod 755 . src dst");
    session.tool("chown -R 65534:65534 dst/sub home");
    let (haul, at) = (env!("CARGO_BIN_EXE_haul"), session.path("").display().to_string());
    let line = format!("sync -q --delete --preserve=none {} {at}/dst", server.url);
    session.tool(&format!("{as_user} env HOME={at}/home {haul} {line}"));
    assert!(session.has("dst/sub/a") && !session.has("dst/sub/gone"));
}

/// Formerly, markers of killed runs stayed as long as a limit refused the deletion.
#[test]
fn stale_markers_are_removed_although_the_deletion_is_refused() {
    let session = Session::new().file("src/a", "a").file("dst/b", "b").file("dst/c", "c");
    let marker = "dst/.haul.mark-7-1700000000000000000.haul-temp";
    session.write(marker, "");
    let server = dav::haul_for(&session, "dst");
    let line = format!("sync --delete --max-delete 1 src {}", server.url);
    session.haul(&format!("{line} --dry-run")).status(1);
    assert!(session.has(marker));
    session.haul(&line).status(1).stderr_has("2 of 3 entries would be removed");
    assert!(!session.has(marker) && session.has("dst/b") && session.has("dst/c"));
}

/// The next run removes markers of ended processes of its machine at once. The names here have no machine.
#[test]
fn a_marker_of_an_unknown_machine_is_removed_after_a_day() {
    let session = Session::new().file("src/a", "a");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let old = format!("dst/.haul.mark-7-{}.haul-temp", (now.as_secs() - 90_000) * 1_000_000_000);
    let fresh = format!("dst/.haul.mark-7-{}.haul-temp", now.as_nanos());
    session.write(&old, "");
    session.write(&fresh, "");
    let with_content = "dst/.haul.mark-8-1700000000000000000.haul-temp";
    session.write(with_content, "no marker has content");
    session.haul("sync -n --delete src dst").status(0);
    assert!(session.has(&old));
    session.haul("sync --delete src dst").status(0).without_warnings();
    assert!(!session.has(&old) && session.has(&fresh) && session.has(with_content));
    // The two that stay are not copied, and a warning names only the one with content.
    let copied =
        session.haul("cp dst/ copy").status(0).stderr_has(".haul.mark-8-1700000000000000000");
    assert!(!copied.err().contains(".haul.mark-7-"), "{}", copied.err());
    assert_eq!(session.haul("ls copy").out(), "a\n");
}
