//! Connections that are cut, servers that die, links that go dead, and a program that is killed.

use std::fs;
use std::time::{Duration, Instant};

use haul_fault_proxy::{Connections, Direction, Fault};

use super::{Chance, Far, content, unfinished};

/// How many cuts there are to be, and the lanes that are cut.
const CUTS: u64 = 100;
const LANES: u64 = 3;

/// Moves the same again and again, each time with some cuts at places that chance chooses, until
/// there were [`CUTS`].
fn cut_at_random(seed: u64, line: &str, result: &str, direction: Direction, bytes: u64) {
    let far = Far::behind_proxy();
    far.session.write("src/large", content(seed, 12 << 20));
    for n in 0..60 {
        far.session.write(format!("src/d{}/small{n}", n % 7), content(n, 40 * (n as usize).pow(2)));
    }
    far.session.write("far/large", content(seed, 12 << 20));
    far.session.tool("cp -r src/. far/src");
    let mut chance = Chance(seed);
    let (mut cuts, mut transfers) = (0, 0);
    while cuts < CUTS {
        let from = far.proxy().stats().accepted;
        // What is sent before data moves is about 5 kB.
        for n in 1..=2 * LANES {
            let after = 6_000 + chance.below(bytes);
            far.proxy().set(Connections::Nth(from + n), direction, Fault::CutHard { after });
        }
        far.haul(line).status(0);
        far.same("src", result);
        let root = far.session.path(result);
        assert_eq!(unfinished(&root), Vec::<std::path::PathBuf>::new());
        fs::remove_dir_all(root).unwrap();
        let met = far.proxy().fired().len() as u64;
        far.proxy().clear();
        assert!(met > cuts, "no cut was met");
        cuts = met;
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

/// Waits until at least so many bytes are in part files below a directory.
pub(super) fn wait_for_bytes(root: &std::path::Path, bytes: u64) {
    let begun = Instant::now();
    loop {
        let parts = unfinished(root);
        // A part file may get its name while it is looked at.
        let sizes = parts.iter().filter_map(|part| fs::metadata(part).ok());
        let there: u64 = sizes.map(|metadata| metadata.len()).sum();
        if there >= bytes {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "only {there} bytes ever came");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_server_that_is_killed_and_started_again_in_mid_transfer_costs_a_window_at_most() {
    for (line, result, direction) in [
        ("cp --json --bwlimit 16M --window 4M @/large dst", "dst", Direction::ToClient),
        ("cp --json --bwlimit 16M --window 4M src @/dst", "far/dst", Direction::ToServer),
    ] {
        let mut far = Far::behind_proxy();
        let size = 40 << 20;
        far.session.write("src", content(3, size));
        far.session.write("far/large", content(3, size));
        let root = far.session.path(result).parent().unwrap().to_owned();
        let running = far.spawn(line);
        wait_for_bytes(&root, 8 << 20);
        let lanes = far.proxy().stats().accepted;
        far.sshd.kill_all();
        far.proxy().cut_all();
        std::thread::sleep(Duration::from_secs(1));
        far.sshd.restart();
        let output = running.finish();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{said}");
        far.session.tool(&format!("cmp src {result}"));
        let stats = far.proxy().stats();
        assert!(stats.accepted > lanes, "it met a run that had ended");
        let bytes = match direction {
            Direction::ToClient => stats.to_client.read,
            Direction::ToServer => stats.to_server.read,
        };
        let repeated = bytes.saturating_sub(size as u64);
        eprintln!("{line}: {repeated} bytes more than the file");
        // SSH adds some, too: 1 % is plenty.
        assert!(repeated <= (4 << 20) + size as u64 / 100, "{repeated} bytes were repeated");
    }
}

#[test]
fn a_link_that_goes_dead_in_mid_transfer_is_an_error_within_the_bound_of_the_keepalives() {
    for (line, result) in [
        ("cp --bwlimit 8M --retries 1 @/large dst", ""),
        ("cp --bwlimit 8M --retries 1 src @/dst", "far"),
    ] {
        let far = Far::behind_proxy();
        far.session.write("src", content(4, 40 << 20));
        far.session.write("far/large", content(4, 40 << 20));
        let options = "-o ServerAliveInterval=1 -o ServerAliveCountMax=2 -o ConnectTimeout=1";
        let running = far.spawn(&line.replacen("cp", &format!("cp {options}"), 1));
        wait_for_bytes(&far.session.path(result), 2 << 20);
        for direction in Direction::BOTH {
            far.proxy().set(Connections::All, direction, Fault::Blackhole { from: 0 });
        }
        let dead = Instant::now();
        let output = running.finish();
        let (took, said) = (dead.elapsed(), String::from_utf8_lossy(&output.stderr).into_owned());
        assert_eq!(output.status.code(), Some(1), "{said}");
        let expected = ["ServerAlive", "no answer within 1 s", "timed out"];
        assert!(expected.iter().any(|words| said.contains(words)), "{said}");
        eprintln!("{line}: {took:?}: {said}");
        // Interval and count, twice; a pause between; a second to connect. Without a bound it would
        // be quarters of an hour.
        assert!(took < Duration::from_secs(30), "{took:?}: {said}");
    }
}

#[test]
fn a_program_that_is_killed_over_a_link_repeats_two_windows_at_most() {
    for (line, result, direction) in [
        ("cp --json --bwlimit 6M --window 2M @/src dst", "dst", Direction::ToClient),
        ("cp --json --bwlimit 6M --window 2M src @/dst", "far/dst", Direction::ToServer),
    ] {
        let far = Far::behind_proxy();
        let size = 24 << 20;
        far.session.write("src/large", content(5, size));
        far.session.write("far/src/large", content(5, size));
        let root = far.session.path(result);
        fs::create_dir_all(&root).unwrap();
        let mut chance = Chance(5);
        for _ in 0..3 {
            let running = far.spawn(line);
            std::thread::sleep(Duration::from_millis(300 + chance.below(400)));
            running.kill();
        }
        let line = line.replace("--bwlimit 6M ", "");
        let summary = far.haul(&line).status(0).summary();
        far.same("src", &format!("{result}/src"));
        assert_eq!(unfinished(&root), Vec::<std::path::PathBuf>::new());
        let resumed = summary["resumed_bytes"].as_u64().unwrap();
        let all = match direction {
            Direction::ToClient => far.proxy().stats().to_client.read,
            Direction::ToServer => far.proxy().stats().to_server.read,
        };
        let repeated = all.saturating_sub(size as u64);
        eprintln!("{line}: {resumed} bytes were resumed; {repeated} went more than once");
        assert!(resumed > 0, "{summary}");
        // What has arrived and waits for its record comes on top of the window, three times; SSH
        // adds some.
        assert!(repeated <= 3 * (4 << 20) + size as u64 / 50, "{repeated} bytes were repeated");
    }
}
