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
