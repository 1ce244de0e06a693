//! Long files that are stored as folders of parts, on this machine and on servers, and joined again.

use crate::content::content;
use crate::dav::{self, servers};
use crate::ftp::vsftpd::{Tls, Vsftpd};
use crate::session::Session;
use crate::sftp::{Running, SftpSession};

/// Downloads a file of 24 MiB into parts of 5 MiB, with a kill in between, and checks the parts.
fn split(session: &Session, url: &str, name: &str) {
    let line = format!("cp --json --split 5M --window 2M {url} dst");
    let mut running = Running::start(session, &line.replacen("cp", "cp --bwlimit 8M", 1));
    running.until_moved(10 << 20);
    running.kill();
    let summary = session.haul(&line).status(0).summary();
    let resumed = summary["resumed_bytes"].as_u64().unwrap();
    eprintln!("{name}: {resumed} of {} bytes were resumed", 24 << 20);
    assert!(resumed > 1 << 20, "{name}: {summary}");
    assert!(session.path("dst/04").is_file(), "{name}: dst has no parts");
    // With --split a folder of parts is read as a file; the parts of the copy are joined here.
    session.haul("cp --split 5M dst back").status(0);
    let parts = (0..5).map(|n| std::fs::read(session.path(format!("back/{n:02}"))).unwrap());
    assert!(parts.flatten().eq(content(3, 24 << 20)), "{name}: the content differs");
    for made in ["dst", "back"] {
        session.tool(&format!("rm -r {made}"));
    }
}

#[test]
fn a_file_from_a_server_is_stored_in_parts_and_resumed_after_a_kill() {
    let session = Session::new().file("src", content(3, 24 << 20));
    let webdav = dav::haul(&session);
    session.tool("cp src far/f");
    split(&session, &format!("{}f", webdav.url), "dav");
    if let Some(server) = servers::nginx() {
        session.tool(&format!("cp src {}", server.root().join("f").display()));
        split(&session, &format!("{}f", server.url), "http");
    }
    if let Some(server) = Vsftpd::start(Tls::None, &[]) {
        session.tool(&format!("cp src {}", server.root().join("f").display()));
        split(&session, &format!("ftp://127.0.0.1:{}/up/f", server.port()), "ftp");
    }
}

/// `--join` takes no part size.
#[test]
fn parts_of_any_size_are_joined_again() {
    let session = Session::new().file("tree/big", content(5, 3_000_000)).file("tree/small", "s");
    session.write("tree/pictures/00", "no part");
    session.write("tree/pictures/02", "no part");
    session.haul("cp --split 700000 tree split").status(0);
    assert!(session.path("split/tree/big/04").is_file());
    // Without --join the parts stay files.
    session.haul("cp split/tree/big plain").status(0);
    assert!(session.path("plain/big/04").is_file());
    session.haul("cp --join split/tree/big one").status(0);
    assert!(std::fs::read(session.path("one")).unwrap() == content(5, 3_000_000));
    session.haul("cp --join split/tree all").status(0);
    session.tool("diff -r tree all/tree");
    let again = session.haul("cp --join --json split/tree all").status(0).summary();
    assert_eq!(again["moved_bytes"], 0, "{again}");
    // A directory at the destination stays one, whatever the names of its files.
    session.write("dst/tree/small/00", "0");
    session.write("dst/tree/small/01", "1");
    session.haul("cp --join tree dst").status(1);
    assert_eq!(session.read("dst/tree/small/00"), "0");
    session.haul("cp --join --split 5M tree there").status(2);
}

/// Folders of parts on a server are joined like those on a disk, as a whole and within a tree.
#[test]
fn parts_on_a_server_are_joined_again() {
    let sftp = SftpSession::start();
    let session = &sftp.session;
    session.write("tree/big", content(5, 3_000_000));
    session.write("tree/small", "s");
    session.haul("cp --split 700000 tree far").status(0);
    assert!(session.path("far/tree/big/04").is_file());
    sftp.haul("cp --join @/tree/ all").status(0);
    sftp.same("tree", "all");
    sftp.haul("cp --join @/tree/big one").status(0);
    assert!(std::fs::read(session.path("one")).unwrap() == content(5, 3_000_000));
    let again = sftp.haul("cp --join --json @/tree/ all").status(0).summary();
    assert_eq!(again["moved_bytes"], 0, "{again}");
    sftp.haul("cp @/tree/big parts").status(0);
    assert!(session.path("parts/big/04").is_file(), "without --join the parts are joined");

    let joined = |url: &str, name: &str| {
        session.haul(&format!("cp --join {url}tree/ {name}")).status(0);
        sftp.same("tree", name);
    };
    let webdav = dav::haul(session);
    joined(&webdav.url, "dav");
    if let Some(server) = servers::nginx() {
        session.tool(&format!("cp -r far/tree {}", server.root().join("tree").display()));
        joined(&server.url, "http");
    }
    if let Some(server) = Vsftpd::start(Tls::None, &[]) {
        session.tool(&format!("cp -r far/tree {}", server.root().join("tree").display()));
        joined(&format!("ftp://127.0.0.1:{}/up/", server.port()), "ftp");
    }
}
