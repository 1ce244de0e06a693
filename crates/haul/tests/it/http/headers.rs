//! Header fields and cookies from the user: which servers get them, and where they must not appear.

use std::fs;
use std::path::Path;

use super::nginx::Nginx;
use super::response::{End, File, Response};
use super::server::{Request, Server};
use super::whole;
use crate::content::content;
use crate::session::{Ran, Session};

const SIZE: usize = 2 << 20;
const SECRET: &str = "open-sesame";
const OPTIONS: &str = "--lanes 2 --chunk 128K --retries 2";

/// `haul` with the words of `line`, and arguments that have spaces.
pub(super) fn haul(session: &Session, line: &str, arguments: &[&str]) -> Ran {
    let mut command = session.command(line);
    command.args(arguments);
    session.ran(&format!("{line} {arguments:?}"), command.output().unwrap())
}

/// Which of the four fields in [`SECRETS`] a request has.
fn has_secrets(request: &Request) -> Vec<bool> {
    let field = |name: &str, value: &str| request.field(name) == Some(value);
    vec![
        field("x-token", SECRET),
        field("referer", "http://from/open-sesame"),
        field("cookie", "a=open-sesame; c=d"),
        field("user-agent", "Me/1"),
    ]
}

const SECRETS: [&str; 8] = [
    "--header",
    "X-Token: open-sesame",
    "--referer",
    "http://from/open-sesame",
    "--cookie",
    "a=open-sesame; c=d",
    "--user-agent",
    "Me/1",
];

/// Asserts that nothing haul has written contains the secret.
fn assert_no_secret(session: &Session, ran: &Ran) {
    fn search(directory: &Path) {
        for entry in fs::read_dir(directory).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                search(&path);
            } else {
                let text = fs::read(&path).unwrap();
                let found = text.windows(SECRET.len()).any(|part| part == SECRET.as_bytes());
                assert!(!found, "the secret is in {}", path.display());
            }
        }
    }
    search(&session.path(""));
    assert!(!format!("{}{}", ran.out(), ran.err()).contains(SECRET), "{}", ran.err());
}

#[test]
fn headers_are_sent_with_every_request_to_the_named_server_and_to_no_other() {
    let file = File::new(content(1, SIZE));
    let bytes = file.content.clone();
    let here = file.clone();
    let other = Server::start(move |request| file.respond(request));
    let to = other.url("/f");
    let server = Server::start(move |request| match request.target.as_str() {
        "/f" => Response::redirect(302, &to),
        _ => here.respond(request),
    });
    let session = Session::new();
    let line = format!("cp {OPTIONS} -v --log-file log {} dst/", server.url("/f"));
    let ran = haul(&session, &line, &SECRETS).status(0);
    whole(&session, &bytes);
    assert_no_secret(&session, &ran);
    assert!(!server.requests().is_empty() && other.requests().len() > 5);
    for request in server.requests() {
        assert_eq!(has_secrets(&request), [true; 4], "{request:?}");
    }
    for request in other.requests() {
        // The User-Agent is not a secret, and some servers check it.
        assert_eq!(has_secrets(&request), [false, false, false, true], "{request:?}");
    }
    let before = server.requests().len();
    haul(&session, &format!("cp {OPTIONS} {} near/f", server.url("/g")), &SECRETS).status(0);
    let parts = server.requests().split_off(before);
    assert!(parts.len() > 5);
    assert!(parts.iter().all(|request| has_secrets(request) == [true; 4]), "{parts:?}");
}

#[test]
fn a_run_that_fails_has_no_header_in_its_output_and_files() {
    let file = File::new(content(1, SIZE));
    let server = Server::start(move |request| match request.range() {
        Some((first, _)) if first > SIZE / 2 => Response::page(500),
        _ => file.respond(request).cut(100_000, End::Closes),
    });
    for more in ["-v", "--json"] {
        let session = Session::new();
        let line = format!("cp {OPTIONS} {more} --log-file log {} dst/", server.url("/f"));
        let ran = haul(&session, &line, &SECRETS).status(1);
        assert_no_secret(&session, &ran);
    }
}

