//! Tickets that were fetched by a spoken code. A code works once; with its ticket, an interrupted command can be run
//! again.

use std::collections::BTreeMap;
use std::path::Path;

use haul_storage::Result;
use serde::{Deserialize, Serialize};

use super::file::PrivateFile;
use crate::ticket::Ticket;

/// The first line of the file.
const COMMENT: &str = "# Tickets of spoken codes, each for a day. It contains secrets.";

/// How long a ticket stays, in seconds.
const LIFETIME: u64 = 24 * 3600;

/// Maximum number of stored tickets. The oldest ones are removed first.
const MOST: usize = 256;

/// The tickets in a file. Every method reads the file anew.
#[derive(Debug, Clone)]
pub struct Fetched {
    file: PrivateFile,
}

#[derive(Default, Serialize, Deserialize)]
struct Records {
    #[serde(default)]
    code: BTreeMap<String, Record>,
}

#[derive(Serialize, Deserialize)]
struct Record {
    ticket: String,
    fetched: u64,
}

impl Record {
    fn is_recent(&self, now: u64) -> bool {
        self.fetched <= now && now - self.fetched < LIFETIME
    }
}

impl Fetched {
    /// The tickets in the file at `path`, which need not exist.
    pub fn at(path: &Path) -> Self {
        let (read, change) = ("read the tickets of codes", "store the ticket of the code");
        Self { file: PrivateFile { path: path.to_owned(), read, change } }
    }

    /// The ticket that a code was exchanged for within the last day; `None` also if it has expired or cannot be parsed.
    ///
    /// # Errors
    /// If the file cannot be read, is malformed, is accessible to others or belongs to another user.
    pub fn ticket(&self, code: &str, now: u64) -> Result<Option<Ticket>> {
        let mut records: Records = self.file.parsed()?;
        let record = records.code.remove(code).filter(|record| record.is_recent(now));
        let ticket = record.and_then(|record| record.ticket.parse::<Ticket>().ok());
        Ok(ticket.filter(|ticket| ticket.expires.is_none_or(|expires| expires > now)))
    }

    /// Stores the ticket of a code, and removes old ones.
    ///
    /// # Errors
    /// As for [`Fetched::ticket`], or if the file cannot be written.
    pub fn store(&self, code: &str, ticket: &Ticket, now: u64) -> Result<()> {
        let lock = self.file.lock()?;
        let mut records: Records = self.file.parsed()?;
        records.code.retain(|_, record| record.is_recent(now));
        while records.code.len() >= MOST {
            let oldest = records.code.iter().min_by_key(|(_, record)| record.fetched);
            let Some(oldest) = oldest.map(|(code, _)| code.clone()) else { break };
            records.code.remove(&oldest);
        }
        let record = Record { ticket: ticket.to_string(), fetched: now };
        records.code.insert(code.to_owned(), record);
        self.file.write(COMMENT, &records, &lock)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;
    use crate::ticket::Secret;

    fn ticket(n: u8) -> Ticket {
        let identity = crate::identity::Identity::ephemeral().unwrap();
        Ticket::new(identity.key(), Secret::new([n; 16]))
    }

    fn in_new_directory() -> (tempfile::TempDir, Fetched) {
        let directory = tempfile::tempdir().unwrap();
        let fetched = Fetched::at(&directory.path().join("haul/codes.toml"));
        (directory, fetched)
    }

    #[test]
    fn a_ticket_is_known_by_its_code_for_a_day() {
        let (_directory, fetched) = in_new_directory();
        assert_eq!(fetched.ticket("7-orbit-candle", 0).unwrap(), None);
        let (one, other) = (ticket(1), ticket(2));
        fetched.store("7-orbit-candle", &one, 1000).unwrap();
        fetched.store("8-orbit-candle", &other, 2000).unwrap();
        assert_eq!(fetched.ticket("7-orbit-candle", 1000).unwrap(), Some(one));
        assert_eq!(fetched.ticket("8-orbit-candle", 2500).unwrap(), Some(other));
        assert_eq!(fetched.ticket("7-orbit-acorn", 2500).unwrap(), None);
        assert_eq!(fetched.ticket("7-orbit-candle", 1000 + LIFETIME).unwrap(), None);
        assert_eq!(fetched.ticket("7-orbit-candle", 999).unwrap(), None, "the clock was set back");
        assert_eq!(fs::metadata(&fetched.file.path).unwrap().mode() & 0o7777, 0o600);
    }

    #[test]
    fn an_expired_ticket_is_not_used_again() {
        let (_directory, fetched) = in_new_directory();
        let mut expiring = ticket(1);
        expiring.expires = Some(1500);
        fetched.store("7-orbit-candle", &expiring, 1000).unwrap();
        assert_eq!(fetched.ticket("7-orbit-candle", 1499).unwrap(), Some(expiring));
        assert_eq!(fetched.ticket("7-orbit-candle", 1500).unwrap(), None);
    }

    #[test]
    fn old_tickets_are_removed() {
        let (_directory, fetched) = in_new_directory();
        let ticket = ticket(1);
        fetched.store("1-orbit-candle", &ticket, 1000).unwrap();
        fetched.store("2-orbit-candle", &ticket, 1000 + LIFETIME).unwrap();
        let text = fs::read_to_string(&fetched.file.path).unwrap();
        assert!(!text.contains("1-orbit") && text.contains("2-orbit"), "{text}");
    }
}
