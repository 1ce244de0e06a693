//! `sync --delete` from web servers with unusual responses to requests for markers, the files by which haul tests
//! whether the source is inside the destination.

use super::nginx::Nginx;
use crate::session::Session;

/// Formerly, each of these responses stopped the command.
#[test]
fn responses_to_names_of_markers_do_not_stop_a_deletion() {
    for extra in [
        // Names that begin with a dot are denied.
        r"location ~ /\. { return 403; }",
        // Requests above the source for names that begin with a dot fail.
        "location ~ ^/[.][^/]*$ { return 500; }",
        // The site has a page for every URL above the source.
        "location ~ ^/[^/]+$ { return 200 page; }",
        "location ~ ^/[^/]+$ { return 200 ''; }",
    ] {
        let Some(nginx) = Nginx::start("", &format!("autoindex on; {extra}")) else { return };
        std::fs::create_dir_all(nginx.www("site/sub")).unwrap();
        for path in ["site/a", "site/sub/b"] {
            std::fs::write(nginx.www(path), "content").unwrap();
        }
        let session =
            Session::new().file("dst/gone", "g").file("dst/a", "old").file("dst/sub/old", "o");
        let line = format!("sync --delete http://{}/site/ dst", nginx.address());
        session.haul(&line).status(0).without_warnings();
        let found = session.tool("find dst -type f");
        let mut found: Vec<&str> = found.lines().collect();
        found.sort_unstable();
        assert_eq!(found, ["dst/a", "dst/sub/b"], "{extra}");
    }
}
