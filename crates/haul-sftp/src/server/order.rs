//! Decides which requests of a session may run now.
//!
//! A client may send many requests without waiting, and those on one file must be executed in the order in
//! which they were sent (draft-ietf-secsh-filexfer-02, section 6.1). So:
//!
//! - On one handle, reads (READ, FSTAT) run concurrently; a change (WRITE, FSETSTAT, FSYNC, CLOSE)
//!   waits for all earlier requests, and later ones wait for it. The same holds for requests that
//!   only change the handle's state (READDIR, CLOSE of a handle that was not opened for writing),
//!   but reads by name do not wait for them.
//! - Reads by name run concurrently, but after all earlier changes, by name or by handle, and before
//!   all later ones: two names, or a name and a handle, may be the same file, and only the kernel
//!   knows.
//! - A change by name waits for all earlier requests, and later ones wait for it.
//!
//! The implementation is a queue of *phases*: requests whose classes are compatible. Only the first
//! phase runs; within it each handle has a queue of its own (`Line`). Each request takes constant
//! time, amortized.
//!
//! A state machine without I/O: requests go in, those that may start come out.

use std::collections::{HashMap, VecDeque};

/// What a request accesses, and whether it changes that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// Reads through a handle.
    Read(u32),
    /// Changes the state of a handle, but no file.
    Advance(u32),
    /// Changes the file of a handle.
    Write(u32),
    /// Reads by name.
    ReadNames,
    /// Changes by name, or anything else that excludes all others.
    WriteNames,
}

impl Scope {
    const fn class(self) -> u8 {
        match self {
            Self::Read(_) | Self::Advance(_) => READ,
            Self::Write(_) => WRITE,
            Self::ReadNames => NAMES,
            Self::WriteNames => ALONE,
        }
    }

    const fn handle(self) -> Option<u32> {
        match self {
            Self::Read(handle) | Self::Advance(handle) | Self::Write(handle) => Some(handle),
            Self::ReadNames | Self::WriteNames => None,
        }
    }

    const fn is_read(self) -> bool {
        matches!(self, Self::Read(_))
    }
}

const READ: u8 = 1;
const WRITE: u8 = 2;
const NAMES: u8 = 4;
const ALONE: u8 = 8;

/// The unfinished requests of a session.
#[derive(Debug)]
pub(super) struct Order<T> {
    phases: VecDeque<Phase<T>>,
    /// Queues of handles with running requests, in the first phase.
    lines: HashMap<u32, Line<T>>,
    /// Number of unfinished requests in the first phase.
    unfinished: usize,
}

#[derive(Debug)]
struct Phase<T> {
    classes: u8,
    /// Its requests; empty in the first phase, whose requests are running or in a `Line`.
    requests: Vec<(Scope, T)>,
}

#[derive(Debug)]
struct Line<T> {
    reading: usize,
    writing: usize,
    waiting: VecDeque<(Scope, T)>,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self { reading: 0, writing: 0, waiting: VecDeque::new() }
    }
}

impl<T> Default for Order<T> {
    fn default() -> Self {
        Self { phases: VecDeque::new(), lines: HashMap::new(), unfinished: 0 }
    }
}

impl<T> Order<T> {
    /// Whether all requests have finished.
    pub(super) fn is_empty(&self) -> bool {
        self.phases.is_empty()
    }

    /// Adds a request; requests that may start are appended to `ready`.
    pub(super) fn push(&mut self, scope: Scope, request: T, ready: &mut Vec<T>) {
        match self.phases.back_mut() {
            Some(last) if compatible(last.classes, scope.class()) => {
                last.classes |= scope.class();
                if self.phases.len() == 1 {
                    self.enter(scope, request, ready);
                } else if let Some(last) = self.phases.back_mut() {
                    last.requests.push((scope, request));
                }
            }
            Some(_) => {
                let requests = vec![(scope, request)];
                self.phases.push_back(Phase { classes: scope.class(), requests });
            }
            None => {
                self.phases.push_back(Phase { classes: scope.class(), requests: Vec::new() });
                self.enter(scope, request, ready);
            }
        }
    }

    /// Takes the next request of a handle with a running change, if that is a change, too, and
    /// `joins` permits executing both together. It counts as started.
    pub(super) fn join(&mut self, handle: u32, joins: impl FnOnce(&T) -> bool) -> Option<T> {
        let line = self.lines.get_mut(&handle)?;
        let (scope, request) = line.waiting.front()?;
        if line.writing == 0 || scope.is_read() || !joins(request) {
            return None;
        }
        line.writing += 1;
        line.waiting.pop_front().map(|(_, request)| request)
    }

    /// Notes that a request has finished; requests that may start now are appended to `ready`.
    pub(super) fn finish(&mut self, scope: Scope, ready: &mut Vec<T>) {
        if let Some(handle) = scope.handle()
            && let Some(line) = self.lines.get_mut(&handle)
        {
            if scope.is_read() {
                line.reading -= 1;
            } else {
                line.writing -= 1;
            }
            line.advance(ready);
            if line.is_idle() {
                self.lines.remove(&handle);
            }
        }
        self.unfinished -= 1;
        if self.unfinished == 0 {
            self.phases.pop_front();
            let next = self.phases.front_mut().map(|phase| std::mem::take(&mut phase.requests));
            for (scope, request) in next.unwrap_or_default() {
                self.enter(scope, request, ready);
            }
        }
    }

    /// Adds a request to the first phase.
    fn enter(&mut self, scope: Scope, request: T, ready: &mut Vec<T>) {
        self.unfinished += 1;
        let Some(handle) = scope.handle() else { return ready.push(request) };
        let line = self.lines.entry(handle).or_default();
        line.waiting.push_back((scope, request));
        line.advance(ready);
    }
}

