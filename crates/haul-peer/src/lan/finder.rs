//! The client's side: finds the addresses of a ticket's sharer on the local network.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::service::{Browser, SHARES};
use super::tag::TagKey;
use crate::bridge::room::epochs;
use crate::ticket::Secret;

/// The property with the tag.
pub(super) const TAG: &str = "t";

/// How long a search takes. A response comes within about 100 ms; if a packet is lost, the query is repeated after
/// 1 s.
const PATIENCE: Duration = Duration::from_secs(2);

/// Maximum addresses that a search finds, however many services have the tag.
const MOST_FOUND: usize = 16;

/// Maximum services that a search examines.
const MOST_SERVICES: usize = 1024;

/// Searches for a sharer, each time that all its addresses are to be dialled.
pub(crate) struct Finder {
    secret: Secret,
    runtime: Handle,
    search: Mutex<Option<Search>>,
}

impl Finder {
    /// Finds the sharer of the ticket with this secret. Searches run on `runtime`. Sends nothing yet.
    pub(crate) fn new(secret: Secret, runtime: Handle) -> Self {
        Self { secret, runtime, search: Mutex::default() }
    }

    /// The finds of the search in progress, or of a new one.
    pub(crate) fn search(&self) -> Finds {
        let mut last = self.lock();
        let running = last.take().filter(|search| !search.found.borrow().is_over);
        let running = running.unwrap_or_else(|| Search::start(&self.secret, &self.runtime));
        let finds = running.finds();
        *last = Some(running);
        finds
    }

    /// The finds of the last search, which may be in progress.
    pub(crate) fn last(&self) -> Option<Finds> {
        self.lock().as_ref().map(Search::finds)
    }

    /// Ends the search: the sharer was reached.
    pub(crate) fn stop(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Search>> {
        self.search.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Finder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Finder")
    }
}

/// A search. It ends when it is dropped.
struct Search {
    found: watch::Receiver<Found>,
    task: AbortHandle,
}

/// What a search has found so far.
#[derive(Debug, Default)]
struct Found {
    addresses: Vec<SocketAddr>,
    is_over: bool,
}

impl Search {
    fn start(secret: &Secret, runtime: &Handle) -> Self {
        let (sender, found) = watch::channel(Found::default());
        let keys = epochs(SystemTime::now()).into_iter();
        // Without a key, nothing is found.
        let keys = keys.filter_map(|day| TagKey::new(secret, day).ok()).collect();
        let task = runtime.spawn(search(keys, sender)).abort_handle();
        Self { found, task }
    }

    fn finds(&self) -> Finds {
        Finds { found: self.found.clone(), next: 0 }
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn search(keys: Vec<TagKey>, found: watch::Sender<Found>) {
    let searching = async {
        // If it fails, nothing is found.
        let Ok(browser) = Browser::start(SHARES) else { return };
        for _ in 0..MOST_SERVICES {
            let Some(service) = browser.next().await else { return };
            let tag = service.property(TAG).unwrap_or_default();
            if keys.iter().any(|key| key.matches(tag)) {
                let addresses = service.addresses.iter().map(|address| address.socket());
                found.send_if_modified(|found| found.add(addresses));
            }
        }
    };
    // Ends before the timeout only if something fails, or at the limit of services.
    drop(timeout(PATIENCE, searching).await);
    found.send_modify(|found| found.is_over = true);
}

impl Found {
    /// Adds the addresses that are new. Returns whether there were any.
    fn add(&mut self, addresses: impl Iterator<Item = SocketAddr>) -> bool {
        let before = self.addresses.len();
        for address in addresses {
            if self.addresses.len() < MOST_FOUND && !self.addresses.contains(&address) {
                self.addresses.push(address);
            }
        }
        self.addresses.len() > before
    }
}

/// The addresses that a search finds.
#[derive(Debug)]
pub(crate) struct Finds {
    found: watch::Receiver<Found>,
    next: usize,
}

impl Finds {
    /// The next address; `None` once the search is over or was stopped. If the future is dropped, nothing is lost.
    pub(crate) async fn next(&mut self) -> Option<SocketAddr> {
        loop {
            {
                let found = self.found.borrow_and_update();
                if let Some(address) = found.addresses.get(self.next) {
                    self.next += 1;
                    return Some(*address);
                }
                if found.is_over {
                    return None;
                }
            }
            // Fails if the search was stopped.
            if self.found.changed().await.is_err() {
                return None;
            }
        }
    }
}

#[cfg(test)]
impl Finder {
    /// A finder whose search has found these addresses, and is over if `is_over`.
    pub(crate) fn found(addresses: &[SocketAddr], is_over: bool) -> Self {
        let (sender, found) = watch::channel(Found { addresses: addresses.to_vec(), is_over });
        // The task holds the sender: the search lasts until the task is aborted.
        let task = Handle::current().spawn(async move { sender.closed().await }).abort_handle();
        let search = Mutex::new(Some(Search { found, task }));
        Self { secret: Secret::new([7; 16]), runtime: Handle::current(), search }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], port))
    }

    #[tokio::test]
    async fn addresses_are_returned_as_they_are_found_until_the_search_is_over() {
        let (sender, found) = watch::channel(Found::default());
        let mut finds = Finds { found, next: 0 };
        assert!(timeout(Duration::from_millis(20), finds.next()).await.is_err());
        sender
            .send_if_modified(|found| found.add([address(1), address(2), address(1)].into_iter()));
        assert_eq!(finds.next().await, Some(address(1)));
        assert_eq!(finds.next().await, Some(address(2)));
        assert!(timeout(Duration::from_millis(20), finds.next()).await.is_err());
        sender.send_modify(|found| found.is_over = true);
        assert_eq!(finds.next().await, None);
        let mut again = Finds { found: sender.subscribe(), next: 0 };
        assert_eq!(again.next().await, Some(address(1)));
        drop(sender);
        assert_eq!(again.next().await, Some(address(2)));
        assert_eq!(again.next().await, None);
    }

    #[test]
    fn a_search_finds_a_bounded_number_of_addresses() {
        let mut found = Found::default();
        assert!(found.add((1..=1000).map(address)));
        assert!(!found.add((1..=2000).map(address)));
        assert_eq!(found.addresses.len(), MOST_FOUND);
    }

    #[tokio::test]
    async fn a_search_that_is_stopped_finds_nothing_more() {
        let finder = Finder::found(&[address(1)], false);
        let mut finds = finder.last().unwrap();
        finder.stop();
        assert_eq!(finds.next().await, Some(address(1)));
        assert_eq!(finds.next().await, None);
        assert!(finder.last().is_none());
    }
}
