//! Copies from one server to another, through this machine.

use crate::content::content;
use crate::dav::{self, servers, write_tree};
use crate::ftp::vsftpd::{Tls, Vsftpd};
use crate::session::{Session, peak_bytes};
use crate::sftp::SftpSession;

mod names;
mod split;

#[test]
fn a_tree_is_copied_from_webdav_to_sftp_and_back() {
    let sftp = SftpSession::start();
    write_tree(&sftp.session, 200);
    let webdav = dav::haul(&sftp.session);
    sftp.session.haul(&format!("cp src {}from/", webdav.url)).status(0);
    sftp.haul(&format!("cp {}from/src @/ssh/", webdav.url)).status(0);
    sftp.same("src", "far/ssh/src");
    let again = sftp.haul(&format!("cp --json {}from/src @/ssh/", webdav.url)).status(0);
    assert_eq!(again.summary()["moved_bytes"], 0);
    sftp.haul(&format!("cp @/ssh/src {}back/", webdav.url)).status(0);
    sftp.same("src", "far/back/src");
}

#[test]
fn a_tree_is_copied_from_ftp_to_webdav_and_back() {
    let Some(server) = Vsftpd::start(Tls::None, &[]) else { return };
    let session = Session::new();
    write_tree(&session, 100);
    let ftp = format!("ftp://127.0.0.1:{}/up/", server.port());
    session.tool(&format!("cp -r src {}", server.root().display()));
    session.tool(&format!("chmod -R a+rwX {}", server.root().display()));
    let webdav = dav::haul(&session);
    session.haul(&format!("cp {ftp}src {}to/", webdav.url)).status(0);
    session.tool("diff -r src far/to/src");
    session.haul(&format!("cp {}to/src {ftp}back/", webdav.url)).status(0);
    session.tool(&format!("diff -r src {}", server.root().join("back/src").display()));
}

/// The file is streamed: bytes in flight fit into `--memory`.
#[test]
fn a_copy_from_http_to_sftp_uses_little_memory_and_resumes_after_a_kill() {
    let Some(server) = servers::nginx() else { return };
    let sftp = SftpSession::start();
    sftp.session.write("src", content(1, 1 << 20).repeat(112));
    sftp.session.tool(&format!("cp src {}", server.root().join("f").display()));
    let line = format!("cp --json --memory 16M {}f @/dst", server.url);
    let mut running = sftp.spawn(&line.replacen("cp", "cp --bwlimit 24M", 1));
    // If all this were held in memory, the peak would exceed the limit below.
    running.until_moved(60 << 20);
    let peak = peak_bytes(running.id()).unwrap();
    running.kill();
    assert!(!sftp.session.has("far/dst"));
    let summary = sftp.haul(&line).status(0).summary();
    sftp.session.tool("cmp src far/dst");
    let resumed = summary["resumed_bytes"].as_u64().unwrap();
    eprintln!("{resumed} of {} bytes were resumed; at most {peak} bytes in memory", 112 << 20);
    assert!(resumed > 4 << 20, "{summary}");
    // The program itself uses about 30 MB, and more without optimization.
    assert!(peak < 80 << 20, "{peak} bytes");
}

#[test]
fn a_directory_is_copied_from_an_http_index_to_webdav() {
    let Some(server) = servers::nginx() else { return };
    let session = Session::new();
    write_tree(&session, 50);
    session.tool(&format!("cp -r src {}", server.root().join("dir").display()));
    let webdav = dav::haul(&session);
    session.haul(&format!("cp {}dir/ {}copy", server.url, webdav.url)).status(0);
    session.tool("diff -r src far/copy");
}
