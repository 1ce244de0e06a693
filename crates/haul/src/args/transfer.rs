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

    /// Do not continue what an earlier run left; start files anew
    #[arg(long, conflicts_with = "resume", help_heading = "Safety")]
    pub(crate) no_resume: bool,

    /// Write no manifest, whatever the configuration says
    #[arg(long, conflicts_with = "manifest", help_heading = "Safety")]
    pub(crate) no_manifest: bool,

    /// Say what would be done, and do nothing
    #[arg(short = 'n', long, help_heading = "Files")]
    pub(crate) dry_run: bool,

    /// Keep everything that can be kept: --preserve=all
    #[arg(short, long, conflicts_with = "preserve", help_heading = "Files")]
    pub(crate) archive: bool,

    /// Accepted for the sake of habit: trees are always copied whole
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
    ("include", true, "Copy what matches, even if a later --exclude matches too"),
    (
        "exclude",
        false,
        "Leave out what matches; the first match of --include and --exclude decides, and what \
         none matches is copied. Without a slash GLOB is compared with names, with one (/build, doc/**) with paths below SOURCE; \
         with a slash at its end it is for directories only",
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
