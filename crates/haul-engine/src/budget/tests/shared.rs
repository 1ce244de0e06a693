//! Members of one budget over a simulated link, in virtual time.

use std::collections::VecDeque;
use std::time::Duration;

use haul_storage::LinkStatus;

use super::super::grants::Priority;
use super::super::machine::{Budget, QUIET};
use crate::window::{Completion, Limits, Window};

const MS: Duration = Duration::from_millis(1);
const RTT: Duration = Duration::from_millis(50);
const RATE: u64 = 50_000_000;

/// A range in flight.
struct Sent {
    member: u64,
    bytes: u64,
    left: u64,
    issued: Duration,
}

struct World {
    now: Duration,
    budget: Budget<(u64, u64)>,
    /// Each member, and whether it requests more.
    members: Vec<(u64, bool)>,
    waiting: Vec<u64>,
    path: VecDeque<Sent>,
    delivered: Vec<u64>,
    most_in_flight: u64,
}

impl World {
    fn new() -> Self {
        Self {
            now: Duration::ZERO,
            budget: Budget::measured(Window::new(Limits::default())),
            members: Vec::new(),
            waiting: Vec::new(),
            path: VecDeque::new(),
            delivered: Vec::new(),
            most_in_flight: 0,
        }
    }

    fn join(&mut self) -> usize {
        let member = self.budget.join(self.now, 256 << 20);
        self.members.push((member, true));
        self.delivered.push(0);
        self.members.len() - 1
    }

    fn send(&mut self, member: u64, bytes: u64) {
        self.path.push_back(Sent { member, bytes, left: bytes, issued: self.now });
        let in_flight = self.budget.in_flight();
        let window = self.budget.decision(member).window_bytes;
        assert!(in_flight <= window.max(bytes), "{in_flight} of {window}");
        self.most_in_flight = self.most_in_flight.max(in_flight);
    }

    /// Sends what was granted, before the window changes again.
    fn send_granted(&mut self) {
        while let Some((member, bytes)) = self.budget.poll_granted() {
            self.waiting.retain(|waiting| *waiting != member);
            self.send(member, bytes);
        }
    }

    fn request(&mut self) {
        for (member, is_eager) in self.members.clone() {
            while is_eager && !self.waiting.contains(&member) {
                let bytes = self.budget.range_bytes(member, 1 << 40);
                if self.budget.try_grant(member, Priority::Bulk, bytes) {
                    self.send(member, bytes);
                } else {
                    self.budget.wait(member, Priority::Bulk, bytes, (member, bytes));
                    self.waiting.push(member);
                }
            }
        }
    }

    fn deliver(&mut self) {
        let mut most = RATE / 1000;
        while most > 0 {
            let Some(first) = self.path.front_mut().filter(|sent| sent.issued + RTT <= self.now)
            else {
                return;
            };
            let bytes = most.min(first.left);
            (most, first.left) = (most - bytes, first.left - bytes);
            let member = first.member;
            let done = (first.left == 0).then_some((first.bytes, first.issued));
            self.budget.release(self.now, member, (bytes, bytes), true);
            if done.is_some() {
                self.path.pop_front();
            }
            self.send_granted();
            let at = self.members.iter().position(|(id, _)| *id == member).unwrap();
            self.delivered[at] += bytes;
            if let Some((bytes, issued)) = done {
                let completion = Completion { bytes, issued, first_byte: None };
                self.budget.on_completion(self.now, &completion);
                self.send_granted();
            }
        }
    }

    fn run(&mut self, length: Duration) {
        let end = self.now + length;
        while self.now < end {
            self.now += MS;
            self.deliver();
            if self.now.as_millis().is_multiple_of(25) {
                let open = self.budget.lanes();
                let link = LinkStatus { open, rtt: Some(RTT), ..LinkStatus::default() };
                self.budget.on_link(self.now, link);
                self.send_granted();
            }
            self.request();
        }
    }

    fn window(&self) -> u64 {
        self.budget.decision(self.members[0].0).window_bytes
    }

    /// Runs for `length`; returns the bytes per second of all members together.
    fn rate(&mut self, length: Duration) -> f64 {
        let before: u64 = self.delivered.iter().sum();
        self.run(length);
        (self.delivered.iter().sum::<u64>() - before) as f64 / length.as_secs_f64()
    }
}

