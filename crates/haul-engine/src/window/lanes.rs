//! Lanes: how many are wanted, how many the server accepts, and how long new ones need before anything
//! can be judged.

use std::time::Duration;

use haul_storage::LinkStatus;

use super::bounds::Bounds;
use super::limits::MOST_LANES;

/// The most lanes being opened at once: sshd's default MaxStartups refuses at random from 10
/// unauthenticated connections on.
const MOST_OPENING: usize = 8;

/// RTTs of a lane's slow start from 14 KiB to 2 MiB, doubling in each: 7.2, rounded up.
const SLOW_START_RTTS: u32 = 8;

/// How long a judgement waits for lanes that are being opened, in seconds and in RTTs: the longer of both.
const PATIENCE: Duration = Duration::from_secs(5);
const PATIENCE_RTTS: u32 = 20;

/// How long a refused number of lanes is not tried again; doubles with each further refusal or loss, four times at
/// most.
const REFUSAL_MEMORY: Duration = Duration::from_secs(5 * 60);

/// The same after a lane that was open broke, or the server was busy.
const LOSS_MEMORY: Duration = Duration::from_secs(15);

/// The part of the lanes (a third) that is closed at a time, and how often, once the path is shorter. BBR
/// grows by a quarter in eight RTTs.
const FEWER_PART: usize = 3;
const FEWER_PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug, Clone)]
pub(super) struct Lanes {
    fixed: bool,
    wanted: usize,
    /// The number that suits the path's RTT.
    for_path: usize,
    /// When to close the next lanes, on the way down to that number.
    next_fewer: Option<Duration>,
    link: LinkStatus,
    /// When lanes were last opened, lost or requested, or the first bytes arrived: slow start counts from then.
    changed: Duration,
    /// Whether anything has arrived: before that no slow start has begun.
    delivered: bool,
    ceiling: Option<Ceiling>,
    /// How often the ceiling was lowered; it then lasts longer.
    strikes: u32,
}

#[derive(Debug, Clone, Copy)]
struct Ceiling {
    lanes: usize,
    until: Duration,
}

impl Lanes {
    pub(super) fn new(bounds: &Bounds) -> Self {
        Self {
            fixed: bounds.fixed_lanes.is_some(),
            wanted: bounds.fixed_lanes.unwrap_or(1),
            for_path: 1,
            next_fewer: None,
            link: LinkStatus::default(),
            changed: Duration::ZERO,
            delivered: false,
            ceiling: None,
            strikes: 0,
        }
    }

    /// The RTT is known, or has become longer: long paths get several lanes at once, as each takes long to open.
    pub(super) fn want_for_path(&mut self, rtt: Duration, bounds: &Bounds) {
        if !self.fixed {
            self.for_path = bounds.lanes_for_path(rtt);
            self.wanted = self.wanted.max(self.for_path);
        }
    }

    /// The path has become shorter. Lanes are reduced to what suits it, unless there are more for another
    /// reason than the RTT; step by step, since those that stay have to grow.
    pub(super) fn want_for_shorter_path(&mut self, rtt: Duration, now: Duration, bounds: &Bounds) {
        if !self.fixed && self.wanted <= self.for_path {
            self.for_path = bounds.lanes_for_path(rtt);
            self.next_fewer = Some(now + FEWER_PAUSE);
        }
    }

    /// Takes the next step to fewer lanes, if it is due.
    pub(super) fn ease(&mut self, now: Duration) {
        let Some(due) = self.next_fewer else { return };
        if self.wanted <= self.for_path {
            self.next_fewer = None;
        } else if now >= due {
            let fewer = self.wanted - self.wanted.div_ceil(FEWER_PART);
            self.want(fewer.max(self.for_path), now);
            self.next_fewer = Some(now + FEWER_PAUSE);
        }
    }

    pub(super) fn on_link(&mut self, now: Duration, link: LinkStatus) {
        let before = std::mem::replace(&mut self.link, link);
        if link.open != before.open || (before.opening == 0 && link.opening > 0) {
            self.changed = now;
        }
        // An expired ceiling ends once more lanes than it are open: its cause is gone.
        self.ceiling.take_if(|ceiling| now >= ceiling.until && link.open > ceiling.lanes);
        if link.refused > before.refused {
            let left = link.open.saturating_add(link.opening).max(1);
            let lost = link.open < before.open;
            if lost {
                self.lower_ceiling(now, left, LOSS_MEMORY);
            } else {
                self.lower_ceiling(now, left, REFUSAL_MEMORY);
                if !self.fixed {
                    self.wanted = self.wanted.min(self.ceiling(now));
                }
            }
        }
    }

    /// Bytes have arrived. Slow start begins with the first ones, even if lanes were open for long.
    pub(super) fn on_delivery(&mut self, now: Duration) {
        if !self.delivered {
            self.delivered = true;
            self.changed = now;
        }
    }

    /// The lanes begin with a slow start again.
    pub(super) const fn forget(&mut self) {
        self.delivered = false;
    }

