//! Decides which request gets the next permit: a priority queue for bytes that share one window.
//!
//! A member is a transfer, reader or writer that shares the window, with a memory limit of its own. A request is
//! granted if the window has room for its bytes, and the memory of the member that made it. Higher classes go
//! first, and within a class requests go in the order made. Two rules keep the queue fair:
//!
//! - A class that waits is passed over by at most [`PASSED_OVER`] grants to higher classes. Then it is due,
//!   and nothing is granted before it, however long the window takes to have room.
//! - A member whose own memory is full delays only itself. While one of its requests waits for that memory, none
//!   of its others in the same or a lower class is granted, so that a long range is not starved by short ones.
//!
//! Without I/O and without time. `T` is what the caller needs to deliver a grant.

use std::collections::{BTreeMap, VecDeque};

/// How urgent bytes are; more urgent requests are granted first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// A person or a program waits for these bytes.
    Interactive,
    /// Bytes that will probably be requested soon.
    ReadAhead,
    /// Bytes of a transfer.
    Bulk,
}

/// Grants to higher classes while a lower one waits: seven of eight.
pub const PASSED_OVER: u32 = 7;

/// All classes, the most urgent first.
const CLASSES: [Priority; 3] = [Priority::Interactive, Priority::ReadAhead, Priority::Bulk];

/// The queue and the counts.
#[derive(Debug)]
pub struct Grants<T> {
    window: u64,
    /// Bytes that any member may hold, besides the limit of its own memory.
    most_held: u64,
    in_flight: u64,
    members: BTreeMap<u64, Member<T>>,
    waiting: usize,
    /// The number of the last member that joined.
    joined: u64,
    /// The number of the last request that waited.
    requests: u64,
    /// How often each class was passed over since it was granted something.
    passed: [u32; CLASSES.len()],
}

#[derive(Debug)]
struct Member<T> {
    memory: u64,
    held: u64,
    queues: [VecDeque<Request<T>>; CLASSES.len()],
}

#[derive(Debug)]
struct Request<T> {
    number: u64,
    bytes: u64,
    token: T,
}

/// Identifies a request that waits; see [`Grants::withdraw`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    priority: Priority,
    number: u64,
}

impl<T> Grants<T> {
    /// An empty queue. At most `window` bytes may be in flight, and at most `most_held` held by each member.
    pub const fn new(window: u64, most_held: u64) -> Self {
        Self {
            window,
            most_held,
            in_flight: 0,
            members: BTreeMap::new(),
            waiting: 0,
            joined: 0,
            requests: 0,
            passed: [0; CLASSES.len()],
        }
    }

    /// Changes both limits. Call [`Grants::poll_grant`] afterwards.
    pub const fn set_window(&mut self, window: u64, most_held: u64) {
        (self.window, self.most_held) = (window, most_held);
    }

    /// Adds a member that may hold `memory` bytes. Returns its number.
    pub fn join(&mut self, memory: u64) -> u64 {
        self.joined += 1;
        self.members.insert(self.joined, Member::new(memory));
        self.joined
    }

    /// Removes a member, whose requests are withdrawn. It should have released everything.
    pub fn leave(&mut self, member: u64) {
        if let Some(left) = self.members.remove(&member) {
            self.waiting -= left.queues.iter().map(VecDeque::len).sum::<usize>();
        }
    }

    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Members that hold bytes or wait for some, `member` always counted.
    pub fn active(&self, member: u64) -> usize {
        let is_active = |(id, other): &(&u64, &Member<T>)| {
            **id == member || other.held > 0 || other.queues.iter().any(|queue| !queue.is_empty())
        };
        self.members.iter().filter(is_active).count()
    }

    /// Bytes in flight.
    pub const fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Bytes that `member` holds.
    pub fn held(&self, member: u64) -> u64 {
        self.members.get(&member).map_or(0, |member| member.held)
    }

    /// Bytes that `member` may hold.
    pub fn most_held(&self, member: u64) -> u64 {
        self.members.get(&member).map_or(0, |member| member.memory.min(self.most_held))
    }

    /// Whether no request waits, and `bytes` of `member` fit.
    pub fn is_free(&self, member: u64, bytes: u64) -> bool {
        self.waiting == 0 && self.fits(member, bytes)
    }

    /// Whether a request would be granted without waiting.
    pub fn would_grant(&self, member: u64, priority: Priority, bytes: u64) -> bool {
        if self.waiting == 0 {
            return self.fits(member, bytes);
        }
        // It would be the last of its class.
        let is_behind_own = self.members.get(&member).is_some_and(|member| {
            member.queues[..=priority as usize].iter().any(|queue| !queue.is_empty())
        });
        let is_before = |class: &Priority| *class <= priority || self.is_due(*class);
        let is_behind_others =
            CLASSES.into_iter().filter(is_before).any(|class| self.head(class).is_some());
        !is_behind_own && !is_behind_others && self.fits(member, bytes)
    }

