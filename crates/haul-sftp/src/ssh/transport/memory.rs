//! Remembers which key exchange was negotiated with a server, for later connections.
//!
//! The negotiation with a server always has the same result. So our half of the key exchange can be sent together with
//! our KEXINIT: the server reads one after the other, and RFC 4253, 7.1, allows a key exchange message after KEXINIT.
//! That saves an RTT, and with OpenSSH a second one: its KEXINIT waits in Nagle's queue until its identification is
//! acknowledged, unless a reply right after it fills the segment.
//!
//! If both sides prefer the same algorithms, this is a guess as in RFC 4253, 7, and it is announced as such: a server
//! whose preference has changed ignores it. Otherwise a server would ignore an announced half even if it is right
//! (OpenSSH with its default keys prefers an RSA key), so it is not announced. If such a server negotiates another key
//! exchange, the connection is lost, and the next one proceeds step by step.
//!
//! Within a run, results of the first connection are used at once. They are stored in a file for later runs only after
//! the host key was accepted. The file's name is a keyed hash, so that it does not reveal which hosts are known.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

use super::negotiation::{Agreed, Guess};
use super::session::is_openssh;
use crate::ssh::choice;

/// From this RTT on it pays to wait for the result of another connection.
const LONG: Duration = Duration::from_millis(10);

/// Bytes of the key for hashed names, and of a hash in a name.
const SALT: usize = 16;

/// What is known of a server's key exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Known {
    Nothing,
    /// A connection is negotiating.
    Negotiating,
    /// Not OpenSSH: other servers may not accept messages ahead of time, so nothing is sent early.
    Unsure,
    Is(Guess),
}

/// The memory of one server.
#[derive(Debug)]
pub struct Memory {
    known: watch::Sender<Known>,
    /// How often the server has negotiated another key exchange than expected.
    mispredictions: AtomicU64,
    /// The file for later runs.
    stored: Option<Stored>,
}

impl Memory {
    /// The memory of a server. Reads what an earlier run has stored in `directory`.
    pub fn new(directory: Option<&Path>, host: &str, port: u16) -> Self {
        let stored = directory.map(|directory| Stored {
            directory: directory.to_owned(),
            host: host.to_ascii_lowercase(),
            port,
        });
        let known = stored.as_ref().and_then(Stored::read).map_or(Known::Nothing, Known::Is);
        Self { known: watch::Sender::new(known), mispredictions: AtomicU64::new(0), stored }
    }

    /// How often the server has negotiated another key exchange than expected.
    pub fn mispredictions(&self) -> u64 {
        self.mispredictions.load(Ordering::Acquire)
    }

    /// The expected result of the negotiation. Over a long path (`rtt`), waits for another connection that is
    /// negotiating: it began at most an RTT earlier, and its result saves two.
    pub async fn expected(&self, rtt: Option<Duration>) -> Expected<'_> {
        if let Some(rtt) = rtt.filter(|rtt| *rtt >= LONG) {
            let mut known = self.known.subscribe();
            // After the timeout, proceed step by step.
            let _ = timeout(rtt * 2, known.wait_for(|known| *known != Known::Negotiating)).await;
        }
        let finding = self.known.send_if_modified(|known| {
            let first = *known == Known::Nothing;
            if first {
                *known = Known::Negotiating;
            }
            first
        });
        let guess = match &*self.known.borrow() {
            Known::Is(guess) => Some(guess.clone()),
            _ => None,
        };
        Expected { memory: self, guess, finding }
    }

    /// The negotiation is complete. The host key is not verified yet.
    pub fn agreed(&self, version: &str, agreed: &Agreed) {
        let guess = Guess { kex: agreed.kex, preferred: agreed.preferred.clone() };
        self.known.send_replace(if is_openssh(version) { Known::Is(guess) } else { Known::Unsure });
    }

    /// The host key was verified: stores the result for later runs.
    pub fn verified(&self) {
        match &*self.known.borrow() {
            Known::Is(guess) => self.store(Some(guess.clone())),
            Known::Unsure => self.store(None),
            Known::Nothing | Known::Negotiating => {}
        }
    }

    /// The server has negotiated another key exchange than expected.
    pub fn mispredicted(&self) {
        self.mispredictions.fetch_add(1, Ordering::Release);
        self.known.send_replace(Known::Nothing);
        self.store(None);
    }

    /// Stores the guess for later runs; `None` removes a stored one. Errors are ignored: they only cost a later run two
    /// RTTs.
    fn store(&self, guess: Option<Guess>) {
        let (Some(file), Ok(runtime)) = (self.stored.clone(), Handle::try_current()) else {
            return;
        };
        runtime.spawn_blocking(move || {
            if file.read() != guess {
                drop(file.write(guess.as_ref()));
            }
        });
    }
}

