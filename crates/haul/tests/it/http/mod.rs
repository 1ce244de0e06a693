//! Downloads over HTTP, as the user sees them: the program against scripted servers, most of them faulty, and against
//! real ones, also over a bad network.

mod busy;
mod changes;
mod connections;
mod cuts;
mod encoded;
mod expect;
mod headers;
mod lengths;
mod lists;
mod mirrors;
mod names;
mod nesting;
mod nginx;
mod ranges;
mod redirects;
mod response;
mod secrets;
mod server;
mod sign_in;
mod slow;
mod socks;
mod tls;

use std::fs;

pub(crate) use self::cuts::wait_for_bytes;
use self::server::Server;
use crate::session::{Ran, Session};

/// `haul cp OPTIONS URL dst/`.
fn copy(session: &Session, options: &str, url: &str) -> Ran {
    session.haul(&format!("cp {options} {url} dst/"))
}

/// Asserts that the file at `/f` arrives, and nothing else.
#[track_caller]
fn arrives(server: &Server, options: &str, content: &[u8]) -> Ran {
    let session = Session::new();
    let ran = copy(&session, options, &server.url("/f")).status(0);
    whole(&session, content);
    ran
}

/// Asserts that the copy has this content, and that there is no other file.
#[track_caller]
fn whole(session: &Session, content: &[u8]) {
    let arrived = fs::read(session.path("dst/f")).unwrap();
    assert_eq!(arrived.len(), content.len(), "the length differs");
    let differs = arrived.iter().zip(content).position(|(is, should)| is != should);
    assert_eq!(differs, None, "a byte differs");
    assert_eq!(fs::read_dir(session.path("dst")).unwrap().count(), 1, "something is left over");
}

/// Asserts that the file at `/f` does not arrive, and that `text` is reported.
#[track_caller]
fn fails(server: &Server, options: &str, text: &str) -> Ran {
    let session = Session::new();
    let ran = copy(&session, options, &server.url("/f")).status(1).stderr_has(text);
    assert!(!session.has("dst/f"), "dst/f exists");
    ran
}
