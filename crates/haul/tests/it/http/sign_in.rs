//! Files behind a login with redirects and cookies, as at data archives: the data server redirects clients
//! without its cookie to a login server, which requires name and password, and redirects them back with a
//! code.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::headers::haul;
use super::response::{File, Response};
use super::server::{Request, Server};
use super::whole;
use crate::content::content;
use crate::session::{Ran, Session};

const SIZE: usize = 4 << 20;
const OPTIONS: &str = "--lanes 4 --chunk 128K --retries 2";

/// "ada" and "open-sesame".
const BASIC: &str = "Basic YWRhOm9wZW4tc2VzYW1l";
const SECRET: &str = "open-sesame";

/// The two servers.
struct Archive {
    data: Server,
    login: Server,
    bytes: Arc<Vec<u8>>,
}

/// How the login server requests credentials.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Challenge {
    /// By status 401.
    Status,
    /// By an HTML page, as some servers do that expect the password with the first request.
    Page,
}

impl Archive {
    /// A session at the data server is valid for `good` requests.
    fn start(challenge: Challenge, good: u64) -> Self {
        let file = File::new(content(1, SIZE));
        let bytes = file.content.clone();
        // The address of the data server is known only when it runs.
        let home: Arc<Mutex<String>> = Arc::default();
        let back = Arc::clone(&home);
        let codes = AtomicU64::new(0);
        let login = Server::start(move |request| {
            let signed_in = Some(BASIC) == request.field("authorization");
            let is_known = has_cookie(request, "sso=ada");
            match (signed_in || is_known, challenge) {
                (true, _) => {
                    let code = codes.fetch_add(1, Ordering::SeqCst);
                    let home = back.lock().unwrap();
                    Response::redirect(302, &format!("{home}/login?code={code}&to={}", to(request)))
                        .with("Set-Cookie", "sso=ada; Path=/; HttpOnly; Max-Age=3600")
                }
                (false, Challenge::Status) => {
                    Response::page(401).with("WWW-Authenticate", "Basic realm=\"archive\"")
                }
                (false, Challenge::Page) => Response::page(200),
            }
        });
        // By another host name, so that the servers do not share cookies.
        let at = format!("http://localhost:{}/authorize?to=", login.address().port());
        let sessions: Mutex<HashSet<String>> = Mutex::default();
        let served = AtomicU64::new(0);
        let data = Server::start(move |request| {
            let mut sessions = sessions.lock().unwrap();
            if let Some((_, rest)) = request.target.split_once("/login?code=") {
                let (code, to) = rest.split_once("&to=").unwrap();
                sessions.insert(format!("session={code}"));
                served.store(0, Ordering::SeqCst);
                return Response::redirect(302, to)
                    .with("Set-Cookie", format!("session={code}; Path=/; HttpOnly"));
            }
            if sessions.iter().any(|session| has_cookie(request, session)) {
                if served.fetch_add(1, Ordering::SeqCst) < good {
                    return file.respond(request);
                }
                sessions.clear();
            }
            Response::redirect(302, &format!("{at}{}", request.target))
        });
        *home.lock().unwrap() = data.url("");
        Self { data, login, bytes }
    }

    fn copy(&self, session: &Session, options: &str, variables: &[(&str, &str)]) -> Ran {
        let line = format!("cp {OPTIONS} {options} {} dst/", self.data.url("/f"));
        session.haul_where(&line, variables)
    }

    /// Asserts that neither server got credentials of the other.
    fn assert_credentials_are_separate(&self) {
        for request in self.data.requests() {
            assert!(request.field("authorization").is_none(), "{request:?}");
            assert!(!has_cookie(&request, "sso=ada"), "{request:?}");
        }
        for request in self.login.requests() {
            let cookie = request.field("cookie").unwrap_or_default();
            assert!(!cookie.contains("session="), "{request:?}");
        }
    }

    /// How often a password was sent.
    fn passwords(&self) -> usize {
        let requests = self.login.requests();
        requests.iter().filter(|request| request.field("authorization").is_some()).count()
    }
}

fn has_cookie(request: &Request, pair: &str) -> bool {
    request.field("cookie").is_some_and(|cookies| cookies.split("; ").any(|known| known == pair))
}

fn to(request: &Request) -> &str {
    request.target.split_once("to=").unwrap().1
}

fn netrc(session: &Session, text: &str) {
    session.write("home/.netrc", text);
    let mode = fs::Permissions::from_mode(0o600);
    fs::set_permissions(session.path("home/.netrc"), mode).unwrap();
}

fn with_netrc() -> Session {
    let session = Session::new();
    netrc(&session, "machine localhost login ada password open-sesame\n");
    session
}

#[test]
fn the_password_for_the_target_of_a_redirect_is_read_from_netrc() {
    for challenge in [Challenge::Status, Challenge::Page] {
        let archive = Archive::start(challenge, u64::MAX);
        let session = with_netrc();
        // The token is for the server that is named, and for no other.
        let ran = archive.copy(&session, "-v", &[("HAUL_TOKEN", "other-secret")]).status(0);
        whole(&session, &archive.bytes);
        archive.assert_credentials_and_token_are_separate();
        assert!(!format!("{}{}", ran.out(), ran.err()).contains(SECRET));
        // The login is done once, whatever the number of ranges.
        assert_eq!(archive.passwords(), 1);
        assert_eq!(archive.login.requests().len(), 1);
        assert!(archive.data.requests().len() > 10, "it was not read in parts");
    }
}

