//! Whose answer is next. READs of one handle are done side by side and answered in the order in which
//! they came. The protocol does not ask for that, but OpenSSH's scp, as of 9.2p1, cuts a file off
//! at the first answer that comes before its time, and says nothing.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;

/// READs that are not answered, a line a handle.
#[derive(Debug, Default)]
pub(super) struct Turns {
    lines: HashMap<u32, VecDeque<(u32, Option<Bytes>)>>,
}

impl Turns {
    /// A READ of `handle` with this id has begun.
    pub(super) fn begin(&mut self, handle: u32, id: u32) {
        self.lines.entry(handle).or_default().push_back((id, None));
    }

    /// It has ended: the answers whose turn it is now, which may be none. An answer that waits keeps
    /// its place in the budget; those before it have theirs, so they get done.
    pub(super) fn end(&mut self, handle: u32, id: u32, packet: Bytes) -> Vec<Bytes> {
        let Some(line) = self.lines.get_mut(&handle) else { return vec![packet] };
        // An id that is in use twice is the client's affair: the answers are told apart by nobody.
        match line.iter_mut().find(|(of, answer)| *of == id && answer.is_none()) {
            Some((_, answer)) => *answer = Some(packet),
            None => return vec![packet],
        }
        let mut next = Vec::new();
        while let Some((_, Some(_))) = line.front() {
            next.extend(line.pop_front().and_then(|(_, answer)| answer));
        }
        if line.is_empty() {
            self.lines.remove(&handle);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_wait_for_those_before_them_on_the_same_handle() {
        let mut turns = Turns::default();
        for (handle, id) in [(1, 10), (1, 11), (2, 12), (1, 13)] {
            turns.begin(handle, id);
        }
        let packet = |text: &'static str| Bytes::from_static(text.as_bytes());
        assert!(turns.end(1, 13, packet("c")).is_empty());
        assert_eq!(turns.end(2, 12, packet("other")), ["other"]);
        assert!(turns.end(1, 11, packet("b")).is_empty());
        assert_eq!(turns.end(1, 10, packet("a")), ["a", "b", "c"]);
        assert!(turns.lines.is_empty());
    }

    #[test]
    fn an_id_in_use_twice_is_answered_twice() {
        let mut turns = Turns::default();
        turns.begin(1, 7);
        turns.begin(1, 7);
        let packet = Bytes::from_static(b"x");
        assert_eq!(turns.end(1, 7, packet.clone()).len(), 1);
        assert_eq!(turns.end(1, 7, packet).len(), 1);
        assert!(turns.lines.is_empty());
    }
}
