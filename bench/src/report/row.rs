//! A row of a scenario: the figures of one tool with certain settings, computed from its runs.
//!
//! Only counted runs with a correct result contribute to the figures. A run with a wrong result is a failure, and its
//! time is not used; failures are listed next to the figures of the other runs.

use std::cmp::Ordering;

use crate::record::{Measure, Outcome, Run, Scenario};
use crate::stats::{self, Summary};

/// The figures of one tool with certain settings in one scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The tool, such as `rclone`.
    pub tool: String,
    /// `default` or a short name of other settings.
    pub settings: String,
    /// The version that the tool reports.
    pub version: String,
    /// The command of the last run.
    pub command: String,
    /// Summary of [`Run::seconds`].
    pub seconds: Option<Summary>,
    /// Bytes per second: of the whole process for a transfer, of reading for a mounted view.
    pub rate: Option<Summary>,
    /// Seconds to connect, or to the first byte, whichever the scenario measures.
    pub latency: Option<Summary>,
    /// Names and seconds of the steps that are timed in a mount, in the order in which they run.
    pub parts: Vec<(String, Summary)>,
    /// Rate as a share of the payload that the link can carry, 0 to 1.
    pub share: Option<f64>,
    /// Speed as a multiple of that of the reference row.
    pub against_reference: Option<f64>,
    /// Median processor seconds of the tool.
    pub client_cpu: Option<f64>,
    /// Median processor seconds of the server.
    pub server_cpu: Option<f64>,
    /// Largest resident set of the correct runs in bytes.
    pub peak_rss: Option<u64>,
    /// Median bytes on the wire, both directions and headers included.
    pub wire: Option<f64>,
    /// [`Row::wire`] over the bytes of the data, for transfers.
    pub wire_overhead: Option<f64>,
    /// Counted runs, failed ones included.
    pub counted: usize,
    /// Counted runs that failed or gave a wrong result.
    pub failures: Vec<Failure>,
    /// Why the warm-up failed, if it did.
    pub warm_up_failure: Option<Failure>,
    /// What is missing, for a tool that could not run at all.
    pub missing: Option<String>,
    /// The counted run of median speed; with an even count, the faster of the middle two.
    pub typical: Option<Box<Run>>,
    measure: Measure,
}

/// A run without a correct result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The tool reported success, but the result differs from the source.
    pub wrong: bool,
    /// Such as the exit status and the last lines of standard error, or the first difference.
    pub cause: String,
}

/// Groups the runs of a scenario into rows, the fastest first and missing tools last.
pub(super) fn rows(scenario: &Scenario, runs: Vec<Run>) -> Vec<Row> {
    let mut groups: Vec<Vec<Run>> = Vec::new();
    for run in runs {
        let same = |group: &&mut Vec<Run>| {
            group.iter().any(|other| other.tool == run.tool && other.settings == run.settings)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(run),
            None => groups.push(vec![run]),
        }
    }
    let mut rows: Vec<Row> =
        groups.iter().filter_map(|group| Row::of_runs(scenario, group)).collect();
    rows.sort_by(Row::fastest_first);
    let reference = reference(&rows).and_then(Row::speed);
    for row in &mut rows {
        row.against_reference =
            row.speed().zip(reference).map(|(speed, reference)| speed / reference);
    }
    rows
}

/// The row that speeds are compared to: haul with default settings, or else the fastest.
pub(super) fn reference(rows: &[Row]) -> Option<&Row> {
    let haul = rows.iter().find(|row| row.is_haul() && row.is_default() && row.speed().is_some());
    haul.or(rows.first().filter(|row| row.speed().is_some()))
}

