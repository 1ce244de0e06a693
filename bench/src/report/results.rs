//! Reads results files: JSON lines in, sections of scenarios with their rows out.
//!
//! Only blank lines are skipped: a line that is truncated, of an unknown type or out of place is an error with its
//! file and line number, because a report on half of the results would look like a complete one.

use std::error::Error;
use std::fmt;

use crate::record::{Machine, Outcome, Record, Run, Scenario};

use super::row::{self, Row};

/// All results that a report shows.
#[derive(Debug, Clone, PartialEq)]
pub struct Results {
    /// One section per benchmark, in the order in which they were read.
    pub sections: Vec<Section>,
}

/// The results of one benchmark on one machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// The machine, and when the benchmark started.
    pub machine: Machine,
    /// The scenarios, in the order in which they were measured.
    pub scenarios: Vec<ScenarioResults>,
}

/// A scenario and the results of each tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ScenarioResults {
    /// The scenario.
    pub scenario: Scenario,
    /// Fastest first, then failed runs without a figure, missing tools last.
    pub rows: Vec<Row>,
}

impl Results {
    /// Parses files, given as pairs of name and text, in order. A machine record starts a new section, or continues
    /// the one with the same record.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read<'a>(
        files: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, ReadError> {
        let mut reader = Reader::default();
        for (file, text) in files {
            reader.section = None;
            for (index, line) in
                text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty())
            {
                let record: Result<Record, _> = serde_json::from_str(line);
                let added = match record {
                    Ok(record) => reader.add(record),
                    Err(error) if error.is_eof() => Err(Cause::Truncated(error)),
                    Err(error) => Err(Cause::Malformed(error)),
                };
                added.map_err(|cause| ReadError {
                    file: file.to_owned(),
                    line: index + 1,
                    cause,
                })?;
            }
        }
        let sections = reader.sections.into_iter().map(Unsorted::sort).collect();
        Ok(Self { sections })
    }

    /// Every row of every scenario.
    pub(super) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.sections.iter().flat_map(Section::rows)
    }
}

impl ScenarioResults {
    /// The names of the steps that are timed in a mount, in the order in which they run.
    pub(super) fn part_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for (name, _) in self.rows.iter().flat_map(|row| &row.parts) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    }
}

impl Section {
    /// Every row of every scenario.
    pub(super) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.scenarios.iter().flat_map(|scenario| &scenario.rows)
    }
}

/// Why a results file cannot be read.
#[derive(Debug)]
pub struct ReadError {
    file: String,
    /// Line number, from 1.
    line: usize,
    cause: Cause,
}

#[derive(Debug)]
enum Cause {
    Truncated(serde_json::Error),
    Malformed(serde_json::Error),
    NoMachine,
    NoScenario(String),
    ConflictingScenario(String),
    DuplicateRound { tool: String, settings: String, round: u32 },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, line {}: ", self.file, self.line)?;
        match &self.cause {
            Cause::Truncated(error) => write!(f, "the line is truncated: {error}"),
            Cause::Malformed(error) => write!(f, "not a record of a benchmark: {error}"),
            Cause::NoMachine => write!(f, "no machine record before this line in this file"),
            Cause::NoScenario(name) => {
                write!(f, "a run of '{name}', and no line before defines it")
            }
            Cause::ConflictingScenario(name) => {
                write!(f, "scenario '{name}' differs from an earlier one of this name")
            }
            Cause::DuplicateRound { tool, settings, round } => {
                write!(f, "round {round} of {tool} ({settings}) is there already")
            }
        }
    }
}

impl Error for ReadError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.cause {
            Cause::Truncated(error) | Cause::Malformed(error) => Some(error),
            Cause::NoMachine
            | Cause::NoScenario(_)
            | Cause::ConflictingScenario(_)
            | Cause::DuplicateRound { .. } => None,
        }
    }
}

#[derive(Default)]
struct Reader {
    sections: Vec<Unsorted>,
    /// Index of the section that records are added to; `None` before the first machine record of a file.
    section: Option<usize>,
}

struct Unsorted {
    machine: Machine,
    scenarios: Vec<(Scenario, Vec<Run>)>,
}

impl Reader {
    fn add(&mut self, record: Record) -> Result<(), Cause> {
        if let Record::Machine(machine) = record {
            let known = self.sections.iter().position(|section| section.machine == machine);
            self.section = Some(known.unwrap_or(self.sections.len()));
            if known.is_none() {
                self.sections.push(Unsorted { machine, scenarios: Vec::new() });
            }
            return Ok(());
        }
        let section =
            self.section.and_then(|at| self.sections.get_mut(at)).ok_or(Cause::NoMachine)?;
        match record {
            Record::Machine(_) => Ok(()),
            Record::Scenario(scenario) => section.add_scenario(scenario),
            Record::Run(run) => section.add_run(*run),
        }
    }
}

impl Unsorted {
    fn add_scenario(&mut self, scenario: Scenario) -> Result<(), Cause> {
        match self.scenarios.iter().find(|(known, _)| known.name == scenario.name) {
            Some((known, _)) if *known == scenario => Ok(()),
            Some(_) => Err(Cause::ConflictingScenario(scenario.name)),
            None => {
                self.scenarios.push((scenario, Vec::new()));
                Ok(())
            }
        }
    }

    fn add_run(&mut self, run: Run) -> Result<(), Cause> {
        let Some((_, runs)) =
            self.scenarios.iter_mut().find(|(known, _)| known.name == run.scenario)
        else {
            return Err(Cause::NoScenario(run.scenario));
        };
        // A file given twice would count every measurement twice. A missing tool may be recorded repeatedly.
        let is_duplicate = !matches!(run.outcome, Outcome::Missing { .. })
            && runs.iter().any(|other| {
                (&other.tool, &other.settings, other.round) == (&run.tool, &run.settings, run.round)
            });
        if is_duplicate {
            return Err(Cause::DuplicateRound {
                tool: run.tool,
                settings: run.settings,
                round: run.round,
            });
        }
        runs.push(run);
        Ok(())
    }

    fn sort(self) -> Section {
        let scenarios = self.scenarios.into_iter().map(|(scenario, runs)| {
            let rows = row::rows(&scenario, runs);
            ScenarioResults { scenario, rows }
        });
        Section { machine: self.machine, scenarios: scenarios.collect() }
    }
}
