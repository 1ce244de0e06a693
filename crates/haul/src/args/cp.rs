//! `haul cp`.

use std::ffi::OsString;

use clap::Args;

use super::{SshArgs, TransferArgs};

/// Arguments of `haul cp`.
#[derive(Debug, Args)]
#[command(after_long_help = WHERE)]
pub(crate) struct CpArgs {
    /// Files and directories; a link given here is followed
    #[arg(required = true, value_name = "SOURCE")]
    pub(crate) sources: Vec<OsString>,

    /// Where to
    #[arg(required = true, value_name = "DEST")]
    pub(crate) destination: OsString,

    #[command(flatten)]
    pub(crate) transfer: TransferArgs,

    #[command(flatten)]
    pub(crate) ssh: SshArgs,
}

const WHERE: &str = "\
Where things go, the same in a first run and in a rerun:
  haul cp DIR DEST        DEST/DIR, whether DEST is there or not (it is made)
  haul cp DIR/ DEST       what is in DIR becomes what is in DEST; so do `.` and `..`
  haul cp FILE DEST       DEST/FILE if DEST is a directory or is written with a slash at its end;
                          the file DEST otherwise
  haul cp A B C DEST      DEST/A, DEST/B, DEST/C

A file appears under its name when all of it is there. Stopped at any moment, by whatever, the
same command continues: files that are there already are left alone, the one that was on its way
is continued.

Profiles:
  safe        few lanes, slow growth, 10 retries, --verify, --fsync
  default     what suits most
  aggressive  more lanes and sooner, 64 files at once, 1G of memory

Sizes: 4096, 128K, 1.5G, 1MiB count in 1024; 10MB in 1000. Rates: 10M, 10MB/s are bytes per second;
80mbit, 1gbit are bits, in 1000.";
