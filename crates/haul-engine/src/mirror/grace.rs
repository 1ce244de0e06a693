//! The time limit for the other mirrors once one has responded.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use haul_storage::{Error, Result};
use tokio::time::{Instant, sleep_until};

/// Time limit of the other mirrors once the first has responded: this, plus [`GRACE_FACTOR`] times its response time,
/// at most [`GRACE_MOST`].
const GRACE: Duration = Duration::from_secs(1);
const GRACE_FACTOR: u32 = 4;
const GRACE_MOST: Duration = Duration::from_secs(10);
/// How often it is checked whether the grace is extended.
const GRACE_LOOK: Duration = Duration::from_millis(100);

/// Runs several futures until a grace after the first success has passed. Returns the outcomes in the order
/// of `all`; `Err(None)` for those that took too long.
pub async fn within_grace<T>(
    all: Vec<impl Future<Output = Result<T>>>,
) -> Vec<Result<T, Option<Error>>> {
    within_grace_unless(|| false, all).await
}

/// The same, but the grace does not end while `is_held`, nor in the second after that.
pub async fn within_grace_unless<T>(
    is_held: impl Fn() -> bool,
    all: Vec<impl Future<Output = Result<T>>>,
) -> Vec<Result<T, Option<Error>>> {
    let mut outcomes: Vec<_> = all.iter().map(|_| Err(None)).collect();
    let numbered = all.into_iter().enumerate().map(async |(index, one)| (index, one.await));
    let mut running: FuturesUnordered<_> = numbered.collect();
    let (began, mut until) = (Instant::now(), None::<Instant>);
    loop {
        let next = match until {
            None => running.next().await,
            Some(end) => tokio::select! {
                biased;
                next = running.next() => next,
                () = sleep_until(end.min(Instant::now() + GRACE_LOOK)) => {
                    let now = Instant::now();
                    if is_held() {
                        until = Some(end.max(now + GRACE));
                    } else if now >= end {
                        return outcomes;
                    }
                    continue;
                }
            },
        };
        let Some((index, outcome)) = next else { return outcomes };
        if outcome.is_ok() {
            let grace = (GRACE + began.elapsed() * GRACE_FACTOR).min(GRACE_MOST);
            until.get_or_insert_with(|| Instant::now() + grace);
        }
        outcomes[index] = outcome.map_err(Some);
    }
}

/// The message for a mirror that took longer than the grace.
pub fn too_late() -> String {
    "it did not respond in time after the first mirror".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_grace_does_not_end_while_it_is_held() {
        let began = Instant::now();
        let after = async |seconds| {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok(seconds)
        };
        let outcomes = within_grace(vec![after(0), after(21)]).await;
        assert!(matches!(outcomes[..], [Ok(0), Err(None)]));
        let is_held = || began.elapsed() < Duration::from_secs(23);
        let outcomes = within_grace_unless(is_held, vec![after(0), after(21), after(60)]).await;
        assert!(matches!(outcomes[..], [Ok(0), Ok(21), Err(None)]));
    }
}
