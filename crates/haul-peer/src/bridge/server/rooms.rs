//! Sharers and their rooms, and the numbers of spoken codes.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use haul_net::network;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::SendTimeoutError;

use super::super::messages::{NUMBER_MAX, Refusal, from_bridge};
use super::super::room::{Room, RoomKey};
use super::account::Meter;
use super::limits::BridgeLimits;
use crate::lock::lock;

type Name = [u8; 32];

/// Messages that wait to be sent on a signalling connection.
pub(super) type ToPeer = Sender<from_bridge::Body>;

/// Upper ends of the ranges of codes' numbers, each from 1. The first with two numbers for each existing code is used.
const NUMBERS: [u32; 5] = [99, 999, 9_999, 99_999, NUMBER_MAX];

/// All rooms.
#[derive(Debug)]
pub(super) struct Rooms {
    most: usize,
    next: AtomicU64,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    rooms: HashMap<Name, Entry>,
    /// How many rooms each sharer has, by its number. A sharer whose rooms were all taken over is not counted.
    sharers: HashMap<u64, usize>,
    /// Spoken codes by their numbers. Each counts as a sharer.
    codes: HashMap<u32, Entry>,
}

struct Entry {
    key: RoomKey,
    sharer: Arc<Sharer>,
}

/// A registered sharer.
pub(super) struct Sharer {
    number: u64,
    /// Its address and port, as the bridge sees them.
    pub(super) from: SocketAddr,
    /// Its signalling connection.
    incoming: ToPeer,
    pub(super) meter: Meter,
    connections: Mutex<Connections>,
}

/// Data connections to a sharer.
#[derive(Debug, Default)]
struct Connections {
    all: usize,
    by_joiner: HashMap<IpAddr, usize>,
}

impl Rooms {
    /// Rooms for at most `most` sharers.
    pub(super) fn new(most: usize) -> Self {
        Self { most, next: AtomicU64::new(0), table: Mutex::default() }
    }

    /// Registers a sharer.
    pub(super) fn enter(
        self: &Arc<Self>,
        rooms: Vec<Room>,
        (from, incoming, meter): (SocketAddr, ToPeer, Meter),
    ) -> Result<SharerRegistration, Refusal> {
        let sharer = self.sharer(from, incoming, meter);
        let names = self.lock().add(rooms, &sharer, self.most)?;
        Ok(SharerRegistration { rooms: Arc::clone(self), sharer, names, code: None })
    }

    /// Registers the sharer of a spoken code. It gets `number` if that is free, or another connection has it with the
    /// same key; 0 stands for any free number.
    pub(super) fn offer(
        self: &Arc<Self>,
        (number, key): (u32, RoomKey),
        (from, incoming, meter): (SocketAddr, ToPeer, Meter),
    ) -> Result<SharerRegistration, Refusal> {
        let sharer = self.sharer(from, incoming, meter);
        let mut table = self.lock();
        if number > NUMBER_MAX {
            return Err(Refusal::Invalid);
        }
        if table.codes.get(&number).is_some_and(|entry| entry.key != key) {
            return Err(Refusal::Mac);
        }
        if table.count() >= self.most && !table.codes.contains_key(&number) {
            return Err(Refusal::Busy);
        }
        let number = if number == 0 { table.free_number()? } else { number };
        table.codes.insert(number, Entry { key, sharer: Arc::clone(&sharer) });
        Ok(SharerRegistration {
            rooms: Arc::clone(self),
            sharer,
            names: Vec::new(),
            code: Some(number),
        })
    }

    /// The sharer whose code has a number.
    pub(super) fn find_code(&self, number: u32) -> Option<Arc<Sharer>> {
        self.lock().codes.get(&number).map(|entry| Arc::clone(&entry.sharer))
    }

