//! Access control of the server (passwords, `Host` and `Origin` checks, limits), its observer, and its shutdown.

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
fn a_request_without_the_password_gets_401() {
    let site = guarded();
    site.write("file", "content");
    let challenge = site.get("/file");
    assert_eq!(challenge.status, 401);
    let header = challenge.header("www-authenticate");
    assert_eq!(header, Some("Basic realm=\"haul\", charset=\"UTF-8\""));
    assert!(!challenge.text().contains("content"));
    assert_eq!(site.send("GET /file", &[RIGHT], b"").text(), "content");
    for method in ["OPTIONS", "PROPFIND", "PUT", "DELETE", "LOCK", "BREW"] {
        assert_eq!(site.send(&format!("{method} /file"), &[], b"").status, 401, "{method}");
    }
    assert_eq!(site.send("GET /none", &[], b"").status, 401, "a missing file looks the same");
    let begun = Instant::now();
    assert_eq!(site.send("GET /file", &[WRONG], b"").status, 401);
    assert!(begun.elapsed() >= Duration::from_millis(400), "guessing takes time");
}

#[test]
fn a_client_with_too_many_wrong_passwords_gets_429() {
    let site = guarded();
    site.write("file", "content");
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| assert_eq!(site.send("GET /file", &[WRONG], b"").status, 401));
        }
    });
    let refused = site.send("GET /file", &[RIGHT], b"");
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("60")));
}

#[test]
fn an_unauthorized_upload_gets_401_and_stores_nothing() {
    let site = guarded();
    let response = site.put("/file", &[], &vec![0; 700_000]);
    assert_eq!(response.status, 401);
    assert!(site.names().is_empty());
}

#[test]
fn cross_site_requests_and_foreign_host_names_are_refused() {
    let site = Site::start();
    site.write("file", "content");
    let port = site.server().address().port();
    let send = |host: &str, headers: &[&str]| {
        let host = format!("Host: {host}");
        let headers: Vec<&str> =
            [&host as &str].into_iter().chain(headers.iter().copied()).collect();
        site.send_without_host("GET /file", &headers, b"").status
    };
    assert_eq!(send(&format!("localhost:{port}"), &[]), 200);
    assert_eq!(send("evil.example", &[]), 421);
    assert_eq!(send(&format!("evil.example:{port}"), &["Origin: http://evil.example"]), 421);
    let own = format!("127.0.0.1:{port}");
    assert_eq!(send(&own, &["Origin: http://evil.example"]), 403);
    assert_eq!(send(&own, &["Origin: null"]), 403);
    assert_eq!(send(&own, &["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"]), 403);
    // A link on a page of another site may be followed.
    assert_eq!(send(&own, &["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"]), 200);
    assert_eq!(send(&own, &[&format!("Origin: http://{own}"), "Sec-Fetch-Site: same-origin"]), 200);
    let preflight = site.send("OPTIONS /file", &["Origin: http://evil.example"], b"");
    assert_eq!(preflight.status, 403);
    assert!(preflight.header("access-control-allow-origin").is_none());
}

#[test]
fn a_server_with_a_password_accepts_any_host_name() {
    let site = guarded();
    site.write("file", "content");
    let response = site.send_without_host("GET /file", &["Host: nas.example", RIGHT], b"");
    assert_eq!(response.status, 200);
}

#[test]
fn a_public_address_requires_a_password_or_anonymous() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let builder = DavServer::builder(directory.path()).listen("0.0.0.0:0".parse().unwrap());
    let error = runtime.block_on(builder.clone().bind()).unwrap_err().to_string();
    assert!(error.contains("it is reachable from other machines"), "{error}");
    let server = runtime.block_on(builder.anonymous(true).bind()).unwrap();
    runtime.block_on(server.stop());
}

#[test]
fn connections_beyond_the_limit_get_503() {
    let site = Site::with(|builder| builder.max_connections(2));
    site.write("file", "content");
    let (first, second) = (site.connect(), site.connect());
    let mut third = site.connect();
    let mut refusal = String::new();
    third.read_to_string(&mut refusal).unwrap();
    assert!(refusal.starts_with("HTTP/1.1 503"), "{refusal}");
    drop((first, second));
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        let mut stream = site.connect();
        let host = site.authority();
        let request = format!("GET /file HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let mut response = String::new();
        // The server may still refuse it with 503.
        let _ = stream
            .write_all(request.as_bytes())
            .and_then(|()| stream.read_to_string(&mut response));
        if response.starts_with("HTTP/1.1 200") {
            return;
        }
    }
    panic!("no connection is accepted any more");
}

#[test]
fn a_header_that_is_too_long_gets_431() {
    let site = Site::start();
    let long = format!("X: {}", "x".repeat(100_000));
    assert_eq!(site.send("GET /", &[&long], b"").status, 431);
}

#[test]
fn the_observer_receives_connections_and_requests() {
    let actions = Arc::new(Mutex::new(Vec::new()));
    let observed = Arc::clone(&actions);
    let mut site = Site::with(|builder| {
        builder.observer(move |event| observed.lock().unwrap().push(event.action))
    });
    site.write("file", "content");
    site.get("/file");
    site.put("/a%20b", &[], b"up");
    site.stop();
    let actions = actions.lock().unwrap();
    let requests: Vec<_> = actions
        .iter()
        .filter_map(|action| match action {
            ClientAction::Request { method, path, status, received, sent, .. } => {
                Some((method.as_str(), path.as_str(), *status, *received, *sent))
            }
            _ => None,
        })
        .collect();
    assert_eq!(requests, [("GET", "/file", 200, 0, 7), ("PUT", "/a%20b", 201, 2, 0)]);
    assert_eq!(actions.iter().filter(|action| **action == ClientAction::Connected).count(), 2);
    let is_end = |action: &&ClientAction| matches!(action, ClientAction::Disconnected { .. });
    assert_eq!(actions.iter().filter(is_end).count(), 2);
}

#[test]
fn stop_closes_idle_and_stalled_connections_within_five_seconds() {
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
fn unauthenticated_clients_leave_connections_for_authenticated_ones() {
    let credentials = Credentials::new("me", "secret");
    let site = Site::with(|builder| builder.credentials(credentials).max_connections(4));
    let host = site.authority();
    let send = |stream: &mut TcpStream| {
        write!(stream, "OPTIONS / HTTP/1.1\r\nHost: {host}\r\n{RIGHT}\r\n\r\n").unwrap();
        let mut response = [0; 12];
        stream.read_exact(&mut response).unwrap();
        String::from_utf8_lossy(&response).into_owned()
    };
    let mut unauthenticated: Vec<_> = (0..3).map(|_| site.connect()).collect();
    let mut refusal = String::new();
    site.connect().read_to_string(&mut refusal).unwrap();
    assert!(refusal.starts_with("HTTP/1.1 503"), "{refusal}");
    assert_eq!(send(&mut unauthenticated[0]), "HTTP/1.1 200");
    // Now only two are unauthenticated, so the fourth connection is accepted.
    let mut fourth = site.connect();
    assert_eq!(send(&mut fourth), "HTTP/1.1 200");
    refusal.clear();
    site.connect().read_to_string(&mut refusal).unwrap();
    assert!(refusal.starts_with("HTTP/1.1 503"), "{refusal}");
}
