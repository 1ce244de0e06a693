//! Options of rsync and scp for behaviour that haul always has. They are accepted and change nothing;
//! docs/options.md lists them. Also resolves the two meanings of `-P`, and detects values written without `=`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::net::SocketAddr;

use crate::options::{PreserveArg, ProgressArg};
use crate::units::Switch;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

/// Long name, letter.
pub(crate) const ACCEPTED: &[(&str, Option<char>)] = &[
    ("recursive", Some('r')),
    ("perms", Some('p')),
    ("times", Some('t')),
    ("links", None),
    ("hard-links", Some('H')),
    ("executability", Some('E')),
    ("sparse", Some('S')),
    ("whole-file", Some('W')),
    ("numeric-ids", None),
    ("partial", None),
    ("human-readable", None),
    ("no-inplace", None),
];

/// The accepted options.
#[derive(Debug, Clone, Default)]
pub(crate) struct AcceptedArgs;

impl Args for AcceptedArgs {
    fn augment_args(command: Command) -> Command {
        ACCEPTED.iter().fold(command, |command, (long, letter)| {
            let arg = Arg::new(*long).long(*long).action(ArgAction::Count);
            let arg = letter.iter().fold(arg, |arg, letter| arg.short(*letter));
            let arg = if *long == "recursive" { arg.short_alias('R') } else { arg };
            command.arg(arg.hide(true))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for AcceptedArgs {
    fn from_arg_matches(_: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self)
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), clap::Error> {
        Ok(())
    }
}

/// The commands in which `-P` has two meanings.
const TRANSFERS: [&str; 3] = ["cp", "sync", "mv"];

/// Short options of the transfer commands that take a value.
const WITH_VALUE: &[u8] = b"FJPilo";

/// Resolves the two meanings of `-P`: before a number it is scp's port (behind other letters, as in `-vP`, only if no
/// file has that name); otherwise it is rsync's `--partial --progress`, which haul always does. Returns the command
/// line without the latter. `command_at` finds the command.
pub(crate) fn without_partial_progress(
    arguments: Vec<OsString>,
    command_at: impl Fn(&[OsString]) -> Option<usize>,
) -> Vec<OsString> {
    let has_capital_p = |argument: &OsString| bundle(argument).is_some_and(|all| all.contains('P'));
    if !arguments.iter().any(has_capital_p) {
        return arguments;
    }
    let command = command_at(&arguments).map(|at| &arguments[at]);
    if !command.is_some_and(|command| TRANSFERS.iter().any(|name| command == name)) {
        return arguments;
    }
    let mut result = Vec::with_capacity(arguments.len());
    let mut rest = arguments.into_iter().peekable();
    while let Some(argument) = rest.next() {
        if argument == "--" {
            result.push(argument);
            result.extend(rest);
            break;
        }
        let bundle = bundle(&argument);
        match bundle {
            Some(letters) if letters.contains('P') => {
                let alone = letters.len() == 1;
                let is_last = letters.ends_with('P');
                let is_port = |next: &OsString| {
                    is_number(next) && (alone || fs::symlink_metadata(next).is_err())
                };
                if is_last && rest.peek().is_some_and(is_port) {
                    result.push(argument);
                    result.extend(rest.next());
                    continue;
                }
                let left: String = letters.chars().filter(|letter| *letter != 'P').collect();
                if !left.is_empty() {
                    result.push(format!("-{left}").into());
                }
            }
            _ => {
                let takes_next = bundle.is_some_and(takes_value);
                result.push(argument);
                if takes_next {
                    result.extend(rest.next());
                }
            }
        }
    }
    result
}

/// The error for an option whose optional value was written without `=`: the value would be taken for a
/// location.
pub(crate) fn stray_value(arguments: &[OsString]) -> Option<String> {
    let is_option = |argument: &OsString| argument.as_encoded_bytes().starts_with(b"-");
    let end = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
    let arguments = arguments.get(1..end)?;
    for (at, pair) in arguments.windows(2).enumerate() {
        let (Some(option), Some(value)) = (pair[0].to_str(), pair[1].to_str()) else { continue };
        if is_option(&pair[1]) {
            continue;
        }
        let is_value = match option {
            "--verify" | "--fsync" | "--resume" | "--bell" | "--no-space-check" => {
                value.parse::<Switch>().is_ok()
            }
            "--web" => value.parse::<SocketAddr>().is_ok(),
            "--progress" => value.parse::<ProgressArg>().is_ok(),
            "--preserve" => value.parse::<PreserveArg>().is_ok(),
            "--manifest" => {
                let behind = arguments[at + 2..].iter().filter(|argument| !is_option(argument));
                behind.count() >= 2 && is_manifest(value)
            }
            _ => false,
        };
        if is_value {
            return Some(format!(
                "the value of {option} comes after an equals sign: {option}={value}\n\
                 hint: for a file of that name write ./{value}, or {option} behind the locations"
            ));
        }
    }
    None
}

/// Whether a name looks like that of a manifest, or cannot be a source: no such file exists, and it has no `/` or `:`.
fn is_manifest(name: &str) -> bool {
    let is_called = |end: &&str| name.to_ascii_lowercase().ends_with(*end);
    let may_be_source = name.contains(['/', ':']) || fs::symlink_metadata(name).is_ok();
    !may_be_source || ["sums", ".sha256", ".b3", ".sums.txt"].iter().any(is_called)
}

/// The letters of an argument such as `-avP`. `None` if it is not such an argument, or if a letter takes the rest of it
/// as its value (`P` takes only digits).
fn bundle(argument: &OsStr) -> Option<&str> {
    let letters = argument.to_str()?.strip_prefix('-')?;
    // The only digits are -4 and -6. Digits right behind `P` are a port.
    let is_option = |byte: u8| byte.is_ascii_alphabetic() || matches!(byte, b'4' | b'6');
    let (_, behind) = letters.split_once('P').unwrap_or_default();
    let has_port = behind.starts_with(|c: char| c.is_ascii_digit());
    let is_bundle = !letters.is_empty() && letters.bytes().all(is_option) && !has_port;
    let value = letters.bytes().position(|letter| letter != b'P' && WITH_VALUE.contains(&letter));
    // A letter with a value, unless it is the last one, takes the rest of the argument: `-iPATH`.
    let has_no_inner_value = value.is_none_or(|at| at + 1 == letters.len());
    (is_bundle && has_no_inner_value).then_some(letters)
}

/// Whether the last of these letters takes the next argument.
fn takes_value(letters: &str) -> bool {
    letters.bytes().last().is_some_and(|letter| letter != b'P' && WITH_VALUE.contains(&letter))
}

fn is_number(argument: &OsStr) -> bool {
    let text = argument.to_str().unwrap_or_default();
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(line: &str) -> String {
        let arguments = line.split(' ').map(OsString::from).collect();
        let result = without_partial_progress(arguments, crate::args::order::command_at);
        result.iter().map(|argument| argument.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_value_without_an_equals_sign_is_not_taken_for_a_location() {
        let stray = |line: &str| {
            let arguments: Vec<_> = line.split(' ').map(OsString::from).collect();
            stray_value(&arguments).is_some()
        };
        assert!(stray("haul cp --manifest SUMS a b"));
        assert!(stray("haul cp a --verify no b"));
        assert!(stray("haul sync --preserve mode,times a b"));
        assert!(!stray("haul cp --manifest a b"));
        assert!(!stray("haul cp --manifest /a /b /c"));
        assert!(!stray("haul cp --manifest=SUMS a b"));
        assert!(!stray("haul cp --verify a b"));
        assert!(!stray("haul cp -- --verify no b"));
    }

    #[test]
    fn capital_p_is_a_port_before_a_number_and_otherwise_partial_progress() {
        for (line, meaning) in [
            ("haul cp -P 2222 a b", "haul cp -P 2222 a b"),
            ("haul cp -P2222 a b", "haul cp -P2222 a b"),
            ("haul cp -avP a b", "haul cp -av a b"),
            ("haul cp -4P a b", "haul cp -4 a b"),
            ("haul cp -P4444 a b", "haul cp -P4444 a b"),
            ("haul cp -P46 a b", "haul cp -P46 a b"),
            ("haul cp -vP6 a b", "haul cp -vP6 a b"),
            ("haul cp -P a b", "haul cp a b"),
            ("haul cp -rP 2222 a b", "haul cp -rP 2222 a b"),
            ("haul cp -aP -i P a b", "haul cp -a -i P a b"),
            ("haul cp -iP a b", "haul cp -iP a b"),
            ("haul cp -i -P a b", "haul cp -i -P a b"),
            ("haul cp -- -P a", "haul cp -- -P a"),
            ("haul ls -P x", "haul ls -P x"),
            // Formerly, any argument with the name of a transfer command was taken for the command.
            ("haul ls -P x mv", "haul ls -P x mv"),
            ("haul --config cp ls -P x", "haul --config cp ls -P x"),
            ("haul -q --config ls cp -P a b", "haul -q --config ls cp a b"),
            ("haul sync -vP --delete a b", "haul sync -v --delete a b"),
        ] {
            assert_eq!(rewritten(line), meaning, "{line}");
        }
    }
}
