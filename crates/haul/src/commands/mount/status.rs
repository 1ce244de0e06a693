//! `haul mount --status`: prints the state of this user's mounts.

use std::ffi::OsStr;
use std::io;
use std::path::{self, Path, PathBuf};
use std::time::Duration;

use haul_storage::{Error, ErrorKind};

use super::control::reports;
use super::report::{Cache, File, LinkPath, Report};
use crate::exit::{Exit, Stop};
use crate::output::Printer;
use crate::units::{bytes, duration, rate};

/// Maximum number of open files of a mount that are printed as text.
const MOST_FILES: usize = 20;

/// Prints the state of all mounts, or of the one at `point`.
pub(super) fn run(point: Option<&OsStr>, printer: &Printer) -> Result<Exit, Stop> {
    let wanted = point.map(|point| absolute(Path::new(point)));
    let (mut found, failures) = chosen(reports(), wanted.as_deref());
    failures.iter().for_each(|error| printer.failure(error));
    let exit = if failures.is_empty() { Exit::Done } else { Exit::Failed };
    if let Some(wanted) = &wanted
        && found.is_empty()
    {
        return Err(Error::new(ErrorKind::NotFound, "read status")
            .at(wanted.display())
            .because("no haul mount of this user is there")
            .hinting("haul mount --status lists all")
            .into());
    }
    found.sort_by(|a, b| a.mount_point.cmp(&b.mount_point));
    for (at, report) in found.iter().enumerate() {
        if printer.is_json() {
            printer.object(report);
            continue;
        }
        if at > 0 {
            printer.result("");
        }
        lines(report).iter().for_each(|line| printer.result(line));
    }
    if found.is_empty() && exit == Exit::Done {
        printer.note("nothing is mounted");
    }
    Ok(exit)
}

/// The reports of all mounts, or only that of the mount at `wanted`, and the errors of mounts that do not respond. If
/// the wanted one has responded, the errors of others are dropped.
fn chosen(
    reports: Vec<(PathBuf, io::Result<Vec<u8>>)>,
    wanted: Option<&Path>,
) -> (Vec<Report>, Vec<Error>) {
    let (mut found, mut failures) = (Vec::new(), Vec::new());
    for (socket, report) in reports {
        let parse =
            |report: Vec<u8>| serde_json::from_slice::<Report>(&report).map_err(io::Error::from);
        match report.and_then(parse) {
            Ok(report) => found.push(report),
            // Its process is suspended, or runs an incompatible version.
            Err(error) => failures.push(Error::from_io("read status", error).at(socket.display())),
        }
    }
    if let Some(wanted) = wanted {
        found.retain(|report| Path::new(&report.mount_point) == wanted);
        if !found.is_empty() {
            failures.clear();
        }
    }
    (found, failures)
}

/// The canonical path. If it cannot be determined, such as that of a mount point whose server does not respond, the
/// absolute path without links resolved.
pub(super) fn absolute(point: &Path) -> PathBuf {
    let canonical = point.canonicalize().or_else(|_| path::absolute(point));
    canonical.unwrap_or_else(|_| point.to_owned())
}

/// A report as lines of text.
fn lines(report: &Report) -> Vec<String> {
    let since = duration(Duration::from_secs(report.seconds));
    let access = if report.read_only { "read-only" } else { "read-write" };
    let mut lines = vec![
        report.mount_point.clone(),
        format!("  location    {}, {access}, for {since}, pid {}", report.location, report.pid),
        format!("  received    {}, {}", bytes(report.fetched_bytes), rate(report.bytes_per_second)),
        format!("  blocks      {}", hits(report)),
        format!(
            "  memory      {} of {}, {} read ahead",
            bytes(report.memory_bytes),
            bytes(report.max_memory_bytes),
            bytes(report.ahead_bytes)
        ),
        format!("  read-ahead  {} for each file", bytes(report.read_ahead_bytes)),
        format!("  link        {}", link(report)),
    ];
    lines.extend(report.cache.as_ref().map(|cache| format!("  cache       {}", cached(cache))));
    if !report.read_only {
        lines.push(format!("  to upload   {}", report.pending_files));
    }
    lines.push(format!("  open        {}", report.open_files));
    let mut files: Vec<&File> = report.files.iter().collect();
    files.sort_by_key(|file| std::cmp::Reverse(file.bytes_per_second));
    lines.extend(files.iter().take(MOST_FILES).map(|file| {
        let speed = rate(file.bytes_per_second);
        format!(
            "    {}: {speed}, {} read of {}",
            file.path,
            bytes(file.read_bytes),
            bytes(file.size)
        )
    }));
    if report.open_files > MOST_FILES {
        lines.push(format!("    and {} more", report.open_files - MOST_FILES.min(files.len())));
    }
    lines
}

fn hits(report: &Report) -> String {
    let all = report.hits + report.misses;
    let percent = |part: u64| (part * 100).checked_div(all).unwrap_or(0);
    let mut text = format!("{} % of {all} from memory", percent(report.hits));
    if report.cache.is_some() {
        text.push_str(&format!(", {} read from disk", report.disk_hits));
    }
    text
}

