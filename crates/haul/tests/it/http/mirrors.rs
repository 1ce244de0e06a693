//! One file from several servers at once.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use haul_fault_proxy::FaultProxy;

use super::nginx::Nginx;
use super::{wait_for_bytes, whole};
use crate::content::{content, unfinished};
use crate::serve::Serving;
use crate::session::Session;

/// Each connection is slow, so that a file takes a while.
const SLOW: &str = "limit_rate 8m;";

/// Writes a file with this modification time. Mirrors of a file that have another time than the first are not used.
fn put(session: &Session, path: &Path, bytes: &[u8], time: &str) {
    fs::write(path, bytes).unwrap();
    session.tool(&format!("touch -d {time} {}", path.display()));
}

const TIME: &str = "2024-05-06T07:08:09Z";

fn sha256(session: &Session, path: &Path) -> String {
    let line = session.tool(&format!("sha256sum {}", path.display()));
    line.split(' ').next().unwrap().to_owned()
}

fn url_at(address: SocketAddr) -> String {
    format!("http://{address}/f")
}

#[test]
fn all_mirrors_of_a_file_are_read() {
    let servers = [Nginx::start("", SLOW), Nginx::start("", SLOW)];
    let [Some(one), Some(other)] = servers else { return };
    let (session, bytes) = (Session::new(), content(21, 32 << 20));
    let nginxes = [&one, &other];
    for nginx in nginxes {
        put(&session, &nginx.www("f"), &bytes, TIME);
    }
    let proxies = nginxes.map(|nginx| FaultProxy::to(nginx.address()).start().unwrap());
    let [first, second] = proxies.each_ref().map(|proxy| url_at(proxy.address()));
    session.haul(&format!("cp --lanes 2 --mirror {second} {first} dst/")).status(0);
    whole(&session, &bytes);
    let received = proxies.each_ref().map(|proxy| proxy.stats().to_client.read);
    eprintln!("{received:?} of {} bytes", bytes.len());
    assert!(received.iter().all(|received| *received > bytes.len() as u64 / 5), "{received:?}");
    assert!(received.iter().sum::<u64>() < bytes.len() as u64 * 5 / 4, "{received:?}");
}

#[test]
fn the_other_mirror_takes_over_when_one_ends_half_way() {
    for ends_first in [true, false] {
        for expect in [false, true] {
            let Some(nginx) = Nginx::start("", SLOW) else { return };
            let (session, bytes) = (Session::new().directory("far"), content(22, 24 << 20));
            put(&session, &nginx.www("f"), &bytes, TIME);
            put(&session, &session.path("far/f"), &bytes, TIME);
            let (_serving, object) = Serving::json(&session, "serve dav far --listen 127.0.0.1:0");
            let haul = format!("{}f", object["url"].as_str().unwrap());
            let ends = url_at(nginx.address());
            let (first, second) = if ends_first { (ends, haul) } else { (haul, ends) };
            let expect = if expect {
                format!("--expect sha256:{}", sha256(&session, &session.path("far/f")))
            } else {
                String::new()
            };
            let line = format!("cp --bwlimit 8M {expect} --mirror {second} {first} dst/");
            let mut command = session.command(&line);
            let mut running = command.stderr(Stdio::piped()).spawn().unwrap();
            wait_for_bytes(&session.path("dst"), 6 << 20);
            drop(nginx);
            assert!(running.wait().unwrap().success(), "{line}");
            whole(&session, &bytes);
        }
    }
}

#[test]
fn a_mirror_with_another_size_or_time_is_left_out_with_a_warning() {
    let servers = [(); 3].map(|()| Nginx::start("", ""));
    let [Some(right), Some(longer), Some(newer)] = servers else { return };
    let (session, bytes) = (Session::new(), content(23, 3 << 20));
    put(&session, &right.www("f"), &bytes, TIME);
    put(&session, &longer.www("f"), &content(23, (3 << 20) + 1), TIME);
    put(&session, &newer.www("f"), &content(24, 3 << 20), "2024-06-06T07:08:09Z");
    let [right, longer, newer] = [&right, &longer, &newer].map(|nginx| nginx.url("/f"));
    let ran = session
        .haul(&format!("cp --mirror {longer} --mirror {newer} {right} dst/"))
        .status(0)
        .stderr_has(&format!(
            "haul: warning: {longer}: this mirror is not used: it has 3145729 bytes, but 3145728 bytes at {right}\n"
        ))
        .stderr_has(&format!("haul: warning: {newer}: this mirror is not used: it was modified 2024-06-06"));
    assert!(ran.err().contains("1 file"), "{}", ran.err());
    whole(&session, &bytes);
}

