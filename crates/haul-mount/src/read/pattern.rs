//! Recognises sequential reads, and decides how far to read ahead. Without I/O.
//!
//! Several streams of reads may be in one file, forward and backward; each read continues one of them or begins a
//! new one. The kernel sends two or three requests at a time, not always in order, so a read that begins near the
//! end of a stream continues it.
//!
//! A new stream reads nothing ahead, except at the start of the file, where most sequential reads begin. The second
//! read starts a short read-ahead. When two reads after the first have had to wait, the read-ahead jumps to the
//! measured window: less would keep the reader waiting once per RTT.

use haul_storage::Range;

/// Streams in one file that are remembered.
const MOST_STREAMS: usize = 8;

/// How many bytes from the end of a stream a read may begin and still continue the stream.
const SLACK: u64 = 1 << 20;

/// Bytes to read ahead at the second read of a stream, and at the start of a file.
const FIRST_AHEAD: u64 = 512 << 10;

/// Reads after which the direction of a stream is certain.
const SETTLED: u64 = 4;

/// What should be in memory or in flight beyond a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ahead {
    pub(super) range: Range,
    /// Bytes that the stream has read so far.
    pub(super) read: u64,
}

/// The streams of reads in one file.
#[derive(Debug, Default)]
pub(super) struct Streams {
    streams: Vec<Stream>,
    reads: u64,
}

#[derive(Debug)]
struct Stream {
    /// What was read so far, from the lowest to the highest offset.
    low: u64,
    high: u64,
    is_backward: bool,
    /// Reads so far, and how many of them had to wait for bytes, from the second read on.
    reads: u64,
    stalls: u32,
    /// Bytes to read ahead.
    ahead: u64,
    last: u64,
}

impl Streams {
    /// Records a read. `stalled` if it has to wait for bytes; `window` is how many bytes a file may read ahead. Returns
    /// what should be in memory or in flight, if anything, beyond the read itself.
    pub(super) fn on_read(&mut self, range: Range, stalled: bool, window: u64) -> Option<Ahead> {
        self.reads += 1;
        let now = self.reads;
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.is_continued_by(range)) {
            stream.last = now;
            return stream.continued(range, stalled, window);
        }
        let at_start = range.start() == 0;
        let stream = Stream {
            low: range.start(),
            high: range.end(),
            is_backward: false,
            reads: 1,
            stalls: 0,
            ahead: if at_start { FIRST_AHEAD.min(window) } else { 0 },
            last: now,
        };
        let ahead = stream.wanted();
        if self.streams.len() < MOST_STREAMS {
            self.streams.push(stream);
        } else if let Some(oldest) = self.streams.iter_mut().min_by_key(|stream| stream.last) {
            *oldest = stream;
        }
        ahead
    }

    /// Whether any stream has had a second read, after which it reads ahead.
    pub(super) fn is_sequential(&self) -> bool {
        self.streams.iter().any(|stream| stream.reads > 1)
    }
}

impl Stream {
    fn is_continued_by(&self, range: Range) -> bool {
        let is_forward = self.high.abs_diff(range.start()) <= SLACK && range.end() > self.low;
        let is_backward = self.low.abs_diff(range.end()) <= SLACK && range.start() <= self.high;
        match self.reads {
            // The second read decides the direction.
            1 => is_forward || is_backward,
            _ if self.is_backward => is_backward,
            _ => is_forward,
        }
    }

    fn continued(&mut self, range: Range, stalled: bool, window: u64) -> Option<Ahead> {
        if self.reads == 1 {
            self.is_backward = range.start() < self.low;
        } else if self.reads < SETTLED && range.end() > self.high {
            // The first requests of the kernel were out of order.
            self.is_backward = false;
        }
        self.reads += 1;
        self.low = self.low.min(range.start());
        self.high = self.high.max(range.end());
        if stalled {
            self.stalls += 1;
        }
        self.ahead = match self.stalls {
            0 | 1 => self.ahead.max(FIRST_AHEAD),
            _ => self.ahead.max(window),
        };
        // Also at least as much as was read so far: if the reader stops, that wastes no more than it has used.
        let read = self.high - self.low;
        self.ahead = self.ahead.max(read.min(window)).min(window.max(FIRST_AHEAD));
        self.wanted()
    }

