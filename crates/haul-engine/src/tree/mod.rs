//! Operations on trees besides moving: measure, remove (also only what is empty), compare two, and recognise an
//! unfinished move.
//!
//! ```text
//! crawl: directories are listed several at a time → each entry is acted on → a directory after all below it
//! compare: both listings of a directory, merged by name → what differs
//! ```
//!
//! Memory grows with the depth of a tree and the length of its longest batches (in a comparison, of its largest
//! directories), not with its number of entries; but measuring and removing remember files with several names.

mod compare;
mod crawl;
mod emptied;
mod measure;
mod remove;
mod unfinished;

pub use compare::{CompareOptions, Compared, Comparison, Difference, Side, compare};
pub(crate) use crawl::ROUNDS;
pub use emptied::{Left, remove_emptied};
pub use measure::{Counted, Measured, Totals, measure};
pub use remove::{Removal, RemoveEvent, remove};
pub use unfinished::{UnfinishedMove, is_note};

pub use crate::marker::Marker;

use haul_storage::{Medium, Storage};

/// Operations in flight on a server, and on a disk.
const IN_FLIGHT: usize = 64;
const ON_DISK: usize = 4;

/// Lanes to a server. Only a comparison of contents transfers more than short requests and responses.
const LANES: usize = 8;

/// How many operations on a storage run at once. Requests the lanes for them.
fn at_once(storage: &dyn Storage) -> usize {
    match storage.capabilities().medium {
        Medium::Disk => ON_DISK,
        Medium::Link => {
            storage.set_lanes(LANES);
            IN_FLIGHT
        }
    }
}
