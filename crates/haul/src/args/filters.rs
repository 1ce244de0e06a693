//! `--include`, `--exclude` and the files of patterns, in command-line order, which clap reports only as
//! indices.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use crate::filter::{Pattern, Rule, Rules, files};

/// The filters of a command line.
#[derive(Debug, Clone, Default)]
pub(crate) struct FilterArgs {
    options: Vec<FilterOption>,
}

/// One use of an option, with its value.
#[derive(Debug, Clone)]
enum FilterOption {
    Rule(Rule),
    /// A file of patterns, and whether they include.
    From(PathBuf, bool),
    /// A file in the format of `.gitignore`.
    Ignore(PathBuf),
}

const INCLUDE: &str = "include";
const EXCLUDE: &str = "exclude";
const INCLUDE_FROM: &str = "include-from";
const EXCLUDE_FROM: &str = "exclude-from";
const IGNORE_FILE: &str = "ignore-file";

const PATTERNS: [(&str, &str); 2] = [
    (INCLUDE, "Include names that match GLOB, even if a later --exclude matches them too"),
    (
        EXCLUDE,
        "Exclude names that match GLOB. The first match of --include and --exclude decides; a name that \
         matches neither is included. A GLOB without a slash matches names at any depth; one with a slash \
         (/build, doc/**) matches paths below SOURCE; one that ends with a slash matches only directories",
    ),
];

const FILES: [(&str, &str); 3] = [
    (INCLUDE_FROM, "Read patterns for --include from FILE, one per line"),
    (
        EXCLUDE_FROM,
        "Read patterns for --exclude from FILE, one per line; a line that begins with + includes",
    ),
    (IGNORE_FILE, "Exclude the patterns in FILE, which has the syntax of a .gitignore in SOURCE"),
];

impl FilterArgs {
    /// The rules in their order. Files are read now.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, or a line in it that is not a pattern.
    pub(crate) fn rules(&self) -> Result<Vec<Rule>, String> {
        let mut rules = Vec::new();
        for option in &self.options {
            match option {
                FilterOption::Rule(rule) => rules.push(rule.clone()),
                FilterOption::From(file, include) => rules.extend(files::patterns(file, *include)?),
                FilterOption::Ignore(file) => rules.extend(files::ignored(file)?),
            }
        }
        Ok(rules)
    }

    /// The complete filter, for commands without other sources of rules.
    ///
    /// # Errors
    ///
    /// As [`FilterArgs::rules`], and rules that exclude nothing.
    pub(crate) fn all_rules(&self) -> Result<Rules, String> {
        Rules::new(self.rules()?)
    }
}

impl Args for FilterArgs {
    fn augment_args(command: Command) -> Command {
        let patterns = PATTERNS.into_iter().map(|(name, help)| {
            let arg = Arg::new(name).long(name).value_name("GLOB").help(help);
            arg.value_parser(str::parse::<Pattern>)
        });
        let files = FILES.into_iter().map(|(name, help)| {
            let arg = Arg::new(name).long(name).value_name("FILE").help(help);
            arg.value_parser(clap::value_parser!(PathBuf))
        });
        patterns.chain(files).fold(command, |command, arg| {
            command.arg(arg.help_heading("Files").action(ArgAction::Append))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for FilterArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut options = Vec::new();
        for (name, _) in PATTERNS {
            let rule = |pattern| FilterOption::Rule(Rule::new(name == INCLUDE, pattern));
            options.extend(values(matches, name)?.into_iter().map(|(at, value)| (at, rule(value))));
        }
        for (name, _) in FILES {
            let file = |path| match name {
                IGNORE_FILE => FilterOption::Ignore(path),
                _ => FilterOption::From(path, name == INCLUDE_FROM),
            };
            options.extend(values(matches, name)?.into_iter().map(|(at, value)| (at, file(value))));
        }
        options.sort_by_key(|(at, _)| *at);
        Ok(Self { options: options.into_iter().map(|(_, option)| option).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The values of an option, each with its index on the command line.
fn values<T: Clone + Send + Sync + 'static>(
    matches: &ArgMatches,
    name: &str,
) -> Result<Vec<(usize, T)>, clap::Error> {
    let values = matches
        .try_get_many::<T>(name)
        .map_err(|error| clap::Error::raw(ErrorKind::InvalidValue, error))?;
    let indices = matches.indices_of(name).into_iter().flatten();
    Ok(indices.zip(values.into_iter().flatten().cloned()).collect())
}