    fn wanted(&self) -> Option<Ahead> {
        let range = if self.is_backward {
            Range::between(self.low.saturating_sub(self.ahead), self.low)
        } else {
            Range::new(self.high, self.ahead)
        };
        (!range.is_empty()).then_some(Ahead { range, read: self.high - self.low })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const WINDOW: u64 = 16 * MIB;

    fn read(streams: &mut Streams, start: u64, stalled: bool) -> u64 {
        let range = Range::new(start, 128 * KIB);
        streams.on_read(range, stalled, WINDOW).map_or(0, |ahead| ahead.range.len())
    }

    #[test]
    fn a_reader_that_waits_twice_after_its_first_read_gets_the_window() {
        let mut streams = Streams::default();
        assert_eq!(read(&mut streams, 0, true), FIRST_AHEAD);
        assert_eq!(read(&mut streams, 128 * KIB, false), FIRST_AHEAD);
        assert_eq!(read(&mut streams, 256 * KIB, true), FIRST_AHEAD);
        assert_eq!(read(&mut streams, 384 * KIB, true), WINDOW);
        assert_eq!(read(&mut streams, 512 * KIB, false), WINDOW);
    }

    #[test]
    fn random_reads_read_nothing_ahead() {
        let mut streams = Streams::default();
        for start in [900, 100, 500, 300, 700, 200, 800, 400, 600, 950, 50] {
            assert_eq!(read(&mut streams, start * 10 * MIB, true), 0);
        }
        assert!(!streams.is_sequential());
    }

    #[test]
    fn requests_out_of_order_continue_the_same_stream() {
        let mut streams = Streams::default();
        for start in [0, 256, 128, 512, 384] {
            read(&mut streams, start * KIB, true);
        }
        assert_eq!(streams.streams.len(), 1);
        assert_eq!(streams.streams[0].high, 640 * KIB);
    }

    #[test]
    fn a_first_request_that_comes_second_does_not_turn_the_stream_backward() {
        let mut streams = Streams::default();
        for start in [128, 0, 256] {
            read(&mut streams, start * KIB, true);
        }
        assert_eq!(read(&mut streams, 384 * KIB, true), WINDOW);
        assert!(!streams.streams[0].is_backward);
    }

    #[test]
    fn several_streams_in_one_file_are_distinguished() {
        let mut streams = Streams::default();
        let mut last = (0, 0);
        for step in 0..8 {
            let at = step * 128 * KIB;
            last = (
                read(&mut streams, 100 * MIB + at, true),
                read(&mut streams, 500 * MIB + at, true),
            );
        }
        assert_eq!(last, (WINDOW, WINDOW));
    }

    #[test]
    fn a_read_of_the_tail_of_a_file_does_not_disturb_a_sequential_read() {
        let mut streams = Streams::default();
        read(&mut streams, 0, true);
        assert_eq!(read(&mut streams, 900 * MIB, true), 0);
        for step in 1..4 {
            read(&mut streams, step * 128 * KIB, true);
        }
        assert_eq!(read(&mut streams, 512 * KIB, false), WINDOW);
    }

    #[test]
    fn the_read_ahead_of_a_backward_reader_goes_backward() {
        let mut streams = Streams::default();
        for step in (0..6).rev() {
            let range = Range::new(100 * MIB + step * 128 * KIB, 128 * KIB);
            let ahead = streams.on_read(range, true, WINDOW);
            if step < 5 {
                assert_eq!(ahead.unwrap().range.end(), range.start());
            }
        }
        let range = Range::new(100 * MIB - 128 * KIB, 128 * KIB);
        let ahead = streams.on_read(range, false, WINDOW).unwrap().range;
        assert_eq!((ahead.end(), ahead.len()), (range.start(), WINDOW));
    }

    #[test]
    fn the_first_read_ahead_is_no_longer_than_a_small_window() {
        let mut streams = Streams::default();
        let range = Range::new(0, 4 * KIB);
        assert_eq!(streams.on_read(range, true, KIB).map(|ahead| ahead.range.len()), Some(KIB));
    }
}
