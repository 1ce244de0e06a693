//! What a benchmark is to do, apart from its scenarios.

use std::path::PathBuf;

use crate::link::Means;

/// Where a benchmark works, and what of its scenarios it changes.
#[derive(Debug)]
pub struct Settings {
    /// An empty directory, which the guard removes.
    pub work: PathBuf,
    /// Where results are appended.
    pub results: PathBuf,
    /// The haul that is measured, for scenarios in which it is the server.
    pub haul: PathBuf,
    /// Counted runs of each tool, where they are to be others than the scenario's.
    pub rounds: Option<u32>,
    /// How links are made; none where no scenario has one.
    pub means: Option<Means>,
}
