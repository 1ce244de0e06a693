//! The table of a scenario as text without markup, which both Markdown and HTML use.
//!
//! Columns that are empty in all rows are omitted: a local copy has no server CPU time and no share of a limit.

use crate::record::{LinkShape, Machine, Measure, Scenario};
use crate::stats::Summary;

use super::results::{ScenarioResults, Section};
use super::row::{self, Row};
use super::units;

/// Remark on a scenario whose data fit into memory.
pub(super) const PAGE_CACHE: &str = "page cache: no figure of a disk";

/// Longest note shown in a table, in characters; the results file has the rest.
const NOTE_CHARACTERS: usize = 240;

/// A table. Every row has as many columns as there are heads.
pub(super) struct Table {
    /// Column heads; the first is that of the tool.
    pub(super) heads: Vec<String>,
    /// In the order of the scenario's rows.
    pub(super) rows: Vec<TableRow>,
}

/// The row of one tool with certain settings.
pub(super) struct TableRow {
    /// The tool and its settings.
    pub(super) label: String,
    /// Highlight this row.
    pub(super) emphasised: bool,
    /// Whether there are figures; otherwise the note has the reason.
    pub(super) measured: bool,
    /// The figures under all heads but the first.
    pub(super) cells: Vec<Option<String>>,
    /// A remark on the figures, or the reason why there are none.
    pub(super) note: Option<String>,
}

type Figure = Box<dyn Fn(&Row) -> Option<String>>;

impl Table {
    pub(super) fn of(results: &ScenarioResults) -> Self {
        let columns: Vec<(String, Figure)> = columns(results)
            .into_iter()
            .filter(|(_, figure)| results.rows.iter().any(|row| figure(row).is_some()))
            .collect();
        let rows = results.rows.iter().map(|row| TableRow {
            label: row.label(),
            emphasised: row.is_haul(),
            measured: row.correct_runs() > 0,
            cells: columns.iter().map(|(_, figure)| figure(row)).collect(),
            note: row.note().map(|note| shortened(&note)),
        });
        let rows = rows.collect();
        let heads = columns.into_iter().map(|(head, _)| head);
        Self { heads: std::iter::once("Tool".to_owned()).chain(heads).collect(), rows }
    }
}

/// The conditions of a scenario (link, data, rounds), each as a phrase.
pub(super) fn conditions(scenario: &Scenario) -> Vec<String> {
    let mut phrases = Vec::new();
    if let Some(link) = &scenario.link {
        phrases.push(link_phrase(link));
    }
    let data = units::data(scenario.bytes as f64);
    let files = match scenario.files {
        1 => "1 file".to_owned(),
        files => format!("{files} files"),
    };
    phrases.push(format!("{files}, {data}, on {}", scenario.storage));
    phrases.push(match scenario.rounds {
        1 => "1 counted round".to_owned(),
        rounds => format!("{rounds} counted rounds"),
    });
    phrases
}

/// Properties of the machine, as name and value.
pub(super) fn machine_facts(machine: &Machine) -> Vec<(&'static str, String)> {
    let buffers = format!(
        "at most {} to send, {} to receive",
        units::memory(machine.tcp_send_buffer),
        units::memory(machine.tcp_receive_buffer)
    );
    vec![
        ("Measured", units::date(machine.started)),
        ("Processor", format!("{}, {} cores", machine.processor, machine.cores)),
        ("Memory", units::memory(machine.memory)),
        ("Kernel", machine.kernel.clone()),
        ("TCP", format!("{}, buffers {buffers}", machine.congestion_control)),
        ("Links", machine.links.clone()),
        ("Busy before", units::percent(machine.busy)),
    ]
}

/// The tools of a section, each with the first line of its version, sorted by name.
pub(super) fn versions(section: &Section) -> Vec<String> {
    let mut versions: Vec<String> = section
        .rows()
        .filter_map(|row| {
            let version = row.version.lines().next().map(str::trim)?;
            let named = version.to_lowercase().starts_with(&row.tool.to_lowercase());
            match (version.is_empty(), named) {
                (true, _) => None,
                (false, true) => Some(version.to_owned()),
                (false, false) => Some(format!("{} {version}", row.tool)),
            }
        })
        .collect();
    versions.sort();
    versions.dedup();
    versions
}

