//! Forwards bytes between two sockets, in both directions, until both have ended.

use std::io;
use std::net::Shutdown;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::account::Meter;
use super::carrier::Carrier;

/// A direction in which nothing moves for this long releases its pipe: pipes are limited per user.
const RELEASE: Duration = Duration::from_secs(2);

/// Bytes after which other connections of the thread get their turn.
const TURN: usize = 1 << 20;

/// The counters and limits of a pair.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flow<'a> {
    pub(super) meter: &'a Meter,
    /// Bytes of the whole bridge.
    pub(super) total: &'a AtomicU64,
    /// Bytes of this pair.
    pub(super) moved: &'a AtomicU64,
    /// A pair in which nothing moves for this long ends.
    pub(super) idle: Duration,
}

/// Forwards until both sides have closed. When one closes, the other one is notified, and may continue to send.
///
/// # Errors
/// If either is lost, nothing moves for too long, or the quota is used up.
pub(super) async fn forward(one: &TcpStream, other: &TcpStream, flow: Flow<'_>) -> io::Result<()> {
    let both = async {
        tokio::try_join!(direction(one, other, flow), direction(other, one, flow)).map(drop)
    };
    tokio::select! {
        outcome = both => outcome,
        () = idle(flow) => Err(io::Error::new(io::ErrorKind::TimedOut, "idle for too long")),
    }
}

async fn direction(from: &TcpStream, to: &TcpStream, flow: Flow<'_>) -> io::Result<()> {
    let mut carrier = None;
    let mut since_turn = 0;
    loop {
        let used = carrier.get_or_insert_with(Carrier::new);
        let filled = match used.fill(from) {
            Ok(0) => break,
            Ok(filled) => filled,
            Err(error) if is_transient(&error) => {
                tokio::select! {
                    ready = from.readable() => ready?,
                    () = sleep(RELEASE) => {
                        carrier = None;
                        from.readable().await?;
                    }
                }
                continue;
            }
            Err(error) => return Err(error),
        };
        let mut left = filled;
        while left > 0 {
            match used.drain(to, left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(drained) => left -= drained,
                Err(error) if is_transient(&error) => to.writable().await?,
                Err(error) => return Err(error),
            }
        }
        flow.moved.fetch_add(filled as u64, Ordering::Relaxed);
        flow.total.fetch_add(filled as u64, Ordering::Relaxed);
        match flow.meter.count(filled as u64) {
            Some(pause) if pause.is_zero() => {}
            Some(pause) => sleep(pause).await,
            None => return Err(io::Error::other("the sharer's daily quota is used up")),
        }
        since_turn += filled;
        if since_turn >= TURN {
            since_turn = 0;
            tokio::task::yield_now().await;
        }
    }
    match SockRef::from(to).shutdown(Shutdown::Write) {
        // The other side has closed, too.
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
        outcome => outcome,
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Returns when no byte has moved for too long.
async fn idle(flow: Flow<'_>) {
    const STEPS: u32 = 4;
    let (mut seen, mut quiet) = (flow.moved.load(Ordering::Relaxed), 0);
    while quiet < STEPS {
        sleep(flow.idle / STEPS).await;
        let moved = flow.moved.load(Ordering::Relaxed);
        quiet = if moved == seen { quiet + 1 } else { 0 };
        seen = moved;
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::super::account::Accounts;
    use super::*;

    async fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    /// Forwards between the returned sockets.
    async fn pair(
        accounts: Accounts,
        idle: Duration,
    ) -> (TcpStream, TcpStream, tokio::task::JoinHandle<(io::Result<()>, u64)>) {
        let (left, one) = connection().await;
        let (other, right) = connection().await;
        let from: SocketAddr = one.peer_addr().unwrap();
        let forwarding = tokio::spawn(async move {
            let meter = accounts.meter(from);
            let (total, moved) = (AtomicU64::new(0), AtomicU64::new(0));
            let flow = Flow { meter: &meter, total: &total, moved: &moved, idle };
            let outcome = forward(&one, &other, flow).await;
            assert_eq!(total.into_inner(), moved.load(Ordering::Relaxed));
            (outcome, moved.into_inner())
        });
        (left, right, forwarding)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_side_that_has_closed_still_receives() {
        let (mut left, mut right, forwarding) = pair(Accounts::new(None, None), LONG).await;
        left.write_all(b"question").await.unwrap();
        left.shutdown().await.unwrap();
        let mut received = Vec::new();
        right.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, b"question");
        let response = vec![7; 3_000_000];
        let sent = response.clone();
        let sending = tokio::spawn(async move {
            right.write_all(&sent).await.unwrap();
            right.shutdown().await.unwrap();
            right
        });
        let mut received = Vec::new();
        left.read_to_end(&mut received).await.unwrap();
        assert!(received == response);
        let (outcome, moved) = forwarding.await.unwrap();
        outcome.unwrap();
        assert_eq!(moved, 3_000_008);
        drop(sending.await.unwrap());
    }

    #[tokio::test]
    async fn an_idle_pair_ends() {
        let (mut left, _right, forwarding) =
            pair(Accounts::new(None, None), Duration::from_millis(40)).await;
        assert_eq!(left.read(&mut [0]).await.unwrap(), 0);
        assert_eq!(forwarding.await.unwrap().0.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_rate_slows_a_pair_down_and_a_quota_ends_it() {
        let (mut left, mut right, forwarding) =
            pair(Accounts::new(Some(1_000_000), Some(2_000_000)), LONG).await;
        let start = std::time::Instant::now();
        let sending = tokio::spawn(async move {
            // It fails when the pair ends.
            drop(left.write_all(&vec![0; 10_000_000]).await);
            left
        });
        let mut received = Vec::new();
        // The end may be a reset, since there are bytes that were not forwarded.
        drop(right.read_to_end(&mut received).await);
        let (outcome, moved) = forwarding.await.unwrap();
        assert!(outcome.unwrap_err().to_string().contains("quota"));
        assert!((1_000_000..1_300_000).contains(&moved), "{moved}");
        assert!(start.elapsed() > Duration::from_millis(200), "{:?}", start.elapsed());
        drop(sending.await.unwrap());
    }
}
