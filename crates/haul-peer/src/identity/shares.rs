//! The secrets that the sharer has handed out: which of them are still valid, and for what.
//!
//! The file has a hash of each secret, with which a reader of the file cannot connect. The secret itself is stored
//! until it is used up or revoked, because a share has the same ticket in every run ([`Shares::store`]). [`Shares`]
//! refuses a secret that is not in the file, so an entry that has ended may be removed at any time. `haul share` uses
//! the file only with `--keep`: other secrets are valid as long as their server runs.

use std::fmt;
use std::path::Path;

use haul_storage::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::file::{FileLock, PrivateFile};
use crate::ticket::{Secret, base32};

/// The first line of the file.
const COMMENT: &str = "# Tickets handed out by haul share. It contains secrets of kept shares.";

/// How long an entry that has ended stays at least, in seconds. Until then, its ticket is refused with the reason.
const ENDED_LIFETIME: u64 = 30 * 24 * 3600;

/// The context of the hash. It must never change.
const HASH_CONTEXT: &str = "haul 2025-11 hash of a ticket's secret v1";

/// Identifies a handed-out secret without revealing it: 8 characters of base32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShareId([u8; 5]);

impl fmt::Display for ShareId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&base32::encode(&self.0))
    }
}

/// What a secret permits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// What is shared. Different shares have different labels.
    pub label: String,
    /// When the secret expires, in seconds since 1970.
    pub expires: Option<u64>,
    /// Whether it can be used only once.
    pub is_one_use: bool,
    /// Whether it permits writing.
    pub is_writable: bool,
    /// Whether it permits setting owners, set-ID bits and capabilities, too.
    pub sets_owners: bool,
}

/// A secret that was handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// Its id.
    pub id: ShareId,
    /// What it permits.
    pub terms: Terms,
    /// When it was handed out, in seconds since 1970.
    pub created: u64,
    /// When it was used up, if it was for one use.
    pub used: Option<u64>,
    /// When it was revoked.
    pub revoked: Option<u64>,
    hash: [u8; 32],
    /// The secret and the port. The secret is not saved once it is used up or revoked.
    stored: Option<(Secret, Option<u16>)>,
}

/// A share that has the same ticket in every run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredShare {
    /// Its id.
    pub id: ShareId,
    /// Its secret.
    pub secret: Secret,
    /// When it expires, in seconds since 1970; set by the run that created the share.
    pub expires: Option<u64>,
    /// The port of the last run.
    pub port: Option<u16>,
}

/// The permission that a secret has given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The id of the secret.
    pub id: ShareId,
    /// What it permits.
    pub terms: Terms,
}

/// Why a secret is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It was never handed out, or is not in the file any more.
    #[error("the ticket is not known")]
    Unknown,
    /// It has expired by the sharer's clock.
    #[error("the ticket has expired")]
    Expired,
    /// The sharer has revoked it.
    #[error("the ticket was revoked")]
    Revoked,
    /// It was for one use, and has been used.
    #[error("the ticket was for one use and has been used")]
    Used,
    /// The file cannot be read or written. The secret may have been used up nevertheless.
    #[error(transparent)]
    Store(#[from] Error),
}

/// The list of handed-out secrets in a file. Every method reads the file anew, so that a revocation by another process
/// takes effect at once.
#[derive(Debug, Clone)]
pub struct Shares {
    file: PrivateFile,
}

#[derive(Default, Serialize, Deserialize)]
struct Records {
    #[serde(default)]
    share: Vec<Record>,
}

#[derive(Serialize, Deserialize)]
struct Record {
    id: String,
    label: String,
    hash: String,
    created: u64,
    expires: Option<u64>,
    #[serde(default)]
    one_use: bool,
    #[serde(default)]
    writable: bool,
    #[serde(default)]
    owners: bool,
    used: Option<u64>,
    revoked: Option<u64>,
    secret: Option<String>,
    port: Option<u16>,
}