    /// Grants a request if it need not wait. Returns whether it was granted.
    pub fn try_grant(&mut self, member: u64, priority: Priority, bytes: u64) -> bool {
        let is_granted = self.would_grant(member, priority, bytes);
        if is_granted {
            self.count_passed(priority);
            self.overdraw(member, bytes);
        }
        is_granted
    }

    /// Grants `bytes` even without room.
    pub fn overdraw(&mut self, member: u64, bytes: u64) {
        self.in_flight += bytes;
        if let Some(member) = self.members.get_mut(&member) {
            member.held += bytes;
        }
    }

    /// Queues a request; [`Grants::poll_grant`] returns `token` once it is granted.
    pub fn wait(&mut self, member: u64, priority: Priority, bytes: u64, token: T) -> Ticket {
        self.requests += 1;
        let number = self.requests;
        if let Some(member) = self.members.get_mut(&member) {
            member.queues[priority as usize].push_back(Request { number, bytes, token });
            self.waiting += 1;
        }
        Ticket { priority, number }
    }

    /// Withdraws a request. Returns whether it was still waiting; otherwise it was granted and must be
    /// released.
    pub fn withdraw(&mut self, member: u64, ticket: Ticket) -> bool {
        let Some(member) = self.members.get_mut(&member) else { return false };
        let queue = &mut member.queues[ticket.priority as usize];
        let Ok(at) = queue.binary_search_by_key(&ticket.number, |request| request.number) else {
            return false;
        };
        queue.remove(at);
        self.waiting -= 1;
        true
    }

    /// Grants the next request that waits, if it fits. Call it until it returns `None`, after each change.
    pub fn poll_grant(&mut self) -> Option<T> {
        if self.waiting == 0 {
            return None;
        }
        let (class, member) = self.next()?;
        let front = self.members.get(&member)?.queues[class as usize].front()?;
        let bytes = front.bytes;
        if !self.fits_window(bytes) {
            return None;
        }
        self.count_passed(class);
        let request = self.members.get_mut(&member)?.queues[class as usize].pop_front()?;
        self.waiting -= 1;
        self.overdraw(member, bytes);
        Some(request.token)
    }

    /// Releases bytes of a permit of `member`.
    pub fn release(&mut self, member: u64, in_flight: u64, held: u64) {
        self.in_flight = self.in_flight.saturating_sub(in_flight);
        if let Some(member) = self.members.get_mut(&member) {
            member.held = member.held.saturating_sub(held);
        }
    }

    /// Class and member of the next request.
    fn next(&self) -> Option<(Priority, u64)> {
        let due = CLASSES.into_iter().rev().filter(|class| self.is_due(*class));
        due.chain(CLASSES).find_map(|class| Some((class, self.head(class)?)))
    }

    /// The member whose request is the first of a class, of those whose memory has room.
    fn head(&self, class: Priority) -> Option<u64> {
        let first = |(id, member): (&u64, &Member<T>)| {
            let front = member.queues[class as usize].front()?;
            let mut before = member.queues[..=class as usize].iter().filter_map(VecDeque::front);
            let has_memory = before.all(|front| member.fits(front.bytes, self.most_held));
            has_memory.then_some((front.number, *id))
        };
        self.members.iter().filter_map(first).min().map(|(_, id)| id)
    }

    const fn is_due(&self, class: Priority) -> bool {
        self.passed[class as usize] >= PASSED_OVER
    }

    /// Counts a grant to `class`: lower classes that wait are passed over.
    fn count_passed(&mut self, class: Priority) {
        self.passed[class as usize] = 0;
        if self.waiting == 0 {
            return;
        }
        for lower in CLASSES.into_iter().filter(|lower| *lower > class) {
            if self.head(lower).is_some() {
                self.passed[lower as usize] += 1;
            }
        }
    }

    fn fits(&self, member: u64, bytes: u64) -> bool {
        let has_memory =
            self.members.get(&member).is_some_and(|member| member.fits(bytes, self.most_held));
        has_memory && self.fits_window(bytes)
    }

    /// If nothing is in flight, a range fits however long it is.
    const fn fits_window(&self, bytes: u64) -> bool {
        self.in_flight == 0 || self.in_flight.saturating_add(bytes) <= self.window
    }
}

impl<T> Member<T> {
    fn new(memory: u64) -> Self {
        Self { memory, held: 0, queues: std::array::from_fn(|_| VecDeque::new()) }
    }

    fn fits(&self, bytes: u64, most_held: u64) -> bool {
        self.held == 0 || self.held.saturating_add(bytes) <= self.memory.min(most_held)
    }
}
