//! Plain web servers, whose directories are pages for people.

use super::servers::{self, Server};
use super::trees::write_tree;
use crate::session::Session;

fn downloaded(server: Option<Server>, name: &str) {
    let Some(server) = server else { return };
    let session = Session::new();
    write_tree(&session, 60);
    let session_root = server.root().join("dir");
    session.tool(&format!("cp -r src {}", session_root.display()));
    let url = format!("{}dir/", server.url);
    let listed = session.haul(&format!("ls {url}")).status(0).out();
    for part in ["100%", "hash#tag", "what?x=1", "a b", "nothing in it"] {
        assert!(listed.contains(part), "{name}: no {part} in {listed}");
    }
    session.haul(&format!("cp {url} dst/")).status(0);
    session.tool("diff -r src dst");
}

#[test]
fn what_nginx_lists_is_downloaded() {
    downloaded(servers::nginx(), "nginx");
}

#[test]
fn what_apache_lists_is_downloaded() {
    downloaded(servers::apache(), "Apache");
}

#[test]
fn what_rclone_lists_is_downloaded() {
    downloaded(servers::rclone_web(), "rclone");
}

#[test]
fn what_python_lists_is_downloaded() {
    downloaded(servers::python(), "Python");
}
