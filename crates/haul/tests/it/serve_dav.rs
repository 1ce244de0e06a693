//! `haul serve dav`, with curl as the client.

use std::os::unix::fs::MetadataExt;

use crate::serve::Serving;
use crate::session::Session;

fn session() -> Session {
    Session::new().file("data/file", "content").directory("home")
}

fn url(object: &serde_json::Value) -> String {
    object["url"].as_str().unwrap().to_owned()
}

#[test]
fn a_directory_is_served_until_a_signal() {
    let session = session();
    for signal in ["INT", "TERM"] {
        let (serving, object) = Serving::json(&session, "serve dav data --listen 127.0.0.1:0");
        assert_eq!((&object["event"], &object["protocol"]), (&"serving".into(), &"dav".into()));
        assert_eq!(object["user"], serde_json::Value::Null);
        assert_eq!(object["fingerprint"], serde_json::Value::Null);
        assert_eq!(object["read_only"], false);
        let url = url(&object);
        assert!(url.starts_with("http://127.0.0.1:"), "{url}");
        assert_eq!(session.tool(&format!("curl -sS {url}file")), "content");
        session.tool(&format!("curl -sSf -T data/file {url}up"));
        assert_eq!(session.read("data/up"), "content");
        assert_eq!(serving.end(signal), (Some(0), "haul: stopping\n".to_owned()));
    }
}

#[test]
fn without_json_the_server_prints_address_user_and_certificate() {
    let session = session();
    let line = "serve dav data --listen 127.0.0.1:0 --read-only --tls-self-signed";
    let serving = Serving::start(&session, line, 4);
    assert!(serving.output.starts_with("serving      data, read-only\n"), "{}", serving.output);
    assert!(serving.output.contains("address      https://127.0.0.1:"), "{}", serving.output);
    assert!(
        serving.output.contains("user         anyone, without a password"),
        "{}",
        serving.output
    );
    assert!(serving.output.contains("certificate  SHA-256 "), "{}", serving.output);
    assert_eq!(serving.end("INT").0, Some(0));
}

#[test]
fn the_certificate_persists_and_only_the_right_password_is_accepted() {
    let session = session();
    session.write("secret", "right horse\nsecond line\n");
    let line = "serve dav data --listen 127.0.0.1:0 --tls-self-signed --user ada \
                --password-command cat<secret";
    let mut fingerprints = Vec::new();
    for _ in 0..2 {
        let (serving, object) = Serving::json(&session, line);
        assert_eq!(object["user"], "ada");
        fingerprints.push(object["fingerprint"].clone());
        let url = url(&object);
        session.write("netrc", "machine 127.0.0.1 login ada password \"right horse\"\n");
        let ca = "--cacert home/.local/state/haul/dav_self_signed.pem";
        let got = session.tool(&format!("curl -sS {ca} --netrc-file netrc {url}file"));
        assert_eq!(got, "content");
        let status = "-o /dev/null -w %{response_code}";
        assert_eq!(session.tool(&format!("curl -sS {ca} {status} {url}file")), "401");
        session.write("netrc", "machine 127.0.0.1 login ada password \"second line\"\n");
        let wrong = format!("curl -sS {ca} --netrc-file netrc {status} {url}file");
        assert_eq!(session.tool(&wrong), "401");
        assert!(!serving.output.contains("horse"), "{}", serving.output);
        assert_eq!(serving.end("INT").0, Some(0));
    }
    assert_eq!(fingerprints[0], fingerprints[1]);
    let key = session.path("home/.local/state/haul/dav_self_signed.pem");
    assert_eq!(std::fs::metadata(key).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn an_address_that_others_can_reach_requires_a_password_or_anonymous() {
    let session = session();
    session.haul("serve dav data --listen 0.0.0.0:0").status(2).stderr(
        "haul: 0.0.0.0:0 is reachable from other machines, and needs a way to log in\n\
         hint: write --password-command CMD, or allow everyone with --anonymous\n",
    );
    session
        .haul("serve dav data --listen 8080")
        .status(2)
        .stderr_has("is not an address and port, as in 127.0.0.1:8080");
    session.haul("serve dav data --anonymous --password-command true").status(2);
    session.haul("serve dav data --user me").status(2);
    session.haul("serve dav data --tls-cert file").status(2);
    session.haul("serve dav data --user a:b --password-command true").status(2);
    session
        .haul("serve dav none --listen 127.0.0.1:0")
        .status(1)
        .stderr_has("none: cannot serve (not found)");
    session
        .haul("serve dav data --tls-cert none --tls-key none")
        .status(1)
        .stderr_has("none: cannot read the certificate (not found)");
}

#[test]
fn an_unencrypted_address_that_others_can_reach_causes_a_warning() {
    let session = session();
    session.write("secret", "x\n");
    for (line, what, lines) in [
        ("--anonymous", "all files", 3),
        ("--password-command cat<secret", "the password and all files", 3),
    ] {
        let serving =
            Serving::start(&session, &format!("serve dav data --listen 0.0.0.0:0 {line}"), lines);
        let (_, text) = serving.end("INT");
        let expected = format!(
            "haul: warning: 0.0.0.0:0: {what} cross the network unencrypted; --tls-self-signed \
             or --tls-cert encrypts them\nhaul: stopping\n"
        );
        assert_eq!(text, expected);
    }
}

#[test]
fn verbose_logs_requests_and_responses() {
    let session = session();
    let serving = Serving::start(&session, "serve dav data -v --listen 127.0.0.1:0", 3);
    let url = serving.output.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
    let url = url.to_owned();
    session.tool(&format!("curl -sS {url}file"));
    let (status, text) = serving.end("TERM");
    assert_eq!(status, Some(0));
    assert!(text.contains(": connected\n"), "{text}");
    assert!(text.contains(": GET /file: 200, 0 bytes received, 7 sent, "), "{text}");
    assert!(text.contains(": disconnected after "), "{text}");

    let (serving, object) = Serving::json(&session, "serve dav data -v --listen 127.0.0.1:0");
    session.tool(&format!("curl -sS -T data/file {}up", self::url(&object)));
    let rest = serving.rest("INT");
    let objects = rest.lines().map(|line| serde_json::from_str(line).unwrap());
    let objects: Vec<serde_json::Value> = objects.collect();
    let request = objects.iter().find(|one| one["action"] == "request").unwrap();
    assert_eq!((&request["method"], &request["path"]), (&"PUT".into(), &"/up".into()));
    assert_eq!((&request["status"], &request["received_bytes"]), (&201.into(), &7.into()));
    assert!(objects.iter().all(|one| one["event"] == "client"), "{rest}");
}