#[test]
fn a_second_member_starts_with_the_window_that_was_measured() {
    let mut world = World::new();
    world.join();
    world.run(Duration::from_secs(20));
    let (window, lanes) = (world.window(), world.budget.lanes());
    let alone = world.rate(Duration::from_secs(5));
    assert!(alone > 0.9 * RATE as f64, "{alone}");
    world.most_in_flight = 0;
    let second = world.join();
    let together = world.rate(Duration::from_secs(10));
    assert!(together > 0.9 * RATE as f64, "{together}");
    assert!(world.most_in_flight < window * 3 / 2, "{} after {window}", world.most_in_flight);
    assert_eq!(world.budget.lanes(), lanes, "the path is the same");
    let share = world.delivered[second] as f64 / (together * 10.0);
    assert!((0.4..0.6).contains(&share), "{share}");
}

#[test]
fn a_member_that_leaves_releases_its_part() {
    let mut world = World::new();
    let (first, second) = (world.join(), world.join());
    world.run(Duration::from_secs(20));
    world.members[first].1 = false;
    world.run(Duration::from_secs(1));
    world.budget.leave(world.members[first].0);
    let before = world.delivered[second];
    let rate = world.rate(Duration::from_secs(5));
    assert_eq!(world.delivered[second] - before, (rate * 5.0).round() as u64);
    assert!(rate > 0.9 * RATE as f64, "{rate}");
}

/// The window before and after a `pause` without members and bytes in flight.
fn after(pause: Duration) -> (u64, u64) {
    let mut world = World::new();
    let first = world.join();
    world.run(Duration::from_secs(20));
    let window = world.window();
    world.members[first].1 = false;
    world.run(Duration::from_secs(1));
    assert_eq!(world.budget.in_flight(), 0);
    assert!(world.budget.leave(world.members[first].0));
    world.now += pause;
    world.join();
    (window, world.budget.decision(world.members[1].0).window_bytes)
}

#[test]
fn measurements_are_reused_for_a_minute_and_then_discarded() {
    let (before, soon) = after(QUIET - Duration::from_secs(2));
    assert_eq!(before, soon);
    let (before, later) = after(QUIET);
    assert_eq!(later, Window::new(Limits::default()).decision().window_bytes);
    assert_ne!(before, later);
}

/// Formerly, the pause began with the release of bytes that had arrived long before.
#[test]
fn measurements_are_discarded_though_a_slow_consumer_releases_bytes() {
    let mut budget: Budget<()> = Budget::measured(Window::new(Limits::default()));
    let member = budget.join(Duration::ZERO, 1 << 30);
    assert!(budget.try_grant(member, Priority::Interactive, 100));
    budget.release(Duration::from_secs(1), member, (100, 0), true);
    budget.release(QUIET, member, (0, 100), true);
    assert!(!budget.is_old(QUIET));
    assert!(budget.is_old(QUIET + Duration::from_secs(1)));
}

#[test]
fn a_pause_does_not_count_as_a_slow_round() {
    let mut world = World::new();
    let first = world.join();
    world.run(Duration::from_secs(20));
    let window = world.window();
    // Everything is dropped at once, with a full window.
    world.path.clear();
    let in_flight = world.budget.in_flight();
    world.budget.release(world.now, world.members[first].0, (in_flight, in_flight), false);
    world.budget.leave(world.members[first].0);
    world.waiting.clear();
    world.members[first].1 = false;
    world.now += Duration::from_secs(10);
    world.join();
    world.run(Duration::from_secs(1));
    assert!(world.window() > window / 2, "{} after {window}", world.window());
}

#[test]
fn files_are_shared_among_active_members() {
    let mut budget: Budget<()> = Budget::measured(Window::new(Limits::default()));
    let (first, second) =
        (budget.join(Duration::ZERO, 1 << 20), budget.join(Duration::ZERO, 1 << 20));
    let files = budget.decision(first).files;
    assert!(budget.try_grant(second, Priority::Bulk, 100));
    assert_eq!(budget.decision(first).files, files / 2);
    assert_eq!(budget.decision(second).files, files);
    budget.release(MS, second, (100, 100), true);
    assert_eq!(budget.decision(first).files, files);
}
