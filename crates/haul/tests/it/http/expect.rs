//! `--expect` and `--expect-beside`: digests that are known before a file is copied.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use super::nginx::Nginx;
use super::response::{File, Response};
use super::server::Server;
use super::{wait_for_bytes, whole};
use crate::content::{content, unfinished};
use crate::faults::{as_nobody, is_root};
use crate::session::Session;

/// The digest of these bytes.
fn sha256(session: &Session, bytes: &[u8]) -> String {
    session.write("sum/me", bytes);
    session.tool("sha256sum sum/me").split(' ').next().unwrap().to_owned()
}

const WRONG: &str = "00000000000000000000000000000000000000000000000000000000000000ff";

#[test]
fn a_file_with_another_digest_than_expected_is_not_stored() {
    for size in [10, 100_000, 5 << 20] {
        let (session, bytes) = (Session::new(), content(31, size));
        let sum = sha256(&session, &bytes);
        let file = File::new(bytes.clone());
        let server = Server::start(move |request| file.respond(request));
        let url = server.url("/f");
        let ran = session.haul(&format!("cp --expect sha256:{WRONG} {url} dst/")).status(1);
        ran.stderr_has(&format!(
            "haul: {url}: cannot verify (its sha256 is {sum}, and should be {WRONG})\n"
        ));
        assert!(!session.has("dst/f") && unfinished(&session.path("")).is_empty(), "{size}");
        session.haul(&format!("cp --expect sha-256={sum} {url} dst/")).status(0);
        whole(&session, &bytes);
        // An existing file is verified, whatever its time, and replaced if it is wrong.
        session.tool("touch -d 2001-02-03 dst/f");
        let ran = session.haul(&format!("cp --expect sha256:{sum} {url} dst/")).status(0);
        ran.stderr_has("1 unchanged");
        let modified = fs::metadata(session.path("dst/f")).unwrap().modified().unwrap();
        let mut damaged = bytes.clone();
        damaged[size / 2] ^= 4;
        fs::write(session.path("dst/f"), damaged).unwrap();
        fs::File::options()
            .write(true)
            .open(session.path("dst/f"))
            .unwrap()
            .set_modified(modified)
            .unwrap();
        session.haul(&format!("cp --expect sha256:{sum} {url} dst/")).status(0);
        whole(&session, &bytes);
        // A file with a wrong digest does not replace it.
        session.haul(&format!("cp --expect sha256:{WRONG} {url} dst/")).status(1);
        whole(&session, &bytes);
    }
}

/// Formerly, such a destination was left as it was, unchecked.
#[test]
fn a_hard_link_of_the_source_is_checked() {
    let (session, bytes) = (Session::new(), content(36, 100_000));
    session.write("a", &bytes);
    fs::hard_link(session.path("a"), session.path("b")).unwrap();
    let sum = sha256(&session, &bytes);
    let ran = session.haul(&format!("cp --expect sha256:{WRONG} a b")).status(1);
    ran.stderr_has(&format!("cannot verify (its sha256 is {sum}, and should be {WRONG})"));
    session.haul(&format!("cp --expect sha256:{sum} a b")).status(0).stderr_has("1 unchanged");
}

#[test]
fn the_digest_of_a_resumed_file_covers_the_resumed_bytes() {
    let Some(nginx) = Nginx::start("", "") else { return };
    let (session, bytes) = (Session::new(), content(32, 24 << 20));
    fs::write(nginx.www("f"), &bytes).unwrap();
    let (url, sum) = (nginx.url("/f"), sha256(&session, &bytes));
    for damaged in [false, true] {
        let mut command = session.command(&format!("cp --bwlimit 8M {url} dst/"));
        let mut running = command.stderr(Stdio::null()).spawn().unwrap();
        wait_for_bytes(&session.path("dst"), 6 << 20);
        running.kill().unwrap();
        running.wait().unwrap();
        if damaged {
            let part = session.path("dst/.f.haul-part");
            let mut partial = fs::read(&part).unwrap();
            partial[100] ^= 1;
            fs::write(&part, partial).unwrap();
        }
        let ran = session.haul(&format!("cp --json --expect sha256:{sum} {url} dst/")).status(0);
        whole(&session, &bytes);
        let (objects, summary) = (ran.objects(), ran.summary());
        let retried = objects.iter().any(|object| object["event"] == "retry");
        assert_eq!(retried, damaged, "{summary}");
        assert!(summary["resumed_bytes"].as_u64().unwrap() > 0, "{summary}");
        fs::remove_file(session.path("dst/f")).unwrap();
    }
}

#[test]
fn the_digest_next_to_a_file_is_found_in_any_form_and_checked() {
    let Some(nginx) = Nginx::start("", "") else { return };
    let (session, bytes) = (Session::new(), content(33, 200_000));
    fs::write(nginx.www("f"), &bytes).unwrap();
    let (url, sum) = (nginx.url("/f"), sha256(&session, &bytes));
    let line = format!("cp --expect-beside {url} dst/");
    session.haul(&line).status(1).stderr_has(&format!(
        "haul: {url}: cannot verify (no digest found next to it: f.sha256 (not found), \
         f.sha256sum (not found), \
         SHA256SUMS (not found))\nhint: write --expect sha256:HEX, or omit --expect-beside\n"
    ));
    assert!(!session.has("dst/f"));
    let forms = [
        ("f.sha256", format!("{sum}\n")),
        ("f.sha256", format!("{sum} *f\r\n")),
        ("f.sha256", format!("SHA256 (f) = {sum}\n")),
        ("f.sha256sum", format!("{sum}  out/f\n")),
        ("SHA256SUMS", format!("{WRONG}  other\n{sum}  ./f\n")),
    ];
    for (name, text) in forms {
        fs::write(nginx.www(name), &text).unwrap();
        session.haul(&line).status(0);
        whole(&session, &bytes);
        fs::remove_file(session.path("dst/f")).unwrap();
        fs::write(nginx.www(name), text.replace(&sum, WRONG)).unwrap();
        session.haul(&line).status(1).stderr_has(&format!("and should be {WRONG}"));
        assert!(!session.has("dst/f"), "{name}");
        fs::remove_file(nginx.www(name)).unwrap();
    }
    fs::write(nginx.www("SHA256SUMS"), format!("{sum}  sub/f\n")).unwrap();
    fs::write(nginx.www("f.sha256"), format!("{sum}  g\n")).unwrap();
    session
        .haul(&line)
        .status(1)
        .stderr_has("f.sha256 (lists another file)")
        .stderr_has("SHA256SUMS (does not list it)");
}