    fn sharer(&self, from: SocketAddr, incoming: ToPeer, meter: Meter) -> Arc<Sharer> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let connections = Mutex::default();
        Arc::new(Sharer { number, from, incoming, meter, connections })
    }

    /// The key and the sharer of a room.
    pub(super) fn find(&self, name: &Name) -> Option<(RoomKey, Arc<Sharer>)> {
        let table = self.lock();
        let entry = table.rooms.get(name)?;
        Some((entry.key.clone(), Arc::clone(&entry.sharer)))
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }
}

impl Table {
    /// Registered sharers, with those of codes.
    fn count(&self) -> usize {
        self.sharers.len() + self.codes.len()
    }

    /// A number that no code has: a random one, so that a number is seldom reused soon.
    fn free_number(&self) -> Result<u32, Refusal> {
        let is_roomy = |most: &&u32| self.codes.len() <= **most as usize / 2;
        let most = *NUMBERS.iter().find(is_roomy).ok_or(Refusal::Busy)?;
        let mut random = [0; 4];
        aws_lc_rs::rand::fill(&mut random).map_err(|_| Refusal::Other)?;
        let start = u32::from_be_bytes(random) % most;
        let mut numbers = (0..most).map(|step| (start + step) % most + 1);
        numbers.find(|number| !self.codes.contains_key(number)).ok_or(Refusal::Busy)
    }

    /// Adds rooms. A room that another connection has registered is taken over by a sharer with its key: it is the
    /// same sharer, whose earlier connection was lost. If there are `most` sharers, it replaces the lost one
    /// ([`Table::replaced`]).
    fn add(
        &mut self,
        rooms: Vec<Room>,
        sharer: &Arc<Sharer>,
        most: usize,
    ) -> Result<Vec<Name>, Refusal> {
        let is_foreign =
            |room: &Room| self.rooms.get(&room.name).is_some_and(|entry| entry.key != room.key);
        if rooms.iter().any(is_foreign) {
            return Err(Refusal::Mac);
        }
        let mut names: Vec<Name> = rooms.iter().map(|room| room.name).collect();
        names.sort_unstable();
        names.dedup();
        if self.count() >= most && !self.sharers.contains_key(&sharer.number) {
            let replaced = self.replaced(&names);
            if self.count() - replaced.len() >= most {
                return Err(Refusal::Busy);
            }
            self.rooms.retain(|_, entry| !replaced.contains(&entry.sharer.number));
            self.sharers.retain(|number, _| !replaced.contains(number));
        }
        for Room { name, key } in rooms {
            let earlier = self.rooms.insert(name, Entry { key, sharer: Arc::clone(sharer) });
            *self.sharers.entry(sharer.number).or_default() += 1;
            if let Some(earlier) = earlier {
                self.leave(earlier.sharer.number);
            }
        }
        Ok(names)
    }

    /// Sharers that lose more than half of their rooms if these are taken over: after a change of the day, one of three
    /// names has changed. The rooms of one ticket of several are not enough, since its receivers know their keys.
    fn replaced(&self, names: &[Name]) -> Vec<u64> {
        let mut taken: HashMap<u64, usize> = HashMap::new();
        for entry in names.iter().filter_map(|name| self.rooms.get(name)) {
            *taken.entry(entry.sharer.number).or_default() += 1;
        }
        let loses_most = |(number, taken): &(u64, usize)| {
            self.sharers.get(number).is_some_and(|rooms| 2 * taken > *rooms)
        };
        taken.into_iter().filter(loses_most).map(|(number, _)| number).collect()
    }

    /// Counts one room less for a sharer.
    fn leave(&mut self, number: u64) {
        if let Some(rooms) = self.sharers.get_mut(&number) {
            *rooms -= 1;
            if *rooms == 0 {
                self.sharers.remove(&number);
            }
        }
    }

