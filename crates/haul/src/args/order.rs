//! Options between SOURCE and DEST: `haul cp photos -v backup`.
//!
//! clap takes the last location before such an option for DEST. `main` then parses the line again, with its
//! options first.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::{Arg, Command, CommandFactory};

use super::Cli;

/// The commands with several SOURCEs and a DEST.
const COMMANDS: [&str; 2] = ["cp", "mv"];

/// The same arguments with all options before the locations; `None` for commands that need no such order.
pub(crate) fn options_first(arguments: &[OsString]) -> Option<Vec<OsString>> {
    let at = command_at(arguments)?;
    if !COMMANDS.iter().any(|name| arguments[at] == *name) {
        return None;
    }
    let mut all = Cli::command();
    all.build();
    let command = all.find_subcommand(arguments[at].to_str()?)?;
    let (mut options, mut locations) = (arguments[..=at].to_vec(), Vec::new());
    let mut rest = arguments[at + 1..].iter().cloned();
    while let Some(word) = rest.next() {
        if word == "--" {
            locations.extend(rest.by_ref());
        } else if word.as_bytes().starts_with(b"-") && word != "-" {
            let takes_next = takes_next(command, &word);
            options.push(word);
            options.extend(takes_next.then(|| rest.next()).flatten());
        } else {
            locations.push(word);
        }
    }
    options.push("--".into());
    options.extend(locations);
    Some(options)
}

/// The position of the command: of the first argument that is neither an option nor the value of one.
pub(crate) fn command_at(arguments: &[OsString]) -> Option<usize> {
    let all = Cli::command();
    let mut words = arguments.iter().enumerate().skip(1);
    while let Some((at, word)) = words.next() {
        if !word.as_bytes().starts_with(b"-") {
            return Some(at);
        }
        if takes_next(&all, word) {
            words.next();
        }
    }
    None
}

/// Whether the word after an option is its value.
fn takes_next(command: &Command, option: &OsStr) -> bool {
    let Some(option) = option.to_str() else { return false };
    let takes_value = |arg: &&Arg| arg.get_action().takes_values() && !arg.is_require_equals_set();
    if let Some(long) = option.strip_prefix("--") {
        let is_it = |arg: &&Arg| {
            let aliases = arg.get_all_aliases().unwrap_or_default();
            arg.get_long() == Some(long) || aliases.contains(&long)
        };
        return command.get_arguments().find(is_it).is_some_and(|arg| takes_value(&arg));
    }
    let letters = option.strip_prefix('-').unwrap_or_default();
    let value = letters.char_indices().find(|(_, letter)| {
        let is_it = |arg: &&Arg| {
            let aliases = arg.get_all_short_aliases().unwrap_or_default();
            arg.get_short() == Some(*letter) || aliases.contains(letter)
        };
        command.get_arguments().find(is_it).is_some_and(|arg| takes_value(&arg))
    });
    // `-P2222` contains its value.
    value.is_some_and(|(at, letter)| at + letter.len_utf8() == letters.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_keep_their_values_and_locations_their_order() {
        let ordered = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let ordered = options_first(&words)?;
            Some(ordered.join(OsStr::new(" ")).into_string().unwrap())
        };
        for (line, expected) in [
            ("haul cp a -q b", "haul cp -q -- a b"),
            ("haul --json cp a --bwlimit 5M b", "haul --json cp --bwlimit 5M -- a b"),
            ("haul cp a --manifest b", "haul cp --manifest -- a b"),
            ("haul cp a -vP 2222 b", "haul cp -vP 2222 -- a b"),
            ("haul cp a -P2222 b -- -c", "haul cp -P2222 -- a b -c"),
            // The value of a global option is not the command.
            ("haul --log-file mv cp a -v b", "haul --log-file mv cp -v -- a b"),
            ("haul -q --config=cp mv a -v b", "haul -q --config=cp mv -v -- a b"),
            ("haul mv - --retries=3 b", "haul mv --retries=3 -- - b"),
        ] {
            assert_eq!(ordered(line).as_deref(), Some(expected));
        }
        // Formerly, any argument `cp` or `mv` was taken for the command.
        for line in
            ["haul ls a -l b", "haul ls mv -l b", "haul --log-file cp ls a -l b", "haul -q", "haul"]
        {
            assert_eq!(ordered(line), None, "{line}");
        }
    }
}