impl<T> Line<T> {
    const fn is_idle(&self) -> bool {
        self.reading == 0 && self.writing == 0
    }

    fn advance(&mut self, ready: &mut Vec<T>) {
        while let Some((scope, _)) = self.waiting.front() {
            let is_read = scope.is_read();
            if self.writing > 0 || (!is_read && self.reading > 0) {
                return;
            }
            if is_read {
                self.reading += 1;
            } else {
                self.writing += 1;
            }
            ready.extend(self.waiting.pop_front().map(|(_, request)| request));
        }
    }
}

/// Whether a request of this class may join a phase with these classes.
const fn compatible(classes: u8, class: u8) -> bool {
    let apart = match class {
        READ => ALONE,
        WRITE => ALONE | NAMES,
        NAMES => ALONE | WRITE,
        _ => ALONE | NAMES | WRITE | READ,
    };
    classes & apart == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn started(order: &mut Order<usize>, scope: Scope, request: usize) -> Vec<usize> {
        let mut ready = Vec::new();
        order.push(scope, request, &mut ready);
        ready
    }

    fn freed(order: &mut Order<usize>, scope: Scope) -> Vec<usize> {
        let mut ready = Vec::new();
        order.finish(scope, &mut ready);
        ready
    }

    #[test]
    fn reads_of_a_handle_run_at_once_and_a_write_waits_for_them() {
        let mut order = Order::default();
        assert_eq!(started(&mut order, Scope::Read(1), 0), [0]);
        assert_eq!(started(&mut order, Scope::Read(1), 1), [1]);
        assert!(started(&mut order, Scope::Write(1), 2).is_empty());
        assert!(started(&mut order, Scope::Read(1), 3).is_empty());
        assert_eq!(started(&mut order, Scope::Write(2), 4), [4]);
        assert!(freed(&mut order, Scope::Read(1)).is_empty());
        assert_eq!(freed(&mut order, Scope::Read(1)), [2]);
        assert_eq!(freed(&mut order, Scope::Write(1)), [3]);
    }

    #[test]
    fn a_rename_waits_for_the_close_before_it() {
        let mut order = Order::default();
        assert_eq!(started(&mut order, Scope::Write(1), 0), [0]);
        assert!(started(&mut order, Scope::WriteNames, 1).is_empty());
        assert!(started(&mut order, Scope::ReadNames, 2).is_empty());
        assert!(started(&mut order, Scope::Write(2), 3).is_empty());
        assert_eq!(freed(&mut order, Scope::Write(1)), [1]);
        assert_eq!(freed(&mut order, Scope::WriteNames), [2]);
        assert_eq!(freed(&mut order, Scope::ReadNames), [3]);
        assert!(freed(&mut order, Scope::Write(2)).is_empty());
        assert!(order.is_empty());
    }

    #[test]
    fn only_a_change_right_after_a_running_change_can_join_it() {
        let mut order = Order::default();
        started(&mut order, Scope::Write(1), 0);
        started(&mut order, Scope::Write(1), 1);
        started(&mut order, Scope::Read(1), 2);
        started(&mut order, Scope::Write(1), 3);
        assert_eq!(order.join(1, |request| *request == 9), None);
        assert_eq!(order.join(1, |_| true), Some(1));
        assert_eq!(order.join(1, |_| true), None, "a read is between them");
        assert!(freed(&mut order, Scope::Write(1)).is_empty());
        assert_eq!(freed(&mut order, Scope::Write(1)), [2]);
    }

    fn scopes() -> impl Strategy<Value = Scope> {
        prop_oneof![
            4 => (0..3u32).prop_map(Scope::Read),
            4 => (0..3u32).prop_map(Scope::Write),
            1 => (0..3u32).prop_map(Scope::Advance),
            2 => Just(Scope::ReadNames),
            1 => Just(Scope::WriteNames),
        ]
    }

    /// Whether the later of two requests must wait for the earlier one, by definition.
    fn conflict(a: Scope, b: Scope) -> bool {
        use Scope::*;
        match (a, b) {
            (WriteNames, _) | (_, WriteNames) => true,
            (ReadNames, Write(_)) | (Write(_), ReadNames) => true,
            (Write(a) | Advance(a), Write(b) | Advance(b) | Read(b))
            | (Read(a), Write(b) | Advance(b)) => a == b,
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn conflicting_requests_run_in_order_and_all_requests_run(
            requests in proptest::collection::vec((scopes(), any::<bool>(), any::<proptest::sample::Index>()), 1..60),
        ) {
            let mut order = Order::default();
            let mut running: Vec<usize> = Vec::new();
            let mut ended = vec![false; requests.len()];
            let scope_of = |n: usize| requests[n].0;
            let check = |ready: &[usize], ended: &[bool]| {
                for n in ready {
                    for (earlier, ended) in ended.iter().enumerate().take(*n) {
                        assert!(*ended || !conflict(scope_of(earlier), scope_of(*n)));
                    }
                }
            };
            for (n, (scope, finishes, which)) in requests.iter().enumerate() {
                let ready = started(&mut order, *scope, n);
                check(&ready, &ended);
                running.extend(ready);
                if *finishes && !running.is_empty() {
                    let done = running.swap_remove(which.index(running.len()));
                    ended[done] = true;
                    let ready = freed(&mut order, scope_of(done));
                    check(&ready, &ended);
                    running.extend(ready);
                }
            }
            while let Some(done) = running.pop() {
                ended[done] = true;
                let ready = freed(&mut order, scope_of(done));
                check(&ready, &ended);
                running.extend(ready);
            }
            prop_assert!(ended.iter().all(|ended| *ended));
            prop_assert!(order.is_empty());
        }
    }
}
