//! Tells processes of a test from other processes of the machine.

use std::fs;

/// A process and its ancestors, up to but not including process 1.
pub fn lineage(process: u32) -> Vec<u32> {
    std::iter::successors(Some(process), |process| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        parent.trim().parse().ok().filter(|parent| *parent > 1)
    })
    .collect()
}
