//! `haul share --code`, and spoken codes as locations.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::serve::Serving;
use crate::session::{Ran, Session};

fn session() -> Session {
    Session::new().file("photos/one.jpg", "first").file("photos/deep/two.jpg", "second")
}

/// A running bridge, and how `--bridge` names it.
fn bridge(session: &Session) -> (Serving, String) {
    let (serving, object) = Serving::json(session, "bridge --listen 127.0.0.1:0 --open");
    let named = object["bridges"][0].as_str().unwrap().to_owned();
    (serving, named)
}

/// A running share, and its code.
fn share(session: &Session, named: &str, options: &str) -> (Serving, String) {
    let line = format!("share photos --listen 127.0.0.1:0 --code --bridge {named} {options}");
    let (serving, object) = Serving::json(session, &line);
    (serving, object["code"].as_str().unwrap().to_owned())
}

/// Runs `haul` as on another machine: with another home.
fn elsewhere(session: &Session, line: &str) -> Ran {
    let home = session.path("other-home");
    session.haul_where(line, &[("HOME", home.to_str().unwrap())])
}

/// The same number with other words.
fn wrong(code: &str) -> String {
    let (number, words) = code.split_once('-').unwrap();
    let other = if words == "acorn-acorn" { "acorn-angle" } else { "acorn-acorn" };
    format!("{number}-{other}")
}

#[test]
fn a_tree_is_copied_by_its_spoken_code() {
    let session = session();
    let (bridge, named) = bridge(&session);
    let (mut sharing, code) = share(&session, &named, "");
    assert_eq!(code.split('-').count(), 3, "{code}");
    session.haul(&format!("cp -q --bridge {named} {code}/ all")).status(0);
    session.haul("check --checksum photos all").status(0);
    let event: serde_json::Value = serde_json::from_str(&sharing.line()).unwrap();
    assert_eq!((&event["event"], &event["action"]), (&"code".into(), &"used".into()));
    // The code is used up, but this machine has stored its ticket, and needs no bridge to run the command again.
    session.haul(&format!("cat {code}/one.jpg {code}/deep/two.jpg")).stdout("firstsecond");
    let upper = code.to_uppercase();
    session.haul(&format!("cat {upper}/one.jpg")).status(0).stdout("first");
    let ran = elsewhere(&session, &format!("ls --bridge {named} {code}")).status(1);
    ran.stderr_has("no sharer has this number").stderr_has("hint: a code works once");
    use std::os::unix::fs::MetadataExt as _;
    let stored = session.path("home/.local/state/haul/codes.toml");
    assert_eq!(std::fs::metadata(stored).unwrap().mode() & 0o777, 0o600);
    sharing.end("INT");
    bridge.end("INT");
}

/// Each attempt counts as a guess. Formerly, there was one attempt for each location.
#[test]
fn a_wrong_code_is_tried_once_for_several_locations() {
    let session = session();
    let (bridge, named) = bridge(&session);
    let (sharing, code) = share(&session, &named, "");
    let guess = wrong(&code);
    let ran = session.haul(&format!("du --bridge {named} {guess}/one.jpg {guess}/deep")).status(1);
    let message = ran.stderr_has("the code is wrong").err();
    assert!(!message.contains("no sharer has this number"), "{message}");
    sharing.end("INT");
    bridge.end("INT");
}

#[test]
fn after_a_wrong_guess_the_share_gets_another_code() {
    let session = session();
    let (bridge, named) = bridge(&session);
    let (mut sharing, code) = share(&session, &named, "");
    let guess = wrong(&code);
    let ran = session.haul(&format!("ls --bridge {named} {guess}")).status(1);
    let message = ran.stderr_has("the code is wrong").err();
    let (number, words) = guess.split_once('-').unwrap();
    assert!(message.contains(number) && !message.contains(words), "{message}");
    let event: serde_json::Value = serde_json::from_str(&sharing.line()).unwrap();
    assert_eq!(event["action"], "guessed");
    let next = event["code"].as_str().unwrap();
    assert_ne!(next, code);
    session.haul(&format!("ls --bridge {named} {code}")).status(1);
    let listed = session.haul(&format!("ls --bridge {named} {next}"));
    listed.status(0).stdout("deep/\none.jpg\n");
    sharing.end("INT");
    bridge.end("INT");
}

