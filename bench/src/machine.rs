//! Describes the machine that a benchmark runs on, as far as results depend on it.

use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::link::Means;
use crate::record::Machine;

/// Describes this machine. Takes one second, because it measures the CPU load.
pub fn describe(means: Option<Means>) -> io::Result<Machine> {
    let started = SystemTime::now().duration_since(UNIX_EPOCH).map_err(io::Error::other)?.as_secs();
    let processors = fs::read_to_string("/proc/cpuinfo")?;
    let processor = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("unknown", |(_, name)| name.trim());
    Ok(Machine {
        started,
        processor: processor.to_owned(),
        cores: thread::available_parallelism()?.get(),
        memory: memory()?,
        kernel: setting("/proc/sys/kernel/osrelease"),
        congestion_control: setting("/proc/sys/net/ipv4/tcp_congestion_control"),
        tcp_send_buffer: largest("/proc/sys/net/ipv4/tcp_wmem"),
        tcp_receive_buffer: largest("/proc/sys/net/ipv4/tcp_rmem"),
        links: means.map_or("none".to_owned(), |means| means.to_string()),
        busy: busy()?,
    })
}

/// Total memory in bytes.
pub(crate) fn memory() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    text.lines()
        .find_map(|line| {
            let kibibytes = line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?;
            Some(kibibytes.parse::<u64>().ok()? * 1024)
        })
        .ok_or_else(|| io::Error::other("/proc/meminfo has no MemTotal"))
}

/// The type of the file system that contains `path`, such as `ext4`.
pub(crate) fn file_system(path: &Path) -> io::Result<String> {
    let path = path.canonicalize()?;
    // Names need not be UTF-8.
    let table = fs::read("/proc/self/mountinfo")?;
    let table = String::from_utf8_lossy(&table);
    let mut best = (0, "unknown");
    for line in table.lines() {
        // proc(5): the mount point is the fifth field, the type the first after " - ".
        let Some((mount, kind)) = line.split_once(" - ") else { continue };
        let Some(point) = mount.split(' ').nth(4) else { continue };
        let depth = Path::new(point).components().count();
        if path.starts_with(point) && depth >= best.0 {
            best = (depth, kind.split(' ').next().unwrap_or("unknown"));
        }
    }
    Ok(best.1.to_owned())
}

/// The value of a kernel setting; `unknown` if the kernel does not have it.
fn setting(path: &str) -> String {
    fs::read_to_string(path).map_or("unknown".to_owned(), |text| text.trim().to_owned())
}

/// The maximum of a setting with minimum, default and maximum; 0 if the kernel does not have it.
fn largest(path: &str) -> u64 {
    setting(path).split_ascii_whitespace().last().and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// The share of CPU time, from 0 to 1, during which the processors were not idle, measured over one second.
fn busy() -> io::Result<f64> {
    let times = || -> io::Result<(u64, u64)> {
        let text = fs::read_to_string("/proc/stat")?;
        let line = text.lines().next().unwrap_or_default();
        let ticks: Vec<u64> =
            line.split_ascii_whitespace().filter_map(|field| field.parse().ok()).collect();
        // proc(5): idle and iowait are the fourth and fifth.
        Ok((ticks.iter().take(8).sum(), ticks.iter().skip(3).take(2).sum()))
    };
    let (all, idle) = times()?;
    thread::sleep(Duration::from_secs(1));
    let (all_later, idle_later) = times()?;
    // proc(5): the count of iowait may decrease.
    let (all, idle) = (all_later.saturating_sub(all), idle_later.saturating_sub(idle));
    let (all, idle) = (all as f64, idle as f64);
    Ok(if all > 0.0 { ((all - idle) / all * 1000.0).round() / 1000.0 } else { 0.0 })
}
