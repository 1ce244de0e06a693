//! Plain web servers, whose directory listings are HTML pages.

use std::path::Path;

use super::servers::{self, Server};
use super::trees::write_tree;
use crate::session::Session;

fn downloaded(server: Option<Server>, name: &str) {
    let Some(server) = server else { return };
    downloaded_from(&Session::new(), &server.root(), &server.url, name);
}

fn downloaded_from(session: &Session, root: &Path, url: &str, name: &str) {
    write_tree(session, 60);
    session.tool(&format!("cp -r src {}", root.join("dir").display()));
    let url = format!("{url}dir/");
    let listed = session.haul(&format!("ls {url}")).status(0).out();
    for part in ["100%", "hash#tag", "what?x=1", "a b", "nothing in it"] {
        assert!(listed.contains(part), "{name}: no {part} in {listed}");
    }
    session.haul(&format!("cp {url} dst/")).status(0);
    session.tool("diff -r src dst");
}

#[test]
fn a_directory_that_nginx_lists_is_downloaded() {
    downloaded(servers::nginx(), "nginx");
}

#[test]
fn a_directory_that_haul_lists_is_downloaded() {
    let session = Session::new();
    let server = super::haul(&session);
    let url = server.url.replacen("dav", "http", 1);
    downloaded_from(&session, &server.root, &url, "haul");
    // Times are preserved to the second.
    session.haul(&format!("cp {url}dir/ dst/")).status(0).stderr_has("moved 0 B");
}

#[test]
fn a_directory_that_apache_lists_is_downloaded() {
    downloaded(servers::apache(), "Apache");
}

#[test]
fn a_directory_that_rclone_lists_is_downloaded() {
    downloaded(servers::rclone_web(), "rclone");
}

#[test]
fn a_directory_that_python_lists_is_downloaded() {
    downloaded(servers::python(), "Python");
}
