//! The settings of a benchmark, apart from its scenarios.

use std::path::PathBuf;

use crate::link::Means;

/// Where a benchmark works, and what it overrides in its scenarios.
#[derive(Debug)]
pub struct Settings {
    /// The directory that the guard creates and removes; empty but for the guard's lock file.
    pub work: PathBuf,
    /// Where results are appended.
    pub results: PathBuf,
    /// The haul that is measured, for scenarios in which it is the server.
    pub haul: PathBuf,
    /// Counted runs of each tool; `None`: as the scenario has it.
    pub rounds: Option<u32>,
    /// How links are made; `None` if no scenario has one.
    pub means: Option<Means>,
}
