//! Whether an operation is retried, and after which pause. Depends only on an error's retry status.

use std::time::Duration;

use haul_storage::{Error, Retry};

/// Counts retries of one operation.
///
/// Only retries in a row without progress count against the limit. Progress is a number that the caller
/// counts up: for a file, the bytes of all its ranges that have reached the destination.
#[derive(Debug)]
pub struct Retries {
    most: u32,
    pause: Duration,
    /// Retries since the operation itself made progress; they determine the pause.
    tried: u32,
    /// Retries since there was any progress; they count against the limit.
    in_vain: u32,
    progress: Option<u64>,
    salt: u64,
}

impl Retries {
    const LONGEST: Duration = Duration::from_secs(30);

    /// At most `most` retries; the first after `pause`, each further one after twice the pause, up to
    /// 30 s. Jitter multiplies each pause by 0.5 to 1.5; `salt` seeds it, so that operations that failed together
    /// spread.
    pub const fn new(most: u32, pause: Duration, salt: u64) -> Self {
        Self { most, pause, tried: 0, in_vain: 0, progress: None, salt }
    }

    /// The pause before the next try; `progress` is the total so far.
    ///
    /// # Errors
    /// The error itself, if there is to be no retry. After too many retries it contains the number of attempts, and has
    /// the status [`Retry::Never`].
    pub fn next(&mut self, error: Error, progress: u64) -> Result<(Error, Duration), Error> {
        if self.progress.replace(progress).is_some_and(|before| before != progress) {
            self.in_vain = 0;
        }
        if error.retry() != Retry::Later {
            return Err(error);
        }
        if self.in_vain >= self.most {
            return Err(error.after_attempts(self.in_vain + 1).with_retry(Retry::Never));
        }
        let doubled = self.pause.saturating_mul(1 << self.tried.min(16)).min(Self::LONGEST);
        self.tried = self.tried.saturating_add(1);
        self.in_vain += 1;
        Ok((error, doubled.mul_f64(self.jitter())))
    }

    /// Retries since the operation itself last made progress.
    pub const fn attempt(&self) -> u32 {
        self.tried
    }

    /// The operation itself has made progress: the next pause is as short as the first.
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

    fn busy() -> Error {
        Error::new(ErrorKind::Busy, "open")
    }

    #[test]
    fn pauses_double_with_jitter_and_end() {
        let mut retries = Retries::new(4, Duration::from_secs(1), 7);
        for expected in [1.0, 2.0, 4.0, 8.0] {
            let pause = retries.next(busy(), 0).unwrap().1.as_secs_f64();
            assert!((expected * 0.5..=expected * 1.5).contains(&pause), "{pause} for {expected}");
        }
        let error = retries.next(busy(), 0).unwrap_err();
        assert_eq!(error.retry(), Retry::Never);
        assert!(error.to_string().contains("5 attempts in a row made no progress"), "{error}");
    }

    /// Once, a range that got a response without bytes reset the count, so a file was retried forever.
    #[test]
    fn only_progress_allows_further_retries() {
        let mut retries = Retries::new(2, Duration::from_secs(1), 7);
        for progress in [0, 0, 10, 10, 20, 20] {
            assert!(retries.next(busy(), progress).is_ok(), "at {progress}");
            retries.reset();
        }
        assert!(retries.next(busy(), 20).is_err());
    }

    #[test]
    fn an_operation_that_cannot_succeed_is_not_retried() {
        let mut retries = Retries::new(4, Duration::from_secs(1), 7);
        let error = retries.next(Error::new(ErrorKind::NoSpace, "write"), 0).unwrap_err();
        assert_eq!(error.to_string(), "cannot write (no space left)");
    }
}
