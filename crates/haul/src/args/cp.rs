//! `haul cp`.

use std::ffi::OsString;

use clap::Args;

use super::{FetchArgs, HostArgs, RemoteArgs, TransferArgs};

/// Arguments of `haul cp`.
#[derive(Debug, Args)]
#[command(after_long_help = WHERE, override_usage = USAGE, allow_missing_positional = true)]
pub(crate) struct CpArgs {
    /// Files and directories, or - for standard input; a link named here is followed, and in a remote
    /// path `*`, `?` and `[a-z]` match names
    #[arg(required_unless_present = "input_file", value_name = "SOURCE")]
    pub(crate) sources: Vec<OsString>,

    /// Where to copy them, or - for standard output
    #[arg(required = true, value_name = "DEST")]
    pub(crate) destination: OsString,

    /// Do not ask before files from a ticket are written
    #[arg(short = 'y', long, help_heading = "Files")]
    pub(crate) yes: bool,

    #[command(flatten)]
    pub(crate) fetch: FetchArgs,

    #[command(flatten)]
    pub(crate) hosts: HostArgs,

    #[command(flatten)]
    pub(crate) transfer: TransferArgs,

    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
}

const USAGE: &str = "\
haul cp [OPTIONS] <SOURCE>... <DEST>
       haul cp [OPTIONS] --input-file <FILE> [SOURCE]... <DEST>";

const WHERE: &str = "\
Where files go, in a first run and in every rerun:
  haul cp DIR DEST        DEST/DIR, whether DEST exists or not (it is created)
  haul cp DIR/ DEST       the content of DIR goes into DEST; likewise with `.` and `..`
  haul cp FILE DEST       DEST/FILE if DEST is a directory or ends with a slash; the file DEST
                          otherwise
  haul cp A B C DEST      DEST/A, DEST/B, DEST/C
  haul cp 'HOST:*.gz' DEST   the files on HOST that match
  haul cp - FILE          standard input; haul cp FILE - is standard output
  haul cp --input-file LIST DEST   DEST/A, DEST/B, ... of the sources in LIST, one per line; tabs
                          separate mirrors; indented lines out=NAME, dir=DIR and
                          checksum=sha-256=HEX apply to the source above them

Many hosts, as pdsh writes them: node[01-20], rack[1-2]n[01-16], a,b,c[1,3-5].
  haul cp DIR 'ada@node[01-20]:/data/'     to each of them; DIR is read once
  haul cp --hosts FILE DIR ada@:/data/     the same with the hosts of FILE
  haul cp 'node[1-3]:/var/log' DIR         DIR/node1/log, DIR/node2/log, DIR/node3/log
Each host has its own speed and retries, and ends with a line of its own.
The exit status is 1 if any host failed; the same command again sends only what is missing.
--memory and --bwlimit apply to all hosts together.

A file appears under its name only when it is complete. After an interruption run the same
command again: finished files are skipped, partial files resume.

Profiles:
  safe        few connections, 10 retries, --verify, --fsync
  default     suits most transfers
  aggressive  more connections sooner, 64 files at once, 1G of memory

Sizes: 4096, 128K, 1.5G and 1MiB are in units of 1024; 10MB is in units of 1000. Rates: 10M and
10MB/s are bytes per second; 80mbit and 1gbit are bits per second, in units of 1000.";
