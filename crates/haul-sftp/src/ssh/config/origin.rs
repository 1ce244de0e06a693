//! Where a setting comes from.

use std::path::PathBuf;

/// What has set an option first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// It was passed in: the location has it.
    Given,
    /// An option of the command line.
    CommandLine,
    /// A line of a file in the format of ssh_config(5).
    File {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
    },
    /// A variable of the environment.
    Environment(&'static str),
    /// Nobody says anything else.
    Default,
}
