//! Where haul is meant to differ from rsync. Each difference has a name and a reason; what has none is a
//! fault of haul or of the model.

use std::fmt;

/// A difference that is intended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// haul leaves out what bears a name that it gives to unfinished files, and says so; to rsync such a
    /// name is like any other.
    OwnNames,
    /// Without `--delete` haul removes nothing to make room: a file is not replaced by a directory, nor an
    /// empty directory by a file. rsync replaces both.
    NoRoomWithoutDelete,
    /// `--delete` makes room whatever `--overwrite` says; `--ignore-existing` of rsync keeps what is there.
    DeleteMakesRoom,
    /// `--overwrite newer` replaces only a file that was modified before the source, and touches nothing
    /// else. `rsync --update` also replaces a file of the same time and another size, and adjusts mode and
    /// owner of what it leaves.
    NewerOnly,
    /// What is left alone by `--overwrite` stays as it is, with whatever names it has; rsync links names of
    /// one file anew.
    LeftNamesStay,
    /// Where the mode is not kept, a new file gets what the umask leaves of 0666 and a new directory what it
    /// leaves of 0777; rsync begins with the mode of the source.
    NewMode,
    /// Where modes are not kept, what is there keeps its own. `rsync --xattrs` without `--perms` sets the mode
    /// of the source where it sets attributes.
    AttributesBringModes,
    /// Set-user-ID and set-group-ID are kept only together with the owner; rsync keeps them with `--perms`.
    SetIdNeedsOwner,
    /// A file whose time differs from the source's only by what the destination cannot keep is the same. rsync,
    /// which compares to the nanosecond here, copies it again.
    CoarseClock,
    /// An ordinary user's directory that has no write permission, or is to have none, is written to all the same,
    /// and has its mode in the end. rsync fails in some of them, and leaves others writable in which an excluded entry
    /// stays.
    ReadOnlyDirectories,
    /// A time within the second before 1970 is no time to rsync, which leaves that of the copy.
    SecondBefore1970,
    /// A file of another user that is to get set-ID bits or capabilities is copied, whatever its size and time; rsync
    /// gives them to the bytes that are there.
    PrivilegesAreCopied,
    /// A file that is there, keeps its mode and gets another owner loses its set-ID bits; rsync gives the rights of the
    /// new owner to it.
    SetIdGoesWithOwner,
    /// Names of one file at the destination that are two files at the source: which of them decides depends
    /// on the order.
    SharedDestination,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
