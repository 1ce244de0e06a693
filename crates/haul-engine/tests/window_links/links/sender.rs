//! Model of the TCP sender of one lane: sends segments in order, within its congestion window and socket
//! buffers, and retransmits lost ones.
//!
//! The link never reorders, so an acknowledgement proves that all earlier unacknowledged segments are lost.

use std::collections::VecDeque;

use super::{Congestion, Link};

/// Payload of a packet of 1500 bytes.
pub(super) const MSS: u64 = 1448;

/// Initial congestion window (RFC 6928).
const FIRST_WINDOW: u64 = 10 * MSS;

/// Startup gain of BBR, 2/ln 2.
const STARTUP_GAIN: f64 = 2.885;

/// Length of BBR's window for the minimum RTT, in nanoseconds.
const MIN_RTT_WINDOW: u64 = 10_000_000_000;

const PROBE_GAINS: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];

/// A segment in flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    sent: u64,
    delivered: u64,
    delivered_at: u64,
    app_limited: bool,
}

/// The sender of one lane. Times are nanoseconds.
#[derive(Debug)]
pub(super) struct Sender {
    congestion: Congestion,
    cap: u64,
    rate: f64,
    /// End offsets of the bytes requested, sent at least once (`next`), and acknowledged without a gap.
    requested: u64,
    next: u64,
    acknowledged: u64,
    segments: VecDeque<Segment>,
    in_flight: u64,
    lost: VecDeque<(u64, u64)>,
    numbers: u64,
    window: f64,
    delivered: u64,
    delivered_at: u64,
    app_limited_until: u64,
    min_rtt: u64,
    min_rtt_at: u64,
    last_rtt: u64,
    /// The RTT may change. If not, the minimum RTT never expires, and timeouts are shorter than a kernel's.
    path_changes: bool,
    pub(super) pace_at: u64,
    bbr: Bbr,
    cubic: Cubic,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    Probe,
}

#[derive(Debug)]
struct Bbr {
    mode: Mode,
    /// Highest delivery rate of each of the last ten rounds, bytes per second.
    rates: VecDeque<f64>,
    round_ends: u64,
    new_round: bool,
    full_rate: f64,
    flat: u32,
    phase: usize,
    phase_began: u64,
}

#[derive(Debug)]
struct Cubic {
    threshold: f64,
    highest: f64,
    epoch: Option<u64>,
    recovery: u64,
}

impl Sender {
    pub(super) fn new(link: &Link, seed: usize) -> Self {
        Self {
            congestion: link.congestion,
            cap: link.lane_bytes,
            rate: link.lane_rate,
            requested: 0,
            next: 0,
            acknowledged: 0,
            segments: VecDeque::new(),
            in_flight: 0,
            lost: VecDeque::new(),
            numbers: 0,
            window: FIRST_WINDOW as f64,
            delivered: 0,
            delivered_at: 0,
            app_limited_until: 0,
            min_rtt: u64::MAX,
            min_rtt_at: 0,
            last_rtt: 0,
            path_changes: !link.changes.is_empty(),
            pace_at: 0,
            bbr: Bbr {
                mode: Mode::Startup,
                rates: VecDeque::from([0.0]),
                round_ends: 0,
                new_round: true,
                full_rate: 0.0,
                flat: 0,
                // Lanes start in different phases, so that they do not probe together.
                phase: 2 + seed % 6,
                phase_began: 0,
            },
            cubic: Cubic { threshold: f64::INFINITY, highest: 0.0, epoch: None, recovery: 0 },
        }
    }

    pub(super) fn request(&mut self, bytes: u64) {
        self.requested += bytes;
    }

    /// True if the next segment would be new data, not a retransmission.
    pub(super) fn next_is_new(&self) -> bool {
        self.lost.is_empty()
    }

    pub(super) fn has_in_flight(&self) -> bool {
        !self.segments.is_empty()
    }

    /// Time after the last segment was sent, in nanoseconds, at which all segments in flight count as lost.
    pub(super) fn probe_timeout(&self) -> u64 {
        if self.min_rtt == u64::MAX {
            1_000_000_000
        } else if self.path_changes {
            300_000_000.max(3 * self.last_rtt)
        } else {
            3 * self.min_rtt + 5_000_000
        }
    }

