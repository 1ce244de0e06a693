//! Describes the machine that a benchmark runs on, as far as results depend on it.

use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::link::Means;
use crate::mounts::unescape;
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
    Ok(file_system_in(&fs::read("/proc/self/mountinfo")?, &path))
}

/// The same from the content of `/proc/self/mountinfo`. Names in it need not be UTF-8.
fn file_system_in(table: &[u8], path: &Path) -> String {
    let mut best = (0, b"unknown".as_slice());
    for line in table.split(|byte| *byte == b'\n') {
        // proc(5): the mount point is the fifth field; the type is the first after a field `-`, which follows any
        // number of optional ones.
        let mut fields = line.split(|byte| *byte == b' ');
        let Some(point) = fields.nth(4).map(unescape) else { continue };
        let Some(kind) = fields.skip_while(|field| *field != b"-").nth(1) else { continue };
        let depth = point.components().count();
        if path.starts_with(&point) && depth >= best.0 {
            best = (depth, kind);
        }
    }
    String::from_utf8_lossy(best.1).into_owned()
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

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    /// Formerly, escaped mount points and those that are not UTF-8 were not recognised.
    #[test]
    fn the_file_system_is_that_of_the_innermost_mount_whatever_its_name() {
        let table = b"21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
            22 21 0:30 / /my\\040disk rw - tmpfs tmpfs rw\n\
            23 21 0:31 / /\xe4 rw shared:2 master:1 - xfs /dev/sdb1 rw\n\
            24 21 0:32 / / rw - overlay overlay rw\n";
        for (path, kind) in [
            (b"/my disk/a".as_slice(), "tmpfs"),
            (b"/\xe4", "xfs"),
            (b"/\xe4a", "overlay"),
            (b"/my\\040disk/a", "overlay"),
        ] {
            let found = file_system_in(table, Path::new(OsStr::from_bytes(path)));
            assert_eq!(found, kind, "{}", path.escape_ascii());
        }
        assert_eq!(file_system_in(b"", Path::new("/")), "unknown");
    }
}
