//! RTTs of a connection, as measured by the kernel.
//!
//! The kernel times every packet that it sends until the acknowledgement arrives. The shortest of
//! these times is the path's RTT; the excess over it is time in queues, in either direction. So a
//! receiver notices the queue in front of it as well, because the acknowledgements of its requests
//! pass through it.
//!
//! A connection that only receives has nothing to time but its handshake. For such a connection the
//! kernel measures the time from an acknowledgement to the bytes that the peer sends after it
//! ([`Direction::In`]); a server that pauses between bytes makes that longer.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use super::tcp_info::{Direction, TcpInfo};

/// Reads the RTTs of one connection while it is open.
#[derive(Debug)]
pub struct RttGauge {
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "RTTs are read on Linux only")
    )]
    socket: Weak<OwnedFd>,
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "RTTs are read on Linux only")
    )]
    direction: Direction,
    last: Mutex<Option<Mean>>,
}

/// A second descriptor of a socket. It must be dropped to close the connection: the peer sees the
/// end when all descriptors are closed.
#[derive(Debug)]
pub struct Hold {
    _socket: Arc<OwnedFd>,
}

/// The kernel's running mean in microseconds, the number of packets delivered, and the mean of the latest of
/// these packets.
#[derive(Debug, Clone, Copy)]
struct Mean {
    micros: f64,
    delivered: u32,
    latest: f64,
}

/// RTTs of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RttSample {
    /// The shortest RTT of the last minutes.
    pub shortest: Duration,
    /// The mean RTT of packets timed since the last sample; for receivers, a running mean.
    pub now: Duration,
    /// Time since anything was sent (for receivers: received), which is the age of `now`.
    pub idle: Duration,
}

impl RttSample {
    /// The current RTT, if packets were timed within two RTTs or within `recent`.
    pub fn current_rtt(&self, recent: Duration) -> Option<Duration> {
        (self.idle <= (self.shortest * 2).max(recent)).then_some(self.now)
    }
}

/// How far the median of the connections' current RTTs exceeds `shortest`, the shortest RTT of the
/// path. A socket opened after the path became longer has measured a longer shortest RTT than those
/// before, so all are compared with the path's.
pub fn queueing(
    current_rtts: impl IntoIterator<Item = Duration>,
    shortest: Option<Duration>,
) -> Option<Duration> {
    let mut seen: Vec<Duration> = current_rtts.into_iter().collect();
    seen.sort_unstable();
    Some(seen.get(seen.len() / 2)?.saturating_sub(shortest?))
}

impl RttGauge {
    /// A gauge for a connected TCP socket, until the returned [`Hold`] is dropped.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn of(socket: &impl AsFd) -> io::Result<(Self, Hold)> {
        Self::of_data(socket, Direction::Out)
    }

    /// Like `of`, for a connection that transfers data in one known direction.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn of_data(socket: &impl AsFd, direction: Direction) -> io::Result<(Self, Hold)> {
        let socket = Arc::new(socket.as_fd().try_clone_to_owned()?);
        let gauge = Self { socket: Arc::downgrade(&socket), direction, last: Mutex::default() };
        Ok((gauge, Hold { _socket: socket }))
    }

    /// The RTTs now; `None` if the system does not report them or has not measured any yet, and
    /// after the connection was closed.
    pub fn sample(&self) -> Option<RttSample> {
        let info = self.info()?;
        let micros = f64::from(info.mean_us);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let mean = match *last {
            Some(last) if self.direction == Direction::Out => {
                last.followed_by(micros, info.delivered)
            }
            _ => Mean { micros, delivered: info.delivered, latest: micros },
        };
        *last = Some(mean);
        let shortest = f64::from(info.shortest_us);
        let time = |micros: f64| Duration::from_secs_f64(micros / 1e6);
        Some(RttSample {
            shortest: time(shortest),
            now: time(mean.latest.max(shortest)),
            idle: Duration::from_millis(info.idle_ms.into()),
        })
    }

    fn info(&self) -> Option<TcpInfo> {
        #[cfg(target_os = "linux")]
        return crate::tcp::read(self.socket.upgrade()?.as_ref(), self.direction);
        #[cfg(not(target_os = "linux"))]
        None
    }
}

