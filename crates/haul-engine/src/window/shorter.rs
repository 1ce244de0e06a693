//! Ranges on slow lanes: no longer than what a lane carries in a moment, so that none waits long behind
//! another, and what is left at the end is soon there. Whether lanes are slow may depend on that
//! itself: nginx lets the first second's worth of each answer pass at once. So ranges that were
//! shortened grow back step by step, and more and more seldom if lanes become slow by it.

use std::time::Duration;

/// What a slow lane carries in this part of a second is enough for it to be asked for at a time: the rest
/// is for others.
const SLOW_RANGES: f64 = 4.0;

/// By how much ranges grow back at a time, and where no limit is left.
const GROWTH: u64 = 4;
const UNLIMITED: u64 = 16 << 20;

/// How long lanes have to be fast for it. Doubles whenever they were slow again after that, up to 64
/// times.
const PAUSE: Duration = Duration::from_secs(2);
const MOST_DOUBLINGS: u32 = 6;

#[derive(Debug, Clone, Default)]
pub(super) struct Shorter {
    most: Option<u64>,
    quiet_until: Duration,
    /// Whether they have grown since lanes were slow.
    grown: bool,
    futile: u32,
}

impl Shorter {
    /// Each lane carries so many bytes a second, and that is little.
    pub(super) fn on_slow(&mut self, now: Duration, each: f64) {
        if std::mem::take(&mut self.grown) {
            self.futile += 1;
        }
        let most = (each / SLOW_RANGES) as u64;
        self.most = Some(self.most.map_or(most, |known| known.min(most)));
        self.quiet_until = now + PAUSE * 2u32.pow(self.futile.min(MOST_DOUBLINGS));
    }

    /// Lanes are as fast as any.
    pub(super) fn on_fast(&mut self, now: Duration) {
        if now < self.quiet_until {
            return;
        }
        if let Some(most) = self.most {
            self.most = Some(most.saturating_mul(GROWTH)).filter(|most| *most < UNLIMITED);
            self.grown = true;
        }
    }

    /// The longest that ranges are to be, while that matters.
    pub(super) const fn most(&self) -> Option<u64> {
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn ranges_stay_short_where_long_ones_make_lanes_slow() {
        let mut ranges = Shorter::default();
        assert_eq!(ranges.most(), None);
        let mut slow = Vec::new();
        for second in 0..400 {
            // Answers of up to 1 MiB come at once.
            if ranges.most().is_none_or(|most| most > 1 << 20) {
                slow.push(second);
                ranges.on_slow(secs(second), 1_000_000.0);
            } else {
                ranges.on_fast(secs(second));
            }
            let short = ranges.most().is_some_and(|most| most >= 250_000);
            assert!(short, "never shorter than what a lane carries in a moment: {ranges:?}");
        }
        assert!(slow.starts_with(&[0, 4]) && slow.len() <= 9, "{slow:?}");
    }

    #[test]
    fn a_moment_of_standstill_is_soon_forgotten() {
        let mut ranges = Shorter::default();
        ranges.on_slow(secs(1), 2_000_000.0);
        assert_eq!(ranges.most(), Some(500_000));
        (2..6).for_each(|second| ranges.on_fast(secs(second)));
        assert_eq!(ranges.most(), None);
    }
}