impl Row {
    fn of_runs(scenario: &Scenario, runs: &[Run]) -> Option<Self> {
        let last = runs.last()?;
        let correct: Vec<&Run> = runs
            .iter()
            .filter(|run| stats::counts(run.round) && run.outcome == Outcome::Ok)
            .collect();
        let summary = |value: &dyn Fn(&Run) -> Option<f64>| {
            let rounds = correct.iter().filter_map(|run| Some((run.round, value(run)?)));
            Summary::of_counted(rounds)
        };
        let median = |value: &dyn Fn(&Run) -> Option<f64>| summary(value).map(|s| s.median);
        let payload = scenario.bytes as f64;
        let seconds = summary(&|run| Some(run.seconds));
        let (rate, latency) = match scenario.measure {
            Measure::Transfer if scenario.bytes > 0 => (seconds.and_then(|s| s.per(payload)), None),
            Measure::Transfer => (None, None),
            Measure::Connect | Measure::FirstByte => (None, seconds),
            Measure::Mount => (summary(&|run| run.read_rate), summary(&|run| run.first_byte)),
            Measure::MountRandom
            | Measure::MountFind
            | Measure::MountList
            | Measure::MountStatus
            | Measure::MountWrite => (None, None),
        };
        let transfer = scenario.measure == Measure::Transfer;
        let limit = scenario.link.as_ref().and_then(|link| link.payload_limit);
        let limit = limit.filter(|limit| transfer && *limit > 0.0);
        let wire = median(&|run| Some((run.wire_up? + run.wire_down?) as f64));
        let failures =
            || runs.iter().filter_map(|run| Some((run.round, Failure::of(&run.outcome)?)));
        let counted = |run: &&Run| {
            stats::counts(run.round) && !matches!(run.outcome, Outcome::Missing { .. })
        };
        Some(Self {
            tool: last.tool.clone(),
            settings: last.settings.clone(),
            version: last.version.clone(),
            command: last.command.clone(),
            seconds,
            rate,
            latency,
            parts: parts(&correct),
            share: rate.zip(limit).map(|(rate, limit)| rate.median / limit),
            against_reference: None,
            client_cpu: median(&|run| Some(run.client_cpu)),
            server_cpu: median(&|run| run.server_cpu),
            peak_rss: correct.iter().map(|run| run.peak_rss).max(),
            wire,
            wire_overhead: wire
                .filter(|_| transfer && scenario.bytes > 0)
                .map(|wire| wire / payload),
            counted: runs.iter().filter(counted).count(),
            failures: failures().filter(|(round, _)| stats::counts(*round)).map(|f| f.1).collect(),
            warm_up_failure: failures().find(|(round, _)| !stats::counts(*round)).map(|f| f.1),
            missing: runs.iter().find_map(|run| match &run.outcome {
                Outcome::Missing { cause } => Some(cause.clone()),
                Outcome::Ok | Outcome::Failed { .. } | Outcome::Wrong { .. } => None,
            }),
            typical: typical(scenario.measure, &correct).cloned().map(Box::new),
            measure: scenario.measure,
        })
    }

    /// The tool, with its settings unless they are the default ones.
    pub fn label(&self) -> String {
        if self.is_default() {
            self.tool.clone()
        } else {
            format!("{} · {}", self.tool, self.settings)
        }
    }

    /// The number of counted runs with a correct result.
    pub fn correct_runs(&self) -> usize {
        self.seconds.map_or(0, |seconds| seconds.count)
    }

    /// A remark on the figures, or the reason why there are none.
    pub fn note(&self) -> Option<String> {
        let causes = |failures: &[Failure]| {
            let mut causes: Vec<String> = Vec::new();
            for cause in failures.iter().map(Failure::text) {
                if !causes.contains(&cause) {
                    causes.push(cause);
                }
            }
            causes.join("; ")
        };
        if !self.failures.is_empty() {
            let (failed, counted) = (self.failures.len(), self.counted);
            return Some(format!("failed {failed} of {counted}: {}", causes(&self.failures)));
        }
        if self.counted > 0 {
            return None;
        }
        Some(match (&self.missing, &self.warm_up_failure) {
            (Some(cause), _) => format!("missing: {cause}"),
            (None, Some(failure)) => format!("failed in the warm-up: {}", failure.text()),
            (None, None) => "no counted run".to_owned(),
        })
    }

