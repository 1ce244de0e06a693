//! End-to-end tests of FTP: the program with vsftpd and pyftpdlib.

#[path = "../../../../haul-ftp/tests/support/pyftpdlib.rs"]
#[expect(dead_code, reason = "the tests of the client use the rest")]
pub(crate) mod pyftpdlib;
#[path = "../../../../haul-ftp/tests/support/vsftpd.rs"]
pub(crate) mod vsftpd;
mod zone;

use self::pyftpdlib::{PASSWORD, Pyftpdlib};
use self::vsftpd::{Tls, Vsftpd};
use crate::content::content;
use crate::dav::{killed_upload, write_tree};
use crate::session::Session;
use crate::sftp::Running;

/// Copies a tree to `url`, which is the local directory `root`, and back; also tests dry run, a second run, `ls`,
/// `verify` and `sync --delete`.
fn tree_round_trip(url: &str, root: &std::path::Path, options: &str) {
    let session = Session::new();
    write_tree(&session, 300);
    let same = |path: &str| {
        session.tool(&format!("diff -r src {}", root.join(path).display()));
    };
    session.haul(&format!("cp {options} --dry-run src {url}dry")).status(0);
    assert!(!root.join("dry").exists());
    session.haul(&format!("cp {options} src {url}to/")).status(0);
    same("to/src");
    let again = session.haul(&format!("cp {options} --json src {url}to/")).status(0);
    assert_eq!(again.summary()["moved_bytes"], 0, "{}", again.out());
    session.haul(&format!("cp {options} {url}to/src down/")).status(0);
    session.tool("diff -r src down/src");
    let listed = session.haul(&format!("ls {options} -l -R {url}to/src")).status(0).out();
    for part in ["100%", "hash#tag", "what?x=1", "a b/ün ï", "nothing in it/at all", "3000001"] {
        assert!(listed.contains(part), "no {part} in {listed}");
    }
    session.haul(&format!("cp {options} --manifest src/deep {url}listed/")).status(0);
    session.haul(&format!("verify {options} {url}listed/")).status(0);
    std::fs::remove_dir_all(session.path("src/many1")).unwrap();
    session.write("src/empty", "no longer");
    session.haul(&format!("sync {options} --delete src/ {url}to/src")).status(0);
    same("to/src");
}

fn url(scheme: &str, server: &Vsftpd) -> String {
    format!("{scheme}://127.0.0.1:{}/up/", server.port())
}

#[test]
fn a_tree_is_copied_to_vsftpd_and_back() {
    let Some(server) = Vsftpd::start(Tls::None, &[]) else { return };
    tree_round_trip(&url("ftp", &server), &server.root(), "");
}

#[test]
fn a_tree_is_copied_to_vsftpd_and_back_over_tls() {
    let Some(server) = Vsftpd::start(Tls::Explicit, &[]) else { return };
    let options = format!("--cacert {}", server.certificate().display());
    tree_round_trip(&url("ftps", &server), &server.root(), &options);
}

#[test]
fn a_large_file_is_copied_to_vsftpd_and_back() {
    let Some(server) = Vsftpd::start(Tls::None, &[]) else { return };
    let session = Session::new().file("src", content(1, 1 << 20).repeat(200));
    let url = url("ftp", &server);
    session.haul(&format!("cp src {url}f")).status(0);
    session.tool(&format!("cmp src {}", server.root().join("f").display()));
    session.haul(&format!("cp {url}f back")).status(0);
    session.tool("cmp src back");
}

#[test]
fn a_killed_upload_to_vsftpd_is_resumed() {
    let Some(server) = Vsftpd::start(Tls::None, &[]) else { return };
    let resumed = killed_upload(&Session::new(), &url("ftp", &server), &server.root());
    eprintln!("vsftpd: {resumed} of {} bytes were resumed", 24 << 20);
    assert!(resumed > 1 << 20);
}

/// The ranges of a file that have data.
fn extents(path: &std::path::Path) -> Vec<std::ops::Range<u64>> {
    use rustix::fs::{SeekFrom, seek};
    let file = std::fs::File::open(path).unwrap();
    let (mut found, mut at) = (Vec::new(), 0);
    while let Ok(start) = seek(&file, SeekFrom::Data(at)) {
        at = seek(&file, SeekFrom::Hole(start)).unwrap();
        found.push(start..at);
    }
    found
}

