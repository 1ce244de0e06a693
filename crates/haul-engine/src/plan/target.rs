//! The directory of the destination that a walk copies entries into.

use std::collections::HashSet;
use std::sync::Arc;

use haul_storage::RelPath;

use super::directory::Directory;
use super::folded::fold;

/// The directory of the destination that entries are copied into.
#[derive(Debug)]
pub struct Target<'a> {
    /// Its path.
    pub destination: &'a RelPath,
    /// Whether this run has created it.
    pub fresh: bool,
    /// Its guard, which finishes it when the last of its entries is done.
    pub directory: &'a Arc<Directory>,
    /// Whether it is known to be on the file system whose free space was measured. An existing directory below the root
    /// of the destination is not examined.
    pub on_volume: bool,
    /// The folded names in it (see [`fold`]), if all are known.
    pub names: Option<HashSet<Vec<u8>>>,
}

impl Target<'_> {
    /// Whether it is known that neither the name nor its part file `part_name` exists, and that a copy needs space on
    /// the measured file system. False if any of this is unknown.
    pub fn lacks(&self, name: &[u8], part_name: &[u8]) -> bool {
        let is_new = |names: &HashSet<Vec<u8>>| {
            !names.contains(&fold(name)) && !names.contains(&fold(part_name))
        };
        self.on_volume && (self.fresh || self.names.as_ref().is_some_and(is_new))
    }
}