/// Formerly, any mirror that responded could provide the digest.
#[test]
fn only_the_preferred_location_provides_the_expected_digest() {
    let Some(nginx) = Nginx::start("", "") else { return };
    let (session, bytes) = (Session::new(), content(37, 200_000));
    fs::create_dir(nginx.www("m")).unwrap();
    fs::write(nginx.www("m/f"), &bytes).unwrap();
    let (url, mirror, sum) = (nginx.url("/f"), nginx.url("/m/f"), sha256(&session, &bytes));
    fs::write(nginx.www("m/f.sha256"), format!("{sum}\n")).unwrap();
    let line = format!("cp --expect-beside --mirror {mirror} {url} dst/");
    let text = format!("haul: {url}: cannot verify (no digest found next to it");
    session.haul(&line).status(1).stderr_has(&text);
    assert!(!session.has("dst/f"));
    fs::write(nginx.www("f.sha256"), format!("{sum}\n")).unwrap();
    session.haul(&line).status(0);
    whole(&session, &bytes);
}

#[test]
fn the_digest_next_to_a_file_on_a_disk_is_found_as_well() {
    let session = Session::new().file("usb/a", "a").file("usb/b", "b");
    session.tool("sh -c cd${IFS}usb&&sha256sum${IFS}a${IFS}b>SHA256SUMS");
    session.haul("cp --expect-beside usb/a usb/b dst").status(0);
    session.write("usb/b", "B");
    session.haul("cp --expect-beside usb/a usb/b new").status(1).stderr_has("usb/b: cannot verify");
    assert!(session.has("new/a") && !session.has("new/b"));
    session.haul("cp --expect-beside usb dst").status(1).stderr_has("a digest is that of one file");
}

/// Formerly, such a file was treated as missing, and the next digest file was used.
#[test]
fn a_digest_file_on_a_disk_that_may_not_be_read_is_an_error() {
    if !is_root() {
        eprintln!("skipped: running as another user needs root");
        return;
    }
    let session = Session::new().file("a", "a");
    let sum = sha256(&session, b"a");
    session.write("a.sha256", WRONG.as_bytes());
    session.write("SHA256SUMS", format!("{sum}  a\n").as_bytes());
    fs::set_permissions(session.path("a.sha256"), Permissions::from_mode(0o000)).unwrap();
    let ran = as_nobody(&session, "cp --expect-beside a dst").output().unwrap();
    let text = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert_eq!(ran.status.code(), Some(1), "{text}");
    assert!(text.contains("a.sha256: cannot read (permission denied)"), "{text}");
    assert!(!session.has("dst"));
}

#[test]
fn a_server_that_denies_access_to_missing_files_has_no_digest_file_there() {
    let (session, bytes) = (Session::new(), content(38, 1000));
    let sum = sha256(&session, &bytes);
    let file = File::new(bytes.clone());
    let sums = File::new(format!("{sum}  f\n").into_bytes());
    let server = Server::start(move |request| match request.target.as_str() {
        "/f" => file.respond(request),
        "/SHA256SUMS" => sums.respond(request),
        _ => Response::page(403),
    });
    session.haul(&format!("cp --expect-beside {} dst/", server.url("/f"))).status(0);
    whole(&session, &bytes);
}

#[test]
fn no_digest_file_is_requested_unless_the_option_is_given() {
    let session = Session::new();
    let file = File::new(content(34, 1000));
    let server = Server::start(move |request| match request.target.as_str() {
        "/f" => file.respond(request),
        _ => Response::page(404),
    });
    session.haul(&format!("cp {} dst/", server.url("/f"))).status(0);
    assert!(server.requests().iter().all(|request| request.target == "/f"));
}

#[test]
fn digests_that_cannot_be_checked_are_refused() {
    let session = Session::new().file("a", "a").file("b", "b");
    for (line, text) in [
        ("cp --expect sha256:00 a c", "a sha256 digest has 64 hexadecimal digits, this one has 2"),
        ("cp --expect md5:00 a c", "unsupported digest 'md5'; haul supports sha256 and blake3"),
        ("cp --expect SUM a b d", "--mirror and --expect need exactly one SOURCE"),
        ("cp --expect SUM a -", "--expect cannot be used with standard input or output ('-')"),
        ("cp --expect SUM --expect-beside a c", "cannot be used with"),
        ("cp --expect SUM --remove-source-files a c", "cannot be used with"),
        ("cp --expect SUM --manifest --digest blake3 a c", "write --digest sha256"),
    ] {
        let line = line.replace("SUM", &format!("sha256:{WRONG}"));
        session.haul(&line).status(2).stderr_has(text);
    }
    assert!(!session.has("c"));
}
