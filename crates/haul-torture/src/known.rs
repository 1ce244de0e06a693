//! Faults of haul that are known and not mended yet. While one is `true`, what meets it is left out of
//! the generator or of what is judged; whoever mends it removes it here.

/// `-a` does not update the extended attributes of files whose bytes are the same.
pub const KEPT_FILES_KEEP_THEIR_XATTRS: bool = true;

/// An ordinary user cannot update directories and files of its own that it may not write to.
pub const READ_ONLY_IS_NOT_UPDATED: bool = true;

/// After a kill, a name that becomes a hard link in the next run keeps its part file.
pub const LINKS_LEAVE_PART_FILES: bool = true;

/// Owner and time of a symbolic link that is there already are not adjusted.
pub const LINKS_ARE_NOT_ADJUSTED: bool = true;

/// A rerun sets the set-user-ID and set-group-ID bits that the first run left out with the owner.
pub const RERUNS_SET_SET_ID: bool = true;

/// `-a` does not remove from a directory extended attributes that the source's has not.
pub const DIRECTORIES_KEEP_THEIR_XATTRS: bool = true;

/// Where the destination keeps times less exactly than haul thinks, every run copies again.
pub const COARSE_TIMES_ARE_COPIED_AGAIN: bool = true;