impl Mean {
    /// The kernel reports a mean in which each new measurement weighs an eighth (RFC 6298), so a few
    /// packets hardly move it. The mean of the new packets follows from their number and from how far the
    /// kernel's mean moved. Each counts as one measurement, though an acknowledgement of several gives only one.
    fn followed_by(self, micros: f64, delivered: u32) -> Self {
        let packets = delivered.wrapping_sub(self.delivered);
        let latest = if packets == 0 {
            self.latest
        } else {
            let old_weight = 0.875_f64.powi(i32::try_from(packets).unwrap_or(i32::MAX));
            self.micros + (micros - self.micros) / (1.0 - old_weight)
        };
        Self { micros, delivered, latest: latest.max(0.0) }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_in_use_reports_its_rtt() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let (gauge, hold) = RttGauge::of(&near).unwrap();
        for _ in 0..100 {
            near.write_all(b"question").unwrap();
            far.read_exact(&mut [0; 8]).unwrap();
            far.write_all(b"answer").unwrap();
            near.read_exact(&mut [0; 6]).unwrap();
        }
        let seen = gauge.sample().unwrap();
        assert!(
            seen.shortest > Duration::ZERO && seen.shortest < Duration::from_secs(1),
            "{seen:?}"
        );
        assert!(seen.now >= seen.shortest && seen.now < Duration::from_secs(10), "{seen:?}");
        let idle = seen.idle;
        std::thread::sleep(Duration::from_millis(60));
        let later = gauge.sample().unwrap().idle;
        assert!(later >= idle + Duration::from_millis(40), "{idle:?} {later:?}");
        drop((near, hold));
        assert_eq!(far.read(&mut [0]).unwrap(), 0);
        assert_eq!(gauge.sample(), None);
    }

    #[test]
    fn a_connection_that_only_receives_reports_its_rtt() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let (sent, _sent) = RttGauge::of(&near).unwrap();
        let (gauge, hold) = RttGauge::of_data(&near, Direction::In).unwrap();
        assert_eq!(gauge.sample(), None);
        let mut piece = vec![0; 1 << 20];
        let seen = loop {
            far.write_all(&piece[..64 << 10]).unwrap();
            near.read_exact(&mut piece[..64 << 10]).unwrap();
            if let Some(seen) = gauge.sample() {
                break seen;
            }
        };
        assert!(seen.now >= seen.shortest && seen.now < Duration::from_secs(10), "{seen:?}");
        std::thread::sleep(Duration::from_millis(60));
        far.write_all(&piece[..64 << 10]).unwrap();
        near.read_exact(&mut piece[..64 << 10]).unwrap();
        // The other gauge has no new sample, since nothing was sent.
        let (old, new) = (sent.sample().unwrap().idle, gauge.sample().unwrap().idle);
        assert!(old >= new + Duration::from_millis(40), "{old:?} {new:?}");
        drop((near, hold, _sent));
        assert_eq!(gauge.sample(), None);
    }

    #[test]
    fn the_rtt_of_new_packets_is_derived_from_the_mean() {
        let mut mean = Mean { micros: 1000.0, delivered: u32::MAX, latest: 1000.0 };
        let mut kernel = 1000.0;
        for (packets, saw) in [(1, 1000.0), (2, 5000.0), (1, 3000.0), (40, 9000.0)] {
            (0..packets).for_each(|_| kernel += (saw - kernel) / 8.0);
            mean = mean.followed_by(kernel, mean.delivered.wrapping_add(packets));
            assert!((mean.latest - saw).abs() < 1.0, "{mean:?} {saw}");
        }
        assert_eq!(mean.followed_by(kernel, mean.delivered).latest, mean.latest);
    }

    #[test]
    fn all_connections_are_compared_with_the_shortest_rtt_of_the_path() {
        let ms = Duration::from_millis;
        let seen = |shortest, now, idle| RttSample { shortest, now, idle };
        let recent = ms(100);
        // Two from before the path became longer, two opened afterwards, and an idle one.
        let all = [
            seen(ms(20), ms(250), ms(5)),
            seen(ms(20), ms(260), ms(5)),
            seen(ms(250), ms(250), ms(5)),
            seen(ms(250), ms(255), ms(5)),
            seen(ms(20), ms(20), ms(101)),
        ];
        let current_rtts = || all.iter().filter_map(|seen| seen.current_rtt(recent));
        assert_eq!(current_rtts().count(), 4);
        assert_eq!(queueing(current_rtts(), Some(ms(20))), Some(ms(235)));
        assert_eq!(queueing(current_rtts(), Some(ms(300))), Some(ms(0)));
        assert_eq!(queueing([], Some(ms(20))), None);
    }

    #[test]
    fn a_socket_that_is_not_connected_has_no_rtt() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (gauge, _hold) = RttGauge::of(&listener).unwrap();
        assert_eq!(gauge.sample(), None);
    }
}
