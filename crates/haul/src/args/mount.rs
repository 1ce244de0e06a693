//! `haul mount`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::RemoteArgs;
use crate::units::{Count, SizeIn};

/// Arguments of `haul mount`.
#[derive(Debug, Args)]
#[command(after_long_help = MEANING)]
pub(crate) struct MountArgs {
    /// A directory
    #[arg(value_name = "LOCATION", required_unless_present_any = ["status", "pending"])]
    pub(crate) location: Option<OsString>,

    /// An empty directory of this machine, in which the files appear
    #[arg(value_name = "MOUNTPOINT", required_unless_present_any = ["status", "pending"])]
    pub(crate) point: Option<PathBuf>,

    /// Allow changes: files are written to a spool on this machine, and uploaded in the background
    #[arg(long, alias = "rw")]
    pub(crate) read_write: bool,

    /// With --read-write: closing a file returns when it is uploaded, not when it is in the spool
    #[arg(long, requires = "read_write")]
    pub(crate) sync_close: bool,

    /// Keep spools below this directory [default: haul/mount below $XDG_STATE_HOME or
    /// ~/.local/state]
    #[arg(long, value_name = "DIR")]
    pub(crate) spool_dir: Option<PathBuf>,

    /// Print the files of the spool of LOCATION, or of all locations, that wait to be uploaded
    #[arg(long, conflicts_with_all = ["point", "read_write", "daemon", "foreground", "status"])]
    pub(crate) pending: bool,

    /// Run until Ctrl-C or until it is unmounted; this is the default
    #[arg(short, long)]
    pub(crate) foreground: bool,

    /// Return once the files can be used; the mount goes on in the background
    #[arg(long, conflicts_with = "foreground")]
    pub(crate) daemon: bool,

    /// Print what your mounts do: `haul mount --status [MOUNTPOINT]`
    #[arg(long, conflicts_with_all = ["daemon", "foreground", "read_write"])]
    pub(crate) status: bool,

    /// Let other users use the files, as far as their permissions allow
    #[arg(long)]
    pub(crate) allow_other: bool,

    /// Mount over a directory with files, which are hidden meanwhile
    #[arg(long)]
    pub(crate) nonempty: bool,

    /// Show all files as owned by this user number [default: that of the user who runs haul]
    #[arg(long, value_name = "N")]
    pub(crate) uid: Option<u32>,

    /// Show all files as owned by this group number [default: that of the user who runs haul]
    #[arg(long, value_name = "N")]
    pub(crate) gid: Option<u32>,

    /// Hide these permissions of all files: 077
    #[arg(long, value_name = "MODE")]
    pub(crate) umask: Option<String>,

    /// Use names, sizes and times for this long before asking the server again
    #[arg(long, value_name = "SECONDS", default_value = "5", alias = "attr-timeout")]
    pub(crate) attribute_age: Count<0, 86_400>,

    /// Maximum memory for file contents
    #[arg(long, value_name = "SIZE", default_value = "128M")]
    pub(crate) memory: SizeIn<{ 4 << 20 }, { 1 << 50 }>,

    /// Cache contents of files in this directory, also for later mounts
    #[arg(long, value_name = "DIR")]
    pub(crate) cache_dir: Option<PathBuf>,

    /// Maximum size of the cache [default: 10G]
    #[arg(long, value_name = "SIZE", requires = "cache_dir")]
    pub(crate) cache_size: Option<SizeIn<{ 16 << 20 }, { 1 << 50 }>>,

    /// Ignore unknown options after -o, as mount -s does
    #[arg(long, hide = true)]
    pub(crate) sloppy: bool,

    /// This is the process that `--daemon` starts
    #[arg(long, hide = true)]
    pub(crate) in_background: bool,

    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
}

impl MountArgs {
    /// Whether this process only starts the background process, which mounts.
    pub(crate) const fn starts_daemon(&self) -> bool {
        self.daemon && !self.in_background
    }
}

const MEANING: &str = "\
The files are read-only without --read-write. Ctrl-C, SIGTERM and `fusermount3 -u MOUNTPOINT` (as
root: umount) unmount; programs that still use the files get errors from then on. Users other than
root need fusermount3 (package fuse3). Called as mount.haul, haul takes the arguments of mount, for
/etc/fstab.

With --read-write, a closed file is in the spool and survives a crash; it is uploaded in the
background. Ctrl-C waits for uploads while they make progress. What is left is uploaded by the next
mount of the same location. If a file has changed on the server meanwhile, the version from here is
uploaded beside it as `NAME (conflict DATE HOST).EXT`.

After -o, options of mount, sshfs and fstab are accepted, too: -o allow_other,uid=1000,reconnect.";
