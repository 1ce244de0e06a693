//! The fault rules in force, and the connections that each applies to.
//!
//! Tests add and remove rules at any time. `engine` consults them for every accepted connection, `flow` whenever
//! bytes arrive or are about to be forwarded.

use std::time::Duration;

use crate::random::{fraction, mix};
use crate::{Connections, Direction, Fault, Injected, RuleId};

/// One stream of bytes: a connection and a direction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamId {
    pub(crate) connection: u64,
    pub(crate) direction: Direction,
}

/// All rules in force, oldest first.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) seed: u64,
    /// Rules added so far, for their ids.
    added: u64,
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, Copy)]
struct Rule {
    id: RuleId,
    connections: Connections,
    effect: Effect,
}

/// What a rule does to a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Effect {
    Refuse,
    LimitOpen(u64),
    Stall,
    Stream(Direction, Fault),
}

/// What happens to a connection that was just accepted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Admission {
    Forward,
    Refuse(RuleId, Injected),
    Stall(RuleId),
}

impl Rules {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { seed, added: 0, rules: Vec::new() }
    }

    pub(crate) fn add(&mut self, connections: Connections, effect: Effect) -> RuleId {
        self.added += 1;
        let id = RuleId(self.added);
        self.rules.push(Rule { id, connections, effect });
        id
    }

    /// Removes a rule; false if it is not in force.
    pub(crate) fn lift(&mut self, id: RuleId) -> bool {
        let before = self.rules.len();
        self.rules.retain(|rule| rule.id != id);
        self.rules.len() < before
    }

    pub(crate) fn clear(&mut self) {
        self.rules.clear();
    }

    /// What happens to the new connection `number` while `open` others are open.
    pub(crate) fn admission(&self, number: u64, open: u64) -> Admission {
        let mut admission = Admission::Forward;
        for rule in self.applying_to(number) {
            match rule.effect {
                Effect::Refuse => return Admission::Refuse(rule.id, Injected::Refused),
                Effect::LimitOpen(limit) if open >= limit => {
                    return Admission::Refuse(rule.id, Injected::OverLimit(limit));
                }
                Effect::Stall if admission == Admission::Forward => {
                    admission = Admission::Stall(rule.id);
                }
                _ => {}
            }
        }
        admission
    }

    /// Whether a rule keeps connection `number` from being forwarded.
    pub(crate) fn stalls(&self, number: u64) -> bool {
        self.applying_to(number).any(|rule| matches!(rule.effect, Effect::Stall))
    }

    /// The faults of one stream, oldest first.
    pub(crate) fn faults(&self, stream: StreamId) -> impl Iterator<Item = (RuleId, Fault)> {
        self.applying_to(stream.connection).filter_map(move |rule| match rule.effect {
            Effect::Stream(direction, fault) if direction == stream.direction => {
                Some((rule.id, fault))
            }
            _ => None,
        })
    }

    /// The delay of bytes that were read at offset `at`.
    pub(crate) fn delay(&self, stream: StreamId, at: u64) -> Duration {
        self.faults(stream).fold(Duration::ZERO, |sum, (id, fault)| match fault {
            Fault::Delay { time, jitter } => {
                let drawn = jitter.as_secs_f64() * fraction(self.draw(id, stream, at));
                let drawn = Duration::try_from_secs_f64(drawn).unwrap_or(jitter);
                sum.saturating_add(time).saturating_add(drawn)
            }
            _ => sum,
        })
    }

    /// A pseudo-random number, always the same for the same seed, rule, stream and offset.
    pub(crate) fn draw(&self, id: RuleId, stream: StreamId, at: u64) -> u64 {
        mix(&[
            self.seed,
            id.0,
            stream.connection,
            u64::from(stream.direction == Direction::ToClient),
            at,
        ])
    }

    fn applying_to(&self, number: u64) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(move |rule| rule.connections.contains(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_selected_by_number() {
        let chosen =
            |which: Connections| (1..=4).filter(|n| which.contains(*n)).collect::<Vec<u64>>();
        assert_eq!(chosen(Connections::All), [1, 2, 3, 4]);
        assert_eq!(chosen(Connections::Nth(2)), [2]);
        assert_eq!(chosen(Connections::First(2)), [1, 2]);
        assert_eq!(chosen(Connections::From(3)), [3, 4]);
        assert_eq!(chosen(Connections::First(0)), []);
        assert_eq!(chosen(Connections::Nth(0)), []);
    }

    #[test]
    fn delays_add_up_and_jitter_stays_in_bounds() {
        let ms = Duration::from_millis;
        let stream = StreamId { connection: 1, direction: Direction::ToClient };
        let mut rules = Rules::new(1);
        rules.add(Connections::All, Effect::Stream(Direction::ToClient, Fault::delay(ms(30))));
        let jitter = Fault::Delay { time: ms(5), jitter: ms(10) };
        rules.add(Connections::Nth(1), Effect::Stream(Direction::ToClient, jitter));
        let delays: Vec<_> = (0..100).map(|at| rules.delay(stream, at)).collect();
        assert!(delays.iter().all(|delay| (ms(35)..ms(45)).contains(delay)));
        assert!(delays.iter().any(|delay| *delay < ms(37)));
        assert!(delays.iter().any(|delay| *delay > ms(43)));
        assert_eq!(rules.delay(StreamId { direction: Direction::ToServer, ..stream }, 0), ms(0));
        assert_eq!(rules.delay(StreamId { connection: 2, ..stream }, 0), ms(30));
    }

    #[test]
    fn the_longest_delays_do_not_overflow() {
        let stream = StreamId { connection: 1, direction: Direction::ToClient };
        let mut rules = Rules::new(1);
        for _ in 0..2 {
            let jitter = Duration::from_secs(1 << 40);
            let fault = Fault::Delay { time: Duration::MAX, jitter };
            rules.add(Connections::All, Effect::Stream(Direction::ToClient, fault));
        }
        assert_eq!(rules.delay(stream, 0), Duration::MAX);
    }

    #[test]
    fn a_refusal_wins_over_a_stall() {
        let mut rules = Rules::new(1);
        let stall = rules.add(Connections::All, Effect::Stall);
        let limit = rules.add(Connections::All, Effect::LimitOpen(2));
        assert_eq!(rules.admission(1, 1), Admission::Stall(stall));
        assert_eq!(rules.admission(1, 2), Admission::Refuse(limit, Injected::OverLimit(2)));
        assert!(rules.lift(limit));
        assert!(!rules.lift(limit));
        assert_eq!(rules.admission(1, 2), Admission::Stall(stall));
    }
}
