//! Compares the queue with a model of its rules.

use proptest::prelude::*;
use proptest::sample::Index;

use super::super::grants::{Grants, PASSED_OVER, Priority, Ticket};

const CLASSES: [Priority; 3] = [Priority::Interactive, Priority::ReadAhead, Priority::Bulk];

#[derive(Debug, Clone)]
enum Step {
    Request(Index, Priority, u64),
    Try(Index, Priority, u64),
    Withdraw(Index),
    Arrived(Index, u64),
    Released(Index),
    Overdraw(Index, u64),
    Window(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let class = || prop::sample::select(&CLASSES[..]);
    prop_oneof![
        6 => (any::<Index>(), class(), 1..200u64).prop_map(|(m, c, b)| Step::Request(m, c, b)),
        3 => (any::<Index>(), class(), 1..200u64).prop_map(|(m, c, b)| Step::Try(m, c, b)),
        1 => any::<Index>().prop_map(Step::Withdraw),
        4 => (any::<Index>(), 1..200u64).prop_map(|(at, bytes)| Step::Arrived(at, bytes)),
        6 => any::<Index>().prop_map(Step::Released),
        1 => (any::<Index>(), 1..100u64).prop_map(|(m, bytes)| Step::Overdraw(m, bytes)),
        1 => (1..600u64).prop_map(Step::Window),
    ]
}

#[derive(Debug, Clone)]
struct Queued {
    number: usize,
    member: usize,
    class: Priority,
    bytes: u64,
    ticket: Ticket,
}

/// One grant to a member: its bytes that are still in flight, and those that are still held.
#[derive(Debug, Clone, Copy)]
struct Granted {
    member: usize,
    in_flight: u64,
    held: u64,
}

struct Model {
    grants: Grants<usize>,
    window: u64,
    most_held: u64,
    members: Vec<(u64, u64)>,
    waiting: Vec<Queued>,
    granted: Vec<Granted>,
    queued: usize,
    /// Grants to higher classes while each class had a request that fits its member's memory.
    passed: [u32; 3],
}

impl Model {
    fn new(window: u64, memories: &[u64]) -> Self {
        let most_held = window * 2;
        let mut grants = Grants::new(window, most_held);
        let members = memories.iter().map(|memory| (grants.join(*memory), *memory)).collect();
        let (waiting, granted) = (Vec::new(), Vec::new());
        Self { grants, window, most_held, members, waiting, granted, queued: 0, passed: [0; 3] }
    }

    fn in_flight(&self) -> u64 {
        self.granted.iter().map(|granted| granted.in_flight).sum()
    }

    fn held(&self, member: usize) -> u64 {
        self.granted
            .iter()
            .filter(|granted| granted.member == member)
            .map(|granted| granted.held)
            .sum()
    }

    fn fits_window(&self, bytes: u64) -> bool {
        self.in_flight() == 0 || self.in_flight() + bytes <= self.window
    }

    fn fits_memory(&self, member: usize, bytes: u64) -> bool {
        let most = self.members[member].1.min(self.most_held);
        self.held(member) == 0 || self.held(member) + bytes <= most
    }

    /// The first request of a class whose member has memory for its own first request in this class and in
    /// each higher one.
    fn first(&self, class: Priority) -> Option<&Queued> {
        let blocked = |queued: &Queued| {
            let firsts =
                CLASSES.into_iter().filter(|higher| *higher <= class).filter_map(|higher| {
                    self.waiting
                        .iter()
                        .find(|one| one.member == queued.member && one.class == higher)
                });
            firsts.into_iter().any(|one| !self.fits_memory(one.member, one.bytes))
        };
        self.waiting.iter().filter(|queued| queued.class == class).find(|queued| !blocked(queued))
    }

    /// Checks that a grant follows the rules, and records it.
    fn grant(&mut self, member: usize, class: Priority, bytes: u64) {
        assert!(self.fits_window(bytes), "beyond the window");
        assert!(self.fits_memory(member, bytes), "beyond the memory");
        for higher in CLASSES.into_iter().filter(|higher| *higher < class) {
            let waits = self.first(higher).is_some();
            assert!(
                !waits || self.passed[class as usize] >= PASSED_OVER,
                "{class:?} is granted before {higher:?}"
            );
        }
        self.passed[class as usize] = 0;
        for lower in CLASSES.into_iter().filter(|lower| *lower > class) {
            if self.first(lower).is_some() {
                self.passed[lower as usize] += 1;
                assert!(self.passed[lower as usize] <= PASSED_OVER, "{lower:?} is starved");
            }
        }
        self.granted.push(Granted { member, in_flight: bytes, held: bytes });
    }

    fn drain(&mut self) {
        while let Some(number) = self.grants.poll_grant() {
            let at = self.waiting.iter().position(|queued| queued.number == number).unwrap();
            let queued = self.waiting[at].clone();
            let first = self.first(queued.class).unwrap().number;
            assert_eq!(number, first, "not in the order queued");
            self.grant(queued.member, queued.class, queued.bytes);
            self.waiting.remove(at);
        }
        let waits = CLASSES.into_iter().any(|class| self.first(class).is_some());
        assert!(self.in_flight() > 0 || !waits, "nothing is in flight, and something waits");
        assert_eq!(self.grants.in_flight(), self.in_flight());
        for (at, (id, _)) in self.members.iter().enumerate() {
            assert_eq!(self.grants.held(*id), self.held(at));
        }
    }

