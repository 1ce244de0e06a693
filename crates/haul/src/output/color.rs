//! Colours of messages on standard error (ECMA-48, SGR). Standard output is never coloured.

use std::env;
use std::io::{self, IsTerminal as _};

use crate::args::ColorArg;

/// A colour, by its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tint {
    /// Bold red.
    Failure,
    /// Bold yellow.
    Warning,
    /// Bold cyan.
    Hint,
    /// Bold green.
    Done,
}

impl Tint {
    const fn code(self) -> &'static str {
        match self {
            Self::Failure => "\x1b[1;31m",
            Self::Warning => "\x1b[1;33m",
            Self::Hint => "\x1b[1;36m",
            Self::Done => "\x1b[1;32m",
        }
    }

    /// `text` in this colour.
    pub(crate) fn paint(self, text: &str) -> String {
        format!("{}{text}\x1b[0m", self.code())
    }
}

/// Whether to colour messages on standard error.
pub(super) fn is_wanted(arg: ColorArg) -> bool {
    match arg {
        ColorArg::Always => true,
        ColorArg::Never => false,
        // https://no-color.org: present and not empty.
        ColorArg::Auto => {
            io::stderr().is_terminal()
                && !is_dumb()
                && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        }
    }
}

/// Whether `TERM` declares that the terminal understands no control sequences.
pub(super) fn is_dumb() -> bool {
    env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Colours the prefix of a message: `haul: warning:`, `hint:`, or `haul:`. The last one has the colour of a failure
/// with `is_failure`, otherwise that of a warning (retries and waits).
pub(super) fn line(line: &str, is_failure: bool) -> String {
    const WARNING: &str = "haul: warning:";
    const HAUL: &str = "haul:";
    const HINT: &str = "hint:";
    let (tint, word) = if line.starts_with(WARNING) {
        (Tint::Warning, WARNING)
    } else if line.starts_with(HAUL) {
        (if is_failure { Tint::Failure } else { Tint::Warning }, HAUL)
    } else if line.starts_with(HINT) {
        (Tint::Hint, HINT)
    } else {
        return line.to_owned();
    };
    format!("{}{}", tint.paint(word), &line[word.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_prefix_is_coloured() {
        let failure = "haul: a: cannot b (haul: c)";
        assert_eq!(line(failure, true), "\x1b[1;31mhaul:\x1b[0m a: cannot b (haul: c)");
        assert_eq!(line("haul: waiting", false), "\x1b[1;33mhaul:\x1b[0m waiting");
        assert_eq!(line("haul: warning: x", false), "\x1b[1;33mhaul: warning:\x1b[0m x");
        assert_eq!(line("hint: y", true), "\x1b[1;36mhint:\x1b[0m y");
        assert_eq!(line("3 files, haul: z", true), "3 files, haul: z");
    }
}
