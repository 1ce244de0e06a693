//! The origin of a setting.

use std::path::PathBuf;

/// Where an option was set first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// An argument of the call, from the location.
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