    fn remove(&mut self, names: &[Name], sharer: &Sharer) {
        for name in names {
            if self.rooms.get(name).is_some_and(|entry| entry.sharer.number == sharer.number) {
                self.rooms.remove(name);
                self.leave(sharer.number);
            }
        }
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("sharers", &self.count()).finish_non_exhaustive()
    }
}

/// A sharer's registration, which ends when it is dropped.
#[derive(Debug)]
pub(super) struct SharerRegistration {
    rooms: Arc<Rooms>,
    sharer: Arc<Sharer>,
    names: Vec<Name>,
    code: Option<u32>,
}

impl SharerRegistration {
    /// The number of the sharer's code, if it has registered that instead of rooms.
    pub(super) const fn code(&self) -> Option<u32> {
        self.code
    }

    /// Replaces the rooms. If that is refused, the sharer keeps those it has.
    pub(super) fn replace(&mut self, rooms: Vec<Room>) -> Result<(), Refusal> {
        let mut table = self.rooms.lock();
        let added = table.add(rooms, &self.sharer, self.rooms.most)?;
        let gone = std::mem::take(&mut self.names);
        let gone: Vec<Name> = gone.into_iter().filter(|name| !added.contains(name)).collect();
        table.remove(&gone, &self.sharer);
        drop(table);
        self.names = added;
        Ok(())
    }
}

impl Drop for SharerRegistration {
    fn drop(&mut self) {
        let mut table = self.rooms.lock();
        table.remove(&self.names, &self.sharer);
        if let Some(code) = self.code
            && table.codes.get(&code).is_some_and(|entry| entry.sharer.number == self.sharer.number)
        {
            table.codes.remove(&code);
        }
    }
}

impl Sharer {
    /// Counts a data connection of a joiner to this sharer; `None` if either has too many.
    pub(super) fn connection(
        self: &Arc<Self>,
        joiner: IpAddr,
        limits: &BridgeLimits,
    ) -> Option<Connected> {
        let joiner = network(joiner);
        let mut connections = lock(&self.connections);
        let of_joiner = connections.by_joiner.get(&joiner).copied().unwrap_or(0);
        if connections.all >= limits.connections_of_sharer
            || of_joiner >= limits.connections_of_joiner
        {
            return None;
        }
        connections.all += 1;
        connections.by_joiner.insert(joiner, of_joiner + 1);
        Some(Connected { sharer: Arc::clone(self), joiner })
    }

    /// Queues a client's request on the sharer's signalling connection, and waits if the queue is full: a client that
    /// opens many connections at once may be faster than the sharer.
    ///
    /// # Errors
    /// `Room` if the sharer has left, `Busy` if there is no room for the request within `limit`.
    pub(super) async fn request(
        &self,
        request: from_bridge::Body,
        limit: Duration,
    ) -> Result<(), Refusal> {
        let sent = self.incoming.send_timeout(request, limit).await;
        sent.map_err(|error| match error {
            SendTimeoutError::Closed(_) => Refusal::Room,
            SendTimeoutError::Timeout(_) => Refusal::Busy,
        })
    }

    /// The queue of its signalling connection.
    pub(super) fn signalling(&self) -> ToPeer {
        self.incoming.clone()
    }
}

impl fmt::Debug for Sharer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sharer({})", self.number)
    }
}

/// A data connection to a sharer, counted until it is dropped.
#[derive(Debug)]
pub(super) struct Connected {
    sharer: Arc<Sharer>,
    joiner: IpAddr,
}

