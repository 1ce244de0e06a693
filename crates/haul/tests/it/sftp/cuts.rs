//! Failures in mid-transfer: cut connections, a killed server, a dead link, and a killed program.

use std::fs;
use std::time::{Duration, Instant};

use haul_fault_proxy::{Connections, Direction, Fault};

use super::nobody::Nobody;
use super::{Chance, SftpSession, content, unfinished};
use crate::private::check_private;

/// Cuts per test, at least.
const CUTS: u64 = 100;
/// Lanes of each transfer.
const LANES: u64 = 3;

/// Repeats the same transfer until [`CUTS`] of its connections were cut, each at a random offset: after the first 6 000
/// bytes in `direction`, and at most `bytes` later.
fn cut_at_random(seed: u64, line: &str, result: &str, direction: Direction, bytes: u64) {
    let sftp = SftpSession::behind_proxy();
    sftp.session.write("src/large", content(seed, 12 << 20));
    for n in 0..60 {
        sftp.session
            .write(format!("src/d{}/small{n}", n % 7), content(n, 40 * (n as usize).pow(2)));
    }
    sftp.session.write("far/large", content(seed, 12 << 20));
    sftp.session.tool("cp -r src/. far/src");
    let mut chance = Chance(seed);
    let (mut cuts, mut transfers) = (0, 0);
    while cuts < CUTS {
        let from = sftp.proxy().stats().accepted;
        // Handshake and authentication take about 5 kB before any data.
        for n in 1..=2 * LANES {
            let after = 6_000 + chance.below(bytes);
            sftp.proxy().set(Connections::Nth(from + n), direction, Fault::CutHard { after });
        }
        sftp.haul(line).status(0);
        sftp.same("src", result);
        let root = sftp.session.path(result);
        assert_eq!(unfinished(&root), Vec::<std::path::PathBuf>::new());
        fs::remove_dir_all(root).unwrap();
        let fired = sftp.proxy().fired().len() as u64;
        sftp.proxy().clear();
        assert!(fired > cuts, "no connection was cut");
        cuts = fired;
        transfers += 1;
    }
    eprintln!("{cuts} cuts in {transfers} transfers, all identical");
}

#[test]
fn a_download_is_identical_however_its_lanes_are_cut() {
    cut_at_random(1, "cp --lanes 3 -q @/src dst", "dst/src", Direction::ToClient, 3 << 20);
}

#[test]
fn an_upload_is_identical_however_its_lanes_are_cut() {
    cut_at_random(2, "cp --lanes 3 -q src @/dst", "far/dst/src", Direction::ToServer, 3 << 20);
}

