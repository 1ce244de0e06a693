//! Sorts items, a bounded number of them at a time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::plan::Item;
use crate::{Order, OrderBy};

/// The most items that wait to be sorted. A tree with no more files is fully sorted, except for items that leave
/// earlier because the plan waits for them; in a larger one the next item is the first of at most this many. At about
/// 500 bytes an item that is 5 MB.
pub const ORDERED: usize = 10_000;

/// Items, of which the first in order is taken next.
#[derive(Debug)]
pub struct Queue {
    order: Order,
    waiting: BinaryHeap<Ranked>,
    next: u64,
}

#[derive(Debug)]
struct Ranked {
    order: Order,
    /// The order of arrival, for items that are equal otherwise.
    number: u64,
    item: Item,
}

impl Queue {
    /// An empty queue.
    pub fn new(order: Order) -> Self {
        Self { order, waiting: BinaryHeap::new(), next: 0 }
    }

    /// Adds an item.
    pub fn push(&mut self, item: Item) {
        self.waiting.push(Ranked { order: self.order, number: self.next, item });
        self.next += 1;
    }

    /// Takes the first item in order.
    pub fn pop(&mut self) -> Option<Item> {
        self.waiting.pop().map(|ranked| ranked.item)
    }

    /// How many items wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }
}

impl Order {
    fn compare(self, one: &Item, other: &Item) -> Ordering {
        let found = match self.by {
            // An unknown length counts as the longest.
            OrderBy::Size => one.source.size.cmp(&other.source.size),
            OrderBy::Name => one.destination.cmp(&other.destination),
            OrderBy::Time => one.source.modified.cmp(&other.source.modified),
        };
        if self.reverse { found.reverse() } else { found }
    }
}

/// The greatest is the one that is taken first.
impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        let found = self.order.compare(&self.item, &other.item);
        found.then(self.number.cmp(&other.number)).reverse()
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ranked {}