#[test]
fn the_bridge_of_codes_may_be_in_the_configuration() {
    let session = session();
    let (bridge, named) = bridge(&session);
    session.write("home/.config/haul/config.toml", format!("[defaults]\nbridge = \"{named}\"\n"));
    session.haul("config check").status(0);
    session.haul("config show").status(0).stdout_has(&named);
    let line = "share photos --listen 127.0.0.1:0 --code --writable";
    let sharing = Serving::start(&session, line, 5);
    let code = sharing.output.lines().last().unwrap().strip_prefix("code     ").unwrap();
    session.write("new", "new");
    session.haul(&format!("cp -q new {code}/")).status(0);
    assert_eq!(session.read("photos/new"), "new");
    let rest = sharing.rest("INT");
    assert!(rest.contains("with the same bridge"), "{rest}");
    // Without --code, the bridge in the configuration has no effect.
    let line = "share photos --listen 127.0.0.1:0";
    let (sharing, object) = Serving::json(&session, line);
    assert!(object["bridge"].is_null() && object["code"].is_null(), "{object}");
    sharing.end("INT");
    bridge.end("INT");
}

#[test]
fn peers_add_accepts_a_code() {
    let session = session();
    let (bridge, named) = bridge(&session);
    let (sharing, code) = share(&session, &named, "");
    // An invalid command does not use the code up.
    let ran = session.haul(&format!("peers add a/b --bridge {named} {code}")).status(1);
    ran.stderr_has("a peer's name has 1 to 64 letters");
    let ran = session.haul(&format!("peers add here --bridge {named} {code}/deep")).status(2);
    ran.stderr_has("give it without a path");
    session.haul(&format!("peers add here --bridge {named} {code}")).status(0).stdout("");
    session.haul("cat peer:here/one.jpg").status(0).stdout("first");
    sharing.end("INT");
    bridge.end("INT");
}

#[test]
fn a_local_file_takes_precedence_over_a_code() {
    let session = session().file("7-orbit-candle", "local").file("8-orbit-candle/a", "below");
    session.haul("cat 7-orbit-candle").status(0).stdout("local");
    session.haul("cat 8-orbit-candle/a").status(0).stdout("below");
    session.haul("cp -q photos ./9-orbit-candle").status(0);
    assert!(session.has("9-orbit-candle/photos/one.jpg"));
    session.haul("cat 7-orbt-candle").status(2).stderr_has(
        "7-…: cannot use the code (the first word is not in the word list; did you mean orbit?)",
    );
    session.haul("cp -q photos 2026-orbit-photos").status(0);
    assert!(session.has("2026-orbit-photos"));
}

#[test]
fn a_code_needs_a_bridge() {
    let session = session();
    session
        .haul("ls 7-orbit-candle")
        .status(1)
        .stderr_has("7-…: cannot use the code (no bridge is known)")
        .stderr_has("hint: name it with --bridge, or bridge in [defaults]");
    session.haul("share --code photos").status(2).stderr_has("--code needs a bridge");
    for option in ["--bridge-only", "--bridge-token x"] {
        let ran = session.haul(&format!("share {option} photos")).status(2);
        ran.stderr_has("needs a bridge").stderr_has("--bridge HOST:PORT/KEY");
    }
    let (bridge, named) = bridge(&session);
    bridge.end("INT");
    session
        .haul(&format!("share --code photos --bridge {named}"))
        .status(1)
        .stdout("")
        .stderr_has("cannot connect");
}

/// Formerly, nothing was printed.
#[test]
fn a_bridge_that_does_not_respond_is_reported_after_ten_seconds() {
    let session = session();
    let (bridge, named) = bridge(&session);
    let (sharing, code) = share(&session, &named, "");
    bridge.signal("STOP");
    let line = format!("ls --bridge {named} {code}");
    let begun = Instant::now();
    let mut child = session.command(&line).stderr(Stdio::piped()).spawn().unwrap();
    let mut report = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut report).unwrap();
    let (address, number) = (named.split('/').next().unwrap(), code.split('-').next().unwrap());
    assert!(begun.elapsed() >= Duration::from_secs(10), "{report}");
    let expected = format!("haul: waiting for {address}: ticket for code {number} (");
    let seconds = report.strip_prefix(&expected).and_then(|rest| rest.strip_suffix(" s)\n"));
    let seconds: u64 = seconds.and_then(|seconds| seconds.parse().ok()).expect(&report);
    assert!((10..20).contains(&seconds), "{report}");
    child.kill().unwrap();
    child.wait().unwrap();
    bridge.signal("CONT");
    sharing.end("INT");
    bridge.end("INT");
}
