//! When and after which pause an operation is tried again. Looks only at an error's retry status.

use std::time::Duration;

use haul_storage::{Error, Retry};

/// Counts tries of one operation.
#[derive(Debug)]
pub struct Retries {
    most: u32,
    pause: Duration,
    tried: u32,
    salt: u64,
}

impl Retries {
    const LONGEST: Duration = Duration::from_secs(30);

    /// At most `most` retries; the first after `pause`, each following after twice as long, up to
    /// 30 s. `salt` spreads operations that failed together.
    pub const fn new(most: u32, pause: Duration, salt: u64) -> Self {
        Self { most, pause, tried: 0, salt }
    }

    /// The pause before the next try; `None` if there is to be none.
    pub fn next(&mut self, error: &Error) -> Option<Duration> {
        if error.retry() != Retry::Later || self.tried >= self.most {
            return None;
        }
        let doubled = self.pause.saturating_mul(1 << self.tried.min(16)).min(Self::LONGEST);
        self.tried += 1;
        Some(doubled.mul_f64(self.jitter()))
    }

    /// How many retries there were since the last success.
    pub const fn attempt(&self) -> u32 {
        self.tried
    }

    /// Something went well: the next failure is a first one again.
    pub const fn reset(&mut self) {
        self.tried = 0;
    }

    /// Between a half and one and a half.
    fn jitter(&mut self) -> f64 {
        // SplitMix64; quality matters little, not sharing state does.
        self.salt = self.salt.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.salt;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        0.5 + (bits >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_storage::ErrorKind;

    #[test]
    fn pauses_double_with_jitter_and_end() {
        let busy = Error::new(ErrorKind::Busy, "open");
        let mut retries = Retries::new(4, Duration::from_secs(1), 7);
        for expected in [1.0, 2.0, 4.0, 8.0] {
            let pause = retries.next(&busy).unwrap().as_secs_f64();
            assert!((expected * 0.5..=expected * 1.5).contains(&pause), "{pause} for {expected}");
        }
        assert_eq!(retries.next(&busy), None);
        retries.reset();
        assert!(retries.next(&busy).is_some());
    }

    #[test]
    fn what_cannot_succeed_is_not_tried_again() {
        let mut retries = Retries::new(4, Duration::from_secs(1), 7);
        assert_eq!(retries.next(&Error::new(ErrorKind::NoSpace, "write")), None);
    }
}
