//! Uploads that are killed and run again.

use super::{DavServer, haul, other, servers};
use crate::content::{content, unfinished};
use crate::session::Session;
use crate::sftp::Running;

/// Kills an upload of 24 MiB twice, then completes it; returns the number of bytes that the last run resumed.
pub(crate) fn killed_upload(session: &Session, url: &str, root: &std::path::Path) -> u64 {
    session.write("src", content(9, 24 << 20));
    let line = format!("cp --json --window 2M src {url}dst");
    for _ in 0..2 {
        let mut running = Running::start(session, &line.replacen("cp", "cp --bwlimit 8M", 1));
        running.until_moved(4 << 20);
        running.kill();
        assert!(
            !root.join("dst").exists(),
            "the file has its final name before the upload is complete"
        );
    }
    let summary = session.haul(&line).status(0).summary();
    session.tool(&format!("cmp src {}", root.join("dst").display()));
    assert_eq!(unfinished(root), Vec::<std::path::PathBuf>::new());
    summary["resumed_bytes"].as_u64().unwrap()
}

/// [`killed_upload`] to a server; also prints the number of resumed bytes.
fn resumed_by(session: &Session, server: &DavServer) -> u64 {
    let resumed = killed_upload(session, &server.url, &server.root);
    eprintln!("{}: {resumed} of {} bytes were resumed", server.name, 24 << 20);
    resumed
}

#[test]
fn an_upload_to_haul_is_resumed() {
    let session = Session::new();
    let server = haul(&session);
    assert!(resumed_by(&session, &server) > 1 << 20);
}

#[test]
fn an_upload_to_apache_is_resumed() {
    let Some(server) = other("Apache", servers::apache()) else { return };
    assert!(resumed_by(&Session::new(), &server) > 1 << 20);
}

#[test]
fn an_upload_to_a_server_that_cannot_resume_starts_over() {
    for server in [other("nginx", servers::nginx()), other("rclone", servers::rclone())] {
        let Some(server) = server else { continue };
        assert_eq!(resumed_by(&Session::new(), &server), 0);
    }
}