fn link(report: &Report) -> String {
    let flight =
        format!("{} of {} in flight", bytes(report.in_flight_bytes), bytes(report.window_bytes));
    let Some(rtt) = report.rtt_ms else { return flight };
    let lanes = if report.open_lanes == 1 { "lane" } else { "lanes" };
    let mut text = format!("{flight}, {} {lanes}, latency {rtt:.1} ms", report.open_lanes);
    if let Some(queueing) = report.queueing_ms {
        text.push_str(&format!(" and {queueing:.1} ms of queueing"));
    }
    if let Some(LinkPath { kind, address }) = &report.link_path {
        text.push_str(&format!(", path {address} ({kind})"));
    }
    text
}

fn cached(cache: &Cache) -> String {
    let mut text =
        format!("{} of {} in {}", bytes(cache.bytes), bytes(cache.max_bytes), cache.directory);
    if cache.damaged > 0 {
        text.push_str(&format!(", {} damaged blocks fetched again", cache.damaged));
    }
    if let Some(fault) = &cache.fault {
        text.push_str(&format!(", not written ({fault})"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Report {
        let file = |path: &str, bytes_per_second| File {
            path: path.to_owned(),
            size: 2048,
            read_bytes: 1024,
            bytes_per_second,
        };
        Report {
            mount_point: "/mnt/nas".to_owned(),
            location: "sftp://nas/photos".to_owned(),
            pid: 7,
            read_only: true,
            seconds: 61,
            open_files: 2,
            files: vec![file("a", 0), file("b", 1 << 20)],
            hits: 3,
            misses: 1,
            fetched_bytes: 3 << 20,
            window_bytes: 8 << 20,
            open_lanes: 2,
            rtt_ms: Some(20.5),
            ..Report::default()
        }
    }

    /// Formerly, the status of one mount failed while another one was suspended.
    #[test]
    fn a_mount_that_does_not_respond_does_not_fail_the_status_of_another() {
        let counts = |wanted: Option<&str>| {
            let whole = serde_json::to_vec(&example()).unwrap();
            let silent = io::Error::from(io::ErrorKind::TimedOut);
            let reports = vec![(PathBuf::from("1"), Ok(whole)), (PathBuf::from("2"), Err(silent))];
            let (found, failures) = chosen(reports, wanted.map(Path::new));
            (found.len(), failures.len())
        };
        assert_eq!(counts(Some("/mnt/nas")), (1, 0));
        assert_eq!(counts(None), (1, 1));
        // The mount that does not respond may be the wanted one.
        assert_eq!(counts(Some("/mnt/other")), (0, 1));
    }

    #[test]
    fn a_report_has_the_open_files_and_their_rates() {
        let text = lines(&example()).join("\n");
        assert!(text.starts_with("/mnt/nas\n  location    sftp://nas/photos, read-only"), "{text}");
        assert!(text.contains("  blocks      75 % of 4 from memory\n"), "{text}");
        assert!(text.contains("in flight, 2 lanes, latency 20.5 ms\n"), "{text}");
        let (b, a) = (text.find("    b: 1.00 MiB/s"), text.find("    a: 0 B/s, 1.00 KiB read of"));
        assert!(b.is_some() && a > b, "{text}");
        assert!(!text.contains("cache") && !text.contains("more"), "{text}");
        assert!(!text.contains("to upload"), "{text}");
    }

    #[test]
    fn a_report_names_the_path_of_the_lanes_to_a_peer() {
        let (kind, address) = ("bridge".to_owned(), "192.0.2.7:4181".to_owned());
        let report = Report { link_path: Some(LinkPath { kind, address }), ..example() };
        let text = lines(&report).join("\n");
        assert!(text.contains("latency 20.5 ms, path 192.0.2.7:4181 (bridge)\n"), "{text}");
    }

    #[test]
    fn the_report_of_a_read_write_mount_has_the_number_of_files_that_wait() {
        let report = Report { read_only: false, pending_files: 3, ..example() };
        let text = lines(&report).join("\n");
        assert!(text.contains("  location    sftp://nas/photos, read-write, for "), "{text}");
        assert!(text.contains("\n  to upload   3\n  open        2\n"), "{text}");
    }

    #[test]
    fn a_cache_and_its_fault_are_named() {
        let cache = Cache {
            directory: "/c".to_owned(),
            max_bytes: 1 << 30,
            damaged: 2,
            fault: Some("no space left".to_owned()),
            ..Cache::default()
        };
        let text = lines(&Report { cache: Some(cache), ..example() }).join("\n");
        assert!(text.contains("of 4 from memory, 0 read from disk\n"), "{text}");
        let expected = "in /c, 2 damaged blocks fetched again, not written (no space left)\n";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn a_report_of_another_version_is_read() {
        let text = br#"{"event":"mount","mount_point":"/m","new":[1]}"#;
        let report: Report = serde_json::from_slice(text).unwrap();
        assert_eq!((report.mount_point.as_str(), report.files.len()), ("/m", 0));
        let whole = serde_json::to_vec(&example()).unwrap();
        assert_eq!(serde_json::from_slice::<Report>(&whole).unwrap(), example());
    }
}
