//! Pairs data connections: each one of a client with one of its sharer.
//!
//! A client announces the numbers of its connections on its signalling connection; the bridge makes one more number for
//! each, which it sends to the sharer. Connections may arrive before they are announced, and in any order.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream as StdTcpStream};
use std::sync::{Arc, Mutex};

use haul_net::{Admitted, network};
use tokio::net::TcpStream;

use super::super::preamble::ConnectionId;
use super::limits::BridgeLimits;
use super::rooms::{Connected, ToPeer};
use crate::lock::lock;

/// A data connection without its counterpart. Nothing is read from it: its bytes stay in the kernel.
#[derive(Debug)]
pub(super) struct Parked {
    socket: StdTcpStream,
    from: SocketAddr,
    admitted: Admitted,
}

impl Parked {
    /// Parks a connection. Fails if it was lost.
    pub(super) fn new(socket: TcpStream, from: SocketAddr, admitted: Admitted) -> io::Result<Self> {
        Ok(Self { socket: socket.into_std()?, from, admitted })
    }

    /// The address from which the bridge sees it.
    pub(super) const fn from(&self) -> SocketAddr {
        self.from
    }

    /// The connection, registered with this thread's runtime.
    pub(super) fn into_socket(self) -> io::Result<(TcpStream, Admitted)> {
        Ok((TcpStream::from_std(self.socket)?, self.admitted))
    }
}

/// Two connections that are not joined: their sides get each other's addresses.
#[derive(Debug)]
pub(super) struct Crossing {
    /// The client's number, and its signalling connection.
    pub(super) joiner: (ConnectionId, ToPeer),
    /// The same of the sharer.
    pub(super) sharer: (ConnectionId, ToPeer),
}

/// A connection of a client and one of its sharer that belong together. The first to arrive waits here.
#[derive(Debug)]
pub(super) struct Pair {
    /// Counts the pair as one connection to the sharer.
    pub(super) connected: Connected,
    /// Set if the pair is not to be joined.
    pub(super) crossing: Option<Crossing>,
    first: Mutex<Option<Parked>>,
}

impl Pair {
    pub(super) fn new(connected: Connected, crossing: Option<Crossing>) -> Arc<Self> {
        Arc::new(Self { connected, crossing, first: Mutex::default() })
    }

    /// Parks a connection, or returns it with the one that arrived before it.
    fn add(&self, parked: Parked) -> Option<(Parked, Parked)> {
        let mut first = lock(&self.first);
        match first.take() {
            Some(earlier) => Some((earlier, parked)),
            None => {
                *first = Some(parked);
                None
            }
        }
    }
}

/// The outcome of [`Pairing::arrive`].
#[derive(Debug)]
pub(super) enum Arrival {
    /// It was not announced yet.
    Unclaimed,
    /// It waits for its counterpart.
    Waits,
    /// Its counterpart had arrived.
    Paired(Arc<Pair>, Parked, Parked),
    /// Too many connections are not announced yet, or another one has its number.
    Refused,
}

/// The connections that are not yet pairs.
#[derive(Debug)]
pub(super) struct Pairing {
    most: usize,
    most_of_address: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<ConnectionId, Entry>,
    unclaimed: usize,
    by_address: HashMap<IpAddr, usize>,
}

#[derive(Debug)]
enum Entry {
    /// It has arrived, but was not announced.
    Unclaimed(Parked),
    /// It is announced, but has not arrived.
    Expected(Arc<Pair>),
}

impl Pairing {
    pub(super) fn new(limits: &BridgeLimits) -> Self {
        Self {
            most: limits.unclaimed,
            most_of_address: limits.unclaimed_of_address,
            table: Mutex::default(),
        }
    }

    /// Pairs a connection that has arrived, or parks it.
    pub(super) fn arrive(&self, id: ConnectionId, parked: Parked) -> Arrival {
        let mut table = lock(&self.table);
        match table.entries.remove(&id) {
            Some(Entry::Expected(pair)) => {
                drop(table);
                match pair.add(parked) {
                    Some((first, second)) => Arrival::Paired(pair, first, second),
                    None => Arrival::Waits,
                }
            }
            Some(other) => {
                table.entries.insert(id, other);
                Arrival::Refused
            }
            None => {
                let address = network(parked.from.ip());
                let of_address = table.by_address.get(&address).copied().unwrap_or(0);
                if table.unclaimed >= self.most || of_address >= self.most_of_address {
                    return Arrival::Refused;
                }
                table.unclaimed += 1;
                *table.by_address.entry(address).or_default() += 1;
                table.entries.insert(id, Entry::Unclaimed(parked));
                Arrival::Unclaimed
            }
        }
    }

    /// Records that the connection `id` of `pair` is announced. Returns `false` if it is expected already.
    pub(super) fn claim(&self, id: ConnectionId, pair: &Arc<Pair>) -> bool {
        let mut table = lock(&self.table);
        if matches!(table.entries.get(&id), Some(Entry::Expected(_))) {
            return false;
        }
        if let Some(parked) = table.take_unclaimed(&id) {
            drop(table);
            // The first of the two: the sharer does not know its own number yet.
            drop(pair.add(parked));
        } else {
            table.entries.insert(id, Entry::Expected(Arc::clone(pair)));
        }
        true
    }

    /// Removes a connection if it was not announced. Returns whether it was removed.
    pub(super) fn forget(&self, id: &ConnectionId) -> bool {
        lock(&self.table).take_unclaimed(id).is_some()
    }

