//! The options that `cp` and `sync` have in common.

use clap::Args;

use super::accepted::AcceptedArgs;
use super::filters::FilterArgs;
use super::select::SelectArgs;
use crate::options::Options;

/// Options of a transfer.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TransferArgs {
    #[command(flatten)]
    pub(crate) options: Options,

    #[command(flatten)]
    pub(crate) select: SelectArgs,

    #[command(flatten)]
    pub(crate) filter: FilterArgs,

    #[command(flatten)]
    pub(crate) accepted: AcceptedArgs,

    /// Start every file over instead of resuming partial ones
    #[arg(long, conflicts_with = "resume", help_heading = "Safety")]
    pub(crate) no_resume: bool,

    /// Write no manifest, even if the configuration asks for one
    #[arg(long, conflicts_with = "manifest", help_heading = "Safety")]
    pub(crate) no_manifest: bool,

    /// Print what would be done, without doing it
    #[arg(short = 'n', long, help_heading = "Files")]
    pub(crate) dry_run: bool,

    /// Keep all metadata: --preserve=all
    #[arg(short, long, conflicts_with = "preserve", help_heading = "Files")]
    pub(crate) archive: bool,

    /// Keep extended attributes too, ACLs among them
    #[arg(short = 'X', long, short_alias = 'A', alias = "acls", hide = true)]
    pub(crate) xattrs: bool,

    /// Keep owners and groups too
    #[arg(short = 'g', long = "group", alias = "owner", hide = true)]
    pub(crate) owner: bool,

    /// Read each folder of parts (see --split) as one file, and store it in one piece
    #[arg(long, conflicts_with = "split", help_heading = "Files")]
    pub(crate) join: bool,

    /// Print every file, with the reason why it is copied
    #[arg(long, help_heading = "Files")]
    pub(crate) itemize_changes: bool,

    /// Print detailed totals at the end
    #[arg(long, help_heading = "General")]
    pub(crate) stats: bool,
}