    /// Why a row has no figures, or how many of its counted runs failed: in a few words, for a plot or an overview. Not
    /// for a row without failures: that would be `failed 0 of N`.
    pub(super) fn status_text(&self) -> String {
        if self.counted > 0 {
            let (failed, counted) = (self.failures.len(), self.counted);
            format!("failed {failed} of {counted}")
        } else if self.missing.is_some() {
            "missing".to_owned()
        } else if self.warm_up_failure.is_some() {
            "failed".to_owned()
        } else {
            "not run".to_owned()
        }
    }

    /// Whether the tool is haul, with any settings.
    pub(super) fn is_haul(&self) -> bool {
        self.tool == "haul"
    }

    /// Whether the tool has its default settings.
    pub(super) fn is_default(&self) -> bool {
        self.settings == "default"
    }

    /// Bytes per second, or the reciprocal of a time in seconds (of several parts, the last one's): more is faster.
    fn speed(&self) -> Option<f64> {
        let seconds = match self.measure {
            Measure::Transfer | Measure::Mount => return self.rate.map(|rate| rate.median),
            Measure::Connect | Measure::FirstByte => self.latency,
            Measure::MountRandom
            | Measure::MountFind
            | Measure::MountList
            | Measure::MountStatus
            | Measure::MountWrite => self.parts.last().map(|(_, seconds)| *seconds),
        };
        seconds.map(|seconds| seconds.median).filter(|seconds| *seconds > 0.0).map(f64::recip)
    }

    /// The seconds of the part with this name.
    pub fn part(&self, name: &str) -> Option<Summary> {
        self.parts.iter().find(|(part, _)| part == name).map(|(_, seconds)| *seconds)
    }

    fn fastest_first(&self, other: &Self) -> Ordering {
        let last =
            |row: &Self| (row.correct_runs() == 0, row.counted == 0 && row.missing.is_some());
        let speed = |row: &Self| row.speed().unwrap_or(f64::NEG_INFINITY);
        last(self)
            .cmp(&last(other))
            .then_with(|| speed(other).total_cmp(&speed(self)))
            .then_with(|| (&self.tool, &self.settings).cmp(&(&other.tool, &other.settings)))
    }
}

impl Failure {
    fn of(outcome: &Outcome) -> Option<Self> {
        match outcome {
            Outcome::Failed { cause } => Some(Self { wrong: false, cause: cause.clone() }),
            Outcome::Wrong { cause } => Some(Self { wrong: true, cause: cause.clone() }),
            Outcome::Ok | Outcome::Missing { .. } => None,
        }
    }

    /// The cause, with a prefix if the result was wrong.
    fn text(&self) -> String {
        if self.wrong { format!("wrong result: {}", self.cause) } else { self.cause.clone() }
    }
}

/// The parts of all runs; a part that a run lacks is summarised from the others.
fn parts(correct: &[&Run]) -> Vec<(String, Summary)> {
    let mut names: Vec<&str> = Vec::new();
    for part in correct.iter().flat_map(|run| &run.parts) {
        if !names.contains(&part.name.as_str()) {
            names.push(&part.name);
        }
    }
    let summary = |name: &str| {
        let part = |run: &&Run| run.parts.iter().find(|part| part.name == name).map(|p| p.seconds);
        Summary::of_counted(correct.iter().filter_map(|run| Some((run.round, part(run)?))))
    };
    names.into_iter().filter_map(|name| Some((name.to_owned(), summary(name)?))).collect()
}

/// The run of median speed: by the time of the whole process or, for a mount, that of the work in it.
fn typical<'a>(measure: Measure, correct: &[&'a Run]) -> Option<&'a Run> {
    let seconds = |run: &Run| match (measure.is_mount(), run.read_rate, run.parts.last()) {
        (true, Some(rate), _) if rate > 0.0 => rate.recip(),
        (true, _, Some(part)) => part.seconds,
        _ => run.seconds,
    };
    let mut by_time = correct.to_vec();
    by_time.sort_by(|&a, &b| seconds(a).total_cmp(&seconds(b)));
    by_time.get(by_time.len().saturating_sub(1) / 2).copied()
}
