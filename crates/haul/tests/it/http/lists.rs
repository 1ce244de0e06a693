//! `--input-file`: many sources in a list, also with options in the format of aria2.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use super::nginx::Nginx;
use super::response::{File, Response};
use super::server::Server;
use crate::content::content;
use crate::session::Session;

#[test]
fn all_sources_of_a_list_share_the_lanes_of_their_host() {
    const COUNT: usize = 1500;
    let server = Server::start(|request| {
        let number = request.target.trim_start_matches("/d/f").parse().unwrap();
        File::new(content(number, 100 + number as usize % 50)).respond(request)
    });
    let lines: Vec<_> = (0..COUNT).map(|number| server.url(&format!("/d/f{number}"))).collect();
    let session = Session::new().file("list", lines.join("\n"));
    let ran = session.haul("cp --json --lanes 2 --input-file list dst").status(0);
    assert_eq!(ran.summary()["files"], COUNT);
    for number in 0..COUNT {
        let arrived = fs::read(session.path(format!("dst/f{number}"))).unwrap();
        assert!(arrived == content(number as u64, 100 + number % 50), "{number}");
    }
    let (accepted, requests) = (server.accepted(), server.requests().len());
    eprintln!("{accepted} connections, {requests} requests for {COUNT} files");
    assert!(accepted <= 40, "{accepted}");
    assert!(requests <= COUNT * 3, "{requests}");
}

#[test]
fn a_list_may_have_options_of_a_source_in_the_format_of_aria2() {
    let Some(nginx) = Nginx::start("", "") else { return };
    let bytes = content(41, 200_000);
    fs::write(nginx.www("f"), &bytes).unwrap();
    fs::write(nginx.www("g"), "g").unwrap();
    let session = Session::new().file("dst/old", "").file("me", &bytes);
    let sum = session.tool("sha256sum me");
    let sum = sum.split(' ').next().unwrap();
    let (f, g) = (nginx.url("/f"), nginx.url("/g"));
    let list = format!(
        "# made by hand\r\n\r\n{f}\t{f}?mirror\r\n  out=a/b.iso\r\n  dir=deep\r\n  checksum=sha-256={sum}\r\n{g}\n"
    );
    session.write("list", &list);
    session.haul("cp --input-file list dst").status(0);
    assert!(fs::read(session.path("dst/deep/a/b.iso")).unwrap() == bytes);
    assert_eq!(session.read("dst/g"), "g");
    // The same from standard input; further sources are in the command.
    let mut command = session.command("cp --input-file - dst/old two");
    let mut running = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    running.stdin.take().unwrap().write_all(list.as_bytes()).unwrap();
    assert!(running.wait().unwrap().success());
    assert!(session.has("two/deep/a/b.iso") && session.has("two/g") && session.has("two/old"));
    // A wrong digest fails its own file only.
    session.write("list", list.replace(&sum[..8], "00000000"));
    session.haul("cp --input-file list three").status(1).stderr_has("and should be 00000000");
    assert!(session.has("three/g") && !session.has("three/deep/a/b.iso"));
}

#[test]
fn nothing_is_copied_if_a_line_of_the_list_is_wrong() {
    let server = Server::start(|_| Response::new(200, "x"));
    let url = server.url("/f");
    let session = Session::new();
    for (wrong, text) in [
        (
            "  header=Cookie: x",
            "list:3: unknown option 'header'; a list may have out, dir and checksum",
        ),
        ("  checksum=md5=00", "list:3: checksum=md5=00: unsupported digest 'md5'"),
        ("  out=../f", "list:3: out=../f: must be a path below DEST"),
        ("http://ada:secret@h/x", "list:3: 'http://ada:***@h/x': a password does not belong"),
        ("http://", "list:3: "),
    ] {
        session.write("list", format!("{url}\n\n{wrong}\n"));
        let ran = session.haul("cp --input-file list dst").status(2);
        assert!(ran.err().starts_with("haul: list:3: "), "{}", ran.err());
        ran.stderr_has(text);
    }
    session
        .haul("cp --input-file none dst")
        .status(2)
        .stderr("haul: none: cannot read the list (not found)\n");
    session.write("list", "# nothing\n");
    session.haul("cp --input-file list dst").status(2).stderr_has("it has no source");
    session.write("list", &url);
    for option in ["--mirror http://h/x", "--expect blake3:SUM"] {
        let option = option.replace("SUM", &"0".repeat(64));
        let ran = session.haul(&format!("cp {option} --input-file list dst")).status(2);
        ran.stderr_has("in a list, write mirrors on one line");
    }
    session.haul("cp --input-file list -").status(2).stderr_has("standard input or output");
    assert!(server.requests().is_empty() && !session.has("dst"));
}

#[test]
fn two_sources_with_the_same_name_are_refused_with_the_line_of_the_second() {
    let Some(nginx) = Nginx::start("", "") else { return };
    fs::create_dir(nginx.www("d")).unwrap();
    for path in ["f", "d/f"] {
        fs::write(nginx.www(path), path).unwrap();
    }
    let (one, other) = (nginx.url("/f"), nginx.url("/d/f"));
    let session = Session::new().file("list", format!("{one}\n{other}\n"));
    let ran = session.haul("cp --input-file list dst").status(2);
    ran.stderr_has(&format!("haul: list:2: {other}: another source is also copied to "));
    assert!(!session.has("dst/f"));
    session.write("list", format!("{one}\n{other}\n  out=g\n{}\n", nginx.url("/none")));
    let ran = session.haul("cp --input-file list dst").status(1);
    ran.stderr_has(&format!("haul: {}: cannot open (", nginx.url("/none")));
    assert_eq!((session.read("dst/f"), session.read("dst/g")), ("f".into(), "d/f".into()));
}
