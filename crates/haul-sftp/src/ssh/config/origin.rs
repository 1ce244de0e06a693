//! The origin of a setting.

use std::path::PathBuf;

/// Where an option was set first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Passed in by the caller: the user or port in the location, or the port of `-P`.
    Given,
    /// A command line option.
    CommandLine,
    /// A line of a file in the format of ssh_config(5).
    File {
        /// The file.
        path: PathBuf,
        /// Line number, starting at 1.
        line: usize,
    },
    /// A variable of the environment.
    Environment(&'static str),
    /// Not set; the default.
    Default,
}
