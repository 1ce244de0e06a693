//! `haul cp`.

use std::ffi::OsString;

use clap::Args;

use super::{HostArgs, RemoteArgs, TransferArgs};

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
    pub(crate) hosts: HostArgs,

    #[command(flatten)]
    pub(crate) transfer: TransferArgs,

    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
}

const WHERE: &str = "\
Where things go, the same in a first run and in a rerun:
  haul cp DIR DEST        DEST/DIR, whether DEST is there or not (it is made)
  haul cp DIR/ DEST       what is in DIR becomes what is in DEST; so do `.` and `..`
  haul cp FILE DEST       DEST/FILE if DEST is a directory or is written with a slash at its end;
                          the file DEST otherwise
  haul cp A B C DEST      DEST/A, DEST/B, DEST/C

Many hosts, as pdsh writes them: node[01-20], rack[1-2]n[01-16], a,b,c[1,3-5].
  haul cp DIR 'ada@node[01-20]:/data/'     to each of them; DIR is read once
  haul cp --hosts FILE DIR ada@:/data/     the same with the hosts of FILE
  haul cp 'node[1-3]:/var/log' DIR         DIR/node1/log, DIR/node2/log, DIR/node3/log
Each host has its own pace and its own retries; a line says how it ended for each. The status is 1
if any host failed; the same command again sends only what is missing. --memory and --bwlimit are
of all hosts together.

A file appears under its name when all of it is there. Stopped at any moment, by whatever, the
same command continues: files that are there already are left alone, the one that was on its way
is continued.

Profiles:
  safe        few lanes, 10 retries, --verify, --fsync
  default     what suits most
  aggressive  more lanes and sooner, 64 files at once, 1G of memory

Sizes: 4096, 128K, 1.5G, 1MiB count in 1024; 10MB in 1000. Rates: 10M, 10MB/s are bytes per second;
80mbit, 1gbit are bits, in 1000.";