impl Shares {
    /// The list in the file at `path`, which need not exist.
    pub fn at(path: &Path) -> Self {
        let (read, change) = ("read the list of shares", "change the list of shares");
        Self { file: PrivateFile { path: path.to_owned(), read, change } }
    }

    /// All secrets in the file, the oldest first.
    ///
    /// # Errors
    /// If the file cannot be read, is malformed, is accessible to others or belongs to another user.
    pub fn list(&self) -> Result<Vec<Share>> {
        let records: Records = self.file.parsed()?;
        let shares = records.share.into_iter().enumerate().map(|(index, record)| {
            let refused = || self.file.refused(format!("share {}: it is malformed", index + 1));
            record.into_share().ok_or_else(refused)
        });
        shares.collect()
    }

    /// The stored share with these terms, if its secret is still valid; otherwise a new one. Of the expiry, only its
    /// presence is compared: the time remains that of the run that created the share. Removes entries that ended more
    /// than 30 days ago. The secret is on disk when this returns.
    ///
    /// # Errors
    /// As for [`Shares::list`], or if the file cannot be written.
    pub fn store(&self, terms: &Terms, now: u64) -> Result<StoredShare> {
        self.change(|shares| {
            shares.retain(|share| {
                share.ended().is_none_or(|ended| ended.saturating_add(ENDED_LIFETIME) >= now)
            });
            let same = |share: &&Share| {
                let own = &share.terms;
                own.label == terms.label
                    && own.is_one_use == terms.is_one_use
                    && own.is_writable == terms.is_writable
                    && own.sets_owners == terms.sets_owners
                    && own.expires.is_some() == terms.expires.is_some()
                    && share.check(now).is_ok()
            };
            if let Some(stored) = shares.iter().filter(same).find_map(Share::as_stored) {
                return Ok(stored);
            }
            let secret = Secret::generate()?;
            let share = Share {
                id: new_id(shares)?,
                terms: terms.clone(),
                created: now,
                used: None,
                revoked: None,
                hash: hash_of(&secret),
                stored: Some((secret.clone(), None)),
            };
            let stored = StoredShare { id: share.id, secret, expires: terms.expires, port: None };
            shares.push(share);
            Ok(stored)
        })
    }

    /// Saves the port of a stored share, for the next run.
    ///
    /// # Errors
    /// As for [`Shares::list`], or if the file cannot be written.
    pub fn set_port(&self, id: ShareId, port: u16) -> Result<()> {
        self.change(|shares| {
            if let Some(share) = shares.iter_mut().find(|share| share.id == id)
                && let Some((_, own)) = &mut share.stored
            {
                *own = Some(port);
            }
            Ok(())
        })
    }

    /// Revokes all secrets whose label `is_meant` accepts. Returns how many were valid until now. Sessions that they
    /// admitted are not ended by this.
    ///
    /// # Errors
    /// As for [`Shares::list`], or if the file cannot be written.
    pub fn revoke_all(&self, is_meant: impl Fn(&str) -> bool, now: u64) -> Result<usize> {
        self.change(|shares| {
            let mut count = 0;
            for share in shares {
                if is_meant(&share.terms.label) && share.check(now).is_ok() {
                    share.revoked = Some(now);
                    count += 1;
                }
            }
            Ok(count)
        })
    }

    /// What [`consume`](Self::consume) would return, without using the secret up.
    ///
    /// # Errors
    /// Why the secret is refused.
    pub fn check(&self, secret: &Secret, now: u64) -> Result<Grant, Refusal> {
        let shares = self.list()?;
        let at = find(&shares, secret, now)?;
        Ok(shares[at].grant())
    }