/// Each lane downloads one long range, so the part file has as many filled ranges as there are lanes.
#[test]
fn a_killed_download_from_vsftpd_is_resumed() {
    let Some(server) = Vsftpd::start(Tls::None, &[]) else { return };
    let session = Session::new();
    let bytes = content(3, 40 << 20);
    std::fs::write(server.root().join("f"), &bytes).unwrap();
    let line = format!("cp --json --window 2M --lanes 3 {}f dst/", url("ftp", &server));
    for _ in 0..3 {
        let mut running = Running::start(&session, &format!("{line} --bwlimit 6M"));
        running.until_moved(3 << 20);
        running.kill();
        assert!(!session.has("dst/f"), "the transfer had ended before the kill");
    }
    let filled: Vec<_> = extents(&session.path("dst/.f.haul-part"));
    let lengths = || filled.iter().map(|range| range.end - range.start);
    assert_eq!(filled.len(), 3, "{filled:?}");
    let summary = session.haul(&line).status(0).summary();
    assert!(std::fs::read(session.path("dst/f")).unwrap() == bytes);
    let resumed = summary["resumed_bytes"].as_u64().unwrap();
    eprintln!("vsftpd: {resumed} of {} bytes were resumed", bytes.len());
    // Those of all lanes.
    assert!(resumed > lengths().sum::<u64>() - lengths().min().unwrap(), "{filled:?}, {summary}");
}

/// Formerly a deadlock: the transfer with the only lane waited for permits, whose holders waited for the lane.
#[test]
fn large_and_small_files_share_the_only_connection_to_a_server() {
    let Some(server) = Vsftpd::start(Tls::None, &["max_per_ip=1"]) else { return };
    let session = Session::new();
    for n in 0..4 {
        session.write(format!("src/large{n}"), content(n, 1 << 20).repeat(6));
    }
    for n in 0..200 {
        session.write(format!("src/small{n}"), content(n, 2000));
    }
    let url = url("ftp", &server);
    session.haul(&format!("cp --window 1M src {url}")).status(0);
    session.tool(&format!("diff -r src {}", server.root().join("src").display()));
    session.haul(&format!("cp --window 1M {url}src down/")).status(0);
    session.tool("diff -r src down/src");
}

#[test]
fn a_wrong_password_is_refused() {
    let Some(server) = Pyftpdlib::start(false) else { return };
    let session = Session::new().file("src", "content");
    for (password, status) in [("wrong", 1), (PASSWORD, 0)] {
        let line = format!("cp src ftp://me@127.0.0.1:{}/up/f", server.port());
        let output = session.command(&line).env("HAUL_PASSWORD", password).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        eprintln!("{stderr}");
        assert_eq!(output.status.code(), Some(status), "{stderr}");
        assert_eq!(server.root().join("f").exists(), status == 0);
        assert!(status == 0 || stderr.contains("530") || stderr.contains("password"), "{stderr}");
    }
}

/// Formerly a deadlock: an upload held one of the two lanes and waited for the other one to read its source. A stalled
/// download, or a listing, held the other one and waited for a lane for an upload.
#[test]
fn files_are_copied_within_a_server_that_accepts_two_connections_from_an_address() {
    let Some(server) = Pyftpdlib::start_for(false, 2) else { return };
    let session = Session::new();
    for n in 0..2 {
        let bytes = content(n, 1 << 20).repeat(16);
        session.write(format!("large/{n}"), bytes.clone());
        session.write(format!("many/large{n}"), bytes);
    }
    for n in 0..6000 {
        session.write(format!("many/small{n}"), "");
    }
    for tree in ["large", "many"] {
        session.tool(&format!("cp -r {tree} {}", server.root().display()));
        let url = format!("ftp://me@127.0.0.1:{}/up", server.port());
        let line = format!("cp {url}/{tree}/ {url}/to/");
        let mut command = session.command(&line);
        command.env("HAUL_PASSWORD", PASSWORD).stderr(std::process::Stdio::piped());
        let mut running = command.spawn().unwrap();
        let began = std::time::Instant::now();
        // Formerly, it never ended.
        while running.try_wait().unwrap().is_none() && began.elapsed().as_secs() < 300 {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        running.kill().unwrap();
        let output = running.wait_with_output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        eprintln!("{tree}: {printed}");
        assert_eq!(output.status.code(), Some(0), "{printed}");
        assert!(!printed.contains("retry"), "{printed}");
        session.tool(&format!("diff -r {tree} {}", server.root().join("to").display()));
        std::fs::remove_dir_all(server.root().join("to")).unwrap();
    }
}