    pub(super) fn last_sent(&self) -> u64 {
        self.segments.back().map_or(0, |segment| segment.sent)
    }

    /// Bytes that may be sent now in one segment; `None` without data to send or room in the window.
    pub(super) fn sendable(&mut self, segment: u64) -> Option<u64> {
        let room = (self.window as u64).saturating_sub(self.in_flight);
        let waiting = match self.lost.front() {
            Some(&(_, bytes)) => bytes,
            None => {
                let buffer = (self.acknowledged + self.cap).saturating_sub(self.next);
                let waiting = (self.requested - self.next).min(buffer);
                if waiting == 0 {
                    self.wait_for_data();
                    return None;
                }
                waiting
            }
        };
        let bytes = waiting.min(segment).min(room);
        (bytes >= waiting.min(MSS)).then_some(bytes)
    }

    /// Marks the sender as application-limited: rates measured now do not reflect the link.
    pub(super) fn wait_for_data(&mut self) {
        self.app_limited_until = self.delivered + self.in_flight.max(1);
    }

    /// Sends `bytes` as one segment, lost bytes first.
    pub(super) fn send(&mut self, now: u64, bytes: u64) -> Segment {
        let offset = match self.lost.pop_front() {
            Some((offset, left)) => {
                if left > bytes {
                    self.lost.push_front((offset + bytes, left - bytes));
                }
                offset
            }
            None => {
                self.next += bytes;
                self.next - bytes
            }
        };
        if self.in_flight == 0 {
            self.delivered_at = now;
        }
        let segment = Segment {
            number: self.numbers,
            offset,
            bytes,
            sent: now,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            app_limited: self.delivered < self.app_limited_until,
        };
        self.numbers += 1;
        self.in_flight += bytes;
        self.segments.push_back(segment);
        let pace = self.pacing_rate();
        if pace.is_finite() {
            self.pace_at = self.pace_at.max(now) + (bytes as f64 / pace * 1e9) as u64;
        }
        segment
    }

    fn pacing_rate(&self) -> f64 {
        let paced = match self.congestion {
            Congestion::Cubic => f64::INFINITY,
            Congestion::Bbr if self.min_rtt == u64::MAX => f64::INFINITY,
            Congestion::Bbr => {
                let first = FIRST_WINDOW as f64 / (self.min_rtt as f64 / 1e9);
                self.pacing_gain() * self.bottleneck().max(first / STARTUP_GAIN)
            }
        };
        paced.min(self.rate)
    }

    fn pacing_gain(&self) -> f64 {
        match self.bbr.mode {
            Mode::Startup => STARTUP_GAIN,
            Mode::Drain => 1.0 / STARTUP_GAIN,
            Mode::Probe => PROBE_GAINS[self.bbr.phase],
        }
    }

    fn bottleneck(&self) -> f64 {
        self.bbr.rates.iter().copied().fold(0.0, f64::max)
    }

    /// Handles an acknowledgement of one segment and of all bytes before `acknowledged`.
    pub(super) fn on_ack(&mut self, now: u64, number: u64, acknowledged: u64) {
        self.acknowledged = self.acknowledged.max(acknowledged);
        let mut lost_sent = None;
        while let Some(&segment) = self.segments.front() {
            if segment.number > number {
                break;
            }
            self.segments.pop_front();
            self.in_flight -= segment.bytes;
            if segment.number < number {
                self.lost.push_back((segment.offset, segment.bytes));
                lost_sent = Some(segment.sent);
                continue;
            }
            self.delivered += segment.bytes;
            self.delivered_at = now;
            self.last_rtt = now - segment.sent;
            let expired = self.path_changes && now > self.min_rtt_at + MIN_RTT_WINDOW;
            if self.last_rtt <= self.min_rtt || expired {
                (self.min_rtt, self.min_rtt_at) = (self.last_rtt, now);
            }
            match self.congestion {
                Congestion::Bbr => self.bbr_ack(now, segment),
                Congestion::Cubic => self.cubic_ack(now, segment),
            }
        }
        if let Some(sent) = lost_sent {
            self.on_loss(now, sent);
        }
    }

