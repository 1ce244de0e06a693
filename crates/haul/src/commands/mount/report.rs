//! The status report of a mount. `haul mount --status --json` prints it as an object; `status` formats it as text.

use std::thread;
use std::time::{Duration, Instant};

use haul_mount::{CacheStatus, Observer, OpenFile};
use serde::{Deserialize, Serialize};

use crate::units::per_second;

/// Time over which rates are measured.
const SAMPLE: Duration = Duration::from_millis(500);

/// The report of a mount. A mount of an older version may lack fields.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Report {
    pub(super) event: String,
    pub(super) location: String,
    pub(super) mount_point: String,
    pub(super) pid: u32,
    pub(super) read_only: bool,
    /// Files that wait to be uploaded.
    pub(super) pending_files: usize,
    pub(super) seconds: u64,
    pub(super) open_files: usize,
    /// The open files; at most 1 000.
    pub(super) files: Vec<File>,
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) disk_hits: u64,
    pub(super) fetched_bytes: u64,
    pub(super) bytes_per_second: u64,
    pub(super) memory_bytes: u64,
    pub(super) max_memory_bytes: u64,
    pub(super) ahead_bytes: u64,
    pub(super) read_ahead_bytes: u64,
    pub(super) window_bytes: u64,
    pub(super) in_flight_bytes: u64,
    pub(super) lanes: usize,
    pub(super) open_lanes: usize,
    pub(super) rtt_ms: Option<f64>,
    pub(super) queueing_ms: Option<f64>,
    /// Only in the share of a peer, while a lane is open.
    pub(super) link_path: Option<LinkPath>,
    pub(super) cache: Option<Cache>,
}

/// An open file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct File {
    pub(super) path: String,
    pub(super) size: u64,
    pub(super) read_bytes: u64,
    pub(super) bytes_per_second: u64,
}

/// The path of the lanes to a peer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct LinkPath {
    /// `direct`, `reverse`, `simultaneous open` or `bridge`.
    pub(super) kind: String,
    pub(super) address: String,
}

/// The cache on disk.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Cache {
    pub(super) directory: String,
    pub(super) bytes: u64,
    pub(super) max_bytes: u64,
    pub(super) blocks: usize,
    pub(super) damaged: u64,
    pub(super) fault: Option<String>,
}

/// The constant part of the reports of a mount.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    pub(super) location: String,
    pub(super) mount_point: String,
    pub(super) read_only: bool,
    pub(super) since: Instant,
}

impl Subject {
    /// Samples the mount for half a second and returns its report; `None` if it has ended.
    pub(super) fn report(&self, observer: &Observer) -> Option<Report> {
        let (before, start) = (observer.status()?, Instant::now());
        thread::sleep(SAMPLE);
        let now = observer.status()?;
        let took = start.elapsed();
        let file = |file: &OpenFile| {
            let earlier = before.files.iter().find(|one| one.handle == file.handle);
            let read = file.read.saturating_sub(earlier.map_or(0, |one| one.read));
            File {
                path: file.path.to_string(),
                size: file.size,
                read_bytes: file.read,
                bytes_per_second: per_second(read, took),
            }
        };
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        Some(Report {
            event: "mount".to_owned(),
            location: self.location.clone(),
            mount_point: self.mount_point.clone(),
            pid: std::process::id(),
            read_only: self.read_only,
            pending_files: now.pending,
            seconds: self.since.elapsed().as_secs(),
            open_files: now.open_files,
            files: now.files.iter().map(file).collect(),
            hits: now.reads.hits,
            misses: now.reads.misses,
            disk_hits: now.reads.disk_hits,
            fetched_bytes: now.reads.fetched,
            bytes_per_second: per_second(
                now.reads.fetched.saturating_sub(before.reads.fetched),
                took,
            ),
            memory_bytes: now.memory.used,
            max_memory_bytes: now.memory.limit,
            ahead_bytes: now.memory.ahead,
            read_ahead_bytes: now.memory.read_ahead,
            window_bytes: now.window.bytes,
            in_flight_bytes: now.window.in_flight,
            lanes: now.window.lanes,
            open_lanes: now.link.open,
            rtt_ms: now.link.rtt.map(ms),
            queueing_ms: now.link.queueing.map(ms),
            link_path: now.link.path.map(LinkPath::from),
            cache: now.cache.map(Cache::from),
        })
    }
}

impl From<haul_storage::LinkPath> for LinkPath {
    fn from(path: haul_storage::LinkPath) -> Self {
        Self { kind: path.kind.name().to_owned(), address: path.address.to_string() }
    }
}

impl From<CacheStatus> for Cache {
    fn from(status: CacheStatus) -> Self {
        Self {
            directory: status.directory.display().to_string(),
            bytes: status.held,
            max_bytes: status.limit,
            blocks: status.blocks,
            damaged: status.damaged,
            fault: status.fault,
        }
    }
}
