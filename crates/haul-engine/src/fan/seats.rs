//! The hosts that are served now, each on a numbered seat, so that a set of them is one number.

use std::time::Duration;

use super::pace::{Pace, Patience};

/// The most hosts that are served at once.
pub const MOST_SEATS: usize = u128::BITS as usize;

/// A set of seats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SeatSet(u128);

impl SeatSet {
    /// One seat.
    pub const fn of(seat: usize) -> Self {
        Self(1 << seat)
    }

    /// Adds a seat.
    pub const fn insert(&mut self, seat: usize) {
        self.0 |= 1 << seat;
    }

    /// Takes a seat out.
    pub const fn remove(&mut self, seat: usize) {
        self.0 &= !(1 << seat);
    }

    /// Whether a seat is in it.
    pub const fn contains(self, seat: usize) -> bool {
        self.0 & (1 << seat) != 0
    }

    /// What is in it and not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether no seat is in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The seats, in order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..MOST_SEATS).filter(move |seat| self.contains(*seat))
    }
}

/// Who is served now.
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
    /// A free seat; `None` if all are taken.
    pub fn take(&mut self, now: Duration) -> Option<usize> {
        let seat = (0..MOST_SEATS).find(|seat| !self.taken.contains(*seat))?;
        if self.hosts.len() <= seat {
            self.hosts.resize_with(seat + 1, || None);
        }
        self.taken.insert(seat);
        self.hosts[seat] = Some(Seated { patience: Patience::new(now), pace: Pace::default() });
        Some(seat)
    }

    /// Nobody sits there any longer.
    pub fn leave(&mut self, seat: usize) {
        self.taken.remove(seat);
        if let Some(host) = self.hosts.get_mut(seat) {
            *host = None;
        }
    }

    /// The seats that are taken.
    pub const fn taken(&self) -> SeatSet {
        self.taken
    }

    /// A host was given so many bytes of a file.
    pub fn gave(&mut self, seat: usize, bytes: u64, now: Duration) {
        if let Some(Some(host)) = self.hosts.get_mut(seat) {
            host.pace.given(bytes, now);
        }
    }

    /// Whether a host is getting on about as fast as the one on `ahead`.
    pub fn is_near(&self, seat: usize, ahead: usize, now: Duration) -> bool {
        let pace = |seat: usize| Some(self.hosts.get(seat)?.as_ref()?.pace);
        match (pace(seat), pace(ahead)) {
            (Some(pace), Some(ahead)) => pace.is_near(&ahead, now),
            _ => false,
        }
    }

    /// The patience of a host.
    pub fn patience(&mut self, seat: usize) -> Option<&mut Patience> {
        self.hosts.get_mut(seat)?.as_mut().map(|host| &mut host.patience)
    }
}
