//! What key exchange a server agrees on, kept from one connection to the next.
//!
//! A server that has agreed on one will do so again, so that our half can be sent together with the
//! offer: the server reads both one after the other, and a message of the key exchange is what may
//! follow a KEXINIT (RFC 4253, 7.1). That saves a round trip, and with OpenSSH a second one: its
//! KEXINIT waits in Nagle's queue until its identification is confirmed, unless a reply that follows
//! fills the segment.
//!
//! Where both sides prefer the same algorithms that is a guess as in RFC 4253, 7, and it is announced: a
//! server that has changed its mind passes over it. Elsewhere a server would pass over one that is right as
//! well (OpenSSH with the keys that it makes prefers an RSA key), so none is announced. If such a server
//! agrees on something else, that connection is lost, and the next one sends step by step.
//!
//! Within a run what the first connection learns is used at once. A file is written for the next run only
//! when the host key was accepted, and its name is a keyed hash: it does not tell which hosts are known.

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

/// From this round trip on it is worth waiting for what another connection finds out.
const LONG: Duration = Duration::from_millis(10);

/// Bytes of the key under which names are hashed, and of a hash in a name.
const SALT: usize = 16;

/// What is known.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Known {
    Nothing,
    /// A connection is finding it out.
    Asked,
    /// Of other servers than OpenSSH it is not known whether they read so far ahead.
    Unsure,
    Is(Guess),
}

/// What is known of one server.
#[derive(Debug)]
pub struct Memory {
    known: watch::Sender<Known>,
    surprises: AtomicU64,
    /// Where it is kept for the next run.
    kept: Option<Kept>,
}

impl Memory {
    /// Of a server of which nothing is known, but for what an earlier run has kept in a directory.
    pub fn new(directory: Option<&Path>, host: &str, port: u16) -> Self {
        let kept = directory.map(|directory| Kept {
            directory: directory.to_owned(),
            host: host.to_ascii_lowercase(),
            port,
        });
        let known = kept.as_ref().and_then(Kept::read).map_or(Known::Nothing, Known::Is);
        Self { known: watch::Sender::new(known), surprises: AtomicU64::new(0), kept }
    }

    /// How often a server did not agree on what was expected.
    pub fn surprises(&self) -> u64 {
        self.surprises.load(Ordering::Acquire)
    }

    /// What is going to be agreed on. If another connection is about to find out, and the way is
    /// `rtt` long, it is waited for: that connection began a round trip earlier at most, and
    /// knowing saves two.
    pub async fn expected(&self, rtt: Option<Duration>) -> Expected<'_> {
        if let Some(rtt) = rtt.filter(|rtt| *rtt >= LONG) {
            let mut known = self.known.subscribe();
            // Who does not hear of it in time goes step by step.
            let _ = timeout(rtt * 2, known.wait_for(|known| *known != Known::Asked)).await;
        }
        let finding = self.known.send_if_modified(|known| {
            let first = *known == Known::Nothing;
            if first {
                *known = Known::Asked;
            }
            first
        });
        let guess = match &*self.known.borrow() {
            Known::Is(guess) => Some(guess.clone()),
            _ => None,
        };
        Expected { memory: self, guess, finding }
    }

    /// A server has agreed on something. It is not known yet whether it is the right server.
    pub fn agreed(&self, version: &str, agreed: &Agreed) {
        let guess = Guess { kex: agreed.kex, preferred: agreed.preferred.clone() };
        self.known.send_replace(if is_openssh(version) { Known::Is(guess) } else { Known::Unsure });
    }

    /// The server was the right one: what it agreed on is kept.
    pub fn verified(&self) {
        match &*self.known.borrow() {
            Known::Is(guess) => self.keep(Some(guess.clone())),
            Known::Unsure => self.keep(None),
            Known::Nothing | Known::Asked => {}
        }
    }

    /// A server has not agreed on what was expected.
    pub fn surprised(&self) {
        self.surprises.fetch_add(1, Ordering::Release);
        self.known.send_replace(Known::Nothing);
        self.keep(None);
    }

    /// For the next run. It costs that run two round trips if it cannot be kept, so nobody is told.
    fn keep(&self, guess: Option<Guess>) {
        let (Some(kept), Ok(runtime)) = (self.kept.clone(), Handle::try_current()) else { return };
        runtime.spawn_blocking(move || {
            if kept.read() != guess {
                drop(kept.write(guess.as_ref()));
            }
        });
    }
}

