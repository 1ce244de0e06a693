//! The goodput of the last rounds, its mean and how much it scatters.

/// Rounds that are averaged for a judgement.
pub(super) const JUDGED_ROUNDS: usize = 4;

/// The most samples that are stored; the oldest is dropped first.
const MOST_SAMPLES: usize = 64;

/// Judged goodput in bytes per second, the newest last.
#[derive(Debug, Clone, Default)]
pub(super) struct Samples(Vec<f64>);

impl Samples {
    pub(super) fn push(&mut self, goodput: f64) {
        if self.0.len() == MOST_SAMPLES {
            self.0.remove(0);
        }
        self.0.push(goodput);
    }

    pub(super) fn all(&self) -> &[f64] {
        &self.0
    }

    /// Mean of the last rounds; 0 if there is none.
    pub(super) fn mean(&self, rounds: usize) -> f64 {
        let recent = &self.0[self.0.len().saturating_sub(rounds)..];
        if recent.is_empty() { 0.0 } else { recent.iter().sum::<f64>() / recent.len() as f64 }
    }

    /// Lowest and highest of the last rounds.
    pub(super) fn extremes(&self, rounds: usize) -> (f64, f64) {
        let recent = &self.0[self.0.len().saturating_sub(rounds)..];
        recent.iter().fold((f64::INFINITY, 0.0), |(low, high), &x| (x.min(low), x.max(high)))
    }

    /// How much a mean of [`JUDGED_ROUNDS`] samples scatters, relative to itself; at most 0.25. The smaller
    /// of two estimates: that from neighbouring samples does not mistake a trend for noise, that from
    /// neighbouring means ignores a slow round that a fast one makes up for (a lost segment that arrives
    /// late).
    pub(super) fn noise(&self) -> f64 {
        self.noise_of(8 * JUDGED_ROUNDS)
    }

    /// The same for the last `rounds` samples.
    pub(super) fn noise_of(&self, rounds: usize) -> f64 {
        let recent = &self.0[self.0.len().saturating_sub(rounds.min(8 * JUDGED_ROUNDS))..];
        let means: Vec<f64> = recent
            .rchunks_exact(JUDGED_ROUNDS)
            .map(|chunk| chunk.iter().sum::<f64>() / JUDGED_ROUNDS as f64)
            .collect();
        let of_samples = scatter(recent) / (JUDGED_ROUNDS as f64).sqrt();
        of_samples.min(if means.len() > 2 { scatter(&means) } else { f64::INFINITY }).min(0.25)
    }
}

/// Standard deviation relative to the mean, from differences of neighbours.
fn scatter(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    if values.len() < 2 || mean <= 0.0 {
        return 0.0;
    }
    let squares: f64 = values.windows(2).map(|pair| (pair[1] - pair[0]).powi(2)).sum();
    (squares / (2 * (values.len() - 1)) as f64).sqrt() / mean
}
