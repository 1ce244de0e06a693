//! Announces sharers and bridges on the local network while they run.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use haul_storage::Result;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::bridges::KEY;
use super::finder::TAG;
use super::service::{BRIDGES, Daemon, Hosts, SHARES, ports};
use super::tag::TagKey;
use crate::bridge::room::epoch;
use crate::lock::lock;
use crate::ticket::{PeerKey, Secret};

/// How often to check how much the thread remembers, and whether the day has changed. Clients know the tags of the day
/// before and the day after as well.
const CHECKED: Duration = Duration::from_secs(5);

/// An announcement on the local network. Dropping it withdraws it; [`stop`](Self::stop) also waits until that is sent.
pub struct Announcement {
    daemon: Current,
    /// Renews it every day.
    task: JoinHandle<()>,
}

/// The thread that announces now.
type Current = Arc<Mutex<Arc<Daemon>>>;

impl Announcement {
    /// Announces a share to the holders of the ticket with this secret, on the networks of a server that listens on
    /// these addresses; `None` if only this machine can reach it. The names and the tag in it change every day.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If the system has no more threads, files or random numbers.
    pub fn of_share(secret: &Secret, listening: &[SocketAddr]) -> Result<Option<Self>> {
        Self::start(Service::Share(secret.clone()), listening)
    }

    /// Announces a bridge with its key to everyone on the networks of a server that listens on these addresses; `None`
    /// if only this machine can reach it.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If the system has no more threads, files or random numbers.
    pub fn of_bridge(key: &PeerKey, listening: &[SocketAddr]) -> Result<Option<Self>> {
        Self::start(Service::Bridge(*key), listening)
    }

    fn start(service: Service, listening: &[SocketAddr]) -> Result<Option<Self>> {
        let ports = ports(listening);
        if ports.is_empty() {
            return Ok(None);
        }
        let day = epoch(SystemTime::now());
        let daemon = Arc::new(Daemon::start()?);
        let names = service.announce(&daemon, &ports, day)?;
        let daemon = Arc::new(Mutex::new(daemon));
        let announced = Announced { daemon: Arc::clone(&daemon), service, ports, names, day };
        Ok(Some(Self { daemon, task: tokio::spawn(announced.keep()) }))
    }

    /// Withdraws it. Waits until that was sent, for at most half a second.
    pub async fn stop(self) {
        self.task.abort();
        let daemon = Arc::clone(&lock(&self.daemon));
        daemon.stop().await;
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Announcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Announcement")
    }
}

/// What is announced.
enum Service {
    Share(Secret),
    Bridge(PeerKey),
}

impl Service {
    /// Announces it with the tag of a day. Returns the names.
    fn announce(
        &self,
        daemon: &Daemon,
        ports: &BTreeMap<u16, Hosts>,
        day: u64,
    ) -> Result<Vec<String>> {
        match self {
            Self::Share(secret) => {
                let tag = TagKey::new(secret, day)?.announce()?;
                daemon.announce(SHARES, ports, (TAG, &tag))
            }
            Self::Bridge(key) => daemon.announce(BRIDGES, ports, (KEY, &key.to_text())),
        }
    }
}

/// The state of an announcement's task.
struct Announced {
    daemon: Current,
    service: Service,
    ports: BTreeMap<u16, Hosts>,
    /// The names under which it is announced.
    names: Vec<String>,
    /// The day of the tag.
    day: u64,
}

impl Announced {
    /// Renews it when the day changes. Replaces the thread when other machines have filled its memory.
    async fn keep(mut self) {
        let mut checks = interval(CHECKED);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            checks.tick().await;
            let daemon = self.current();
            let today = epoch(SystemTime::now());
            let outcome = if daemon.is_flooded().await {
                self.replace(today)
            } else if today != self.day {
                self.renew(&daemon, today)
            } else {
                Ok(())
            };
            // A failure is retried at the next check: clients still know yesterday's tag.
            drop(outcome);
        }
    }

    /// Announces it under other names, with the tag of a day.
    fn renew(&mut self, daemon: &Daemon, day: u64) -> Result<()> {
        let names = self.service.announce(daemon, &self.ports, day)?;
        self.day = day;
        for old in std::mem::replace(&mut self.names, names) {
            daemon.withdraw(&old);
        }
        Ok(())
    }

    /// Announces it anew with another thread. The old thread withdraws its announcements, and ends.
    fn replace(&mut self, day: u64) -> Result<()> {
        let daemon = Arc::new(Daemon::start()?);
        self.names = self.service.announce(&daemon, &self.ports, day)?;
        self.day = day;
        *lock(&self.daemon) = daemon;
        Ok(())
    }

    fn current(&self) -> Arc<Daemon> {
        Arc::clone(&lock(&self.daemon))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn servers_that_only_this_machine_can_reach_are_not_announced() {
        let local = [SocketAddr::from(([127, 0, 0, 1], 4180))];
        let secret = Secret::new([7; 16]);
        assert!(Announcement::of_share(&secret, &local).unwrap().is_none());
        assert!(Announcement::of_share(&secret, &[]).unwrap().is_none());
        assert!(Announcement::of_bridge(&PeerKey([1; 32]), &local).unwrap().is_none());
    }

    /// Everyone on the network can fill the memory of the thread.
    #[tokio::test]
    async fn another_thread_takes_over_with_other_names() {
        let ports = ports(&[SocketAddr::from(([192, 0, 2, 1], 4180))]);
        let service = Service::Bridge(PeerKey([1; 32]));
        let first = Arc::new(Daemon::start().unwrap());
        let names = service.announce(&first, &ports, 7).unwrap();
        let daemon = Arc::new(Mutex::new(Arc::clone(&first)));
        let before = names.clone();
        let mut announced = Announced { daemon, service, ports, names, day: 7 };
        announced.replace(8).unwrap();
        assert!(!Arc::ptr_eq(&announced.current(), &first));
        assert_eq!((announced.day, announced.names.len()), (8, 1));
        assert_ne!(announced.names, before);
        assert_eq!(Arc::strong_count(&first), 1);
    }
}
