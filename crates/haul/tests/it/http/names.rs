//! File names of downloads: decoded from the URL, and always safe.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use super::nginx::Nginx;
use super::response::{File, Response};
use super::server::Server;
use crate::content::content;
use crate::session::Session;

/// Downloads a URL with this path. Returns the exit status, standard error, and the names in `dst`. Nothing outside
/// `dst` may have been created.
#[track_caller]
fn names_of(path: &str) -> (i32, String, Vec<Vec<u8>>) {
    let session = Session::new().directory("dst").file("evil", "untouched");
    let file = File::new(content(1, 1000));
    let server = Server::start(move |request| file.respond(request));
    let output =
        session.command("cp --retries 0").arg(server.url(path)).arg("dst/").output().unwrap();
    let in_dst = fs::read_dir(session.path("dst")).unwrap().map(Result::unwrap);
    let names = in_dst.map(|entry| entry.file_name().as_bytes().to_owned()).collect();
    let mut around: Vec<_> =
        fs::read_dir(session.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    around.sort();
    assert!(
        around.iter().all(|name| name == "dst" || name == "evil" || name == "home"),
        "{around:?}"
    );
    assert_eq!(session.read("evil"), "untouched");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap(), stderr, names)
}

/// Formerly, `%2F` was refused, and `a%2Bb` was requested as `a+b`.
#[test]
fn percent_encoding_in_an_argument_is_sent_unchanged() {
    for (path, name) in [("/a%2Bb", "a+b"), ("/d%2Fe/f%2Fg", "f%2Fg"), ("/%7Eada/x%28", "x(")] {
        let session = Session::new().directory("dst");
        let file = File::new(content(1, 300 << 10));
        let server = Server::start(move |request| file.respond(request));
        session.haul(&format!("cp --retries 0 {} dst/", server.url(path))).status(0);
        assert!(session.has(&format!("dst/{name}")), "{path}");
        assert!(
            server.requests().iter().all(|request| request.target == path),
            "{:?}",
            server.requests()
        );
    }
}

#[test]
fn encoded_names_are_decoded() {
    for (path, name) in [
        ("/f", &b"f"[..]),
        ("/a%20b", b"a b"),
        ("/d/%C3%A4%C3%B6", "äö".as_bytes()),
        ("/ä", "ä".as_bytes()),
        ("/%ff%fe", b"\xff\xfe"),
        ("/100%25", b"100%"),
        ("/a%0Ab", b"a\nb"),
        ("/a%3Fb%23c", b"a?b#c"),
        ("/-rf", b"-rf"),
        ("/a+b", b"a+b"),
        ("/%2e%2e.txt", b"...txt"),
        ("/f?query=1", b"f"),
        ("/f?a=/../../evil", b"f"),
    ] {
        let (status, printed, names) = names_of(path);
        assert_eq!((status, names), (0, vec![name.to_owned()]), "{path}: {printed}");
    }
}

#[test]
fn names_that_would_lead_out_of_the_destination_are_harmless() {
    for path in ["/%2F", "/a%2Fb", "/..%2Ff", "/%2e%2e%2fa%2ff", "/a%00b", "/%2Fetc%2Ff", "/a%2F.."]
    {
        let (status, printed, names) = names_of(path);
        // An encoded slash does not separate components of the URL, and stays encoded in the name.
        let wanted = path[1..].replace("%2e", ".").into_bytes();
        let is_safe = names == [wanted];
        assert!(
            if status == 0 { is_safe } else { names.is_empty() },
            "{path}: {names:?} {printed}"
        );
        assert!(!printed.is_empty());
    }
}

#[test]
fn dot_and_dot_dot_are_resolved_and_name_no_file() {
    // The URLs are those of directories. The server sends a file, not a listing.
    for path in ["/a/..", "/a/.", "/%2e%2e", "/a/%2E%2e", "/%2e"] {
        let (status, printed, names) = names_of(path);
        assert_eq!((status, names), (0, vec![b"index.html".to_vec()]), "{path}: {printed}");
    }
}

#[test]
fn an_overlong_name_is_an_error() {
    let (status, printed, names) = names_of(&format!("/{}", "n".repeat(300)));
    assert_eq!((status, names), (1, Vec::new()), "{printed}");
}

#[test]
fn names_are_printed_without_control_characters() {
    let server = Server::start(|_| Response::page(404));
    let session = Session::new();
    let ran = session.haul(&format!("cp --retries 0 {} dst/", server.url("/a%1B%5B2Jb%0Ac")));
    let printed = ran.status(1).err();
    assert!(!printed.contains('\x1b') && printed.trim_end().lines().count() <= 2, "{printed:?}");
}

#[test]
fn a_redirect_does_not_change_the_file_name() {
    let file = File::new(content(1, 1000));
    let server = Server::start(move |request| match request.target.as_str() {
        "/f" => Response::redirect(302, "/..%2F..%2Fevil"),
        _ => file.respond(request),
    });
    super::arrives(&server, "", &content(1, 1000));
}

#[test]
fn files_with_unusual_names_are_downloaded_from_nginx() {
    let Some(nginx) = Nginx::start("", "") else { return };
    for (path, name) in [
        ("a%20b", &b"a b"[..]),
        ("%C3%A4", "ä".as_bytes()),
        ("%FF%FE", b"\xff\xfe"),
        ("a%0Ab", b"a\nb"),
        ("100%25%3F%23", b"100%?#"),
        ("-rf", b"-rf"),
    ] {
        let name = OsStr::from_bytes(name);
        let bytes = content(2, 700_000);
        fs::write(nginx.www("").join(name), &bytes).unwrap();
        let session = Session::new();
        session.haul(&format!("cp {} dst/", nginx.url(&format!("/{path}")))).status(0);
        assert!(fs::read(session.path("dst").join(name)).unwrap() == bytes, "{path}");
    }
}
