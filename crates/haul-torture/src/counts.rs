//! Counts what the torture test has done.

/// Counters for the report.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    /// Steps that passed.
    pub steps: u64,
    /// Runs that were to be ended by a signal; some end before it.
    pub kills: u64,
    /// Steps as an unprivileged user.
    pub users: u64,
    /// Files that had to be copied.
    pub copies: u64,
    /// Steps that could not be compared with rsync, because it gave up.
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