    /// Halves the lanes for a busy server. Returns whether they could be reduced.
    pub(super) fn back_off(&mut self, now: Duration) -> bool {
        let open = self.target(now);
        if open <= 1 {
            return false;
        }
        self.lower_ceiling(now, open / 2, LOSS_MEMORY);
        true
    }

    fn lower_ceiling(&mut self, now: Duration, lanes: usize, memory: Duration) {
        let memory = memory * 2u32.pow(self.strikes.min(4));
        self.strikes += 1;
        let standing = self.ceiling.filter(|ceiling| now < ceiling.until);
        self.ceiling = Some(Ceiling {
            lanes: standing.map_or(lanes, |ceiling| ceiling.lanes.min(lanes)),
            until: standing.map_or(now + memory, |ceiling| ceiling.until.max(now + memory)),
        });
    }

    /// The number to request: what is wanted, up to the ceiling, and not too many new ones at a time.
    pub(super) fn target(&self, now: Duration) -> usize {
        let ceiling = self.ceiling(now);
        let most = self.link.open.saturating_add(MOST_OPENING);
        self.wanted.min(ceiling).min(most).max(1)
    }

    /// Lanes that the search counts on.
    pub(super) fn wanted(&self) -> usize {
        self.wanted.max(1)
    }

    pub(super) fn open(&self) -> usize {
        self.link.open.max(1)
    }

    /// The search wants another number.
    pub(super) fn want(&mut self, lanes: usize, now: Duration) {
        self.next_fewer = None;
        if !self.fixed && self.wanted != lanes {
            self.wanted = lanes;
            self.changed = now;
        }
    }

    /// The next number to try: twice as many, at most 8 more; after the end of a ceiling, first one more than it.
    /// Counts from the open lanes if a backend opens more than were requested. If its lanes take one request
    /// at a time, there is no next number then: opening such a lane takes many RTTs, and the backend's own
    /// number is as good (over FTP at 200 ms, going from 12 to 16 or 20 lanes took 1 to 3 s of 18 s, and moved
    /// no more). `None` if no more can be had.
    pub(super) fn next_step(&self, now: Duration, bounds: &Bounds) -> Option<usize> {
        if self.fixed {
            return None;
        }
        let forgotten = self.ceiling.filter(|ceiling| now >= ceiling.until);
        let careful = forgotten.map_or(MOST_LANES, |ceiling| ceiling.lanes + 1);
        if bounds.has_one_request_a_lane() && self.link.open > self.wanted {
            return None;
        }
        let have = self.wanted.max(self.link.open.min(MOST_LANES));
        let next = (have + have.clamp(1, MOST_OPENING))
            .min(bounds.max_lanes)
            .min(self.ceiling(now))
            .min(careful);
        (next > have).then_some(next)
    }

    /// Whether lanes are still being opened, or were opened so recently that their slow start has not ended.
    pub(super) fn ramping(&self, now: Duration, rtt: Duration) -> bool {
        let since = now.saturating_sub(self.changed);
        if self.opening(now) {
            return since < PATIENCE.max(rtt * PATIENCE_RTTS);
        }
        since < rtt * SLOW_START_RTTS
    }

    /// Whether some requested lanes are not open yet.
    pub(super) fn opening(&self, now: Duration) -> bool {
        self.link.opening > 0 || self.open() < self.target(now)
    }

    fn ceiling(&self, now: Duration) -> usize {
        match self.ceiling {
            Some(ceiling) if now < ceiling.until => ceiling.lanes,
            _ => MOST_LANES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::limits::Limits;
    use super::*;

    fn link(open: usize, refused: usize) -> LinkStatus {
        LinkStatus { open, refused, ..LinkStatus::default() }
    }

    /// Formerly, one lane that was lost limited the lanes to one more than were left, for good.
    #[test]
    fn a_ceiling_ends_once_more_lanes_than_it_are_open() {
        let bounds = Bounds::new(Limits::default());
        let mut lanes = Lanes::new(&bounds);
        let mut now = Duration::from_secs(1);
        lanes.want(8, now);
        lanes.on_link(now, link(8, 0));
        // The seven lanes left become a ceiling.
        lanes.on_link(now, link(7, 1));
        lanes.want(7, now);
        assert_eq!(lanes.next_step(now, &bounds), None);
        now += LOSS_MEMORY;
        assert_eq!(lanes.next_step(now, &bounds), Some(8));
        lanes.want(8, now);
        // Not while the additional lane is not open yet.
        lanes.on_link(now, link(7, 1));
        assert_eq!(lanes.next_step(now, &bounds), None);
        lanes.on_link(now, link(8, 1));
        assert_eq!(lanes.next_step(now, &bounds), Some(16));
        // A later refusal is another ceiling.
        lanes.want(9, now);
        lanes.on_link(now, link(8, 2));
        lanes.want(8, now);
        now += LOSS_MEMORY;
        assert_eq!(lanes.next_step(now, &bounds), None);
    }
}