#[test]
fn headers_of_a_remote_are_sent_to_it_alone_and_the_command_line_takes_precedence() {
    let file = || {
        let file = File::new(content(1, 1000));
        Server::start(move |request| file.respond(request))
    };
    let (one, other) = (file(), file());
    let session = Session::new();
    let config = format!(
        "[remote.one]\nurl = \"{}\"\nheaders = {{ X-Token = \"{SECRET}\", X-More = \"1\" }}\n",
        one.url("/")
    );
    session.write("c.toml", config);
    let line = format!("cp --config c.toml one:f {} dst/", other.url("/g"));
    haul(&session, &line, &["--header", "X-More: 2"]).status(0);
    for request in one.requests() {
        let fields = (request.field("x-token"), request.field("x-more"));
        assert_eq!(fields, (Some(SECRET), Some("2")), "{request:?}");
    }
    for request in other.requests() {
        assert_eq!((request.field("x-token"), request.field("x-more")), (None, Some("2")));
    }
    session.write(
        "c.toml",
        format!("[remote.x]\nurl = \"ftp://h/\"\nheaders = {{ A = \"{SECRET}\" }}\n"),
    );
    let ran = session.haul("ls --config c.toml x:").status(2);
    assert!(ran.err().contains("[remote.x] headers: headers are for http"), "{}", ran.err());
    assert!(!ran.err().contains(SECRET));
}

/// Otherwise, the author of a list could have them sent to a server of their own.
#[test]
fn headers_are_not_sent_to_a_second_server_that_a_list_or_a_mirror_names() {
    let file = File::new(content(1, 1000));
    let server = Server::start(move |request| file.respond(request));
    let (one, other) = (server.url("/f"), "http://127.0.0.1:1/g");
    let session = Session::new().file("list", format!("{one}\n{other}\n")).file("one", &one);
    let mirrored = format!("cp --mirror {other} {one} dst/");
    for line in ["cp --input-file list dst", &mirrored[..]] {
        for (option, value) in [("--header", "X-A: open-sesame"), ("--cookie", "a=open-sesame")] {
            let ran = haul(&session, line, &[option, value]).status(2);
            let text = format!("{option} would be sent to each of 2 servers: ");
            assert!(ran.err().contains(&text), "{}", ran.err());
            assert!(ran.err().contains("hint: ") && !ran.err().contains(SECRET), "{}", ran.err());
        }
    }
    assert_eq!(server.requests().len(), 0);
    haul(&session, "cp --input-file one dst", &["--header", "X-A: open-sesame"]).status(0);
    assert!(server.requests().iter().all(|request| request.field("x-a") == Some(SECRET)));
}

#[test]
fn a_cookie_file_is_unchanged_without_requests_and_written_through_links() {
    let jar = "# Netscape HTTP Cookie File\n127.0.0.1\tFALSE\t/\tFALSE\t0\tid\t7\n";
    let session = Session::new().file("jar", jar);
    std::os::unix::fs::symlink("jar", session.path("link")).unwrap();
    // No request was sent.
    for line in ["--save-cookies jar", "--save-cookies link"] {
        session.haul(&format!("cp {line} nosuch dst/")).status(1);
        assert_eq!(session.read("jar"), jar);
    }
    let ran = session.haul("cp --save-cookies /dev/null nosuch dst/").status(2);
    assert!(
        ran.err().contains("/dev/null: cannot write (it is not a regular file)"),
        "{}",
        ran.err()
    );
    // Through a link.
    let file = File::new(content(1, 1000));
    let server =
        Server::start(move |request| file.respond(request).with("Set-Cookie", "new=1; Path=/"));
    session.haul(&format!("cp --save-cookies link {} dst/", server.url("/f"))).status(0);
    assert!(fs::symlink_metadata(session.path("link")).unwrap().is_symlink());
    assert!(session.read("jar").contains("\tnew\t1\n"), "{}", session.read("jar"));
}