    /// Checks a secret, and uses it up if it is for one use: exactly one of all calls in all processes succeeds, and
    /// the use is on disk when that call returns, before the peer is admitted.
    ///
    /// # Errors
    /// Why the secret is refused.
    pub fn consume(&self, secret: &Secret, now: u64) -> Result<Grant, Refusal> {
        // First without the lock, so that refused peers cannot block others from taking it.
        let grant = self.check(secret, now)?;
        if !grant.terms.is_one_use {
            return Ok(grant);
        }
        let lock = self.file.lock()?;
        let mut shares = self.list()?;
        let at = find(&shares, secret, now)?;
        shares[at].used = Some(now);
        self.write(&shares, &lock)?;
        Ok(shares[at].grant())
    }

    /// Changes the file under its lock; it is unchanged if `edit` fails.
    fn change<T>(&self, edit: impl FnOnce(&mut Vec<Share>) -> Result<T>) -> Result<T> {
        let lock = self.file.lock()?;
        let mut shares = self.list()?;
        let result = edit(&mut shares)?;
        self.write(&shares, &lock)?;
        Ok(result)
    }

    fn write(&self, shares: &[Share], lock: &FileLock) -> Result<()> {
        let share = shares.iter().map(Record::of_share).collect();
        self.file.write(COMMENT, &Records { share }, lock)
    }
}

impl Share {
    /// Checks whether its secret is valid at `now`.
    ///
    /// # Errors
    /// Why it is not.
    pub fn check(&self, now: u64) -> Result<(), Refusal> {
        if self.revoked.is_some() {
            Err(Refusal::Revoked)
        } else if self.used.is_some() {
            Err(Refusal::Used)
        } else if self.terms.expires.is_some_and(|expires| now >= expires) {
            Err(Refusal::Expired)
        } else {
            Ok(())
        }
    }

    /// When it ended or will end: the earliest of revocation, use and expiry.
    fn ended(&self) -> Option<u64> {
        [self.revoked, self.used, self.terms.expires].into_iter().flatten().min()
    }

    fn as_stored(&self) -> Option<StoredShare> {
        let (secret, port) = self.stored.clone()?;
        Some(StoredShare { id: self.id, secret, expires: self.terms.expires, port })
    }

    fn grant(&self) -> Grant {
        Grant { id: self.id, terms: self.terms.clone() }
    }
}

impl Record {
    fn of_share(share: &Share) -> Self {
        Self {
            id: share.id.to_string(),
            label: share.terms.label.clone(),
            hash: base32::encode(&share.hash).to_string(),
            created: share.created,
            expires: share.terms.expires,
            one_use: share.terms.is_one_use,
            writable: share.terms.is_writable,
            owners: share.terms.sets_owners,
            used: share.used,
            revoked: share.revoked,
            // A secret that is revoked or used up is not needed any more.
            secret: share
                .stored
                .as_ref()
                .filter(|_| share.revoked.is_none() && share.used.is_none())
                .map(|(secret, _)| base32::encode(secret.expose()).to_string()),
            port: share.stored.as_ref().and_then(|(_, port)| *port),
        }
    }

    fn into_share(self) -> Option<Share> {
        let terms = Terms {
            label: self.label,
            expires: self.expires,
            is_one_use: self.one_use,
            is_writable: self.writable,
            sets_owners: self.owners,
        };
        let stored = match &self.secret {
            Some(secret) => Some((Secret::new(base32::decode_array(secret)?), self.port)),
            None => None,
        };
        Some(Share {
            stored,
            id: ShareId(base32::decode_array(&self.id)?),
            terms,
            created: self.created,
            used: self.used,
            revoked: self.revoked,
            hash: base32::decode_array(&self.hash)?,
        })
    }
}

/// An id that no share has.
fn new_id(shares: &[Share]) -> Result<ShareId> {
    loop {
        let mut bytes = [0; 5];
        aws_lc_rs::rand::fill(&mut bytes)
            .map_err(|error| Error::new(ErrorKind::Other, "make an id").with_source(error))?;
        let id = ShareId(bytes);
        if shares.iter().all(|share| share.id != id) {
            return Ok(id);
        }
    }
}

