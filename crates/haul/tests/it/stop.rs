//! Copies that are ended by Ctrl-C, kill or kill -9: a rerun resumes them.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::session::Session;

/// Starts a copy that takes long enough to be stopped (64 MiB at 32 MiB/s), and waits until 8 MiB have moved.
fn started(session: &Session) -> Child {
    let mut command = session.command("cp --json --bwlimit 32M src dst");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let moving = lines.by_ref().find(|line| {
        let event: serde_json::Value = serde_json::from_str(line.as_ref().unwrap()).unwrap();
        event["moved_bytes"].as_u64().is_some_and(|moved| moved > 8 << 20)
    });
    assert!(moving.is_some(), "it ended before it could be stopped");
    // The rest of its output must have a reader.
    std::thread::spawn(move || lines.count());
    child
}

fn session() -> Session {
    let content: Vec<u8> = (0..16 << 20).flat_map(|n: u32| n.to_le_bytes()).collect();
    Session::new().file("src", content)
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    let status = std::process::Command::new("kill").args(["-s", name, &pid]).status().unwrap();
    assert!(status.success());
}

fn finished(session: &Session) {
    assert!(!session.has("dst"), "an incomplete file has its final name");
    let summary = session.haul("cp --json src dst").status(0).summary();
    assert_eq!(summary["bytes"], 64 << 20);
    assert!(summary["resumed_bytes"].as_u64().unwrap() > 0, "{summary}");
    session.tool("cmp src dst");
}

#[test]
fn an_interrupted_copy_is_reported_and_a_rerun_resumes() {
    let session = session();
    for (name, status) in [("INT", 130), ("TERM", 143)] {
        let child = started(&session);
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(status));
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(text, "haul: interrupted; run the same command again to continue\n");
    }
    finished(&session);
}

#[test]
fn a_rerun_resumes_a_killed_copy() {
    let session = session();
    let mut child = started(&session);
    child.kill().unwrap();
    child.wait().unwrap();
    finished(&session);
}

#[test]
fn a_second_signal_ends_haul_even_while_its_output_is_not_read() {
    let mut session = Session::new();
    for n in 0..2000 {
        session = session.file(format!("src/{n}"), "");
    }
    let mut command = session.command("cp --json src dst");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The copy has begun.
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    // The pipe of 64 KiB fills up: 2 000 lines have 100 bytes or more each.
    std::thread::sleep(Duration::from_millis(500));
    signal(&child, "INT");
    std::thread::sleep(Duration::from_millis(200));
    signal(&child, "INT");
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
}
