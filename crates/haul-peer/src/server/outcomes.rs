//! Outcomes of requests that must not be executed twice. A client whose lane was lost does not know whether such a
//! request has been executed, and sends it again with the same number: then the server responds with the outcome.
//!
//! ```text
//!  request → running → known → (Answered) forgotten, or over if copies of the request may still arrive
//!               └───────┴──→ (Cancel) over
//! ```

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;

use super::limits;

/// What to do with a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// Execute it.
    Execute,
    /// Nothing: another copy runs or was executed. The response goes to the lane of the last repetition.
    Runs,
    /// Send this response.
    Respond(Bytes),
    /// Refuse it: it was cancelled or confirmed, its number is in use, or its outcome is not stored any longer.
    Refuse,
}

/// What a request has opened.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Opened {
    /// It still runs.
    Running,
    /// The file with this number.
    File(u32),
    /// It has failed, or is not known.
    Nothing,
}

/// The outcomes of a session's requests.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    requests: HashMap<u32, Request>,
    /// Requests that do not run, in the order in which they ended.
    ended: BTreeMap<u64, u32>,
    next: u64,
    /// Bytes of stored responses.
    bytes: usize,
    /// The highest number (numbers wrap around) of a request whose outcome was forgotten for lack of room.
    forgotten: Option<u32>,
}

#[derive(Debug)]
struct Request {
    /// Whether it came as a repetition: then the first copy may still arrive.
    again: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    Running {
        /// Where the response goes.
        lane: u64,
    },
    Known {
        /// Its key in `ended`.
        at: u64,
        response: Bytes,
        /// The file that it has opened.
        opened: Option<u32>,
    },
    /// The client has cancelled it, or has the response while copies may still arrive. It is not executed again.
    Over { at: u64 },
}

impl Outcomes {
    /// Decides what to do with a request that has arrived, or arrived `again`.
    pub(super) fn begin(&mut self, id: u32, lane: u64, again: bool) -> Begin {
        let is_forgotten = again && self.is_forgotten(id);
        match self.requests.get_mut(&id) {
            Some(request) => match &mut request.state {
                State::Over { .. } => return Begin::Refuse,
                State::Running { lane: responds } if again => {
                    *responds = lane;
                    return Begin::Runs;
                }
                State::Known { response, .. } if again => return Begin::Respond(response.clone()),
                // The first copy, behind a repetition.
                _ if request.again => return Begin::Runs,
                // A number in use twice.
                State::Running { .. } => return Begin::Refuse,
                // A new request with the number of an old one, whose Answered was lost.
                State::Known { .. } => {}
            },
            None if is_forgotten => return Begin::Refuse,
            None => {}
        }
        self.set(id, Request { again, state: State::Running { lane } });
        Begin::Execute
    }

    /// Stores the outcome of a request that runs. Returns the lane for the response; `None` if the client has cancelled
    /// the request.
    pub(super) fn finish(&mut self, id: u32, response: &Bytes, opened: Option<u32>) -> Option<u64> {
        let Some(Request { again, state: State::Running { lane } }) = self.requests.get(&id) else {
            return None;
        };
        let (again, lane, at) = (*again, *lane, self.next());
        let state = State::Known { at, response: response.clone(), opened };
        self.set(id, Request { again, state });
        Some(lane)
    }

    /// What a request has opened.
    pub(super) fn opened(&self, id: u32) -> Opened {
        match self.requests.get(&id) {
            Some(Request { state: State::Running { .. }, .. }) => Opened::Running,
            Some(Request { state: State::Known { opened: Some(handle), .. }, .. }) => {
                Opened::File(*handle)
            }
            _ => Opened::Nothing,
        }
    }

    /// Forgets a request whose task has ended without an outcome.
    pub(super) fn drop_running(&mut self, id: u32) {
        if matches!(self.requests.get(&id), Some(Request { state: State::Running { .. }, .. })) {
            self.requests.remove(&id);
        }
    }

    /// Forgets an outcome that the client has received. With `repeated`, further copies of the request are refused.
    pub(super) fn confirmed(&mut self, id: u32, repeated: bool) {
        let again = match self.requests.get(&id) {
            // It has no response yet.
            Some(Request { state: State::Running { .. }, .. }) => return,
            Some(request) => repeated || request.again,
            None => repeated,
        };
        match again {
            true => self.end(id),
            false => drop(self.remove(id)),
        }
    }

    /// Cancels a request, which may not have arrived yet. Returns the file that it has opened.
    pub(super) fn cancel(&mut self, id: u32) -> Option<u32> {
        let opened = match self.requests.get(&id) {
            Some(Request { state: State::Known { opened, .. }, .. }) => *opened,
            _ => None,
        };
        self.end(id);
        opened
    }

    fn end(&mut self, id: u32) {
        let state = State::Over { at: self.next() };
        self.set(id, Request { again: true, state });
    }

    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Sets the state of a request; forgets the oldest ones if there is no room.
    fn set(&mut self, id: u32, request: Request) {
        self.remove(id);
        match &request.state {
            State::Running { .. } => {}
            State::Known { at, response, .. } => {
                self.ended.insert(*at, id);
                self.bytes += response.len();
            }
            State::Over { at } => {
                self.ended.insert(*at, id);
            }
        }
        self.requests.insert(id, request);
        while self.ended.len() > limits::OUTCOMES || self.bytes > limits::OUTCOMES_BYTES {
            let Some((_, oldest)) = self.ended.first_key_value() else { break };
            let oldest = *oldest;
            // Outcomes end in another order than that of their numbers: the highest number counts.
            if matches!(self.remove(oldest), Some(State::Known { .. }))
                && !self.is_forgotten(oldest)
            {
                self.forgotten = Some(oldest);
            }
        }
    }

