//! Boundary lengths and offsets, each with the reason for testing it.

/// File sizes in bytes.
pub(super) const SIZES: [(u64, &str); 17] = [
    (0, "no byte is written, but the file must exist"),
    (1, "the shortest that has content"),
    (1023, "one less than a chunk of BLAKE3"),
    (1024, "exactly one chunk of BLAKE3"),
    (1025, "one more than a chunk of BLAKE3"),
    (4095, "one less than a page"),
    (4097, "one more than a page"),
    (32_767, "one less than the packet that every SFTP server accepts"),
    (32_768, "the packet that every SFTP server accepts"),
    (32_769, "one more than that packet"),
    (65_535, "the last length of 16 bits"),
    (65_537, "two more than 16 bits hold"),
    (261_120, "the longest read and write of OpenSSH"),
    (261_121, "one more than that: two requests"),
    (1_048_575, "one less than a block of 1 MiB"),
    (1_048_576, "a block of 1 MiB"),
    (1_048_577, "one more than a block: a second one of one byte"),
];

/// Offsets in a file of [`RANGED`] bytes at which reads begin.
pub(super) const STARTS: [(u64, &str); 16] = [
    (0, "the beginning"),
    (1, "nothing is aligned"),
    (1023, "before the first boundary of a BLAKE3 chunk"),
    (1024, "a boundary of a chunk"),
    (1025, "after a boundary of a chunk"),
    (4096, "a boundary of a page"),
    (32_767, "before the boundary of an SFTP packet"),
    (32_768, "the boundary of an SFTP packet"),
    (65_537, "beyond what 16 bits hold"),
    (261_119, "before the longest request of OpenSSH ends"),
    (261_121, "after the longest request of OpenSSH"),
    (1_048_575, "before the boundary of a block"),
    (1_048_576, "the boundary of a block"),
    (1_048_577, "after the boundary of a block"),
    (RANGED - 1, "the last byte"),
    (RANGED, "the end of the file: nothing is left"),
];

/// Lengths of reads.
pub(super) const LENGTHS: [(u64, &str); 9] = [
    (0, "nothing, and no error"),
    (1, "one byte"),
    (2, "across a boundary from the byte before it"),
    (1023, "short of a chunk"),
    (1025, "more than a chunk"),
    (32_769, "more than an SFTP packet"),
    (261_121, "more than the longest request of OpenSSH"),
    (1_048_577, "more than a block"),
    (RANGED + 1, "beyond the end from every offset"),
];

/// Length of the file that ranges are read from: two blocks of 1 MiB and an unaligned rest.
pub(super) const RANGED: u64 = 2 * 1_048_576 + 1237;

/// Offsets beyond the end of that file.
pub(super) const BEYOND: [(u64, &str); 3] = [
    (RANGED + 1, "one byte beyond the end"),
    (5 << 30, "beyond what 32 bits hold"),
    (1 << 40, "far beyond"),
];