    fn release(&mut self, at: usize, in_flight: u64, held: u64) {
        let granted = &mut self.granted[at];
        granted.in_flight -= in_flight;
        granted.held -= held;
        let member = self.members[granted.member].0;
        self.grants.release(member, in_flight, held);
        self.granted.retain(|granted| granted.held > 0 || granted.in_flight > 0);
        self.drain();
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Request(member, class, bytes) => {
                let member = member.index(self.members.len());
                let number = self.queued;
                self.queued += 1;
                let ticket = self.grants.wait(self.members[member].0, *class, *bytes, number);
                let (class, bytes) = (*class, *bytes);
                self.waiting.push(Queued { number, member, class, bytes, ticket });
            }
            Step::Try(member, class, bytes) => {
                let member = member.index(self.members.len());
                if self.grants.try_grant(self.members[member].0, *class, *bytes) {
                    assert!(self.first(*class).is_none(), "granted before a queued request");
                    self.grant(member, *class, *bytes);
                }
            }
            Step::Withdraw(at) if !self.waiting.is_empty() => {
                let queued = self.waiting.remove(at.index(self.waiting.len()));
                let member = self.members[queued.member].0;
                assert!(self.grants.withdraw(member, queued.ticket));
                assert!(!self.grants.withdraw(member, queued.ticket), "withdrawn twice");
            }
            Step::Arrived(at, bytes) if !self.granted.is_empty() => {
                let at = at.index(self.granted.len());
                return self.release(at, (*bytes).min(self.granted[at].in_flight), 0);
            }
            Step::Released(at) if !self.granted.is_empty() => {
                let at = at.index(self.granted.len());
                let Granted { in_flight, held, .. } = self.granted[at];
                return self.release(at, in_flight, held);
            }
            Step::Overdraw(member, bytes) => {
                let member = member.index(self.members.len());
                self.grants.overdraw(self.members[member].0, *bytes);
                self.granted.push(Granted { member, in_flight: *bytes, held: *bytes });
            }
            Step::Window(window) => {
                (self.window, self.most_held) = (*window, window * 2);
                self.grants.set_window(self.window, self.most_held);
            }
            Step::Withdraw(_) | Step::Arrived(..) | Step::Released(_) => {}
        }
        self.drain();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// No grant exceeds window or memory; grants go by priority, then in order; no class is passed over more
    /// than seven times in a row; in the end everything is granted.
    #[test]
    fn grants_follow_the_rules(
        window in 1u64..600,
        memories in prop::collection::vec(1u64..800, 1..4),
        steps in prop::collection::vec(step(), 0..300),
    ) {
        let mut model = Model::new(window, &memories);
        for step in &steps {
            model.step(step);
        }
        while !model.granted.is_empty() {
            let Granted { in_flight, held, .. } = model.granted[0];
            model.release(0, in_flight, held);
        }
        prop_assert!(model.waiting.is_empty(), "never granted: {:?}", model.waiting);
        prop_assert_eq!(model.grants.in_flight(), 0);
    }
}

/// Queues requests of which one fits at a time; returns the classes in the order of their grants.
fn order(queued: &[(Priority, usize)]) -> Vec<Priority> {
    let mut grants = Grants::new(1, 1);
    let member = grants.join(1);
    assert!(grants.try_grant(member, Priority::Bulk, 1));
    for (class, times) in queued {
        (0..*times).for_each(|_| _ = grants.wait(member, *class, 1, *class));
    }
    std::iter::from_fn(|| {
        grants.release(member, 1, 1);
        grants.poll_grant()
    })
    .collect()
}

#[test]
fn one_grant_of_eight_goes_to_a_lower_class() {
    use Priority::{Bulk, Interactive};
    let order = order(&[(Bulk, 3), (Interactive, 20)]);
    let bulk: Vec<_> = (0..order.len()).filter(|at| order[*at] == Bulk).collect();
    assert_eq!(bulk, [7, 15, 22]);
}

#[test]
fn no_class_is_starved() {
    use Priority::{Bulk, Interactive, ReadAhead};
    let order = order(&[(Bulk, 10), (ReadAhead, 100), (Interactive, 100)]);
    let granted = |class| order[..80].iter().filter(|one| **one == class).count();
    assert_eq!((granted(Interactive), granted(ReadAhead), granted(Bulk)), (62, 8, 10));
}

#[test]
fn a_member_without_memory_delays_only_itself() {
    let mut grants = Grants::new(100, 1000);
    let (full, other) = (grants.join(10), grants.join(1000));
    assert!(grants.try_grant(full, Priority::Bulk, 10));
    grants.wait(full, Priority::Interactive, 5, "full");
    assert!(grants.try_grant(other, Priority::Bulk, 50), "the window has room");
    grants.wait(other, Priority::Bulk, 60, "other");
    grants.release(other, 50, 50);
    assert_eq!(grants.poll_grant(), Some("other"));
    assert_eq!(grants.poll_grant(), None);
    grants.release(full, 0, 10);
    assert_eq!(grants.poll_grant(), Some("full"));
}