impl Archive {
    /// As [`Self::assert_credentials_are_separate`]; also, the login server must not get the token, which is for the
    /// data server.
    fn assert_credentials_and_token_are_separate(&self) {
        self.assert_credentials_are_separate();
        for request in self.login.requests() {
            assert!(!format!("{request:?}").contains("other-secret"), "{request:?}");
        }
    }
}

#[test]
fn a_session_that_expires_half_way_is_renewed() {
    let archive = Archive::start(Challenge::Status, 12);
    let session = with_netrc();
    archive.copy(&session, "", &[]).status(0);
    whole(&session, &archive.bytes);
    archive.assert_credentials_are_separate();
    // Of the requests that find the session expired, only one logs in.
    let (logins, requests) = (archive.login.requests().len(), archive.data.requests().len());
    assert_eq!(archive.passwords(), logins);
    assert!(logins >= 2 && logins * 6 <= requests + 12, "{logins} logins for {requests} requests");
}

#[test]
fn many_files_need_one_login() {
    let archive = Archive::start(Challenge::Status, u64::MAX);
    let session = with_netrc();
    let urls: Vec<_> = (0..20).map(|number| archive.data.url(&format!("/f{number}"))).collect();
    session.haul(&format!("cp {} dst/", urls.join(" "))).status(0);
    assert_eq!(fs::read_dir(session.path("dst")).unwrap().count(), 20);
    assert_eq!((archive.login.requests().len(), archive.passwords()), (1, 1));
    archive.assert_credentials_are_separate();
}

#[test]
fn a_redirect_target_without_a_line_in_the_netrc_gets_no_credentials() {
    let variables = [("HAUL_PASSWORD", SECRET), ("HAUL_TOKEN", SECRET)];
    for (challenge, text) in [
        (Challenge::Status, "requires credentials; those of http://127.0.0.1"),
        (Challenge::Page, "which returned a web page instead of the file"),
    ] {
        let archive = Archive::start(challenge, u64::MAX);
        let session = Session::new();
        // A `default` line names no server.
        netrc(
            &session,
            "machine 127.0.0.1 login ada password open-sesame\ndefault login ada password open-sesame\n",
        );
        let line = format!("cp {} dst/x.h5", archive.data.url("/f.h5"));
        let ran = session.haul_where(&line, &variables[1..]).status(1);
        assert!(ran.err().contains(text), "{}", ran.err());
        let hint = "machine localhost login USER password PASSWORD";
        assert!(ran.err().contains("hint: ") && ran.err().contains(hint), "{}", ran.err());
        assert!(!session.has("dst/x.h5"));
        let user = archive.data.url("/f.h5").replacen("http://", "http://ada@", 1);
        session.haul_where(&format!("cp {user} dst/x.h5"), &variables[..1]).status(1);
        for request in archive.login.requests() {
            assert!(request.field("authorization").is_none(), "{request:?}");
            assert!(!format!("{request:?}").contains(SECRET), "{request:?}");
        }
    }
}

#[test]
fn a_wrong_password_is_sent_once_whatever_the_number_of_files() {
    let archive = Archive::start(Challenge::Status, u64::MAX);
    let session = Session::new();
    netrc(&session, "machine localhost login ada password wrong-sesame\n");
    let urls: Vec<_> = (0..5).map(|number| archive.data.url(&format!("/f{number}"))).collect();
    let ran = session.haul(&format!("cp --retries 3 {} dst/", urls.join(" "))).status(1);
    assert!(ran.err().contains("rejected the user name or password"), "{}", ran.err());
    assert!(!ran.err().contains("wrong-sesame"));
    assert_eq!(archive.passwords(), 1);
}

