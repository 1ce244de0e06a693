//! What key exchange a server agrees on, kept from one connection to the next.
//!
//! A server that has agreed on one will do so again, so that our half can be sent together with the
//! offer: the server reads both one after the other, and a message of the key exchange is what may
//! follow a KEXINIT (RFC 4253, 7.1). That saves a round trip, and with OpenSSH a second one: its
//! KEXINIT waits in Nagle's queue until its identification is confirmed, unless a reply that follows
//! fills the segment. The server's KEXINIT tells when it agrees on something else; that connection
//! is lost, and the next one sends step by step.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

use super::session::is_openssh;
use crate::ssh::algorithms;

/// From this round trip on it is worth waiting for what another connection finds out.
const LONG: Duration = Duration::from_millis(10);

/// What is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Nothing,
    /// A connection is finding it out.
    Asked,
    /// Of other servers than OpenSSH it is not known whether they read so far ahead.
    Unsure,
    Is(&'static str),
}

/// What is known of one server.
#[derive(Debug)]
pub struct Memory {
    known: watch::Sender<Known>,
    surprises: AtomicU64,
    /// Where it is kept for the next run.
    kept: Option<PathBuf>,
}

impl Memory {
    /// Of a server of which nothing is known, but for what an earlier run has kept in the file
    /// `kept`.
    pub fn new(kept: Option<PathBuf>) -> Self {
        let known = kept.as_ref().and_then(|path| fs::read_to_string(path).ok());
        let known = known.and_then(|name| algorithms::kex_named(name.trim()));
        let known = known.map_or(Known::Nothing, Known::Is);
        Self { known: watch::Sender::new(known), surprises: AtomicU64::new(0), kept }
    }

    /// How often a server did not agree on what was expected.
    pub fn surprises(&self) -> u64 {
        self.surprises.load(Ordering::Acquire)
    }

    /// What is going to be agreed on. If another connection is about to find out, and the way is
    /// `round_trip` long, it is waited for: that connection began a round trip earlier at most, and
    /// knowing saves two.
    pub async fn expected(&self, round_trip: Option<Duration>) -> Expected<'_> {
        if let Some(round_trip) = round_trip.filter(|round_trip| *round_trip >= LONG) {
            let mut known = self.known.subscribe();
            // Who does not hear of it in time goes step by step.
            let _ = timeout(round_trip * 2, known.wait_for(|known| *known != Known::Asked)).await;
        }
        let finding = self.known.send_if_modified(|known| {
            let first = *known == Known::Nothing;
            if first {
                *known = Known::Asked;
            }
            first
        });
        let kex = match *self.known.borrow() {
            Known::Is(kex) => Some(kex),
            _ => None,
        };
        Expected { memory: self, kex, finding }
    }

    /// A server has agreed on something.
    pub fn agreed(&self, version: &str, kex: &'static str) {
        let now = if is_openssh(version) { Known::Is(kex) } else { Known::Unsure };
        let before = self.known.send_replace(now);
        if before != now {
            self.keep(is_openssh(version).then_some(kex));
        }
    }

    /// A server has not agreed on what was expected.
    pub fn surprised(&self) {
        self.surprises.fetch_add(1, Ordering::Release);
        self.known.send_replace(Known::Nothing);
        self.keep(None);
    }

    /// For the next run. It costs that run two round trips if it cannot be kept, so nobody is told.
    fn keep(&self, kex: Option<&'static str>) {
        let (Some(path), Ok(runtime)) = (self.kept.clone(), Handle::try_current()) else { return };
        runtime.spawn_blocking(move || {
            drop(match kex {
                Some(kex) => {
                    let directory = path.parent().map_or(Ok(()), fs::create_dir_all);
                    directory.and_then(|()| fs::write(path, kex))
                }
                None => fs::remove_file(path),
            });
        });
    }
}

/// What is expected of a connection that is being made.
#[derive(Debug)]
pub struct Expected<'a> {
    memory: &'a Memory,
    /// The key exchange, if it is known.
    pub kex: Option<&'static str>,
    finding: bool,
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        // A connection that ended before it knew leaves it to another.
        if self.finding {
            self.memory.known.send_if_modified(|known| {
                let unknown = *known == Known::Asked;
                if unknown {
                    *known = Known::Nothing;
                }
                unknown
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG_WAY: Option<Duration> = Some(Duration::from_secs(100));

    #[tokio::test]
    async fn who_comes_second_waits_for_what_the_first_finds_out() {
        let memory = Memory::new(None);
        let first = memory.expected(LONG_WAY).await;
        assert_eq!(first.kex, None);
        let (second, ()) = tokio::join!(memory.expected(LONG_WAY), async {
            tokio::task::yield_now().await;
            memory.agreed("SSH-2.0-OpenSSH_9.9", "curve25519-sha256");
        });
        assert_eq!(second.kex, Some("curve25519-sha256"));
        drop((first, second));
        assert_eq!(memory.expected(None).await.kex, Some("curve25519-sha256"));
        memory.surprised();
        assert_eq!((memory.expected(None).await.kex, memory.surprises()), (None, 1));
    }

    #[tokio::test]
    async fn what_is_known_is_kept_for_the_next_run_until_it_is_not_true_any_more() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("host_22");
        let memory = || Memory::new(Some(path.clone()));
        let known = async |wanted: Option<&str>| {
            while memory().expected(None).await.kex != wanted {
                tokio::task::yield_now().await;
            }
        };
        let first = memory();
        assert_eq!(first.expected(None).await.kex, None);
        first.agreed("SSH-2.0-OpenSSH_9.9", "curve25519-sha256");
        known(Some("curve25519-sha256")).await;
        memory().surprised();
        known(None).await;
        first.agreed("SSH-2.0-dropbear_2022.83", "curve25519-sha256");
        known(None).await;
        fs::write(&path, "no such thing").unwrap();
        known(None).await;
    }

    #[tokio::test]
    async fn nobody_waits_for_a_connection_that_failed_or_for_another_server_or_on_a_short_way() {
        let memory = Memory::new(None);
        let first = memory.expected(LONG_WAY).await;
        assert_eq!(memory.expected(Some(Duration::from_millis(1))).await.kex, None);
        let (second, ()) = tokio::join!(memory.expected(LONG_WAY), async {
            tokio::task::yield_now().await;
            drop(first);
        });
        assert!(second.kex.is_none() && second.finding);
        memory.agreed("SSH-2.0-dropbear", "curve25519-sha256");
        assert_eq!(memory.expected(LONG_WAY).await.kex, None);
    }
}
