//! The order of responses. READs of one handle run in parallel, and their responses are sent in the order of the
//! requests. The protocol does not require that, but OpenSSH's scp (as of 9.2p1) silently truncates a file at the first
//! response that arrives out of order.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;

/// READs whose response has not been sent, in a queue per handle.
#[derive(Debug, Default)]
pub(super) struct Turns {
    lines: HashMap<u32, VecDeque<(u32, Option<Bytes>)>>,
}

impl Turns {
    /// Adds a READ of `handle` with this request id.
    pub(super) fn begin(&mut self, handle: u32, id: u32) {
        self.lines.entry(handle).or_default().push_back((id, None));
    }

    /// Sets the response of a READ. Returns the responses that can be sent now, which may be none. A waiting
    /// response still counts against the session's budget. That cannot deadlock: the READs before it have their share.
    pub(super) fn end(&mut self, handle: u32, id: u32, packet: Bytes) -> Vec<Bytes> {
        let Some(line) = self.lines.get_mut(&handle) else { return vec![packet] };
        // If a client uses an id twice, any of its READs will do: their responses cannot be told apart.
        match line.iter_mut().find(|(of, response)| *of == id && response.is_none()) {
            Some((_, response)) => *response = Some(packet),
            None => return vec![packet],
        }
        let mut next = Vec::new();
        while let Some((_, Some(_))) = line.front() {
            next.extend(line.pop_front().and_then(|(_, response)| response));
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
    fn a_response_waits_for_those_before_it_on_the_same_handle() {
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
    fn an_id_in_use_twice_gets_two_responses() {
        let mut turns = Turns::default();
        turns.begin(1, 7);
        turns.begin(1, 7);
        let packet = Bytes::from_static(b"x");
        assert_eq!(turns.end(1, 7, packet.clone()).len(), 1);
        assert_eq!(turns.end(1, 7, packet).len(), 1);
        assert!(turns.lines.is_empty());
    }
}