    /// Removes connections that were announced, but have not arrived. Returns whether there were any. Their
    /// counterparts are closed with the last reference to the pair.
    pub(super) fn expire(&self, ids: &[ConnectionId]) -> bool {
        let mut table = lock(&self.table);
        let mut expired = Vec::new();
        for id in ids {
            if let MapEntry::Occupied(entry) = table.entries.entry(*id)
                && matches!(entry.get(), Entry::Expected(_))
            {
                expired.push(entry.remove());
            }
        }
        // Sockets are closed without the lock.
        drop(table);
        !expired.is_empty()
    }
}

impl Table {
    fn take_unclaimed(&mut self, id: &ConnectionId) -> Option<Parked> {
        let MapEntry::Occupied(entry) = self.entries.entry(*id) else { return None };
        let address = match entry.get() {
            Entry::Unclaimed(parked) => network(parked.from.ip()),
            Entry::Expected(_) => return None,
        };
        let Entry::Unclaimed(parked) = entry.remove() else { return None };
        self.unclaimed -= 1;
        if let Some(count) = self.by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&address);
            }
        }
        Some(parked)
    }
}

#[cfg(test)]
mod tests {
    use haul_net::Admission;
    use tokio::net::TcpListener;
    use tokio::sync::mpsc::channel;

    use super::super::super::room::{Room, RoomKey};
    use super::super::account::Accounts;
    use super::super::rooms::{Rooms, SharerRegistration};
    use super::*;

    struct World {
        admission: Arc<Admission>,
        listener: TcpListener,
        pairing: Pairing,
        rooms: Arc<Rooms>,
        _registration: SharerRegistration,
    }

    impl World {
        async fn new(limits: &BridgeLimits) -> Self {
            let rooms = Arc::new(Rooms::new(1));
            let from = "192.0.2.1:1".parse().unwrap();
            let room = Room { name: [0; 32], key: RoomKey::new([0; 32]) };
            let meter = Accounts::new(None, None).meter(from);
            let registration = rooms.enter(vec![room], (from, channel(1).0, meter)).unwrap();
            Self {
                admission: Admission::new(100, 100),
                listener: TcpListener::bind("127.0.0.1:0").await.unwrap(),
                pairing: Pairing::new(limits),
                rooms,
                _registration: registration,
            }
        }

        async fn parked(&self) -> Parked {
            let near = TcpStream::connect(self.listener.local_addr().unwrap()).await.unwrap();
            let from = near.peer_addr().unwrap();
            Parked::new(near, from, self.admission.enter(from.ip()).unwrap()).unwrap()
        }

        fn pair(&self) -> Arc<Pair> {
            let (_, sharer) = self.rooms.find(&[0; 32]).unwrap();
            let joiner = "192.0.2.2".parse().unwrap();
            Pair::new(sharer.connection(joiner, &BridgeLimits::default()).unwrap(), None)
        }

        fn is_empty(&self) -> bool {
            let table = lock(&self.pairing.table);
            table.entries.is_empty() && table.unclaimed == 0 && table.by_address.is_empty()
        }
    }

    #[tokio::test]
    async fn connections_are_paired_in_any_order() {
        let world = World::new(&BridgeLimits::default()).await;
        for order in 0..3 {
            let pair = world.pair();
            let (joiner, sharer) = ([1; 32], [2; 32]);
            if order == 0 {
                let arrival = world.pairing.arrive(joiner, world.parked().await);
                assert!(matches!(arrival, Arrival::Unclaimed), "{arrival:?}");
            }
            assert!(world.pairing.claim(joiner, &pair));
            assert!(world.pairing.claim(sharer, &pair));
            let rest = match order {
                0 => vec![sharer],
                1 => vec![joiner, sharer],
                _ => vec![sharer, joiner],
            };
            for (at, id) in rest.iter().enumerate() {
                let arrival = world.pairing.arrive(*id, world.parked().await);
                let is_last = at + 1 == rest.len();
                assert_eq!(matches!(arrival, Arrival::Paired(..)), is_last, "{arrival:?}");
            }
            assert!(!world.pairing.expire(&[joiner, sharer]));
            assert!(world.is_empty());
        }
    }

    #[tokio::test]
    async fn unclaimed_connections_are_limited_and_forgotten() {
        let limits = BridgeLimits { unclaimed: 3, unclaimed_of_address: 2, ..Default::default() };
        let world = World::new(&limits).await;
        let arrive = async |id| world.pairing.arrive([id; 32], world.parked().await);
        assert!(matches!(arrive(1).await, Arrival::Unclaimed));
        assert!(matches!(arrive(1).await, Arrival::Refused), "the number is taken");
        assert!(matches!(arrive(2).await, Arrival::Unclaimed));
        assert!(matches!(arrive(3).await, Arrival::Refused));
        assert!(world.pairing.forget(&[1; 32]) && !world.pairing.forget(&[1; 32]));
        assert!(matches!(arrive(3).await, Arrival::Unclaimed));
        assert!(world.pairing.forget(&[2; 32]) && world.pairing.forget(&[3; 32]));
        assert!(world.is_empty());
    }

    #[tokio::test]
    async fn an_announced_connection_that_does_not_arrive_is_removed() {
        let world = World::new(&BridgeLimits::default()).await;
        let pair = world.pair();
        assert!(world.pairing.claim([1; 32], &pair) && world.pairing.claim([2; 32], &pair));
        assert!(!world.pairing.claim([1; 32], &pair), "it was announced before");
        assert!(matches!(world.pairing.arrive([1; 32], world.parked().await), Arrival::Waits));
        assert!(world.pairing.expire(&[[1; 32], [2; 32]]));
        assert!(world.is_empty());
        assert!(lock(&pair.first).is_some());
    }
}
