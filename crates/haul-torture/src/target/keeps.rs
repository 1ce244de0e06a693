//! The metadata that a destination preserves.

use crate::tree::Time;

/// What a destination preserves. Anything else is removed from the model before it is compared.
#[derive(Debug, Clone, Copy)]
pub struct Keeps {
    /// Permission bits.
    pub mode: bool,
    /// User and group.
    pub owner: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// Symbolic links.
    pub symlinks: bool,
    /// Hard links.
    pub hard_links: bool,
    /// The destination reports which names belong to the same file. Otherwise a second run has to link them again.
    pub reports_links: bool,
    /// Times of files.
    pub times: bool,
    /// Times of symbolic links.
    pub link_times: bool,
    /// Times of directories.
    pub directory_times: bool,
    /// Times are rounded down to a multiple of this.
    pub precision_ns: u64,
    /// Earlier times are changed to this one, in seconds since 1970.
    pub earliest: i64,
    /// Later times are changed to this one, in seconds since 1970.
    pub latest: i64,
}

impl Keeps {
    /// Everything.
    pub const ALL: Self = Self {
        mode: true,
        owner: true,
        xattrs: true,
        symlinks: true,
        hard_links: true,
        reports_links: true,
        times: true,
        link_times: true,
        directory_times: true,
        precision_ns: 1,
        earliest: i64::MIN,
        latest: i64::MAX,
    };

    /// ext4 with inodes of 256 bytes: 34 bits of seconds, from 1901 on.
    pub const EXT4: Self = Self { earliest: -0x8000_0000, latest: 0x3_7fff_ffff, ..Self::ALL };

    /// The stored value of a time, as in the kernel's `timestamp_truncate`.
    pub fn time(&self, time: Time) -> Time {
        let seconds = time.seconds.clamp(self.earliest, self.latest);
        if seconds == self.earliest || seconds == self.latest {
            return Time { seconds, nanos: 0 };
        }
        let total = i128::from(seconds) * 1_000_000_000 + i128::from(time.nanos);
        let total = total - total.rem_euclid(i128::from(self.precision_ns));
        Time {
            seconds: total.div_euclid(1_000_000_000) as i64,
            nanos: total.rem_euclid(1_000_000_000) as u32,
        }
    }
}
