//! Faults of haul that are known and not mended yet. While one is `true`, what meets it is left out of
//! the generator or of what is judged; whoever mends it removes it here.

/// `-a` does not update the extended attributes of files whose bytes are the same.
pub const KEPT_FILES_KEEP_THEIR_XATTRS: bool = true;

/// An ordinary user cannot update directories and files of its own that it may not write to.
pub const READ_ONLY_IS_NOT_UPDATED: bool = true;

/// A rerun sets the set-user-ID and set-group-ID bits that the first run left out with the owner.
pub const RERUNS_SET_SET_ID: bool = true;

/// `-a` does not remove from a directory extended attributes that the source's has not.
pub const DIRECTORIES_KEEP_THEIR_XATTRS: bool = true;

/// Where the destination keeps times less exactly than haul thinks, every run copies again.
pub const COARSE_TIMES_ARE_COPIED_AGAIN: bool = true;

/// Names that are too long for a part file's name are cut within a character, which not every file system
/// takes.
pub const LONG_NAMES_ARE_CUT_WITHIN_CHARACTERS: bool = true;

/// Over SFTP `--delete` lists the destination while links are made in it, and fails when a link's temporary
/// name is gone before its target was read.
pub const SFTP_LISTINGS_TRIP_OVER_LINKS_BEING_MADE: bool = true;