/// Without the digest it is not known which of them is wrong.
#[test]
fn a_mirror_with_other_content_is_found_by_the_digest() {
    let servers = [Nginx::start("", SLOW), Nginx::start("", SLOW)];
    let [Some(wrong), Some(right)] = servers else { return };
    for size in [1000, 8 << 20] {
        let (session, bytes) = (Session::new(), content(25, size));
        put(&session, &right.www("f"), &bytes, TIME);
        let mut other = bytes.clone();
        other[7] ^= 1;
        put(&session, &wrong.www("f"), &other, TIME);
        let sum = sha256(&session, &right.www("f"));
        let urls = format!("--mirror {} {} dst/", right.url("/f"), wrong.url("/f"));
        session.haul(&format!("cp --expect sha256:{sum} {urls}")).status(0).stderr_has(&format!(
            "haul: warning: {}: this mirror is not used: its sha256 is ",
            wrong.url("/f")
        ));
        whole(&session, &bytes);
        // If no mirror has the expected content, neither a file nor a part file is left.
        fs::remove_file(session.path("dst/f")).unwrap();
        let sum = sum.replace(['0', '1', '2'], "3");
        session.haul(&format!("cp --expect sha256:{sum} {urls}")).status(1).stderr_has(&sum);
        assert!(!session.has("dst/f") && unfinished(&session.path("dst")).is_empty());
    }
}

#[test]
fn mirrors_that_cannot_be_opened_are_left_out_if_another_one_can() {
    let Some(nginx) = Nginx::start("", "") else { return };
    let (session, bytes) = (Session::new(), content(26, 300_000));
    put(&session, &nginx.www("g"), &bytes, TIME);
    fs::create_dir(nginx.www("d")).unwrap();
    let (missing, existing) = (nginx.url("/f"), nginx.url("/g"));
    // The file has the name of the first, although that does not exist.
    session
        .haul(&format!("cp --mirror {existing} {missing} dst/"))
        .status(0)
        .stderr_has(&format!("haul: warning: {missing}: this mirror is not used: "));
    whole(&session, &bytes);
    let other = nginx.url("/h");
    let ran = session.haul(&format!("cp --mirror {other} {missing} new/")).status(1);
    ran.stderr_has(&format!("haul: {missing}: cannot open ("));
    assert!(!session.has("new/f"));
    let line = format!("cp --mirror {existing} {existing} {missing} dst/");
    session.haul(&line).status(2).stderr("haul: --mirror and --expect need exactly one SOURCE\n");
}

#[test]
fn a_copy_from_mirrors_resumes_from_any_of_them() {
    let servers = [Nginx::start("", SLOW), Nginx::start("", SLOW)];
    let [Some(one), Some(other)] = servers else { return };
    let (session, bytes) = (Session::new(), content(27, 24 << 20));
    for nginx in [&one, &other] {
        put(&session, &nginx.www("f"), &bytes, TIME);
    }
    let line = format!("--mirror {} {} dst/", other.url("/f"), one.url("/f"));
    let mut command = session.command(&format!("cp --bwlimit 8M {line}"));
    let mut running = command.stderr(Stdio::null()).spawn().unwrap();
    wait_for_bytes(&session.path("dst"), 6 << 20);
    running.kill().unwrap();
    running.wait().unwrap();
    // Stop the mirror that gave the file its name.
    drop(one);
    let summary = session.haul(&format!("cp --json {line}")).status(0).summary();
    assert!(summary["resumed_bytes"].as_u64().unwrap() > 0, "{summary}");
    whole(&session, &bytes);
}
