//! Messages for people: events and results as text.

use std::time::Duration;

use haul_engine::fan::{FanSummary, HostEnd, HostOutcome};
use haul_engine::tree::{Comparison, Totals};
use haul_engine::verify::VerifySummary;
use haul_engine::{Action, FileEvent, Summary};
use haul_net::Wait;
use haul_storage::{Error, LinkStatus, RelPath, Timestamp};

use crate::units::{bytes, duration, per_second, rate};

/// A finished file or other entry, as `-v`, `--itemize-changes` and `--dry-run` print it.
pub(crate) fn file(event: &FileEvent, path: &RelPath) -> String {
    let word = match (event.action, event.dry_run) {
        (Action::Copied, false) => "copied",
        (Action::Copied, true) => "would copy",
        (Action::Linked, false) => "linked",
        (Action::Linked, true) => "would link",
        (Action::Removed, false) => "removed",
        (Action::Removed, true) => "would remove",
        (Action::Unchanged, _) => "unchanged",
    };
    let mut line = format!("{word} {path}");
    let mut details: Vec<String> = Vec::new();
    details.extend(event.reason.map(|reason| reason.name().to_owned()));
    if event.action == Action::Copied {
        details.push(bytes(event.bytes));
        if event.resumed_bytes > 0 {
            details.push(format!("{} resumed", bytes(event.resumed_bytes)));
        }
    }
    if !details.is_empty() {
        line.push_str(&format!(" ({})", details.join(", ")));
    }
    line
}

/// The RTT, as `latency 12.3 ms`.
pub(crate) fn latency(rtt: Duration) -> String {
    format!("latency {:.1} ms", rtt.as_secs_f64() * 1000.0)
}

/// The line that `-v` prints when an SFTP host is connected.
pub(crate) fn connected(host: &str, link: &LinkStatus, rtts: u32) -> String {
    let mut line = format!("{host}: connected");
    if let Some(connect) = link.connect {
        line.push_str(&format!(" in {}", duration(connect)));
    }
    line.push_str(&format!(", {}", plural(rtts.into(), "round trip")));
    if let Some(rtt) = link.rtt {
        line.push_str(&format!("; {}", latency(rtt)));
    }
    line
}

/// The line that `-v` prints when an HTTP or FTP server or a peer is connected. Lanes are opened on demand, so the
/// number of RTTs is unknown.
pub(crate) fn reached(host: &str, link: &LinkStatus) -> String {
    let mut line = format!("{host}: connected");
    if let Some(connect) = link.connect {
        line.push_str(&format!(" in {}", duration(connect)));
    }
    if let Some(rtt) = link.rtt {
        line.push_str(&format!("; {}", latency(rtt)));
    }
    line
}

/// The result of a transfer, in one line.
pub(crate) fn summary(summary: &Summary, dry_run: bool, verbose: bool) -> String {
    let mut parts = Vec::new();
    // First, so that it is not overlooked.
    if summary.failed > 0 {
        parts.push(format!("{} failed", summary.failed));
    }
    if summary.interrupted {
        parts.push("interrupted".to_owned());
    }
    parts.push(format!("{}, {}", plural(summary.files, "file"), bytes(summary.bytes)));
    if dry_run {
        let new = summary.files.saturating_sub(summary.unchanged + summary.replaced);
        let counts = [(new, "copy"), (summary.replaced, "replace"), (summary.removed, "remove")];
        let counts = counts.map(|(count, word)| format!("{word} {count}"));
        parts.insert(
            parts.len() - 1,
            format!("dry run, nothing was done; would {}", counts.join(", ")),
        );
    } else {
        parts.push(format!(
            "moved {} in {}, {}",
            bytes(summary.moved_bytes),
            duration(summary.elapsed),
            rate(per_second(summary.moved_bytes, summary.elapsed))
        ));
    }
    if summary.resumed_bytes > 0 {
        parts.push(format!("resumed {}", bytes(summary.resumed_bytes)));
    }
    let counts = [
        (summary.unchanged, "unchanged"),
        (if dry_run { 0 } else { summary.replaced }, "replaced"),
        (if dry_run { 0 } else { summary.removed }, "removed"),
        (summary.skipped, "skipped"),
        (summary.verified, "verified"),
    ];
    parts.extend(
        counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{count} {word}")),
    );
    match summary.retries {
        0 => {}
        1 => parts.push("1 retry".to_owned()),
        retries => parts.push(format!("{retries} retries")),
    }
    if verbose {
        parts.push(plural(summary.links, "link"));
        if summary.link.lanes > 0 {
            parts.push(plural(summary.link.lanes as u64, "lane"));
            parts.push(format!("window {}", bytes(summary.link.window_bytes)));
        }
        parts.extend(summary.link.rtt.map(latency));
        parts.extend(summary.link.path.map(|path| format!("path {path}")));
    }
    parts.join("; ")
}