/// The index of the share with this secret, if the secret is valid.
fn find(shares: &[Share], secret: &Secret, now: u64) -> Result<usize, Refusal> {
    let hash = hash_of(secret);
    // Comparing the hashes need not take constant time: clients cannot choose a secret by its hash.
    let at = shares.iter().position(|share| share.hash == hash).ok_or(Refusal::Unknown)?;
    shares[at].check(now).map(|()| at)
}

fn hash_of(secret: &Secret) -> [u8; 32] {
    blake3::derive_key(HASH_CONTEXT, secret.expose())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn terms() -> Terms {
        let label = "/data/photos \"2025\"".to_owned();
        Terms { label, expires: None, is_one_use: false, is_writable: true, sets_owners: false }
    }

    fn one_use() -> Terms {
        Terms { is_one_use: true, ..terms() }
    }

    fn in_new_directory() -> (tempfile::TempDir, Shares) {
        let directory = tempfile::tempdir().unwrap();
        let shares = Shares::at(&directory.path().join("haul/shares.toml"));
        (directory, shares)
    }

    #[test]
    fn a_secret_grants_its_terms() {
        let (_directory, shares) = in_new_directory();
        let StoredShare { id, secret, .. } = shares.store(&terms(), 10).unwrap();
        for now in [10, 20] {
            assert_eq!(shares.consume(&secret, now).unwrap(), Grant { id, terms: terms() });
        }
        let other = Secret::generate().unwrap();
        assert!(matches!(shares.consume(&other, 10), Err(Refusal::Unknown)));
        let listed = shares.list().unwrap();
        assert_eq!((listed.len(), listed[0].id, listed[0].created), (1, id, 10));
        assert_eq!(fs::metadata(&shares.file.path).unwrap().mode() & 0o7777, 0o600);
    }

    #[test]
    fn a_one_use_secret_is_accepted_once_even_across_a_restart() {
        let (directory, shares) = in_new_directory();
        let secret = shares.store(&one_use(), 10).unwrap().secret;
        assert!(shares.check(&secret, 11).is_ok() && shares.check(&secret, 11).is_ok());
        shares.consume(&secret, 11).unwrap();
        assert!(matches!(shares.consume(&secret, 12), Err(Refusal::Used)));
        assert!(matches!(shares.check(&secret, 12), Err(Refusal::Used)));
        let restarted = Shares::at(&directory.path().join("haul/shares.toml"));
        assert!(matches!(restarted.consume(&secret, 12), Err(Refusal::Used)));
        assert_eq!(restarted.list().unwrap()[0].used, Some(11));
    }

    #[test]
    fn only_one_of_several_threads_that_use_a_secret_at_once_succeeds() {
        let (_directory, shares) = in_new_directory();
        let secret = shares.store(&one_use(), 10).unwrap().secret;
        let admitted = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..8).map(|_| scope.spawn(|| shares.consume(&secret, 11).is_ok())).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap().then_some(())).count()
        });
        assert_eq!(admitted, 1);
    }

    /// Otherwise, the secret could be used again after a restart.
    #[test]
    fn a_one_use_secret_is_refused_if_its_use_cannot_be_saved() {
        let (_directory, shares) = in_new_directory();
        let secret = shares.store(&one_use(), 10).unwrap().secret;
        let mut lock = shares.file.path.clone().into_os_string();
        lock.push(".lock");
        fs::remove_file(&lock).unwrap();
        fs::create_dir(&lock).unwrap();
        assert!(matches!(shares.consume(&secret, 11), Err(Refusal::Store(_))));
        fs::remove_dir(&lock).unwrap();
        assert!(shares.consume(&secret, 11).is_ok());
    }

    #[test]
    fn a_secret_expires_by_the_clock_of_the_sharer() {
        let (_directory, shares) = in_new_directory();
        let terms = Terms { expires: Some(20), ..one_use() };
        let secret = shares.store(&terms, 10).unwrap().secret;
        assert!(matches!(shares.consume(&secret, 20), Err(Refusal::Expired)));
        assert!(shares.consume(&secret, 19).is_ok());
    }

    #[test]
    fn a_stored_share_has_the_same_secret_and_port_in_every_run() {
        let (directory, shares) = in_new_directory();
        let first = shares.store(&terms(), 10).unwrap();
        shares.set_port(first.id, 4180).unwrap();
        let restarted = Shares::at(&directory.path().join("haul/shares.toml"));
        let again = restarted.store(&terms(), 20).unwrap();
        assert_eq!(again, StoredShare { port: Some(4180), ..first.clone() });
        assert!(restarted.consume(&again.secret, 20).is_ok());
        // Other terms, and another share, have secrets of their own.
        let other = Terms { label: "/data".to_owned(), ..terms() };
        let (read_only, owners) = (
            Terms { is_writable: false, ..terms() },
            // Formerly, holders of the ticket of the share without this permission could set owners as soon as a run
            // with it was begun.
            Terms { sets_owners: true, ..terms() },
        );
        for terms in [read_only, owners, one_use(), other] {
            assert_ne!(restarted.store(&terms, 20).unwrap().secret, first.secret);
        }
    }

    #[test]
    fn a_stored_share_that_has_ended_is_replaced() {
        let (_directory, shares) = in_new_directory();
        let used = shares.store(&one_use(), 10).unwrap();
        shares.consume(&used.secret, 11).unwrap();
        assert_ne!(shares.store(&one_use(), 12).unwrap().secret, used.secret);
        let until = |expires| Terms { expires: Some(expires), ..terms() };
        let expiring = shares.store(&until(20), 10).unwrap();
        assert_eq!(shares.store(&until(25), 15).unwrap(), expiring);
        let next = shares.store(&until(30), 21).unwrap();
        assert!(next.secret != expiring.secret && next.expires == Some(30));
    }

    #[test]
    fn revoking_a_label_replaces_its_secrets_only() {
        let (_directory, shares) = in_new_directory();
        let first = shares.store(&terms(), 10).unwrap();
        let other = Terms { label: "/data".to_owned(), ..terms() };
        let second = shares.store(&other, 10).unwrap();
        let is_meant = |label: &str| label == terms().label;
        assert_eq!(shares.revoke_all(is_meant, 11).unwrap(), 1);
        assert_eq!(shares.revoke_all(is_meant, 12).unwrap(), 0);
        assert_eq!(shares.list().unwrap()[0].revoked, Some(11));
        assert!(matches!(shares.consume(&first.secret, 12), Err(Refusal::Revoked)));
        assert!(shares.consume(&second.secret, 12).is_ok());
        assert_ne!(shares.store(&terms(), 12).unwrap().secret, first.secret);
        assert_eq!(shares.revoke_all(|_| true, 13).unwrap(), 2);
        let text = fs::read_to_string(&shares.file.path).unwrap();
        assert!(!text.contains("\nsecret"), "{text}");
    }

    #[test]
    fn secrets_that_ended_a_month_ago_are_removed_and_still_refused() {
        let (_directory, shares) = in_new_directory();
        let expiring = Terms { expires: Some(20), ..terms() };
        let [expired, used, lasting] =
            [expiring, one_use(), terms()].map(|terms| shares.store(&terms, 10).unwrap().secret);
        shares.consume(&used, 15).unwrap();
        for (now, count) in [(15, 3), (21, 1)] {
            shares.store(&terms(), now + ENDED_LIFETIME).unwrap();
            assert_eq!(shares.list().unwrap().len(), count);
        }
        for secret in [expired, used] {
            assert!(matches!(shares.consume(&secret, 12), Err(Refusal::Unknown)));
        }
        assert!(shares.consume(&lasting, 30).is_ok());
    }
}