    fn remove(&mut self, id: u32) -> Option<State> {
        let state = self.requests.remove(&id)?.state;
        match &state {
            State::Running { .. } => {}
            State::Known { at, response, .. } => {
                self.ended.remove(at);
                self.bytes -= response.len();
            }
            State::Over { at } => {
                self.ended.remove(at);
            }
        }
        Some(state)
    }

    /// Whether a request may have been executed, and its outcome forgotten: numbers grow, and wrap around.
    fn is_forgotten(&self, id: u32) -> bool {
        self.forgotten.is_some_and(|last| last.wrapping_sub(id) < 1 << 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn a_repeated_request_gets_the_outcome_of_the_first_copy() {
        let mut outcomes = Outcomes::default();
        assert_eq!(outcomes.begin(1, 10, false), Begin::Execute);
        assert_eq!(outcomes.begin(1, 11, true), Begin::Runs);
        assert_eq!(outcomes.finish(1, &response("done"), None), Some(11));
        assert_eq!(outcomes.begin(1, 12, true), Begin::Respond(response("done")));
        outcomes.confirmed(1, true);
        // A copy that was delayed on its lane.
        assert_eq!(outcomes.begin(1, 11, true), Begin::Refuse);
    }

    #[test]
    fn a_first_copy_behind_its_repetition_is_not_executed() {
        let mut outcomes = Outcomes::default();
        assert_eq!(outcomes.begin(1, 10, true), Begin::Execute);
        assert_eq!(outcomes.begin(1, 9, false), Begin::Runs);
        assert_eq!(outcomes.finish(1, &response("done"), None), Some(10));
        assert_eq!(outcomes.begin(1, 9, false), Begin::Runs);
        outcomes.confirmed(1, false);
        assert_eq!(outcomes.begin(1, 9, false), Begin::Refuse);
    }

    #[test]
    fn confirmed_outcomes_are_forgotten() {
        let mut outcomes = Outcomes::default();
        for id in 1..100 {
            assert_eq!(outcomes.begin(id, 0, false), Begin::Execute);
            assert_eq!(outcomes.finish(id, &response("done"), None), Some(0));
            outcomes.confirmed(id, false);
        }
        assert!(outcomes.requests.is_empty() && outcomes.ended.is_empty());
        assert_eq!(outcomes.bytes, 0);
    }

    #[test]
    fn a_cancelled_request_is_not_executed_and_its_file_is_returned() {
        let mut outcomes = Outcomes::default();
        outcomes.begin(1, 0, false);
        outcomes.finish(1, &response("opened"), Some(7));
        assert_eq!(outcomes.cancel(1), Some(7));
        assert_eq!(outcomes.cancel(1), None);
        // One that runs closes its file itself.
        outcomes.begin(2, 0, false);
        assert_eq!(outcomes.cancel(2), None);
        assert_eq!(outcomes.finish(2, &response("opened"), Some(8)), None);
        // One that has not arrived yet.
        assert_eq!(outcomes.cancel(3), None);
        for id in 1..=3 {
            assert_eq!(outcomes.begin(id, 0, false), Begin::Refuse);
        }
    }

    #[test]
    fn a_client_that_confirms_nothing_cannot_fill_the_memory() {
        let mut outcomes = Outcomes::default();
        let long = Bytes::from(vec![0; 100_000]);
        for id in 1..=1000 {
            assert_eq!(outcomes.begin(id, 0, false), Begin::Execute);
            outcomes.finish(id, &long, None);
        }
        assert!(outcomes.bytes <= limits::OUTCOMES_BYTES);
        assert_eq!(outcomes.begin(1000, 0, true), Begin::Respond(long));
        // It may have been executed.
        assert_eq!(outcomes.begin(1, 0, true), Begin::Refuse);
        assert_eq!(outcomes.begin(1001, 0, true), Begin::Execute);
        for id in 0..100_000 {
            outcomes.cancel(id);
        }
        assert!(outcomes.requests.len() <= limits::OUTCOMES + 1);
    }

    #[test]
    fn a_forgotten_request_stays_refused_when_one_with_a_lower_number_is_forgotten_later() {
        let mut outcomes = Outcomes::default();
        let long = Bytes::from(vec![0; limits::OUTCOMES_BYTES / 2 + 1]);
        outcomes.begin(1, 0, false);
        outcomes.begin(2, 0, false);
        for id in [2, 1, 3] {
            outcomes.begin(id, 0, false);
            outcomes.finish(id, &long, None);
        }
        assert_eq!(outcomes.begin(1, 0, true), Begin::Refuse);
        assert_eq!(outcomes.begin(2, 0, true), Begin::Refuse);
    }

    #[test]
    fn a_request_whose_task_was_dropped_may_be_repeated() {
        let mut outcomes = Outcomes::default();
        outcomes.begin(1, 0, false);
        outcomes.drop_running(1);
        assert_eq!(outcomes.begin(1, 0, true), Begin::Execute);
    }
}
