//! Options of a local storage: sizes of system calls, threads, buffers.

use haul_storage::WorkPool;

/// Bytes that one job on a disk thread reads, rounded down to whole blocks, unless a block is longer; and the
/// default block size.
///
/// Measured on ext4 and Linux 6.18, 1 GiB from memory to disk, 4 ranges in flight, processor seconds (median of six):
/// 1.0 with 256 KiB, 1.8 with 512 KiB, 2.5–2.9 with 1 MiB and with 4 MiB. With 256 KiB the buffers in flight fit into
/// a second-level cache of 2 MiB. Longer writes also make the kernel allocate longer page-cache folios, which are cold
/// memory. Below 128 KiB the cost of switching threads becomes noticeable.
const MIN_HOP: u64 = 256 * 1024;

/// The longest buffer in bytes, whatever the block size.
const MAX_HOP: u64 = 64 * 1024 * 1024;

/// Options of a local storage.
#[derive(Debug, Clone)]
pub struct LocalOptions {
    /// Most bytes read by one system call.
    pub block_size: u64,
    /// Most bytes written by one system call; `None` for the best size on the file system.
    pub write_size: Option<u64>,
    /// Number of disk threads, if `pool` is `None`.
    pub threads: usize,
    /// Most unused buffers to keep for reuse.
    pub buffers: usize,
    /// A thread pool that is shared with another storage; `None` starts one with `threads` threads.
    pub pool: Option<WorkPool>,
    /// Use only system calls that every Unix has, as on systems other than Linux. For tests.
    pub portable: bool,
}

impl Default for LocalOptions {
    /// Blocks of 256 KiB; as many threads as processors, at least 2 and at most 8.
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            block_size: MIN_HOP,
            write_size: None,
            threads: processors.clamp(2, 8),
            buffers: 32,
            pool: None,
            portable: false,
        }
    }
}

impl LocalOptions {
    /// Bytes of one write.
    ///
    /// A write into the page cache allocates a folio of its own length. Up to 32 KiB (order 3,
    /// `PAGE_ALLOC_COSTLY_ORDER`) folios come from per-processor lists of recently freed pages. Longer ones come from
    /// the global allocator and are cold memory: copying to them took more than twice the system time for the whole
    /// transfer (ext4, Linux 6.18, 4 GiB: 2.8 s at 32 KiB, 6.2 s at 256 KiB).
    pub(crate) fn write_step_bytes(&self, page_cache: bool) -> usize {
        const BEST: u64 = 32 * 1024;
        match self.write_size {
            Some(size) => usize::try_from(size.clamp(1, MAX_HOP)).unwrap_or(usize::MAX),
            None if page_cache => self.step_bytes().min(BEST as usize),
            None => self.step_bytes(),
        }
    }

    /// Bytes of one read.
    pub(crate) fn step_bytes(&self) -> usize {
        usize::try_from(self.block_size.clamp(1, MAX_HOP)).unwrap_or(usize::MAX)
    }

    /// Bytes of one buffer: a whole number of blocks, unless they are longer than a buffer may be.
    pub(crate) fn hop_bytes(&self) -> usize {
        let block = self.block_size.clamp(1, MAX_HOP);
        let hop = MIN_HOP.max(block) / block * block;
        usize::try_from(hop).unwrap_or(usize::MAX)
    }
}
