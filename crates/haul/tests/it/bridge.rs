//! `haul bridge`, and shares that are registered at one.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::serve::Serving;
use crate::session::Session;

const OPTIONS: &str = "--listen 127.0.0.1:0 --token @token --metrics 127.0.0.1:0";

/// Time limit for everything that a test waits for.
const PATIENCE: Duration = Duration::from_secs(60);

fn session() -> Session {
    Session::new()
        .file("token", "secret\n")
        .file("photos/one.jpg", "first")
        .file("photos/deep/two.jpg", "second")
}

/// A running bridge, how `haul share` names it, and the address of its metrics.
fn bridge(session: &Session) -> (Serving, String, String) {
    let (serving, object) = Serving::json(session, &format!("bridge {OPTIONS}"));
    assert_eq!(object["event"], "bridge");
    let named = object["bridges"][0].as_str().unwrap().to_owned();
    assert_eq!(object["bridges"].as_array().unwrap().len(), 1);
    assert!(named.ends_with(object["key"].as_str().unwrap()), "{object}");
    let url = object["metrics"].as_str().unwrap();
    let at = url.strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap();
    (serving, named, at.to_owned())
}

/// Waits until the metrics have a line.
fn wait_for(at: &str, line: &str) {
    let start = Instant::now();
    loop {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        if text.lines().any(|one| one == line) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "the metrics have no line {line}: {text}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_bridge_prints_its_address_and_stores_its_key() {
    let session = session();
    let mut keys = Vec::new();
    for signal in ["INT", "TERM"] {
        let serving = Serving::start(&session, &format!("bridge {OPTIONS}"), 2);
        let lines: Vec<_> = serving.output.lines().collect();
        let named = lines[0].strip_prefix("bridge 127.0.0.1:").unwrap();
        let (_, key) = named.split_once('/').unwrap();
        assert_eq!(key.len(), 52, "{named}");
        keys.push(key.to_owned());
        assert!(lines[1].starts_with("metrics http://127.0.0.1:"), "{}", lines[1]);
        assert_eq!(serving.end(signal), (Some(0), "haul: stopping\n".to_owned()));
    }
    assert_eq!(keys[0], keys[1]);
    use std::os::unix::fs::MetadataExt;
    let key = session.path("home/.local/state/haul/bridge.pem");
    assert_eq!(fs::metadata(key).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn a_bridge_without_a_token_needs_the_option_open() {
    let session = session();
    session.haul("bridge --listen 127.0.0.1:0").status(2).stderr(
        "haul: without a token, everyone could use the bridge\n\
         hint: write --token @FILE, or --open if that is intended\n",
    );
    session.haul("bridge --open --token x").status(2).stderr_has("cannot be used with");
    session
        .haul("bridge --listen 127.0.0.1:0 --token @none")
        .status(1)
        .stderr_has("none: cannot read the token (not found)");
    let (serving, object) = Serving::json(&session, "bridge --listen 127.0.0.1:0 --open");
    let named = object["bridges"][0].as_str().unwrap();
    let (sharing, _) = Serving::json(&session, &format!("share photos --bridge {named}"));
    sharing.end("INT");
    serving.end("INT");
}

#[test]
fn a_share_is_registered_before_its_ticket_is_printed() {
    let session = session();
    let (serving, named, metrics) = bridge(&session);
    let share = format!("share photos --bridge {named}");
    session
        .haul(&share)
        .status(1)
        .stdout("")
        .stderr_has("cannot use the bridge (the bridge requires another token)")
        .stderr_has("hint: ask the bridge's operator for its token");
    let line = format!("{share} --bridge-token @token --bridge-only");
    let (sharing, object) = Serving::json(&session, &line);
    assert_eq!(object["addresses"].as_array().unwrap().len(), 0);
    assert!(named.starts_with(object["bridge"].as_str().unwrap()), "{object}");
    wait_for(&metrics, "haul_bridge_sharers 1");
    let ran = session.haul_where(&share, &[("HAUL_BRIDGE_TOKEN", "wrong")]);
    ran.status(1).stderr_has("requires another token");
    sharing.end("INT");
    wait_for(&metrics, "haul_bridge_sharers 0");
    serving.end("INT");
    session
        .haul(&format!("{share} --bridge-token @token"))
        .status(1)
        .stdout("")
        .stderr_has("cannot connect");
}

#[test]
fn a_bridge_with_another_key_is_refused() {
    let session = session();
    let (serving, named, _) = bridge(&session);
    let (address, _) = named.split_once('/').unwrap();
    let key = "ea".repeat(26);
    let line = format!("share photos --bridge-token @token --bridge {address}");
    session
        .haul(&format!("{line}/{key}"))
        .status(1)
        .stdout("")
        .stderr_has("its key is not that of the bridge");
    session.haul(&line).status(2).stderr_has("write HOST:PORT/KEY, as haul bridge prints it");
    session.haul("share photos --bridge-only").status(2).stderr_has("--bridge");
    serving.end("INT");
}

#[test]
fn a_tree_is_copied_through_the_bridge() {
    let session = session();
    let (serving, named, metrics) = bridge(&session);
    let line = format!("share photos --bridge {named} --bridge-token @token --bridge-only");
    let (sharing, object) = Serving::json(&session, &line);
    let ticket = object["ticket"].as_str().unwrap();
    session.haul(&format!("cp -q {ticket}/ all")).status(0);
    session.haul("check --checksum photos all").status(0);
    wait_for(&metrics, "haul_bridge_pairs 0");
    sharing.end("INT");
    serving.end("INT");
}

/// Formerly, the sharer reported a lost connection.
#[test]
fn a_sharer_learns_that_the_bridge_was_stopped() {
    let session = session();
    let (serving, named, metrics) = bridge(&session);
    let line = format!("share photos --bridge {named} --bridge-token @token");
    let (mut sharing, _) = Serving::json(&session, &line);
    wait_for(&metrics, "haul_bridge_sharers 1");
    let start = Instant::now();
    assert_eq!(serving.end("INT").0, Some(0));
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    // A sharer that only lost its connection would print a line as well.
    let printed = sharing.line();
    assert!(printed.contains("the bridge is being stopped"), "{printed}");
    sharing.end("INT");
}

#[test]
fn the_path_to_a_share_is_reported() {
    let session = session();
    let (serving, named, _) = bridge(&session);
    for (option, kind) in [("--bridge-only", "bridge"), ("--listen 127.0.0.1:0", "direct")] {
        let line = format!("share photos --bridge {named} --bridge-token @token {option}");
        let (sharing, object) = Serving::json(&session, &line);
        let ticket = object["ticket"].as_str().unwrap();
        // Both paths are tried at once. On a busy machine, that through the bridge may be the first one.
        let is_reported = (0..10).any(|_| {
            let out = session.haul(&format!("ls --json -v {ticket}")).status(0).out();
            let objects = out.lines().map(|line| serde_json::from_str(line).unwrap());
            let found: Vec<serde_json::Value> =
                objects.filter(|one: &serde_json::Value| one["event"] == "reached").collect();
            assert!(found[0]["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{out}");
            // The ticket is a secret.
            assert!(!out.contains(ticket), "{out}");
            found[0]["kind"] == kind
        });
        assert!(is_reported, "{kind}");
        sharing.end("INT");
    }
    serving.end("INT");
}
