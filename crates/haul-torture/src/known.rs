//! Faults of haul that are known and not mended yet. While one is `true`, what meets it is left out of
//! the generator or of what is judged; whoever mends it removes it here.

/// `-a` does not update the extended attributes of files whose bytes are the same.
pub const KEPT_FILES_KEEP_THEIR_XATTRS: bool = true;

/// `-a` does not remove from a directory extended attributes that the source's has not.
pub const DIRECTORIES_KEEP_THEIR_XATTRS: bool = true;
