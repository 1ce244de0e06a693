//! Ranges on slow lanes: no longer than what a lane carries in a quarter of a second, so that none waits
//! long behind another, and the last ones arrive soon. Short ranges may themselves make lanes fast: nginx
//! sends the first second's worth of each response at once. So ranges grow back step by step, and ever more
//! rarely if that makes lanes slow.

use std::time::Duration;

/// A range on a slow lane has at most the bytes that the lane carries in a second, divided by this.
const SLOW_RANGES: f64 = 4.0;

/// The factor by which ranges grow back at a time, and the length from which on they are not limited.
const GROWTH: u64 = 4;
const UNLIMITED: u64 = 16 << 20;

/// How long lanes have to be fast before ranges grow. Doubles whenever lanes are slow again after that, up
/// to 128 s (`MOST_DOUBLINGS`).
const PAUSE: Duration = Duration::from_secs(2);
const MOST_DOUBLINGS: u32 = 6;

#[derive(Debug, Clone, Default)]
pub(super) struct Shorter {
    most: Option<u64>,
    quiet_until: Duration,
    /// Whether ranges have grown since lanes were slow.
    grown: bool,
    futile: u32,
}

impl Shorter {
    /// Lanes are slow: each carries `each` bytes per second.
    pub(super) fn on_slow(&mut self, now: Duration, each: f64) {
        if std::mem::take(&mut self.grown) {
            self.futile += 1;
        }
        let most = (each / SLOW_RANGES) as u64;
        self.most = Some(self.most.map_or(most, |known| known.min(most)));
        self.quiet_until = now + PAUSE * 2u32.pow(self.futile.min(MOST_DOUBLINGS));
    }

    /// Lanes are fast.
    pub(super) fn on_fast(&mut self, now: Duration) {
        if now < self.quiet_until {
            return;
        }
        if let Some(most) = self.most {
            self.most = Some(most.saturating_mul(GROWTH)).filter(|most| *most < UNLIMITED);
            self.grown = true;
        }
    }

    /// The longest range, if limited.
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
            // Responses of up to 1 MiB arrive at once.
            if ranges.most().is_none_or(|most| most > 1 << 20) {
                slow.push(second);
                ranges.on_slow(secs(second), 1_000_000.0);
            } else {
                ranges.on_fast(secs(second));
            }
            let is_bounded = ranges.most().is_some_and(|most| most >= 250_000);
            assert!(
                is_bounded,
                "limited, but not to less than a lane carries in 0.25 s: {ranges:?}"
            );
        }
        assert!(slow.starts_with(&[0, 4]) && slow.len() <= 9, "{slow:?}");
    }

    #[test]
    fn a_short_stall_is_soon_forgotten() {
        let mut ranges = Shorter::default();
        ranges.on_slow(secs(1), 2_000_000.0);
        assert_eq!(ranges.most(), Some(500_000));
        (2..6).for_each(|second| ranges.on_fast(secs(second)));
        assert_eq!(ranges.most(), None);
    }
}
