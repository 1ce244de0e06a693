//! The summary of several rounds: median, smallest and largest.
//!
//! Values come with the number of their round, because round 0 only warms up caches and connections
//! and is not counted. With a handful of rounds nothing finer than these three is honest.

/// Median, smallest and largest of the counted rounds, in the unit of the values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Half of the values are at most this, half at least.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
    /// How many values there are.
    pub count: usize,
}

impl Summary {
    /// Summarises pairs of round and value; `None` if no round counts.
    pub fn of_counted(rounds: impl IntoIterator<Item = (u32, f64)>) -> Option<Self> {
        let values: Vec<f64> = rounds
            .into_iter()
            .filter(|(round, _)| counts(*round))
            .map(|(_, value)| value)
            .collect();
        let median = median(&values)?;
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Self { median, min, max, count: values.len() })
    }

    /// `amount` divided by each of the figures, such as bytes per second from seconds: the longest
    /// time gives the smallest rate. `None` if a value is not positive.
    pub fn per(self, amount: f64) -> Option<Self> {
        (self.min > 0.0).then(|| Self {
            median: amount / self.median,
            min: amount / self.max,
            max: amount / self.min,
            count: self.count,
        })
    }
}

/// Whether a round counts: round 0 is the warm-up.
pub fn counts(round: u32) -> bool {
    round > 0
}

/// The middle value, or the mean of the two middle ones; `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = *sorted.get(sorted.len() / 2 - 1)?;
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_lies_between_the_two_middle_values() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn the_warm_up_round_is_not_counted() {
        let summary = Summary::of_counted([(0, 100.0), (1, 2.0), (2, 4.0)]);
        assert_eq!(summary, Some(Summary { median: 3.0, min: 2.0, max: 4.0, count: 2 }));
        assert_eq!(Summary::of_counted([(0, 100.0)]), None);
    }

    #[test]
    fn the_longest_time_is_the_smallest_rate() {
        let rate = Summary::of_counted([(1, 2.0), (2, 4.0), (3, 5.0)]).and_then(|s| s.per(20.0));
        assert_eq!(rate, Some(Summary { median: 5.0, min: 4.0, max: 10.0, count: 3 }));
        assert_eq!(Summary::of_counted([(1, 0.0)]).and_then(|s| s.per(20.0)), None);
    }
}
