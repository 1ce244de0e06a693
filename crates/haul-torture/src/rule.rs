//! The intended differences between haul and rsync. Any other difference is a bug in haul or in the model.

use std::fmt;

/// An intended difference between haul and rsync.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// haul skips files with a name that it reserves for temporary files, and reports them; rsync copies them.
    OwnNames,
    /// Without `--delete` haul removes nothing to make room: a file is not replaced by a directory, nor an
    /// empty directory by a file. rsync replaces both.
    NoRoomWithoutDelete,
    /// `--delete` makes room regardless of `--overwrite`; rsync with `--ignore-existing` keeps the existing entry.
    DeleteMakesRoom,
    /// rsync with `--ignore-existing` keeps a symbolic link where the source has a directory, and follows it to another
    /// directory of the destination: it copies to that one, and with `--delete` also deletes in it. haul neither writes
    /// nor deletes through a link.
    ThroughKeptLink,
    /// rsync deletes nothing any more after it failed to list a directory of the destination, as happens where
    /// `--ignore-existing` keeps a file, or a link to a file or to itself, in the place of a directory.
    NoDeletionAfterErrors,
    /// haul removes nothing from a directory that it cannot list in the source; `rsync --ignore-errors` removes
    /// everything from it. haul gives it the source's mode; rsync may leave it writable.
    UnlistedDirectories,
    /// `--overwrite newer` replaces only files that were modified before the source, and does not change others.
    /// `rsync --update` also replaces files of the same time and another size, and sets mode and owner of the files
    /// that it skips.
    NewerOnly,
    /// Files that `--overwrite` skips keep all their hard links; rsync links them as in the source.
    LeftNamesStay,
    /// rsync may create a hard-linked file at a name that haul skips or has no room for, and then link its other names
    /// to it: they have the ACL and the group that it inherited there.
    InheritedElsewhere,
    /// Without preserving modes, a new file gets 0666 and a new directory 0777, less the umask; rsync applies the umask
    /// to the mode of the source.
    NewMode,
    /// Without preserving modes, existing entries keep their mode. `rsync --xattrs` without `--perms` sets the mode of
    /// the source where it sets extended attributes.
    AttributesBringModes,
    /// Before rsync sets the sticky bit of a directory, or clears set-ID bits of an existing file, it sets the ACL
    /// without rights of group and others. The mode that follows does not restore the owning group's entry.
    AclBeforeSpecialBits,
    /// Set-user-ID and set-group-ID are preserved only together with the owner; rsync preserves them with `--perms`.
    SetIdNeedsOwner,
    /// A file is unchanged if its time equals the source's in the precision of the destination. rsync, which compares
    /// nanoseconds here, copies it again.
    CoarseClock,
    /// haul writes to directories of an ordinary user that have, or get, no write permission, and sets their mode at
    /// the end. rsync fails in some of them, and leaves others writable if an excluded entry stays in them. That
    /// includes a directory that is in the way of a file, and the directories below it.
    ReadOnlyDirectories,
    /// As an ordinary user, rsync makes a read-only directory writable before it removes it to make room for a file,
    /// but not for a symbolic link or for an additional hard link of a file. Then the directory's own entries stay, and
    /// those in its subdirectories are removed. haul removes such a directory for links, too.
    NoRoomForLinks,
    /// rsync ignores a time within the second before 1970, and leaves the time of the copy.
    SecondBefore1970,
    /// A file of another user that is to get set-ID bits or capabilities is always copied; rsync sets them on the
    /// existing content.
    PrivilegesAreCopied,
    /// An existing file that keeps its mode but gets another owner loses its set-ID bits; rsync keeps them, with the
    /// rights of the new owner.
    SetIdGoesWithOwner,
    /// Two source files whose destinations are hard links of one file: the result depends on the order.
    SharedDestination,
    /// As an ordinary user, rsync makes a read-only file writable before it removes a name of it, also to make room for
    /// a directory. The file's other names then have that mode.
    RemovedNamesGetWritable,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
