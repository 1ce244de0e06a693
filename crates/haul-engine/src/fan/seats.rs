//! Numbered seats for the hosts being served, so that a set of hosts is one 128-bit mask.

use std::time::Duration;

use super::pace::{Pace, Patience};

/// Maximum number of hosts served at once.
pub const MOST_SEATS: usize = u128::BITS as usize;

/// A set of seats, as a bit mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SeatSet(u128);

impl SeatSet {
    /// The set with only this seat.
    pub const fn of(seat: usize) -> Self {
        Self(1 << seat)
    }

    /// Adds a seat.
    pub const fn insert(&mut self, seat: usize) {
        self.0 |= 1 << seat;
    }

    /// Removes a seat.
    pub const fn remove(&mut self, seat: usize) {
        self.0 &= !(1 << seat);
    }

    /// True if the set contains the seat.
    pub const fn contains(self, seat: usize) -> bool {
        self.0 & (1 << seat) != 0
    }

    /// The seats in this set that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// True if the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The seats in ascending order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..MOST_SEATS).filter(move |seat| self.contains(*seat))
    }
}

/// The hosts being served, by seat. Times are since the fan began.
#[derive(Debug, Default)]
pub struct Seats {
    taken: SeatSet,
    hosts: Vec<Option<Seated>>,
}

#[derive(Debug)]
struct Seated {
    patience: Patience,
    pace: Pace,
}

impl Seats {
    /// Assigns the lowest free seat; `None` if all are taken.
    pub fn take(&mut self, now: Duration) -> Option<usize> {
        let seat = (0..MOST_SEATS).find(|seat| !self.taken.contains(*seat))?;
        if self.hosts.len() <= seat {
            self.hosts.resize_with(seat + 1, || None);
        }
        self.taken.insert(seat);
        self.hosts[seat] = Some(Seated { patience: Patience::new(now), pace: Pace::default() });
        Some(seat)
    }

    /// Frees a seat.
    pub fn leave(&mut self, seat: usize) {
        self.taken.remove(seat);
        if let Some(host) = self.hosts.get_mut(seat) {
            *host = None;
        }
    }

    /// The set of taken seats.
    pub const fn taken(&self) -> SeatSet {
        self.taken
    }

    /// Records that the host on `seat` received `bytes` of a file.
    pub fn received(&mut self, seat: usize, bytes: u64, now: Duration) {
        if let Some(Some(host)) = self.hosts.get_mut(seat) {
            host.pace.received(bytes, now);
        }
    }

    /// True if the host on `seat` receives data about as fast as the one on `ahead`.
    pub fn is_near(&self, seat: usize, ahead: usize, now: Duration) -> bool {
        let pace = |seat: usize| Some(self.hosts.get(seat)?.as_ref()?.pace);
        match (pace(seat), pace(ahead)) {
            (Some(pace), Some(ahead)) => pace.is_near(&ahead, now),
            _ => false,
        }
    }

    /// The time that the host on `seat` may still spend waiting; `None` if the seat is free.
    pub fn patience(&mut self, seat: usize) -> Option<&mut Patience> {
        self.hosts.get_mut(seat)?.as_mut().map(|host| &mut host.patience)
    }
}