/// The file of a server for later runs.
#[derive(Debug, Clone)]
struct Stored {
    directory: PathBuf,
    host: String,
    port: u16,
}

impl Stored {
    fn read(&self) -> Option<Guess> {
        let salt = fs::read(self.salt()).ok()?;
        let text = fs::read_to_string(self.path(&salt)?).ok()?;
        let mut words = text.split_ascii_whitespace();
        let kex = choice::kex_named(words.next()?)?;
        let mut preferred = || words.next().unwrap_or_default().to_owned();
        Some(Guess { kex, preferred: [preferred(), preferred()] })
    }

    fn write(&self, guess: Option<&Guess>) -> io::Result<()> {
        let Some(guess) = guess else {
            let salt = fs::read(self.salt())?;
            return self.path(&salt).map_or(Ok(()), fs::remove_file);
        };
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let path = self.path(&self.salt_or_new()?).ok_or(io::ErrorKind::InvalidData)?;
        let text = format!("{} {} {}\n", guess.kex, guess.preferred[0], guess.preferred[1]);
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())?;
        // Earlier versions stored it under the host's name.
        let plain = |c: char| if c.is_ascii_alphanumeric() || ".-".contains(c) { c } else { '_' };
        let name: String = self.host.chars().map(plain).collect();
        match fs::remove_file(self.directory.join(format!("{name}_{}", self.port))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn salt(&self) -> PathBuf {
        self.directory.join("salt")
    }

    fn salt_or_new(&self) -> io::Result<Vec<u8>> {
        if let Ok(stored) = fs::read(self.salt())
            && stored.len() == SALT
        {
            return Ok(stored);
        }
        // The salt is complete before it gets its name. If two runs create one at once, the last one stays.
        let mut salt = [0; SALT];
        fs::File::open("/dev/urandom")?.read_exact(&mut salt)?;
        let new = self.directory.join(format!("salt.{}", std::process::id()));
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&salt)?;
        fs::rename(new, self.salt())?;
        fs::read(self.salt())
    }

    /// The path of the file; `None` if the salt is incomplete: an earlier version was killed while it wrote it.
    fn path(&self, salt: &[u8]) -> Option<PathBuf> {
        let mut mac = Hmac::<Sha256>::new_from_slice(salt).ok().filter(|_| salt.len() == SALT)?;
        mac.update(format!("{} {}", self.host, self.port).as_bytes());
        Some(self.directory.join(HEXLOWER.encode(&mac.finalize().into_bytes()[..SALT])))
    }
}