impl Connected {
    /// What its bytes are counted against.
    pub(super) fn meter(&self) -> &Meter {
        &self.sharer.meter
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        let mut connections = lock(&self.sharer.connections);
        connections.all -= 1;
        if let Some(count) = connections.by_joiner.get_mut(&self.joiner) {
            *count -= 1;
            if *count == 0 {
                connections.by_joiner.remove(&self.joiner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::channel;

    use super::super::super::messages::Incoming;
    use super::super::account::Accounts;
    use super::*;

    fn room(name: u8, key: u8) -> Room {
        Room { name: [name; 32], key: RoomKey::new([key; 32]) }
    }

    fn enter(rooms: &Arc<Rooms>, of: Vec<Room>) -> Result<SharerRegistration, Refusal> {
        let from = "192.0.2.1:1".parse().unwrap();
        rooms.enter(of, (from, channel(1).0, Accounts::new(None, None).meter(from)))
    }

    #[test]
    fn a_sharer_that_returns_takes_over_its_rooms() {
        let rooms = Arc::new(Rooms::new(3));
        let first = enter(&rooms, vec![room(1, 1), room(2, 2)]).unwrap();
        assert_eq!(enter(&rooms, vec![room(3, 3), room(1, 9)]).unwrap_err(), Refusal::Mac);
        assert!(rooms.find(&[3; 32]).is_none());
        let second = enter(&rooms, vec![room(1, 1)]).unwrap();
        assert_eq!(rooms.find(&[1; 32]).unwrap().1.number, second.sharer.number);
        drop(first);
        assert!(rooms.find(&[1; 32]).is_some(), "the lost connection does not remove it");
        assert!(rooms.find(&[2; 32]).is_none());
        drop(second);
        let table = rooms.lock();
        assert_eq!((table.rooms.len(), table.sharers.len()), (0, 0));
    }

    /// Formerly, a full bridge refused a sharer that had lost its connection until the bridge noticed the loss.
    #[test]
    fn a_sharer_that_returns_to_a_full_bridge_is_admitted() {
        let rooms = Arc::new(Rooms::new(2));
        let mut lost = enter(&rooms, vec![room(1, 1), room(2, 2), room(2, 2), room(7, 7)]).unwrap();
        let other = enter(&rooms, vec![room(3, 3)]).unwrap();
        assert_eq!(enter(&rooms, vec![room(1, 9)]).unwrap_err(), Refusal::Mac);
        // A receiver knows the rooms of one ticket.
        assert_eq!(enter(&rooms, vec![room(1, 1)]).unwrap_err(), Refusal::Busy);
        // The next day, the sharer has another third room.
        let again = enter(&rooms, vec![room(2, 2), room(7, 7), room(4, 4)]).unwrap();
        assert_eq!(rooms.find(&[2; 32]).unwrap().1.number, again.sharer.number);
        assert!(rooms.find(&[1; 32]).is_none());
        assert_eq!(lost.replace(vec![room(5, 5)]).unwrap_err(), Refusal::Busy);
        assert_eq!(rooms.lock().sharers.len(), 2);
        drop((lost, again));
        let _next = enter(&rooms, vec![room(6, 6)]).unwrap();
        drop(other);
        let table = rooms.lock();
        assert_eq!((table.rooms.len(), table.sharers.len()), (1, 1));
    }

    #[test]
    fn rooms_are_replaced_and_sharers_are_limited() {
        let rooms = Arc::new(Rooms::new(1));
        let mut registration = enter(&rooms, vec![room(1, 1), room(2, 2)]).unwrap();
        assert_eq!(enter(&rooms, vec![room(3, 3)]).unwrap_err(), Refusal::Busy);
        registration.replace(vec![room(2, 2), room(3, 3)]).unwrap();
        let found = [1, 2, 3].map(|name| rooms.find(&[name; 32]).is_some());
        assert_eq!(found, [false, true, true]);
        drop(registration);
        enter(&rooms, vec![room(3, 4)]).unwrap();
    }

    fn offer(rooms: &Arc<Rooms>, number: u32, key: u8) -> Result<SharerRegistration, Refusal> {
        let from = "192.0.2.1:1".parse().unwrap();
        let meter = Accounts::new(None, None).meter(from);
        rooms.offer((number, RoomKey::new([key; 32])), (from, channel(1).0, meter))
    }

    #[test]
    fn codes_have_short_numbers_that_are_free_again_when_their_sharer_leaves() {
        let rooms = Arc::new(Rooms::new(200));
        let registrations: Vec<_> = (0..120).map(|_| offer(&rooms, 0, 1).unwrap()).collect();
        let mut numbers: Vec<_> =
            registrations.iter().map(|registration| registration.code().unwrap()).collect();
        assert!(numbers[..50].iter().all(|number| (1..=99).contains(number)), "{numbers:?}");
        assert!(numbers.iter().all(|number| (1..=999).contains(number)), "{numbers:?}");
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 120);
        assert!(numbers.iter().all(|number| rooms.find_code(*number).is_some()));
        drop(registrations);
        assert!(numbers.iter().all(|number| rooms.find_code(*number).is_none()));
        assert_eq!(rooms.lock().count(), 0);
    }

    #[test]
    fn a_sharer_that_returns_gets_its_number_and_no_other_sharer_does() {
        let rooms = Arc::new(Rooms::new(1));
        let first = offer(&rooms, 7, 1).unwrap();
        assert_eq!(offer(&rooms, 7, 2).unwrap_err(), Refusal::Mac);
        assert_eq!(offer(&rooms, NUMBER_MAX + 1, 1).unwrap_err(), Refusal::Invalid);
        let again = offer(&rooms, 7, 1).unwrap();
        assert_eq!(offer(&rooms, 8, 1).unwrap_err(), Refusal::Busy);
        drop(first);
        assert_eq!(rooms.find_code(7).unwrap().number, again.sharer.number);
        drop(again);
        assert!(rooms.find_code(7).is_none());
    }

    /// Formerly, such requests were refused, and the client's signalling connection was closed after four of them.
    #[tokio::test]
    async fn requests_wait_until_the_sharer_has_taken_earlier_ones() {
        let rooms = Arc::new(Rooms::new(1));
        let from = "192.0.2.1:1".parse().unwrap();
        let (sender, mut incoming) = channel(1);
        let meter = Accounts::new(None, None).meter(from);
        let registration = rooms.enter(vec![room(1, 1)], (from, sender, meter)).unwrap();
        let request = |limit_ms| {
            let limit = Duration::from_millis(limit_ms);
            let request = from_bridge::Body::Incoming(Incoming::default());
            registration.sharer.request(request, limit)
        };
        request(10_000).await.unwrap();
        let taking = async {
            tokio::task::yield_now().await;
            incoming.recv().await
        };
        let (waited, taken) = tokio::join!(request(10_000), taking);
        waited.unwrap();
        assert!(taken.is_some());
        assert_eq!(request(10).await, Err(Refusal::Busy));
        drop(incoming);
        assert_eq!(request(10).await, Err(Refusal::Room));
    }

    #[test]
    fn connections_of_a_sharer_are_limited_in_total_and_per_joiner() {
        let rooms = Arc::new(Rooms::new(1));
        let registration = enter(&rooms, vec![room(1, 1)]).unwrap();
        let limits = BridgeLimits {
            connections_of_sharer: 3,
            connections_of_joiner: 2,
            ..BridgeLimits::default()
        };
        let connect =
            |joiner: &str| registration.sharer.connection(joiner.parse().unwrap(), &limits);
        let one = connect("192.0.2.1").unwrap();
        let two = connect("192.0.2.1").unwrap();
        // Formerly, one joiner could have all of them.
        assert!(connect("192.0.2.1").is_none());
        let other = connect("2001:db8::1").unwrap();
        assert!(connect("2001:db8::2").is_none(), "the sharer has too many");
        drop(one);
        let three = connect("2001:db8::2").unwrap();
        drop(two);
        assert!(connect("2001:db8::3").is_none(), "they are in one network");
        drop((other, three, connect("192.0.2.2").unwrap()));
        let connections = lock(&registration.sharer.connections);
        assert!(connections.all == 0 && connections.by_joiner.is_empty());
    }
}
