//! The queue of one direction: bytes in order, and the end of the stream after them.
//!
//! `flow` appends bytes that were read, with the time at which they have passed the links, and removes bytes that were
//! delivered. `flow` also decides when bytes may leave.

use std::collections::VecDeque;
use std::time::Instant;

/// A queue of bytes that counts its memory.
#[derive(Debug, Default)]
pub(crate) struct Line {
    items: VecDeque<Item>,
    bytes_used: usize,
}

/// Bytes that were read at once, or the end of the stream.
#[derive(Debug)]
pub(crate) struct Item {
    /// Offset of the first byte in the stream.
    pub(crate) at: u64,
    /// When it has passed all links; delays are added to this.
    pub(crate) ready: Instant,
    pub(crate) content: Content,
}

#[derive(Debug)]
pub(crate) enum Content {
    /// Bytes, and the number of those that have left already.
    Data(Vec<u8>, usize),
    /// The sending side has ended its stream.
    Fin,
    /// The sending side has reset the connection.
    Reset,
}

impl Line {
    /// Memory of an item in addition to its bytes.
    pub(crate) const OVERHEAD: usize = size_of::<Item>();

    pub(crate) fn push(&mut self, item: Item) {
        self.bytes_used += cost(&item);
        self.items.push_back(item);
    }

    /// Used memory in bytes. The front item counts in full until all of its bytes have left.
    pub(crate) const fn bytes_used(&self) -> usize {
        self.bytes_used
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(crate) fn front(&self) -> Option<&Item> {
        self.items.front()
    }

    /// The bytes at the front that have not left yet.
    pub(crate) fn front_data(&mut self) -> Option<&mut [u8]> {
        match &mut self.items.front_mut()?.content {
            Content::Data(data, left) => data.get_mut(*left..),
            Content::Fin | Content::Reset => None,
        }
    }

    /// Removes the first `count` bytes of [`Line::front_data`], which have left.
    pub(crate) fn advance(&mut self, count: usize) {
        if let Some(Item { content: Content::Data(data, left), .. }) = self.items.front_mut() {
            *left += count;
            if *left >= data.len()
                && let Some(item) = self.items.pop_front()
            {
                self.bytes_used -= cost(&item);
            }
        }
    }

    /// Drops everything but a reset.
    pub(crate) fn retain_reset(&mut self) {
        self.items.retain(|item| matches!(item.content, Content::Reset));
        self.bytes_used = self.items.iter().map(cost).sum();
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

fn cost(item: &Item) -> usize {
    Line::OVERHEAD
        + match &item.content {
            Content::Data(data, _) => data.capacity(),
            Content::Fin | Content::Reset => 0,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(at: u64, bytes: &[u8]) -> Item {
        Item { at, ready: Instant::now(), content: Content::Data(bytes.to_vec(), 0) }
    }

    #[test]
    fn bytes_leave_in_order_and_in_any_portions() {
        let mut line = Line::default();
        line.push(data(0, b"abc"));
        line.push(data(3, b"de"));
        let mut seen = Vec::new();
        while let Some(front) = line.front_data() {
            let portion = front.len().min(2);
            seen.extend_from_slice(&front[..portion]);
            line.advance(portion);
        }
        assert_eq!(seen, b"abcde");
    }

    #[test]
    fn memory_is_released_when_a_whole_item_has_left() {
        let mut line = Line::default();
        line.push(data(0, &[1; 100]));
        line.push(data(100, &[2; 50]));
        assert_eq!(line.bytes_used(), 150 + 2 * Line::OVERHEAD);
        line.advance(99);
        assert_eq!(line.bytes_used(), 150 + 2 * Line::OVERHEAD);
        line.advance(1);
        assert_eq!(line.bytes_used(), 50 + Line::OVERHEAD);
        line.clear();
        assert_eq!(line.bytes_used(), 0);
    }
}