/// The expected result of a connection's negotiation.
#[derive(Debug)]
pub struct Expected<'a> {
    memory: &'a Memory,
    /// The expected key exchange, if known.
    pub guess: Option<Guess>,
    /// Whether other connections may be waiting for the result of this one.
    finding: bool,
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        // If this connection ends before its negotiation is complete, the next one negotiates for all.
        if self.finding {
            self.memory.known.send_if_modified(|known| {
                let unknown = *known == Known::Negotiating;
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
    use crate::ssh::transport::cipher::Suite;

    const LONG_RTT: Option<Duration> = Some(Duration::from_secs(100));
    const OPENSSH: &str = "SSH-2.0-OpenSSH_9.9";

    fn agreed() -> Agreed {
        let suite = Suite { cipher: "aes128-ctr", mac: "hmac-sha2-256" };
        Agreed {
            kex: "curve25519-sha256",
            host_key: "ssh-ed25519".to_owned(),
            out: suite,
            into: suite,
            deflate: false,
            inflate: false,
            strict: true,
            skip: false,
            preferred: ["sntrup761".to_owned(), "rsa-sha2-512".to_owned()],
            guess_is_right: false,
        }
    }

    fn without_file() -> Memory {
        Memory::new(None, "host", 22)
    }

    async fn kex(memory: &Memory) -> Option<&'static str> {
        memory.expected(None).await.guess.as_ref().map(|guess| guess.kex)
    }

    #[tokio::test]
    async fn a_second_connection_waits_for_the_result_of_the_first() {
        let memory = without_file();
        let first = memory.expected(LONG_RTT).await;
        assert_eq!(first.guess, None);
        let (second, ()) = tokio::join!(memory.expected(LONG_RTT), async {
            tokio::task::yield_now().await;
            memory.agreed(OPENSSH, &agreed());
        });
        let guess = second.guess.clone().unwrap();
        assert_eq!((guess.kex, guess.preferred), (agreed().kex, agreed().preferred));
        drop((first, second));
        assert_eq!(kex(&memory).await, Some("curve25519-sha256"));
        memory.mispredicted();
        assert_eq!((kex(&memory).await, memory.mispredictions()), (None, 1));
    }

    /// Formerly, a salt that a killed run had begun to write turned the file off for good.
    #[test]
    fn an_incomplete_salt_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("salt"), b"short").unwrap();
        let stored =
            Stored { directory: directory.path().to_owned(), host: "h".to_owned(), port: 22 };
        let salt = stored.salt_or_new().unwrap();
        assert_eq!((salt.len(), stored.salt_or_new().unwrap()), (SALT, salt));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn a_result_is_stored_for_later_runs_until_it_is_wrong() {
        let directory = tempfile::tempdir().unwrap();
        let memory = || Memory::new(Some(directory.path()), "Host.example", 22);
        let known = async |wanted: Option<&str>| {
            while kex(&memory()).await != wanted {
                tokio::task::yield_now().await;
            }
        };
        let clear = directory.path().join("host.example_22");
        fs::write(&clear, "curve25519-sha256").unwrap();
        let first = memory();
        assert_eq!(kex(&first).await, None);
        first.agreed(OPENSSH, &agreed());
        first.verified();
        known(Some("curve25519-sha256")).await;
        assert_eq!(
            memory().expected(None).await.guess.as_ref().unwrap().preferred,
            agreed().preferred
        );
        // No file name or content reveals the host.
        while clear.exists() {
            tokio::task::yield_now().await;
        }
        for entry in fs::read_dir(directory.path()).unwrap() {
            let path = entry.unwrap().path();
            let all =
                [path.file_name().unwrap().as_encoded_bytes(), &fs::read(&path).unwrap()].concat();
            assert!(!String::from_utf8_lossy(&all).contains("example"), "{path:?}");
        }
        assert_eq!(kex(&Memory::new(Some(directory.path()), "host.example", 23)).await, None);
        memory().mispredicted();
        known(None).await;
        first.agreed("SSH-2.0-dropbear_2022.83", &agreed());
        first.verified();
        known(None).await;
    }

    #[tokio::test]
    async fn nothing_is_stored_for_a_server_whose_key_was_not_accepted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("hosts");
        let memory = Memory::new(Some(&path), "host", 22);
        memory.agreed(OPENSSH, &agreed());
        assert_eq!(kex(&memory).await, Some("curve25519-sha256"));
        // Blocking tasks start in order: once this write is done, an earlier one would most likely be done, too.
        let another = Memory::new(Some(&path), "another", 22);
        another.agreed(OPENSSH, &agreed());
        another.verified();
        while kex(&Memory::new(Some(&path), "another", 22)).await.is_none() {
            tokio::task::yield_now().await;
        }
        // The salt, and the file of the other server.
        assert_eq!(fs::read_dir(&path).unwrap().count(), 2);
    }

    #[tokio::test]
    async fn connections_do_not_wait_for_failed_ones_nor_for_non_openssh() {
        let memory = without_file();
        let first = memory.expected(LONG_RTT).await;
        // On a short path, the second connection proceeds step by step while the first one negotiates.
        assert_eq!(memory.expected(Some(Duration::from_millis(1))).await.guess, None);
        let (second, ()) = tokio::join!(memory.expected(LONG_RTT), async {
            tokio::task::yield_now().await;
            drop(first);
        });
        assert!(second.guess.is_none() && second.finding);
        memory.agreed("SSH-2.0-dropbear", &agreed());
        assert_eq!(memory.expected(LONG_RTT).await.guess, None);
    }
}
