//! WebDAV end to end: the program against its own server and against common ones.

#[path = "../../../../haul-http/tests/client/servers.rs"]
#[expect(dead_code, reason = "the tests of the client use the rest")]
pub(crate) mod servers;

mod kills;
pub(crate) mod login;
mod pages;
mod trees;

use std::path::PathBuf;

pub(crate) use self::kills::killed_upload;
use self::servers::Server;
pub(crate) use self::trees::{change_later, write_tree};
use crate::serve::Serving;
use crate::session::Session;

/// A server, and its directory on this machine.
pub(crate) struct DavServer {
    pub(crate) name: &'static str,
    /// Its directory as a location, with a slash at the end.
    pub(crate) url: String,
    pub(crate) root: PathBuf,
    _server: Runs,
}

#[expect(dead_code, reason = "they run until they are dropped")]
enum Runs {
    Haul(Serving),
    Other(Server),
}

/// haul's own server, for the session's directory `far`.
pub(crate) fn haul(session: &Session) -> DavServer {
    haul_for(session, "far")
}

/// haul's own server, for a directory of the session.
pub(crate) fn haul_for(session: &Session, directory: &str) -> DavServer {
    let root = session.path(directory);
    std::fs::create_dir_all(&root).unwrap();
    let line = format!("serve dav {directory} --listen 127.0.0.1:0");
    let (serving, object) = Serving::json(session, &line);
    let url = object["url"].as_str().unwrap().replacen("http", "dav", 1);
    DavServer { name: "haul", url, root, _server: Runs::Haul(serving) }
}

/// Another server, unless it is missing.
pub(crate) fn other(name: &'static str, server: Option<Server>) -> Option<DavServer> {
    let server = server?;
    let url = server.url.replacen("http", "dav", 1);
    Some(DavServer { name, url, root: server.root(), _server: Runs::Other(server) })
}
