//! Split files: a file that is too long for its file system is stored as a folder of numbered
//! parts.
//!
//! A file `NAME` becomes `NAME/00`, `NAME/01`, … (`100` follows `99`), all of the same length but
//! the last. [`SplitStorage`] shows such a folder as one file, whichever program made it, and
//! creates one for a file that is too long. A part has 4 294 901 760 bytes (4 GiB − 64 KiB) unless
//! `--split SIZE` sets another length.
//!
//! `layout` recognises folders and names parts; `read` concatenates parts; `write` splits data at
//! part boundaries, into `.NAME.haul-part/LENGTH/00` and so on, with the journal beside it as for
//! any file; `place` renames a finished folder (or file), where an entry of the other form may be
//! in the way.

mod far;
mod layout;
mod place;
mod read;
mod storage;
mod write;

use std::sync::Arc;

use haul_storage::{Capabilities, Storage};

pub use layout::PART_BYTES;

/// When files are split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SplitMode {
    /// Files longer than the file system allows are split; split folders are read as one file.
    #[default]
    Auto,
    /// Nothing is split, and folders remain folders.
    Never,
    /// Like `Auto`, but folders with parts of any length are read as one file.
    Join,
    /// Files longer than this many bytes are split into parts of this length; folders with parts of
    /// this length or of [`PART_BYTES`] are read as one file. The maximum file size of the file
    /// system limits the length.
    Size(u64),
}

/// Any storage, with split folders shown as files.
#[derive(Debug, Clone)]
pub struct SplitStorage {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    inner: Arc<dyn Storage>,
    mode: SplitMode,
    capabilities: Capabilities,
}

/// Which files are split, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rule {
    /// Longest file that is not split, in bytes.
    longest: u64,
    /// Length of a part in bytes.
    part: u64,
}

impl SplitStorage {
    /// Wraps `inner`. A length of 0 in [`SplitMode::Size`] counts as 1.
    pub fn new(inner: Arc<dyn Storage>, mode: SplitMode) -> Arc<Self> {
        let mut capabilities = inner.capabilities().clone();
        let mode = match mode {
            SplitMode::Size(0) => SplitMode::Size(1),
            mode => mode,
        };
        let shared = Shared { inner, mode, capabilities: capabilities.clone() };
        if shared.rule().is_some() {
            capabilities.max_file_size = None;
        }
        Arc::new(Self { shared: Arc::new(Shared { capabilities, ..shared }) })
    }
}

impl Shared {
    fn rule(&self) -> Option<Rule> {
        let longest = self.inner.capabilities().max_file_size;
        match self.mode {
            SplitMode::Never => None,
            SplitMode::Auto | SplitMode::Join => {
                longest.map(|longest| Rule { longest, part: PART_BYTES.min(longest) })
            }
            SplitMode::Size(size) => {
                let size = size.min(longest.unwrap_or(u64::MAX));
                Some(Rule { longest: size, part: size })
            }
        }
    }

    /// Whether folders are checked for parts at all.
    fn joins(&self) -> bool {
        self.mode != SplitMode::Never
    }

    /// Whether this may be the length of all parts but the last.
    fn is_part_length(&self, length: u64) -> bool {
        let any = self.mode == SplitMode::Join && length > 0;
        any || length == PART_BYTES || self.rule().is_some_and(|rule| rule.part == length)
    }
}