/// The detailed result of a transfer, as `--stats` prints it.
pub(crate) fn stats(summary: &Summary) -> Vec<String> {
    let new = summary.files.saturating_sub(summary.unchanged + summary.replaced);
    let mut lines = vec![
        format!(
            "files: {} ({new} new, {} replaced, {} unchanged)",
            summary.files, summary.replaced, summary.unchanged
        ),
        format!("directories made: {}", summary.directories),
        format!("links made: {}", summary.links),
        format!("removed: {}", summary.removed),
        format!("verified: {}", summary.verified),
        format!("skipped: {}", summary.skipped),
        format!("failed: {}", summary.failed),
        format!("size of all files: {} bytes", summary.bytes),
        format!("moved: {} bytes", summary.moved_bytes),
        format!("resumed: {} bytes", summary.resumed_bytes),
        format!("time: {:.2} s", summary.elapsed.as_secs_f64()),
        format!("rate: {}", rate(per_second(summary.moved_bytes, summary.elapsed))),
        format!("retries: {}", summary.retries),
    ];
    if summary.link.lanes > 0 {
        lines.push(format!("connections at once: {}", summary.link.lanes));
        lines.push(format!("window: {} bytes", summary.link.window_bytes));
    }
    if let Some(connect) = summary.link.connect {
        lines.push(format!("time to connect: {:.0} ms", connect.as_secs_f64() * 1000.0));
    }
    if let Some(rtt) = summary.link.rtt {
        lines.push(format!("round-trip time: {:.1} ms", rtt.as_secs_f64() * 1000.0));
    }
    lines
}

/// The result of a removal, in one line.
pub(crate) fn removal(removed: &Totals, failed: u64, dry_run: bool) -> String {
    let mut parts = vec![plural(removed.files, "file")];
    if removed.directories > 0 {
        let word = if removed.directories == 1 { "directory" } else { "directories" };
        parts.push(format!("{} {word}", removed.directories));
    }
    if removed.others > 0 {
        parts.push(format!("{} other", removed.others));
    }
    let word = if dry_run { "would remove" } else { "removed" };
    let failed = if failed > 0 { format!("; {failed} failed") } else { String::new() };
    format!("{word} {}, {}{failed}", parts.join(", "), bytes(removed.bytes))
}

/// The result of `check`, in one line.
pub(crate) fn comparison(comparison: &Comparison, elapsed: Duration) -> String {
    let counts = [
        (comparison.differing, "differing"),
        (comparison.missing, "missing"),
        (comparison.extra, "extra"),
        (comparison.failed, "failed"),
    ];
    let mut parts = vec![format!("{} same", comparison.same)];
    if comparison.by_size > 0 {
        parts.push(format!(
            "{} of these by size alone, since times are not preserved",
            comparison.by_size
        ));
    }
    if comparison.reported > 0 {
        parts.push(format!("{} of these by digests from the server", comparison.reported));
    }
    parts.extend(
        counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{count} {word}")),
    );
    if comparison.bytes > 0 {
        parts.push(format!("read {}", bytes(comparison.bytes)));
    }
    format!("{} in {}", parts.join("; "), duration(elapsed))
}

/// The prefix of messages about one of many hosts; empty without a host.
pub(crate) fn prefix(host: Option<&str>) -> String {
    host.map(|host| format!("{host}: ")).unwrap_or_default()
}