    /// Handles a probe timeout: all segments in flight count as lost.
    pub(super) fn on_probe_timeout(&mut self, now: u64) {
        while let Some(segment) = self.segments.pop_front() {
            self.in_flight -= segment.bytes;
            self.lost.push_back((segment.offset, segment.bytes));
            self.on_loss(now, segment.sent);
        }
    }

    fn on_loss(&mut self, now: u64, sent: u64) {
        let cubic = &mut self.cubic;
        if self.congestion == Congestion::Cubic && sent >= cubic.recovery {
            cubic.recovery = now;
            cubic.epoch = None;
            cubic.highest = self.window;
            self.window = (self.window * 0.7).max(2.0 * MSS as f64);
            cubic.threshold = self.window;
        }
    }

    fn cubic_ack(&mut self, now: u64, segment: Segment) {
        let taken = now - segment.sent;
        if segment.app_limited && self.in_flight * 2 < self.window as u64 {
            return;
        }
        let cubic = &mut self.cubic;
        if self.window < cubic.threshold {
            self.window += segment.bytes as f64;
            // HyStart: an RTT that exceeds the minimum by an eighth (4 to 16 ms) ends slow start.
            let longer = (self.min_rtt / 8).clamp(4_000_000, 16_000_000);
            if taken > self.min_rtt + longer && self.window > 16.0 * MSS as f64 {
                cubic.threshold = self.window;
                cubic.highest = self.window;
            }
            return;
        }
        let epoch = *cubic.epoch.get_or_insert(now);
        let mss = MSS as f64;
        let (highest, window) = (cubic.highest.max(self.window * 0.7) / mss, self.window / mss);
        let k = (highest * 0.3 / 0.4).cbrt();
        let elapsed = (now - epoch) as f64 / 1e9 + self.min_rtt as f64 / 1e9;
        let target = (0.4 * (elapsed - k).powi(3) + highest).clamp(window, 1.5 * window);
        let reno = 0.53 * segment.bytes as f64 * mss / self.window;
        let growth = (target - window) / window * segment.bytes as f64;
        self.window += growth.max(reno);
    }

    fn bbr_ack(&mut self, now: u64, segment: Segment) {
        let interval = (now - segment.delivered_at).max(self.min_rtt.min(now - segment.sent));
        let rate = (self.delivered - segment.delivered) as f64 / (interval.max(1) as f64 / 1e9);
        if segment.delivered >= self.bbr.round_ends {
            self.bbr.round_ends = self.delivered;
            self.bbr.new_round = true;
            self.check_full(segment.app_limited);
        }
        // An application-limited sample counts only if it is higher.
        if !segment.app_limited || rate > self.bottleneck() {
            if std::mem::take(&mut self.bbr.new_round) {
                self.bbr.rates.push_back(0.0);
                if self.bbr.rates.len() > 10 {
                    self.bbr.rates.pop_front();
                }
            }
            if let Some(highest) = self.bbr.rates.back_mut() {
                *highest = highest.max(rate);
            }
        }
        let bdp = self.bottleneck() * self.min_rtt as f64 / 1e9;
        match self.bbr.mode {
            Mode::Startup => {}
            Mode::Drain => {
                if self.in_flight as f64 <= bdp {
                    self.bbr.mode = Mode::Probe;
                    self.bbr.phase_began = now;
                }
            }
            Mode::Probe => {
                if now - self.bbr.phase_began > self.min_rtt {
                    self.bbr.phase = (self.bbr.phase + 1) % PROBE_GAINS.len();
                    self.bbr.phase_began = now;
                }
            }
        }
        let starting = self.bbr.mode == Mode::Startup;
        if !starting || self.window < STARTUP_GAIN * bdp || self.delivered < FIRST_WINDOW {
            self.window += segment.bytes as f64;
        }
        if !starting {
            self.window = self.window.min(2.0 * bdp + 3.0 * MSS as f64);
        }
        self.window = self.window.max(4.0 * MSS as f64);
    }

    fn check_full(&mut self, app_limited: bool) {
        let rate = self.bottleneck();
        if self.bbr.mode != Mode::Startup || app_limited {
            return;
        }
        if rate >= self.bbr.full_rate * 1.25 {
            self.bbr.full_rate = rate;
            self.bbr.flat = 0;
        } else {
            self.bbr.flat += 1;
            if self.bbr.flat >= 3 {
                self.bbr.mode = Mode::Drain;
            }
        }
    }
}