#[test]
fn a_header_that_cannot_be_sent_is_a_usage_error_without_its_value() {
    let session = Session::new().file("fields", "X-A: 1\n\n# comment\nopen-sesame\n");
    for (option, value, text) in [
        ("--header", "Host: open-sesame", "--header: host cannot be set: haul takes it from the"),
        ("--header", "Content-Length: open-sesame", "content-length cannot be set: it marks the"),
        ("--header", "Range: open-sesame", "range cannot be set: haul requests the ranges"),
        ("--header", "X-A: open-sesame\r\nHost: x", "the value of x-a has a line break"),
        ("--header", "open-sesame", "no colon; write 'Name: value'"),
        ("--header", "@fields", "fields:4: no colon"),
        ("--header", "@no/where", "no/where: cannot read (not found)"),
        ("--user-agent", "open-sesame\n", "--user-agent: the value of user-agent has a line"),
        ("--cookie", "open-sesame", "hint: for a file of cookies write --load-cookies FILE"),
    ] {
        let ran = haul(&session, "cp http://127.0.0.1:1/f dst/", &[option, value]).status(2);
        assert!(ran.err().contains(text), "{value}: {}", ran.err());
        assert!(!ran.err().contains(SECRET), "{}", ran.err());
        assert!(!session.has("dst"));
    }
}

#[test]
fn an_authorization_header_of_the_user_replaces_that_of_haul() {
    let file = File::new(content(1, SIZE));
    let bytes = file.content.clone();
    let server = Server::start(move |request| match request.field("authorization") {
        Some("Basic open-sesame") => file.respond(request),
        _ => Response::page(401).with("WWW-Authenticate", "Basic realm=\"here\""),
    });
    let session = Session::new();
    let line = format!("cp {OPTIONS} {} dst/", server.url("/f"));
    haul(&session, &line, &["--header", "Authorization: Basic open-sesame"]).status(0);
    whole(&session, &bytes);
    let before = server.requests().len();
    let ran = haul(&session, &line.replace("dst/", "other/"), &["--header", "Authorization: no"]);
    let ran = ran.status(1);
    assert!(ran.err().contains("rejected the given Authorization header"), "{}", ran.err());
    assert_eq!(server.requests().len(), before + 1);
}

#[test]
fn nginx_accepts_requests_with_the_header_and_the_cookie() {
    let location = "if ($http_x_token != \"open-sesame\") { return 403; }
                    if ($cookie_id != \"7\") { return 403; }";
    let Some(nginx) = Nginx::start("", location) else { return };
    let bytes = content(1, SIZE);
    fs::create_dir(nginx.www("d")).unwrap();
    fs::write(nginx.www("d/f"), &bytes).unwrap();
    let session = Session::new().file("fields", format!("X-Token: {SECRET}\n"));
    let line = format!("cp {OPTIONS} {} dst/", nginx.url("/d/f"));
    haul(&session, &line, &["--cookie", "x=y; id=7"]).status(1).stderr_has("403");
    haul(&session, &line, &["--header", "@fields"]).status(1).stderr_has("403");
    haul(&session, &line, &["--header", "@fields", "--cookie", "x=y; id=7"]).status(0);
    whole(&session, &bytes);
    let jar = "# Netscape HTTP Cookie File\n127.0.0.1\tFALSE\t/d\tFALSE\t0\tid\t7\n";
    session.write("cookies.txt", jar);
    fs::remove_dir_all(session.path("dst")).unwrap();
    let files = ["--header", "@fields", "--load-cookies", "cookies.txt"];
    haul(&session, &line, &files).status(0);
    whole(&session, &bytes);
    session.write("cookies.txt", jar.replace("/d", "/e"));
    haul(&session, &line.replace("dst/", "other/"), &files).status(1);
    session.write("cookies.txt", jar.replace('\t', " "));
    haul(&session, &line, &files).status(2).stderr_has("cookies.txt: line 2 is not a cookie");
}