#[test]
fn with_saved_cookies_the_next_run_needs_no_password() {
    let archive = Archive::start(Challenge::Status, u64::MAX);
    let session = with_netrc();
    archive.copy(&session, "--save-cookies jar", &[]).status(0);
    let mode = fs::metadata(session.path("jar")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let jar = session.read("jar");
    assert!(jar.starts_with("# Netscape HTTP Cookie File\n"), "{jar}");
    let ports = [&archive.data, &archive.login].map(|server| server.address().port());
    let session_at = format!("#HttpOnly_127.0.0.1:{}\tFALSE\t/\tFALSE\t0\tsession\t0\n", ports[0]);
    assert!(jar.contains(&session_at), "{jar}");
    let sso_at = format!("#HttpOnly_localhost:{}\tFALSE\t/\tFALSE\t", ports[1]);
    assert!(jar.contains(&sso_at), "{jar}");
    fs::remove_file(session.path("home/.netrc")).unwrap();
    // With the data server's cookie there is no login; with that of the login server no password is sent.
    for (drop, login_requests) in [("sso", 1), ("session", 2)] {
        let left: String = jar
            .lines()
            .filter(|line| !line.contains(drop))
            .map(|line| format!("{line}\n"))
            .collect();
        session.write("some", left);
        fs::remove_dir_all(session.path("dst")).unwrap();
        archive.copy(&session, "--load-cookies some --save-cookies some", &[]).status(0);
        whole(&session, &archive.bytes);
        assert_eq!((archive.login.requests().len(), archive.passwords()), (login_requests, 1));
    }
    assert!(session.read("some").contains("session\t1\n"), "{}", session.read("some"));
    archive.assert_credentials_are_separate();
    let line = format!("cp {} dst/ --save-cookies no/where", archive.data.url("/f"));
    session.haul(&line).status(2).stderr_has("no/where: cannot write (not found)");
    // curl's format has no ports.
    session.write("for-curl", session.read("some").replace(&format!(":{}\t", ports[0]), "\t"));
    let curl = std::process::Command::new("curl")
        .args(["-q", "-s", "-f", "--noproxy", "*", "-b", "for-curl", "-o", "by-curl"])
        .arg(archive.data.url("/f"))
        .current_dir(session.path(""))
        .status();
    match curl {
        Ok(status) => {
            assert!(status.success(), "curl: {status}");
            assert!(fs::read(session.path("by-curl")).unwrap() == archive.bytes[..]);
        }
        Err(error) => eprintln!("skipped: curl: {error}"),
    }
}

/// Formerly, each request waited for the response to the one before and was then sent again, until it failed.
#[test]
fn requests_do_not_wait_for_a_server_that_signs_in_without_cookies() {
    let file = File::new(content(1, 1000));
    let login = Server::start(move |request| {
        if request.field("authorization") != Some(BASIC) {
            return Response::page(401).with("WWW-Authenticate", "Basic realm=\"archive\"");
        }
        file.respond(request)
    });
    let to = format!("http://localhost:{}", login.address().port());
    let names: Vec<_> =
        (0..40).map(|number| format!("<a href=\"f{number}\">f{number}</a>")).collect();
    let page = format!("<html><title>Index of /d/</title><body>{}</body></html>", names.join("\n"));
    let data = Server::start(move |request| match request.target.as_str() {
        "/d/" => Response::new(200, page.as_bytes()).with("Content-Type", "text/html"),
        target => Response::redirect(302, &format!("{to}{target}")),
    });
    let session = with_netrc();
    session.haul(&format!("cp --retries 0 {} dst/", data.url("/d/"))).status(0);
    assert_eq!(fs::read_dir(session.path("dst")).unwrap().count(), 40);
    // Each file needs its metadata and its content, requested first on a shared connection and then on one of its own.
    assert!(data.requests().len() <= 200, "{} requests", data.requests().len());
    assert!(data.requests().iter().all(|request| request.field("authorization").is_none()));
}

#[test]
fn a_cookie_of_a_redirect_to_the_same_url_is_sent_there() {
    let file = File::new(content(1, SIZE));
    let bytes = file.content.clone();
    let server = Server::start(move |request| match has_cookie(request, "seen=1") {
        true => file.respond(request),
        false => Response::redirect(302, &request.target).with("Set-Cookie", "seen=1; Path=/"),
    });
    let session = Session::new();
    session.haul(&format!("cp {OPTIONS} {} dst/", server.url("/f"))).status(0);
    whole(&session, &bytes);
    let without = server.requests().iter().filter(|request| !has_cookie(request, "seen=1")).count();
    assert_eq!(without, 1, "the cookie was not stored");
}

#[test]
fn a_cookie_that_no_redirect_needs_is_not_sent() {
    let file = File::new(content(1, SIZE));
    let server =
        Server::start(move |request| file.respond(request).with("Set-Cookie", "track=me; Path=/"));
    let session = Session::new();
    let line = format!("cp {OPTIONS} {} dst/", server.url("/f"));
    session.haul(&line).status(0);
    assert!(server.requests().iter().all(|request| request.field("cookie").is_none()));
    // With cookies on the command line, all cookies are sent.
    haul(&session, &line.replace("dst/", "other/"), &["--cookie", "a=b"]).status(0);
    assert!(server.requests().iter().any(|request| has_cookie(request, "track=me")));
}

/// The page would be stored under the name of the file.
#[test]
fn a_login_page_of_the_same_server_is_not_stored_as_the_file() {
    let server = Server::start(|request| match request.target.as_str() {
        "/login" => Response::new(200, b"<html>log in</html>").with("Content-Type", "text/html"),
        _ => Response::redirect(302, "/login"),
    });
    let session = Session::new();
    let ran = session.haul(&format!("cp --retries 0 {} dst/", server.url("/big.iso"))).status(1);
    ran.stderr_has("redirected to /login, which returned a web page instead of the file");
    assert!(!session.path("dst/big.iso").exists());
    // A page that was requested as a page is stored.
    session.haul(&format!("cp --retries 0 {} dst/", server.url("/about.html"))).status(0);
}
