//! Checks whether the other end of a lane is alive. A sharer that was stopped (`SIGSTOP`), or a bridge that forwards
//! nothing, leaves the connection open, so TCP reports nothing. Therefore, a lane that is silent although a response is
//! due sends a Ping. If nothing follows, the lane is lost, and its requests are repeated on another one.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::WeakUnboundedSender;
use tokio::time::{Instant, sleep};

use super::session::{Session, frame};
use crate::lane::Traffic;
use crate::wire::messages::{self, to_server};

/// A lane that has been silent for this long sends a Ping.
const PING: Duration = Duration::from_secs(10);

/// A lane that has been silent for this long is lost. A server retains a session without lanes for twice this time.
const LOST: Duration = Duration::from_secs(30);

/// How often a lane is checked.
const CHECK_PERIOD: Duration = Duration::from_secs(1);

/// Longer than messages that are no progress, such as Pongs: they are discounted only when they are complete.
const SHORT: u64 = 64;

/// If checks are further apart than this, the program was suspended. What has arrived meanwhile is yet to be read, and
/// the other side may have been suspended as well.
const SUSPENDED: Duration = Duration::from_secs(5);

/// Sends Pings on a lane as needed. Returns once the lane is lost.
pub(super) async fn lost(
    session: &Session,
    messages: &WeakUnboundedSender<Bytes>,
    traffic: &Traffic,
) {
    let mut progress = traffic.progress();
    let mut silence = Silence::new(Instant::now(), traffic.bytes());
    loop {
        sleep(CHECK_PERIOD).await;
        let before = std::mem::replace(&mut progress, traffic.progress());
        if progress.saturating_sub(before) > SHORT {
            // A long piece may take minutes over a slow link.
            session.patience.on_progress();
        }
        match silence.check(Instant::now(), traffic.bytes(), session.is_waiting()) {
            Action::Alive => {}
            Action::Ping => ping(session, messages),
            Action::Lost => return,
        }
    }
}

/// Sends a Ping. Does not wait for the response, which counts as traffic.
fn ping(session: &Session, messages: &WeakUnboundedSender<Bytes>) {
    let ping = frame(session.number(), to_server::Body::Ping(messages::Empty {}));
    // A lane that is being closed sends nothing any more.
    if let (Ok(ping), Some(messages)) = (ping, messages.upgrade()) {
        drop(messages.send(ping));
    }
}

/// What to do with a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Alive,
    Ping,
    Lost,
}

/// The silence of a lane, without I/O and with the time passed in.
#[derive(Debug)]
struct Silence {
    checked: Instant,
    traffic: u64,
    /// Time without traffic although a response was due.
    silent: Duration,
    is_pinged: bool,
}

impl Silence {
    const fn new(now: Instant, traffic: u64) -> Self {
        Self { checked: now, traffic, silent: Duration::ZERO, is_pinged: false }
    }

    /// Evaluates the traffic so far. `is_waiting`: whether a response is due, on any lane.
    fn check(&mut self, now: Instant, traffic: u64, is_waiting: bool) -> Action {
        let elapsed = now.saturating_duration_since(self.checked);
        let is_idle = !is_waiting && !self.is_pinged;
        if traffic != self.traffic || elapsed > SUSPENDED || is_idle {
            *self = Self::new(now, traffic);
            return Action::Alive;
        }
        self.checked = now;
        self.silent += elapsed;
        if self.silent >= LOST {
            return Action::Lost;
        }
        match self.silent >= PING && !std::mem::replace(&mut self.is_pinged, true) {
            true => Action::Ping,
            false => Action::Alive,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::unbounded_channel;
    use tokio::time::timeout;

    use super::super::testing::World;
    use super::*;

    /// The actions other than `Alive`, each with its second. `each` returns the traffic until a second, and whether a
    /// response is due.
    fn actions(seconds: u64, each: impl Fn(u64) -> (u64, bool)) -> Vec<(u64, Action)> {
        let start = Instant::now();
        let mut silence = Silence::new(start, 0);
        let check = |second| {
            let (traffic, is_waiting) = each(second);
            (second, silence.check(start + Duration::from_secs(second), traffic, is_waiting))
        };
        (1..=seconds).map(check).filter(|(_, action)| *action != Action::Alive).collect()
    }

    #[test]
    fn a_silent_lane_is_pinged_and_then_lost() {
        assert_eq!(actions(30, |_| (0, true)), [(10, Action::Ping), (30, Action::Lost)]);
        assert!(actions(100, |_| (0, false)).is_empty());
        // The response to the request has arrived on another lane, but none to the Ping.
        assert_eq!(actions(30, |at| (0, at < 12)), [(10, Action::Ping), (30, Action::Lost)]);
        // Silence before a request does not count.
        assert_eq!(actions(60, |at| (0, at > 50)), [(60, Action::Ping)]);
    }

    #[test]
    fn any_traffic_shows_that_a_lane_is_alive() {
        assert!(actions(100, |at| (at / 9, true)).is_empty());
        let slow = |at: u64| (at / 12, true);
        assert_eq!(actions(36, slow).len(), 3);
        assert!(actions(300, slow).iter().all(|(_, action)| *action == Action::Ping));
    }

    /// Both sides may have been suspended for hours: nothing has been read since.
    #[test]
    fn time_in_which_the_program_was_suspended_does_not_count() {
        let start = Instant::now();
        let mut silence = Silence::new(start, 0);
        let mut check = |at: u64| silence.check(start + Duration::from_secs(at), 0, true);
        let before: Vec<_> = (1..30).map(&mut check).collect();
        assert_eq!(before.iter().filter(|action| **action == Action::Ping).count(), 1);
        let hours = 10_000;
        let after: Vec<_> = (hours..=hours + 30).map(check).collect();
        assert_eq!((after[0], after[10], after[29]), (Action::Alive, Action::Ping, Action::Alive));
        assert_eq!(after[30], Action::Lost);
    }

    /// A piece over a slow link takes minutes to arrive, or to be sent.
    #[tokio::test(start_paused = true)]
    async fn the_bytes_of_an_incomplete_piece_are_progress_and_pongs_are_not() {
        for (bytes, is_given_up) in [(1000, false), (17, true)] {
            let World { session, .. } = World::new().await;
            let read = to_server::Body::Read(messages::Read::default());
            let mut responses = session.register(0, &read);
            let (messages, _sent) = unbounded_channel();
            let (weak, traffic) = (messages.downgrade(), Traffic::default());
            let receiving = async {
                loop {
                    sleep(CHECK_PERIOD * 9).await;
                    traffic.add(bytes);
                }
            };
            tokio::select! {
                outcome = timeout(Duration::from_secs(3600), responses.outcome()) => {
                    assert_eq!(outcome.is_ok_and(|outcome| outcome.unwrap().is_err()), is_given_up);
                }
                () = lost(&session, &weak, &traffic) => panic!("lost although there is traffic"),
                () = receiving => {}
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lane_with_a_slow_request_stays_open_while_pings_get_responses() {
        let World { session, .. } = World::new().await;
        let _responses = session.register(0, &to_server::Body::Ping(messages::Empty {}));
        let (messages, mut sent) = unbounded_channel();
        let traffic = Traffic::default();
        let (weak, received) = (messages.downgrade(), traffic.clone());
        let server = tokio::spawn(async move {
            let mut pings = 0;
            while sent.recv().await.is_some() {
                pings += 1;
                received.add(7);
            }
            pings
        });
        let hour = timeout(Duration::from_secs(3600), lost(&session, &weak, &traffic));
        assert!(hour.await.is_err());
        drop(messages);
        assert!(server.await.unwrap() > 300);
    }
}
