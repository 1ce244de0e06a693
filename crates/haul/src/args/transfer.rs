//! The options that `cp` and `sync` have in common.

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use crate::filter::{Pattern, Rule};
use crate::options::Options;

/// Options of a transfer.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TransferArgs {
    #[command(flatten)]
    pub(crate) options: Options,

    #[command(flatten)]
    pub(crate) filter: FilterArgs,

    /// Start files anew instead of continuing partial ones
    #[arg(long, conflicts_with = "resume", help_heading = "Safety")]
    pub(crate) no_resume: bool,

    /// Write no manifest, even if the configuration asks for one
    #[arg(long, conflicts_with = "manifest", help_heading = "Safety")]
    pub(crate) no_manifest: bool,

    /// Print what would be done, and do nothing
    #[arg(short = 'n', long, help_heading = "Files")]
    pub(crate) dry_run: bool,

    /// Keep all metadata: --preserve=all
    #[arg(short, long, conflicts_with = "preserve", help_heading = "Files")]
    pub(crate) archive: bool,

    /// Accepted for compatibility: directories are always copied recursively
    #[arg(short, long, short_alias = 'R', help_heading = "Files")]
    pub(crate) recursive: bool,
}

/// `--include` and `--exclude` in the order in which they were given, which clap keeps only as
/// indices.
#[derive(Debug, Clone, Default)]
pub(crate) struct FilterArgs {
    pub(crate) rules: Vec<Rule>,
}

const NAMES: [(&str, bool, &str); 2] = [
    ("include", true, "Include what matches GLOB, even if a later --exclude matches it too"),
    (
        "exclude",
        false,
        "Exclude what matches GLOB. The first match of --include and --exclude decides; what matches \
         neither is included. A GLOB without a slash matches names at any depth, one with a slash (/build, doc/**) \
         paths below SOURCE, and one that ends with a slash only directories",
    ),
];

impl Args for FilterArgs {
    fn augment_args(command: Command) -> Command {
        NAMES.into_iter().fold(command, |command, (name, _, help)| {
            command.arg(
                Arg::new(name)
                    .long(name)
                    .value_name("GLOB")
                    .help(help)
                    .help_heading("Files")
                    .action(ArgAction::Append)
                    .value_parser(str::parse::<Pattern>),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for FilterArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut rules = Vec::new();
        for (name, include, _) in NAMES {
            let patterns = matches
                .try_get_many::<Pattern>(name)
                .map_err(|error| clap::Error::raw(ErrorKind::InvalidValue, error))?;
            let indices = matches.indices_of(name).into_iter().flatten();
            for (index, pattern) in indices.zip(patterns.into_iter().flatten()) {
                rules.push((index, Rule { include, pattern: pattern.clone() }));
            }
        }
        rules.sort_by_key(|(index, _)| *index);
        Ok(Self { rules: rules.into_iter().map(|(_, rule)| rule).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
