//! Reproducible randomness.
//!
//! A seed and the identifiers of a decision are mixed into a number (`mix`). The number makes the decision (`fraction`)
//! or seeds a sequence (`Gaps`). Nothing depends on time. Only jitter, drawn per read, depends on the sizes in which
//! bytes arrive.

/// The step of the Weyl sequence of SplitMix64.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes `parts` into one number. Each of its bits depends on all bits of `parts`.
pub(crate) fn mix(parts: &[u64]) -> u64 {
    parts.iter().fold(0, |state, part| finish(state.wrapping_add(STEP) ^ part))
}

/// The output function of SplitMix64.
const fn finish(mut z: u64) -> u64 {
    z = z.wrapping_add(STEP);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number from [0, 1), with the 53 bits of precision of a double.
#[expect(clippy::cast_precision_loss, reason = "53 bits fit into a double")]
pub(crate) fn fraction(random: u64) -> f64 {
    (random >> 11) as f64 / (1_u64 << 53) as f64
}

/// A random sequence of offsets, in which each offset occurs with the same probability.
#[derive(Debug)]
pub(crate) struct Gaps {
    state: u64,
    probability: f64,
    next: u64,
}

impl Gaps {
    pub(crate) fn new(seed: u64, probability: f64) -> Self {
        let mut gaps = Self { state: seed, probability, next: 0 };
        gaps.next = gaps.gap();
        gaps
    }

    /// The next offset of the sequence that is at least `from`, which must not decrease between calls.
    pub(crate) fn at_least(&mut self, from: u64) -> u64 {
        while self.next < from {
            let gap = self.gap();
            self.next = self.next.saturating_add(1).saturating_add(gap);
        }
        self.next
    }

    /// The number of offsets skipped before the next one: the geometric distribution by inversion.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the value is not negative, and one above the greatest offset saturates"
    )]
    fn gap(&mut self) -> u64 {
        if self.probability >= 1.0 {
            return 0;
        }
        // No offset occurs, also if the probability is NaN.
        if self.probability.is_nan() || self.probability <= 0.0 {
            return u64::MAX;
        }
        self.state = self.state.wrapping_add(STEP);
        let drawn = fraction(finish(self.state));
        ((-drawn).ln_1p() / (-self.probability).ln_1p()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(seed: u64, probability: f64, below: u64) -> Vec<u64> {
        let mut gaps = Gaps::new(seed, probability);
        let mut all = Vec::new();
        loop {
            let next = gaps.at_least(all.last().map_or(0, |last| last + 1));
            if next >= below {
                return all;
            }
            all.push(next);
        }
    }

    #[test]
    fn offsets_occur_with_the_given_probability() {
        for seed in 0..5 {
            let count = offsets(seed, 0.01, 1_000_000).len();
            assert!((9_000..11_000).contains(&count), "{count}");
        }
    }

    #[test]
    fn probabilities_of_one_and_zero_give_all_and_no_offsets() {
        assert_eq!(offsets(1, 1.0, 5), [0, 1, 2, 3, 4]);
        assert_eq!(offsets(1, 7.0, 3), [0, 1, 2]);
        for none in [0.0, -1.0, f64::NAN] {
            assert_eq!(offsets(1, none, u64::MAX), []);
        }
    }

    #[test]
    fn the_sequence_depends_on_the_seed_and_not_on_the_calls() {
        assert_eq!(offsets(3, 0.1, 1000), offsets(3, 0.1, 1000));
        assert_ne!(offsets(3, 0.1, 1000), offsets(4, 0.1, 1000));
        let all = offsets(3, 0.1, 1000);
        let mut gaps = Gaps::new(3, 0.1);
        assert!(all.contains(&gaps.at_least(500)));
    }

    #[test]
    fn fractions_are_spread_evenly() {
        let mean: f64 = (0..10_000).map(|n| fraction(mix(&[7, n]))).sum::<f64>() / 10_000.0;
        assert!((0.48..0.52).contains(&mean), "{mean}");
    }
}
