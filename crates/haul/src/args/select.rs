//! Options that select files, and that determine backups, permissions and owners of copies.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use haul_engine::ModeChanges;

use crate::moment::Moment;
use crate::options::OverwriteArg;
use crate::units::{Rate, Size};

/// Options that select files, named as in rsync and rclone.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Files")]
pub(crate) struct SelectArgs {
    /// Skip files that are newer at the destination: --overwrite newer
    #[arg(short, long, conflicts_with_all = ["overwrite", "ignore_existing", "ignore_times"])]
    pub(crate) update: bool,

    /// Skip files that exist at the destination: --overwrite never
    #[arg(long, conflicts_with_all = ["overwrite", "ignore_times"])]
    pub(crate) ignore_existing: bool,

    /// Copy files even if size and time are the same: --overwrite always
    #[arg(short = 'I', long, conflicts_with = "overwrite")]
    pub(crate) ignore_times: bool,

    /// Compare files of equal size by content, not by time: both sides are read, unless a server
    /// reports digests
    #[arg(short, long, conflicts_with_all = ["size_only", "update", "ignore_existing", "ignore_times"])]
    pub(crate) checksum: bool,

    /// Compare files by size alone
    #[arg(long, conflicts_with_all = ["update", "ignore_existing", "ignore_times"])]
    pub(crate) size_only: bool,

    /// Only update files that exist at the destination; create nothing
    #[arg(long, alias = "ignore-non-existing")]
    pub(crate) existing: bool,

    /// Remove each file of SOURCE once its copy is complete; directories stay
    #[arg(long, alias = "remove-sent-files", conflicts_with_all = ["size_only", "checksum"])]
    pub(crate) remove_source_files: bool,

    /// Copy no file smaller than SIZE
    #[arg(long, value_name = "SIZE")]
    pub(crate) min_size: Option<Size>,

    /// Copy no file larger than SIZE
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_size: Option<Size>,

    /// Copy no file modified less than AGE ago (7d, 36h), or after a date (2026-01-31)
    #[arg(long, value_name = "AGE")]
    pub(crate) min_age: Option<Moment>,

    /// Copy no file modified more than AGE ago, or before a date
    #[arg(long, value_name = "AGE")]
    pub(crate) max_age: Option<Moment>,

    /// Copy only the paths below SOURCE that FILE lists, one per line; - reads standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) files_from: Option<PathBuf>,

    /// Do not cross mount points of the source
    #[arg(short = 'x', long)]
    pub(crate) one_file_system: bool,

    /// Keep replaced and removed files as NAME~
    #[arg(short = 'b', long)]
    pub(crate) backup: bool,

    /// Keep backups in DIR, a path below DEST
    #[arg(long, value_name = "DIR")]
    pub(crate) backup_dir: Option<OsString>,

    /// Suffix of a backup's name [default: ~, and none with --backup-dir]
    #[arg(long, value_name = "SUFFIX")]
    pub(crate) suffix: Option<OsString>,

    /// Change the permissions of copies: 644, D755,F644, u+w, go-rwx
    #[arg(long, value_name = "MODES", value_parser = str::parse::<ModeChanges>)]
    pub(crate) chmod: Vec<ModeChanges>,

    /// Give copies this owner: USER, USER:GROUP, :GROUP, as names or numbers
    #[arg(long, value_name = "OWNER")]
    pub(crate) chown: Option<OwnerArg>,

    /// Limit the rate as scp does, in kilobits per second
    #[arg(short = 'l', value_name = "KBIT", hide = true, conflicts_with = "bwlimit")]
    pub(crate) limit: Option<KilobitsArg>,
}

impl SelectArgs {
    /// The value of `--overwrite` that rsync's options stand for, if one was given.
    pub(crate) fn overwrite(&self) -> Option<OverwriteArg> {
        let chosen = [
            (self.update, OverwriteArg::Newer),
            (self.ignore_existing, OverwriteArg::Never),
            (self.ignore_times, OverwriteArg::Always),
        ];
        chosen.into_iter().find(|(is_set, _)| *is_set).map(|(_, overwrite)| overwrite)
    }
}

/// Value of `--chown`: numeric IDs; `None` leaves the user or group unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnerArg {
    pub(crate) user: Option<u32>,
    pub(crate) group: Option<u32>,
}

impl FromStr for OwnerArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        if user.is_empty() && group.is_empty() {
            return Err("it is empty; write USER, USER:GROUP or :GROUP".to_owned());
        }
        let user = number(user, "user", |name| {
            Ok(nix::unistd::User::from_name(name)?.map(|user| user.uid.as_raw()))
        })?;
        let group = number(group, "group", |name| {
            Ok(nix::unistd::Group::from_name(name)?.map(|group| group.gid.as_raw()))
        })?;
        Ok(Self { user, group })
    }
}

/// The ID of a user or group, given as a number or as a name known on this machine; `None` for an empty text.
fn number(
    text: &str,
    what: &str,
    find: impl Fn(&str) -> nix::Result<Option<u32>>,
) -> Result<Option<u32>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    if let Ok(number) = text.parse::<u32>() {
        // The kernel reads this number as "no change".
        if number == u32::MAX {
            return Err(format!("{number} is not the ID of any {what}"));
        }
        return Ok(Some(number));
    }
    match find(text) {
        Ok(Some(number)) => Ok(Some(number)),
        Ok(None) => Err(format!("this machine has no {what} '{text}'; use a number instead")),
        Err(error) => Err(format!("cannot look up {what} '{text}': {}", error.desc())),
    }
}

/// Value of scp's `-l`, in kilobits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KilobitsArg(pub(crate) Rate);

impl FromStr for KilobitsArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number {
            return Err(
                "-l is scp's: a rate in kilobits per second; omit rsync's -l, links are always kept"
                    .to_owned(),
            );
        }
        format!("{text}kbit").parse().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_names_or_numbers() {
        let owner = |text: &str| text.parse::<OwnerArg>();
        assert_eq!(owner("root:7"), Ok(OwnerArg { user: Some(0), group: Some(7) }));
        assert_eq!(owner("1000"), Ok(OwnerArg { user: Some(1000), group: None }));
        assert_eq!(owner(":root"), Ok(OwnerArg { user: None, group: Some(0) }));
        assert!(owner("no-such-user").unwrap_err().contains("no user 'no-such-user'"));
        assert!(owner(":").is_err());
    }

    /// Formerly, 4294967295 was accepted, and copies kept the owner that they happened to have.
    #[test]
    fn an_owner_that_means_no_change_is_refused() {
        for text in ["4294967295", ":4294967295"] {
            let error = text.parse::<OwnerArg>().unwrap_err();
            assert!(error.contains("4294967295 is not the ID of any"), "{error}");
        }
        assert!("4294967294".parse::<OwnerArg>().is_ok());
    }

    #[test]
    fn scps_limit_counts_kilobits() {
        assert_eq!("8000".parse(), Ok(KilobitsArg(Rate(1_000_000))));
        assert!("ptgoD".parse::<KilobitsArg>().unwrap_err().contains("links are always kept"));
    }
}
