//! Statistics of the torture test.

/// Counters for the report.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    /// Steps that passed.
    pub steps: u64,
    /// Runs that a signal should end; some end before it arrives.
    pub kills: u64,
    /// Steps as an unprivileged user.
    pub users: u64,
    /// Files that had to be copied.
    pub copies: u64,
    /// Steps without a comparison with rsync, because rsync failed.
    pub without_oracle: u64,
}

impl Counts {
    /// Adds the counters of another episode.
    pub fn add(&mut self, other: Self) {
        self.steps += other.steps;
        self.kills += other.kills;
        self.users += other.users;
        self.copies += other.copies;
        self.without_oracle += other.without_oracle;
    }
}