/// Waits until part files and journals below `root` have a total length of at least `bytes`.
pub(super) fn wait_for_bytes(root: &std::path::Path, bytes: u64) {
    let begun = Instant::now();
    loop {
        let parts = unfinished(root);
        // A part file may be renamed to its final name meanwhile.
        let sizes = parts.iter().filter_map(|part| fs::metadata(part).ok());
        let written: u64 = sizes.map(|metadata| metadata.len()).sum();
        if written >= bytes {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "only {written} bytes were written");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn after_a_restart_of_the_server_at_most_a_window_is_moved_again() {
    for (line, result, direction) in [
        ("cp --json --bwlimit 16M --window 4M @/large dst", "dst", Direction::ToClient),
        ("cp --json --bwlimit 16M --window 4M src @/dst", "far/dst", Direction::ToServer),
    ] {
        let mut sftp = SftpSession::behind_proxy();
        let size = 40 << 20;
        sftp.session.write("src", content(3, size));
        sftp.session.write("far/large", content(3, size));
        let root = sftp.session.path(result).parent().unwrap().to_owned();
        let running = sftp.spawn(line);
        wait_for_bytes(&root, 8 << 20);
        let lanes = sftp.proxy().stats().accepted;
        sftp.sshd.kill_all();
        sftp.proxy().cut_all();
        std::thread::sleep(Duration::from_secs(1));
        sftp.sshd.restart();
        let output = running.finish();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        sftp.session.tool(&format!("cmp src {result}"));
        let stats = sftp.proxy().stats();
        assert!(stats.accepted > lanes, "the transfer had ended before the server was killed");
        let bytes = match direction {
            Direction::ToClient => stats.to_client.read,
            Direction::ToServer => stats.to_server.read,
        };
        let repeated = bytes.saturating_sub(size as u64);
        eprintln!("{line}: {repeated} bytes more than the file");
        // One percent is more than the overhead of SSH.
        assert!(repeated <= (4 << 20) + size as u64 / 100, "{repeated} bytes were repeated");
    }
}

#[test]
fn keepalives_detect_a_link_that_dies_in_mid_transfer() {
    for (line, result) in [
        ("cp --bwlimit 8M --retries 1 @/large dst", ""),
        ("cp --bwlimit 8M --retries 1 src @/dst", "far"),
    ] {
        let sftp = SftpSession::behind_proxy();
        sftp.session.write("src", content(4, 40 << 20));
        sftp.session.write("far/large", content(4, 40 << 20));
        let options = "-o ServerAliveInterval=1 -o ServerAliveCountMax=2 -o ConnectTimeout=1";
        let running = sftp.spawn(&line.replacen("cp", &format!("cp {options}"), 1));
        wait_for_bytes(&sftp.session.path(result), 2 << 20);
        for direction in Direction::BOTH {
            sftp.proxy().set(Connections::All, direction, Fault::Blackhole { from: 0 });
        }
        let dead = Instant::now();
        let output = running.finish();
        let elapsed = dead.elapsed();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        let expected = ["ServerAlive", "no answer within 1 s", "timed out"];
        assert!(expected.iter().any(|words| stderr.contains(words)), "{stderr}");
        eprintln!("{line}: {elapsed:?}: {stderr}");
        // The interval times the count (2 s), a pause before the retry, and a second to connect. Without keepalives,
        // TCP would take about a quarter of an hour.
        assert!(elapsed < Duration::from_secs(30), "{elapsed:?}: {stderr}");
    }
}

#[test]
fn each_kill_of_the_program_repeats_at_most_two_windows() {
    for (line, result, direction) in [
        ("cp --json --bwlimit 6M --window 2M @/src dst", "dst", Direction::ToClient),
        ("cp --json --bwlimit 6M --window 2M src @/dst", "far/dst", Direction::ToServer),
    ] {
        let sftp = SftpSession::behind_proxy();
        let size = 24 << 20;
        sftp.session.write("src/large", content(5, size));
        sftp.session.write("far/src/large", content(5, size));
        let root = sftp.session.path(result);
        fs::create_dir_all(&root).unwrap();
        let mut chance = Chance(5);
        for _ in 0..3 {
            let running = sftp.spawn(line);
            std::thread::sleep(Duration::from_millis(300 + chance.below(400)));
            running.kill();
        }
        let line = line.replace("--bwlimit 6M ", "");
        let summary = sftp.haul(&line).status(0).summary();
        sftp.same("src", &format!("{result}/src"));
        assert_eq!(unfinished(&root), Vec::<std::path::PathBuf>::new());
        let resumed = summary["resumed_bytes"].as_u64().unwrap();
        let all = match direction {
            Direction::ToClient => sftp.proxy().stats().to_client.read,
            Direction::ToServer => sftp.proxy().stats().to_server.read,
        };
        let repeated = all.saturating_sub(size as u64);
        eprintln!("{line}: {resumed} bytes were resumed; {repeated} were moved again");
        assert!(resumed > 0, "{summary}");
        // Each of the three kills loses a window in flight, and up to another that has arrived but is not in the
        // journal yet. Two percent are for SSH.
        assert!(repeated <= 3 * (4 << 20) + size as u64 / 50, "{repeated} bytes were repeated");
    }
}

/// Promise: files that are private in the source are not open to others on the server while they are copied.
#[test]
fn a_private_directory_is_private_on_the_server_while_it_is_copied_and_after_an_interruption() {
    for signal in ["INT", "KILL"] {
        let sftp = SftpSession::start();
        let destination = ("@/dst", "far/dst", false);
        check_private(&sftp.session, signal, destination, |line| sftp.line(line));
        for server in Nobody::all() {
            eprintln!("{}", server.name);
            check_private(&server.session, signal, destination, |line| server.line(line));
        }
    }
}
