//! `haul demo`.

use crate::done::SECRETS;
use crate::mount::can_mount;
use crate::session::Session;

#[test]
fn every_step_prints_a_row_and_nothing_is_left() {
    let mut session = Session::new().directory("tmp");
    for n in 0..20 {
        session = session.file(format!("data/{}/{n}", n % 3), vec![n; 100_000]);
    }
    let ran = session.haul("demo --source data --dir tmp").status(0);
    let out = ran.out();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let rows: Vec<_> = out.lines().map(words).collect();
    let steps: Vec<_> = rows.iter().map(|row| format!("{} {}", row[0], row[1])).collect();
    let mut expected = vec![
        "over step",
        "local copy",
        "local again",
        "local verify",
        "local compare",
        "sftp up",
        "sftp down",
        "sftp compare",
        "dav up",
        "dav down",
        "dav compare",
        "peer up",
        "peer down",
        "peer compare",
    ];
    if can_mount() {
        expected.push("mount compare");
    }
    assert_eq!(steps, expected, "{out}");
    assert!(out.contains("20 as listed"), "{out}");
    // Files, and bytes with their unit: all of them were copied there and back.
    for row in &rows[5..] {
        assert_eq!(row[2..5], ["20", "1.91", "MiB"], "{out}");
    }
    assert_eq!(session.haul("ls tmp").out(), "");
    assert!(!session.has("home"), "the children use the session's home");
}

/// Formerly, `rustc` inherited passwords and tokens.
#[test]
fn rustc_gets_no_secrets_of_the_environment() {
    let session = Session::new().directory("tmp").file("data/file", "x");
    let data = session.path("data").display().to_string();
    session.write("rustc.sh", format!("#!/bin/sh\nenv > {data}/../seen\necho {data}\n"));
    session.tool("install -D rustc.sh bin/rustc");
    let path = format!("{}:{}", session.path("bin").display(), std::env::var("PATH").unwrap());
    let mut command = session.command("demo --dir tmp");
    let output = command.env("PATH", path).envs(SECRETS).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let seen = session.read("seen");
    assert!(seen.contains("PATH=") && !seen.contains("secret"), "{seen}");
}

#[test]
fn metadata_that_a_protocol_does_not_preserve_is_not_a_difference() {
    let session = Session::new()
        .directory("tmp")
        .file("data/run", "x")
        .file("data/sub/secret", "y")
        .link("data/link", "run")
        .link("data/sub/dangling", "/no/where");
    session.tool("chmod 750 data/run");
    session.tool("chmod 400 data/sub/secret");
    session.tool("chmod 555 data/sub");
    session.tool("touch -d 2001-02-03T04:05:06.789 data/run");
    let ran = session.haul("demo --source data --dir tmp --json").status(0);
    session.tool("chmod 755 data/sub");
    let objects = ran.objects();
    let sftp: Vec<_> = objects.iter().filter(|object| object["over"] == "sftp").collect();
    let steps: Vec<_> = sftp.iter().map(|object| object["step"].as_str().unwrap()).collect();
    assert_eq!(steps, ["up", "down", "compare"]);
    assert!(sftp.iter().all(|object| object["bytes"] == 2), "{}", ran.out());
    let dav: Vec<_> = objects.iter().filter(|object| object["over"] == "dav").collect();
    let steps: Vec<_> = dav.iter().map(|object| object["step"].as_str().unwrap()).collect();
    assert_eq!(steps, ["up", "down", "compare"]);
    assert!(dav.iter().all(|object| object["bytes"] == 2), "{}", ran.out());
    let peer: Vec<_> = objects.iter().filter(|object| object["over"] == "peer").collect();
    let steps: Vec<_> = peer.iter().map(|object| object["step"].as_str().unwrap()).collect();
    assert_eq!(steps, ["up", "down", "compare"]);
    assert!(peer.iter().all(|object| object["bytes"] == 2), "{}", ran.out());
    assert_eq!(peer[0]["note"], "through a bridge, to a server in this process");
    assert_eq!(peer[2]["note"], "bytes, modes, times and links are equal");
    let mount = objects.iter().find(|object| object["over"] == "mount");
    if let Some(mount) = mount {
        assert_eq!(mount["step"], "compare");
        assert_eq!(mount["files"], 2);
        let note = "bytes, modes, times and links are equal, read through a mount";
        assert_eq!(mount["note"], note);
    }
    assert_eq!(mount.is_some(), can_mount());
    assert_eq!(dav[0]["note"], "over WebDAV, to a server in this process; without 2 links");
    assert_eq!(session.haul("ls tmp").out(), "");
}

#[test]
fn a_source_without_data_is_an_error() {
    let session = Session::new().directory("data");
    session.haul("demo --source data").status(1).stderr_has("data: cannot find data (");
}
