//! Who is let in, and who is not.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use haul_http::server::{ClientAction, Credentials, DavServer};

use crate::site::Site;

/// `me:secret`
const RIGHT: &str = "Authorization: Basic bWU6c2VjcmV0";
/// `me:wrong`
const WRONG: &str = "Authorization: Basic bWU6d3Jvbmc=";

fn guarded() -> Site {
    Site::with(|builder| builder.credentials(Credentials::new("me", "secret")))
}

#[test]
fn only_who_knows_the_password_is_let_in() {
    let site = guarded();
    site.write("file", "content");
    let asked = site.get("/file");
    assert_eq!(asked.status, 401);
    assert_eq!(asked.header("www-authenticate"), Some("Basic realm=\"haul\", charset=\"UTF-8\""));
    assert!(!asked.text().contains("content"));
    assert_eq!(site.ask("GET /file", &[RIGHT], b"").text(), "content");
    for method in ["OPTIONS", "PROPFIND", "PUT", "DELETE", "LOCK", "BREW"] {
        assert_eq!(site.ask(&format!("{method} /file"), &[], b"").status, 401, "{method}");
    }
    assert_eq!(site.ask("GET /none", &[], b"").status, 401, "what is there is not told either");
    let begun = Instant::now();
    assert_eq!(site.ask("GET /file", &[WRONG], b"").status, 401);
    assert!(begun.elapsed() >= Duration::from_millis(400), "guessing takes time");
}

#[test]
fn who_guesses_too_often_is_not_listened_to() {
    let site = guarded();
    site.write("file", "content");
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| assert_eq!(site.ask("GET /file", &[WRONG], b"").status, 401));
        }
    });
    let refused = site.ask("GET /file", &[RIGHT], b"");
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("60")));
}

#[test]
fn a_refused_upload_is_answered_before_it_is_all_there() {
    let site = guarded();
    let answer = site.put("/file", &[], &vec![0; 700_000]);
    assert_eq!(answer.status, 401);
    assert!(site.names().is_empty());
}

#[test]
fn pages_of_other_servers_and_foreign_names_are_refused() {
    let site = Site::start();
    site.write("file", "content");
    let port = site.server().address().port();
    let ask = |host: &str, headers: &[&str]| {
        let host = format!("Host: {host}");
        let headers: Vec<&str> =
            [&host as &str].into_iter().chain(headers.iter().copied()).collect();
        site.ask_without_host("GET /file", &headers, b"").status
    };
    assert_eq!(ask(&format!("localhost:{port}"), &[]), 200);
    assert_eq!(ask("evil.example", &[]), 421);
    assert_eq!(ask(&format!("evil.example:{port}"), &["Origin: http://evil.example"]), 421);
    let own = format!("127.0.0.1:{port}");
    assert_eq!(ask(&own, &["Origin: http://evil.example"]), 403);
    assert_eq!(ask(&own, &["Origin: null"]), 403);
    assert_eq!(ask(&own, &["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"]), 403);
    assert_eq!(ask(&own, &["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"]), 200);
    assert_eq!(ask(&own, &[&format!("Origin: http://{own}"), "Sec-Fetch-Site: same-origin"]), 200);
    let preflight = site.ask("OPTIONS /file", &["Origin: http://evil.example"], b"");
    assert_eq!(preflight.status, 403);
    assert!(preflight.header("access-control-allow-origin").is_none());
}

#[test]
fn with_a_password_any_name_will_do() {
    let site = guarded();
    site.write("file", "content");
    let answer = site.ask_without_host("GET /file", &["Host: nas.example", RIGHT], b"");
    assert_eq!(answer.status, 200);
}

#[test]
fn where_others_can_reach_it_a_password_is_needed_or_said_not_to_be() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let builder = DavServer::builder(directory.path()).listen("0.0.0.0:0".parse().unwrap());
    let error = runtime.block_on(builder.clone().bind()).unwrap_err().to_string();
    assert!(error.contains("it is reachable from other machines"), "{error}");
    let server = runtime.block_on(builder.anonymous(true).bind()).unwrap();
    runtime.block_on(server.stop());
}

#[test]
fn there_are_no_more_connections_than_there_may_be() {
    let site = Site::with(|builder| builder.max_connections(2));
    site.write("file", "content");
    let (first, second) = (site.connect(), site.connect());
    let mut third = site.connect();
    let mut told = String::new();
    third.read_to_string(&mut told).unwrap();
    assert!(told.starts_with("HTTP/1.1 503"), "{told}");
    drop((first, second));
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        let mut stream = site.connect();
        let host = site.authority();
        let request = format!("GET /file HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let mut answer = String::new();
        // It may be turned away still.
        let _ =
            stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut answer));
        if answer.starts_with("HTTP/1.1 200") {
            return;
        }
    }
    panic!("nobody is let in any more");
}

#[test]
fn long_heads_are_refused() {
    let site = Site::start();
    let long = format!("X: {}", "x".repeat(100_000));
    assert_eq!(site.ask("GET /", &[&long], b"").status, 431);
}

#[test]
fn what_clients_do_is_told() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let mut site = Site::with(|builder| {
        builder.observer(move |event| heard.lock().unwrap().push(event.action))
    });
    site.write("file", "content");
    site.get("/file");
    site.put("/a%20b", &[], b"up");
    site.stop();
    let told = told.lock().unwrap();
    let requests: Vec<_> = told
        .iter()
        .filter_map(|action| match action {
            ClientAction::Request { method, path, status, received, sent, .. } => {
                Some((method.as_str(), path.as_str(), *status, *received, *sent))
            }
            _ => None,
        })
        .collect();
    assert_eq!(requests, [("GET", "/file", 200, 0, 7), ("PUT", "/a%20b", 201, 2, 0)]);
    assert_eq!(told.iter().filter(|action| **action == ClientAction::Connected).count(), 2);
    assert_eq!(told.iter().filter(|action| matches!(action, ClientAction::Left { .. })).count(), 2);
}

#[test]
fn stopping_ends_who_is_idle_at_once_and_who_takes_nothing_soon() {
    let mut site = Site::start();
    site.write("file", vec![0; 50 << 20]);
    let _idle = site.connect();
    let mut slow = site.connect();
    let host = site.authority();
    write!(slow, "GET /file HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let begun = Instant::now();
    site.stop();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn who_has_not_signed_in_leaves_places_for_who_has() {
    let credentials = Credentials::new("me", "secret");
    let site = Site::with(|builder| builder.credentials(credentials).max_connections(4));
    let host = site.authority();
    let ask = |stream: &mut TcpStream| {
        write!(stream, "OPTIONS / HTTP/1.1\r\nHost: {host}\r\n{RIGHT}\r\n\r\n").unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    };
    let mut strangers: Vec<_> = (0..3).map(|_| site.connect()).collect();
    let mut told = String::new();
    site.connect().read_to_string(&mut told).unwrap();
    assert!(told.starts_with("HTTP/1.1 503"), "{told}");
    assert_eq!(ask(&mut strangers[0]), "HTTP/1.1 200");
    // One of them is none any longer, and the fourth place is free still.
    let mut fourth = site.connect();
    assert_eq!(ask(&mut fourth), "HTTP/1.1 200");
    told.clear();
    site.connect().read_to_string(&mut told).unwrap();
    assert!(told.starts_with("HTTP/1.1 503"), "{told}");
}