/// The result for one of many hosts, in one line. `failure` is its first failure, `failed` their number.
pub(crate) fn host(name: &str, end: &HostEnd, failed: u64, failure: Option<&str>) -> String {
    let summary = match &end.outcome {
        HostOutcome::NotBegun => return format!("{name}: not started"),
        HostOutcome::Unopened(error) => return format!("{name}: failed: {error}"),
        HostOutcome::Moved(summary) => summary,
    };
    let mut line = format!(
        "{name}: {}, {} in {}, {}",
        plural(summary.files, "file"),
        bytes(summary.bytes),
        duration(end.elapsed),
        rate(per_second(summary.moved_bytes, end.elapsed))
    );
    if summary.unchanged > 0 {
        line.push_str(&format!("; {} unchanged", summary.unchanged));
    }
    match (failed, failure) {
        (0, _) if summary.interrupted => line.push_str("; stopped"),
        (0, _) => {}
        (1, Some(failure)) => line.push_str(&format!("; failed: {failure}")),
        (failed, Some(failure)) => {
            line.push_str(&format!("; {failed} failed, first: {failure}"));
        }
        (failed, None) => line.push_str(&format!("; {failed} failed")),
    }
    line
}

/// The result of a copy to or from many hosts, in one line.
pub(crate) fn fan_summary(all: &FanSummary, dry_run: bool, verbose: bool) -> String {
    let mut parts = vec![plural(all.hosts, "host")];
    let counts = [(all.failed_hosts, "failed"), (all.stopped_hosts, "stopped")];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    parts.extend(counts.map(|(count, word)| format!("{count} {word}")));
    if verbose && all.source_bytes > 0 {
        parts.push(format!("{} read", bytes(all.source_bytes)));
    }
    if all.total.failed > all.failed_hosts {
        parts.push(plural(all.total.failed, "failure"));
    }
    // Failures and interruptions were printed with their hosts.
    let total = Summary { failed: 0, interrupted: false, ..all.total.clone() };
    format!("{}; {}", parts.join(", "), summary(&total, dry_run, verbose))
}

/// The progress of `verify`, whose totals are unknown, in one line: `count` is the number of bytes read.
pub(crate) fn counted(files: u64, count: u64, elapsed: Duration) -> String {
    let speed = rate(per_second(count, elapsed));
    format!("{}  {}  {speed}", plural(files, "file"), bytes(count))
}

/// The result of `verify`, in one line.
pub(crate) fn verified(summary: &VerifySummary, elapsed: Duration) -> String {
    let mut parts = vec![format!("{} as listed", plural(summary.matched, "file"))];
    if summary.reported > 0 {
        parts.push(format!("{} of these by digests from the server", summary.reported));
    }
    let counts = [
        (summary.mismatched, "mismatched"),
        (summary.missing, "missing"),
        (summary.unreadable, "unreadable"),
        (summary.extra, "not listed"),
        (summary.malformed, "malformed in the manifest"),
        (summary.skipped, "skipped in the manifest"),
    ];
    parts.extend(
        counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{count} {word}")),
    );
    parts.push(format!(
        "read {} in {}, {}",
        bytes(summary.bytes),
        duration(elapsed),
        rate(per_second(summary.bytes, elapsed))
    ));
    if summary.interrupted {
        parts.push("interrupted before the end".to_owned());
    }
    parts.join("; ")
}

/// An operation that will be retried after `pause`.
pub(crate) fn retry(host: Option<&str>, error: &Error, attempt: u32, pause: Duration) -> String {
    format!("haul: {}{error}; retry {attempt} in {}", prefix(host), duration(pause))
}

/// A host that has not responded for a long time.
pub(crate) fn waiting(wait: &Wait) -> String {
    let Wait { host, what, waited } = wait;
    format!("haul: waiting for {host}: {what} ({} s)", waited.as_secs())
}

/// The current local time with its UTC offset, for a line of the log.
pub(crate) fn now() -> String {
    jiff::Zoned::now().strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
}

/// `1 file`, `2 files`.
pub(crate) fn plural(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// A time in UTC as RFC 3339 writes it, with nanoseconds if wanted and not zero; `@SECONDS` outside the calendar.
pub(crate) fn utc(time: Timestamp, with_nanos: bool) -> String {
    let Some(second) = (Timestamp { nanos: 0, ..time }).utc() else { return time.date() };
    let mut text = second.to_string();
    if with_nanos && time.nanos > 0 {
        text.push_str(&format!(".{:09}", time.nanos));
    }
    text.push('Z');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_printed_in_utc() {
        let at = |seconds, nanos| utc(Timestamp { seconds, nanos }, true);
        assert_eq!(at(0, 0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400, 5), "2000-02-29T00:00:00.000000005Z");
        assert_eq!(at(-1, 0), "1969-12-31T23:59:59Z");
        assert_eq!(at(4_102_444_799, 0), "2099-12-31T23:59:59Z");
    }
}