fn columns(results: &ScenarioResults) -> Vec<(String, Figure)> {
    let measure = results.scenario.measure;
    let transfer = measure == Measure::Transfer;
    let short = matches!(measure, Measure::Connect | Measure::FirstByte);
    let mut columns: Vec<(String, Figure)> = Vec::new();
    let mut column = |head: &str, figure: Figure| columns.push((head.to_owned(), figure));
    if measure == Measure::Mount {
        column("First byte, ms", Box::new(|row| row.latency.map(median_ms)));
        column("Reading, MB/s", Box::new(|row| row.rate.map(median_rate)));
    }
    for name in results.part_names() {
        let (head, range_head) = (format!("{name}, s"), format!("{name}, range, s"));
        let part = name.clone();
        column(&head, Box::new(move |row| Some(units::significant(row.part(&part)?.median))));
        column(&range_head, Box::new(move |row| Some(range(row.part(&name)?, 1.0))));
    }
    if transfer {
        column("MB/s", Box::new(|row| row.rate.map(median_rate)));
        column("Of limit", Box::new(|row| row.share.map(units::percent)));
    }
    if short {
        column("Median, ms", Box::new(|row| row.latency.map(median_ms)));
        column("Range, ms", Box::new(|row| row.latency.map(|s| range(s, 1e3))));
    }
    column(&reference_head(results), Box::new(|row| row.against_reference.map(ratio)));
    if transfer {
        column("Median, s", Box::new(|row| row.seconds.map(|s| units::significant(s.median))));
        column("Range, s", Box::new(|row| row.seconds.map(|s| range(s, 1.0))));
    }
    column("Client CPU, s", Box::new(|row| row.client_cpu.map(units::significant)));
    column("Server CPU, s", Box::new(|row| row.server_cpu.map(units::significant)));
    column("Peak RSS, MiB", Box::new(|row| row.peak_rss.map(|rss| units::mebibytes(rss as f64))));
    let (head, unit) = if short { ("Wire, kB", 1e3) } else { ("Wire, MB", 1e6) };
    column(head, Box::new(move |row| row.wire.map(|bytes| units::significant(bytes / unit))));
    column(
        "Wire / data",
        Box::new(|row| row.wire_overhead.map(|overhead| format!("{overhead:.3}"))),
    );
    column("Runs", Box::new(runs));
    columns
}

/// The head of the column of speeds: it names the reference tool and, of several parts, the one that is compared.
fn reference_head(results: &ScenarioResults) -> String {
    let speed = match results.part_names().as_slice() {
        [_, .., last] => format!("Speed ({last})"),
        _ => "Speed".to_owned(),
    };
    match row::reference(&results.rows) {
        Some(row) => format!("{speed}, {} = 1", row.label()),
        None => speed,
    }
}

fn median_ms(summary: Summary) -> String {
    units::milliseconds(summary.median)
}

fn median_rate(summary: Summary) -> String {
    units::megabytes(summary.median)
}

fn range(summary: Summary, times: f64) -> String {
    let (min, max) = (summary.min * times, summary.max * times);
    format!("{}–{}", units::significant(min), units::significant(max))
}

/// Two decimals, or three below 0.095, where two would leave a single significant digit.
fn ratio(ratio: f64) -> String {
    let decimals = if ratio < 0.095 { 3 } else { 2 };
    format!("{ratio:.decimals$}")
}

fn runs(row: &Row) -> Option<String> {
    match (row.counted, row.correct_runs()) {
        (0, _) => None,
        (counted, correct) if counted == correct => Some(counted.to_string()),
        (counted, correct) => Some(format!("{correct} of {counted}")),
    }
}

fn link_phrase(link: &LinkShape) -> String {
    let mut parts = vec![format!("{} ms round trip", link.rtt_ms)];
    match (link.down_bits, link.up_bits) {
        (None, None) => parts.push("no rate limit".to_owned()),
        (Some(down), Some(up)) if down == up => {
            parts.push(format!("{} each way", units::line_rate(down)));
        }
        (down, up) => {
            parts.extend(down.map(|bits| format!("{} down", units::line_rate(bits))));
            parts.extend(up.map(|bits| format!("{} up", units::line_rate(bits))));
        }
    }
    if link.loss > 0.0 {
        parts.push(format!("{} % loss", units::tick(link.loss * 100.0)));
    }
    if link.jitter_ms > 0.0 {
        parts.push(format!("up to {} ms jitter", link.jitter_ms));
    }
    parts.extend(link.changes.iter().cloned());
    parts.extend(link.payload_limit.map(|limit| format!("payload limit {}", units::rate(limit))));
    parts.join(", ")
}

fn shortened(note: &str) -> String {
    match note.char_indices().nth(NOTE_CHARACTERS) {
        Some((end, _)) => format!("{}…", note[..end].trim_end()),
        None => note.to_owned(),
    }
}