/// Where it is kept for the next run.
#[derive(Debug, Clone)]
struct Kept {
    directory: PathBuf,
    host: String,
    port: u16,
}

impl Kept {
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
        // Earlier versions have kept it under the host's name.
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
        let mut salt = [0; SALT];
        fs::File::open("/dev/urandom")?.read_exact(&mut salt)?;
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.salt()) {
            Ok(mut file) => file.write_all(&salt).map(|()| salt.to_vec()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => fs::read(self.salt()),
            Err(error) => Err(error),
        }
    }

    /// `None`: another run is about to write the salt.
    fn path(&self, salt: &[u8]) -> Option<PathBuf> {
        let mut mac = Hmac::<Sha256>::new_from_slice(salt).ok().filter(|_| salt.len() == SALT)?;
        mac.update(format!("{} {}", self.host, self.port).as_bytes());
        Some(self.directory.join(HEXLOWER.encode(&mac.finalize().into_bytes()[..SALT])))
    }
}

/// What is expected of a connection that is being made.
#[derive(Debug)]
pub struct Expected<'a> {
    memory: &'a Memory,
    /// What the server is going to agree on, if that is known.
    pub guess: Option<Guess>,
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
    use crate::ssh::transport::cipher::Suite;

    const LONG_WAY: Option<Duration> = Some(Duration::from_secs(100));
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

    fn nowhere() -> Memory {
        Memory::new(None, "host", 22)
    }

    async fn kex(memory: &Memory) -> Option<&'static str> {
        memory.expected(None).await.guess.as_ref().map(|guess| guess.kex)
    }

    #[tokio::test]
    async fn who_comes_second_waits_for_what_the_first_finds_out() {
        let memory = nowhere();
        let first = memory.expected(LONG_WAY).await;
        assert_eq!(first.guess, None);
        let (second, ()) = tokio::join!(memory.expected(LONG_WAY), async {
            tokio::task::yield_now().await;
            memory.agreed(OPENSSH, &agreed());
        });
        let guess = second.guess.clone().unwrap();
        assert_eq!((guess.kex, guess.preferred), (agreed().kex, agreed().preferred));
        drop((first, second));
        assert_eq!(kex(&memory).await, Some("curve25519-sha256"));
        memory.surprised();
        assert_eq!((kex(&memory).await, memory.surprises()), (None, 1));
    }

    #[tokio::test]
    async fn what_is_known_is_kept_for_the_next_run_until_it_is_not_true_any_more() {
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
        // Nothing there tells whose it is.
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
        memory().surprised();
        known(None).await;
        first.agreed("SSH-2.0-dropbear_2022.83", &agreed());
        first.verified();
        known(None).await;
    }

    #[tokio::test]
    async fn nothing_is_kept_of_a_server_whose_key_was_not_accepted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("hosts");
        let memory = Memory::new(Some(&path), "host", 22);
        memory.agreed(OPENSSH, &agreed());
        assert_eq!(kex(&memory).await, Some("curve25519-sha256"));
        // What is written later was asked for later: the threads of one runtime take turns.
        let another = Memory::new(Some(&path), "another", 22);
        another.agreed(OPENSSH, &agreed());
        another.verified();
        while kex(&Memory::new(Some(&path), "another", 22)).await.is_none() {
            tokio::task::yield_now().await;
        }
        // The salt, and what is known of the other.
        assert_eq!(fs::read_dir(&path).unwrap().count(), 2);
    }

    #[tokio::test]
    async fn nobody_waits_for_a_connection_that_failed_or_for_another_server_or_on_a_short_way() {
        let memory = nowhere();
        let first = memory.expected(LONG_WAY).await;
        assert_eq!(memory.expected(Some(Duration::from_millis(1))).await.guess, None);
        let (second, ()) = tokio::join!(memory.expected(LONG_WAY), async {
            tokio::task::yield_now().await;
            drop(first);
        });
        assert!(second.guess.is_none() && second.finding);
        memory.agreed("SSH-2.0-dropbear", &agreed());
        assert_eq!(memory.expected(LONG_WAY).await.guess, None);
    }
}
