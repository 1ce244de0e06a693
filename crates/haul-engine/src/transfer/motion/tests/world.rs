//! Drives a [`FileInMotion`] in virtual time, with simulated I/O that fails, stalls and completes out of order.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use haul_storage::memory::{MemoryStorage, SimulatedLink};
use haul_storage::{
    Block, DigestKind, Error, ErrorKind, Medium, Range, RangeSet, RelPath, Result, Retry, Storage,
    UNKNOWN_SIZE,
};
use tokio::time::sleep_until;

use crate::budget::{LinkBudgets, Permit};
use crate::flow::Flow;
use crate::links::Links;
use crate::long::LongReads;
use crate::tally::Tally;
use crate::transfer::motion::action::{Action, Reading, Requester, Writing};
use crate::transfer::motion::blocks::Received;
use crate::transfer::motion::{FileInMotion, Mode, Reads, Shared};
use crate::{Auto, EventSink, Job, Settings};

/// A transfer that takes longer than this in virtual time has stalled.
const STALLED_AFTER: Duration = Duration::from_secs(100_000);

/// A transfer of one file, and the faults to inject.
#[derive(Debug, Clone)]
pub struct Case {
    pub seed: u64,
    pub size: u64,
    pub mode: Mode,
    /// Holes in the source.
    pub holes: RangeSet,
    /// Ranges that an earlier run has written.
    pub written: RangeSet,
    /// Bytes in flight.
    pub window: u64,
    /// Bytes per second.
    pub bandwidth_limit: Option<u64>,
    /// Whether the transfer goes over a link with several lanes.
    pub has_lanes: bool,
    /// Percentage of reads, writes and copies that fail.
    pub failing: u64,
    /// Percentage of operations that take up to 3 s instead of 20 ms, so that others overtake them.
    pub late: u64,
    /// Percentage of reads that deliver no more data; another read has to take over their range.
    pub stalling: u64,
    /// Whether another file takes all permits once this one has made progress, and never releases them.
    pub is_starved: bool,
    /// When to stop the file, after the start.
    pub stops_at: Option<Duration>,
    /// Offset of a byte whose write fails with `NoSpace`, which is not retried.
    pub bad_byte: Option<u64>,
}

impl Case {
    /// A copy between disks with no faults; 5 % of the operations are late.
    pub fn new(seed: u64, size: u64, reads: Reads) -> Self {
        Self {
            seed,
            size,
            mode: Mode {
                reads,
                is_endless: false,
                destination: Medium::Disk,
                writes_in_order: false,
                write_bytes: 1,
                digest: None,
                direct: false,
                journal: false,
                keeps_permits: false,
                retries: (1000, Duration::from_millis(1)),
            },
            holes: RangeSet::new(),
            written: RangeSet::new(),
            window: 1 << 20,
            bandwidth_limit: None,
            has_lanes: false,
            failing: 0,
            late: 5,
            stalling: 0,
            is_starved: false,
            stops_at: None,
            bad_byte: None,
        }
    }

    /// Runs the transfer to its end, and checks every step.
    pub fn run(self) -> Outcome {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build();
        runtime.unwrap().block_on(async { World::new(self).await.run().await })
    }
}

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    pub failure: Option<Error>,
    pub elapsed: Duration,
    /// Reads that were withdrawn.
    pub taken_over: usize,
    /// Writes that failed.
    pub failed_writes: usize,
    /// Reads that were begun.
    pub requests: usize,
    /// Bytes read, including those that were never written.
    pub read: u64,
    /// Bytes in the journal.
    pub recorded: u64,
    /// The pause that the rate limit imposes on a further byte at the end.
    pub pause: Duration,
}

enum Event {
    Received(u64, Result<Received>),
    End(u64),
    Copied(u64, Result<Option<Range>>),
    Written(u64, Range, Result<()>),
    Hashed(u64, Range),
    Zeros(Range),
    Data(Option<Range>),
    Recorded,
    Stop,
}

pub struct World {
    case: Case,
    file: FileInMotion,
    flow: Arc<Flow>,
    tally: Arc<Tally>,
    counted: Arc<AtomicU64>,
    random: u64,
    events: BTreeMap<(Duration, u64), Event>,
    number: u64,
    rooms: Vec<(Requester, BoxFuture<'static, Permit>)>,
    /// Ids of reads in flight that deliver no more data.
    stalled: Vec<u64>,
    /// The bytes that each read has still to deliver, by its id.
    streams: HashMap<u64, Range>,
    written: RangeSet,
    hashed: RangeSet,
    recorded: RangeSet,
    /// Bytes of the record that was left out because the file was complete.
    skipped: u64,
    /// Permits that the other file holds, see [`Case::is_starved`].
    others: Vec<Permit>,
    outcome: Outcome,
}

impl World {
    async fn new(case: Case) -> Self {
        let settings = Settings {
            lanes: Auto::Fixed(4),
            window: Auto::Fixed(case.window),
            chunk: Auto::Fixed(64 << 10),
            bandwidth_limit: case.bandwidth_limit,
            ..Settings::default()
        };
        let (near, far) = (MemoryStorage::new(), MemoryStorage::builder());
        let far = far.with_link(SimulatedLink::new(Duration::from_millis(10), 10 << 20)).build();
        let (source, destination) = match case.mode.destination {
            Medium::Disk => (Arc::clone(&far), near),
            Medium::Link => (near, Arc::clone(&far)),
        };
        let root = RelPath::parse("").unwrap();
        let job = Job {
            source: source as Arc<dyn Storage>,
            source_path: root.clone(),
            destination: destination as Arc<dyn Storage>,
            destination_path: root,
            expected: None,
        };
        let links = if case.has_lanes { Links::of(&[job]) } else { Links::default() };
        let flow = Flow::new(
            &LinkBudgets::default(),
            &settings,
            &links,
            case.mode.destination == Medium::Link,
        );
        while case.has_lanes && !flow.has_lanes() {
            tokio::time::sleep(Duration::from_millis(10)).await;
            flow.tick();
        }
        let tally = Arc::new(Tally::new(EventSink::new(|_| ())));
        tally.plan_file(case.size);
        tally.planned();
        tally.resumed(case.written.total());
        let counted = Arc::new(AtomicU64::new(case.written.total()));
        let shared = Shared {
            flow: Arc::clone(&flow),
            tally: Arc::clone(&tally),
            long_reads: LongReads::default(),
        };
        let (mode, written) = (case.mode.clone(), case.written.clone());
        let size = if mode.is_endless { UNKNOWN_SIZE } else { case.size };
        let file = FileInMotion::new(shared, mode, size, written, Arc::clone(&counted));
        let mut world = Self {
            random: case.seed,
            file,
            flow,
            tally,
            counted,
            events: BTreeMap::new(),
            number: 0,
            rooms: Vec::new(),
            stalled: Vec::new(),
            streams: HashMap::new(),
            written: case.written.clone(),
            hashed: case.written.clone(),
            recorded: RangeSet::new(),
            skipped: 0,
            others: Vec::new(),
            outcome: Outcome {
                failure: None,
                elapsed: Duration::ZERO,
                taken_over: 0,
                failed_writes: 0,
                requests: 0,
                read: 0,
                recorded: 0,
                pause: Duration::ZERO,
            },
            case,
        };
        if let Some(at) = world.case.stops_at {
            world.after(at, Event::Stop);
        }
        world
    }

    async fn run(mut self) -> Outcome {
        let begun = self.flow.now();
        loop {
            let now = self.flow.now();
            assert!(now < STALLED_AFTER, "the transfer stalled: {:?}", self.case);
            let due = self.due_record();
            let action = self.file.poll(now);
            if !matches!(action, Action::Record(_)) && self.due_record() < due {
                assert!(!self.file.is_stopped(), "a record of an incomplete file was left out");
                self.skipped += due;
            }
            self.check_in_flight();
            self.withdraw(now);
            match action {
                Action::Done => break,
                Action::Wait(until) => self.wait(until).await,
                action => self.begin(action, now),
            }
        }
        self.outcome.elapsed = self.flow.now() - begun;
        self.outcome.failure = self.file.take_failure();
        self.outcome.pause = self.flow.pay(1).unwrap_or_default();
        self.check_end();
        self.outcome
    }

    /// The permits of ranges in flight cover exactly their outstanding bytes, or more after a takeover. Their
    /// sum is within the window.
    fn check_in_flight(&self) {
        let Case { mode, window, has_lanes, .. } = &self.case;
        if mode.reads == Reads::Ranges {
            let begun = self.file.ranges.iter().filter(|(_, range)| range.permit.is_some());
            for (id, range) in begun {
                let (room, wanted) = (range.room(), self.file.schedule.wanted(*id).len());
                let is_covered = if *has_lanes { room >= wanted } else { room == wanted };
                assert!(is_covered, "{room} bytes for {wanted}: {:?}", self.case);
            }
        }
        // Exceptions: permits of streams and of copies, which may exceed the window, and overdrawn permits.
        let overdraws = mode.writes_in_order || mode.reads != Reads::Ranges;
        if !overdraws && !mode.direct {
            assert!(self.flow.counted().0 <= *window, "{:?}", self.case);
            let may_hold = if mode.keeps_permits { *window } else { u64::MAX };
            assert!(self.flow.counted().1 <= may_hold, "{:?}", self.case);
        }
    }

    /// Grants a permit, or advances the time to the next event or deadline and handles the event.
    async fn wait(&mut self, until: Option<Duration>) {
        let now = self.flow.now();
        for at in 0..self.rooms.len() {
            if let Some(permit) = (&mut self.rooms[at].1).now_or_never() {
                let (requester, _) = self.rooms.swap_remove(at);
                return self.file.on_room(requester, permit, now);
            }
        }
        let has_begun = match self.case.mode.keeps_permits {
            true => self.file.records.retained_bytes() > 0,
            false => self.counted.load(Ordering::Relaxed) > 0,
        };
        if self.case.is_starved && has_begun {
            while let Some(permit) = self.flow.try_room(64 << 10) {
                self.others.push(permit);
            }
        }
        let next = self.events.first_key_value().map(|((at, _), _)| *at);
        let wake = until.into_iter().chain(next).min();
        let wake = wake.unwrap_or_else(|| panic!("deadlock, no event is due: {:?}", self.case));
        sleep_until(self.flow.at(wake)).await;
        if let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= wake) {
            let event = entry.remove();
            let now = self.flow.now();
            self.handle(event, now);
        }
    }

    fn handle(&mut self, event: Event, now: Duration) {
        match event {
            Event::Received(id, Ok(received)) => {
                self.outcome.read += received.block.len() as u64;
                self.file.on_block(id, received, now);
            }
            Event::Received(id, Err(error)) | Event::Copied(id, Err(error)) => {
                self.file.on_failed(id, error, now);
            }
            Event::End(id) => self.file.on_end(id, now),
            Event::Copied(id, Ok(copied)) => {
                copied.into_iter().for_each(|copied| insert_once(&mut self.written, copied));
                self.file.on_copied(id, copied, now);
            }
            Event::Written(id, range, written) => {
                if written.is_ok() {
                    if self.case.mode.writes_in_order {
                        let passed = self.written.first().map_or(0, Range::end);
                        assert_eq!(passed, range.start(), "out of order");
                    }
                    insert_once(&mut self.written, range);
                }
                self.file.on_written(id, range.start(), written, now);
            }
            Event::Hashed(id, range) => self.file.on_hashed(id, range.start(), Ok(()), now),
            Event::Zeros(hole) => self.file.on_zeros(hole, Ok(()), now),
            Event::Data(data) => self.file.on_data(Ok(data), now),
            Event::Recorded => self.file.on_recorded(Ok(()), now),
            Event::Stop => self.file.stop(None, now),
        }
    }

    /// Bytes of the record that is to be written next.
    fn due_record(&self) -> u64 {
        let bytes = |action: &Action| match action {
            Action::Record(ranges) => ranges.total(),
            _ => 0,
        };
        self.file.ready.iter().map(bytes).sum()
    }

    /// Drops permit requests and reads that the file has withdrawn.
    fn withdraw(&mut self, now: Duration) {
        if !self.file.take_withdrew() {
            return;
        }
        self.rooms.retain(|(requester, _)| self.file.wants_room(*requester));
        let reads = self.events.iter().filter_map(|(key, event)| match event {
            Event::Received(id, _) | Event::End(id) => Some((Some(*key), *id)),
            _ => None,
        });
        let stalled = self.stalled.iter().map(|id| (None, *id));
        let reads: Vec<_> = reads.chain(stalled).collect();
        for (key, id) in reads {
            if !self.file.wants_bytes(id) {
                key.into_iter().for_each(|key| _ = self.events.remove(&key));
                self.stalled.retain(|stalled| *stalled != id);
                self.outcome.taken_over += 1;
                self.file.on_withdrawn(id, now);
            } else if key.is_none() && self.file.is_stopped() {
                // A driver waits for the reads in flight to end; this one fails after 60 s.
                self.stalled.retain(|stalled| *stalled != id);
                self.after(Duration::from_secs(60), Event::Received(id, Err(unreachable_error())));
            }
        }
    }

    fn begin(&mut self, action: Action, now: Duration) {
        match action {
            Action::FindData(from) => {
                let data = self.case.holes.gaps(Range::between(from, self.case.size));
                self.soon(Event::Data(data.first().copied()));
            }
            Action::Zeros(hole) => {
                insert_once(&mut self.hashed, hole);
                self.soon(Event::Zeros(hole));
            }
            Action::Room(requester, bytes) => {
                if self.file.wants_room(requester) {
                    let flow = Arc::clone(&self.flow);
                    let room = async move { flow.room(bytes).await };
                    self.rooms.push((requester, room.boxed()));
                }
            }
            Action::Copy(id, range) => {
                let copied = match self.chance(self.case.failing) {
                    true => Err(unreachable_error()),
                    false => Ok((!self.chance(10)).then_some(range)),
                };
                self.soon(Event::Copied(id, copied));
            }
            Action::Read(reading) => self.begin_read(reading, now),
            Action::Write(writing) => self.begin_write(&writing),
            Action::Record(ranges) => {
                for range in ranges.iter() {
                    assert!(self.written.gaps(range).is_empty(), "recorded before it was written");
                    insert_once(&mut self.recorded, range);
                    self.outcome.recorded += range.len();
                }
                self.soon(Event::Recorded);
            }
            Action::FreeSlot => {}
            Action::Wait(_) | Action::Done => unreachable!("not begun"),
        }
    }

    fn begin_read(&mut self, reading: Reading, now: Duration) {
        let Reading { id, range, least, blocks, .. } = reading;
        if !self.file.wants_bytes(id) {
            return self.file.on_withdrawn(id, now);
        }
        if blocks.is_none() {
            self.streams.insert(id, range);
            self.outcome.requests += 1;
        }
        let left = self.streams[&id];
        let left = Range::between(left.start(), left.end().min(self.case.size));
        assert_eq!(left.start(), range.start(), "the stream is at another offset");
        if left.is_empty() {
            return self.soon(Event::End(id));
        }
        // A stalled read is recognised by comparison with completed ranges, so some have to be complete.
        let may_stall = self.written.total() > self.case.size / 4;
        if may_stall && self.chance(self.case.stalling) {
            return self.stalled.push(id);
        }
        if self.chance(self.case.failing) {
            return self.soon(Event::Received(id, Err(unreachable_error())));
        }
        let tears = self.chance(self.case.failing);
        let length = if tears { 1 } else { least } + self.below(96 << 10);
        let (part, rest) = left.split_at(length);
        self.streams.insert(id, rest);
        let failure = (tears && part.len() < least).then(unreachable_error);
        let received =
            Received { block: content(part), at: now, failure, rest: stream::empty().boxed() };
        self.soon(Event::Received(id, Ok(received)));
    }

    fn begin_write(&mut self, writing: &Writing) {
        let Writing { id, offset, block, write, hash } = writing;
        let range = Range::new(*offset, block.len() as u64);
        assert_eq!(*block, content(range), "wrong content at {range}");
        if *hash {
            insert_once(&mut self.hashed, range);
            self.soon(Event::Hashed(*id, range));
        }
        if *write {
            let is_bad =
                self.case.bad_byte.is_some_and(|bad| bad >= range.start() && bad < range.end());
            let written = if is_bad {
                Err(Error::new(ErrorKind::NoSpace, "write"))
            } else if self.chance(self.case.failing) {
                Err(unreachable_error())
            } else {
                Ok(())
            };
            self.outcome.failed_writes += usize::from(written.is_err());
            self.soon(Event::Written(*id, range, written));
        }
    }

    fn check_end(&mut self) {
        let case = &self.case;
        let in_flight = self.events.values().filter(|event| !matches!(event, Event::Stop)).count();
        assert_eq!((in_flight, self.stalled.len()), (0, 0), "done while operations are in flight");
        let all = Range::new(0, case.size);
        let mut passed = self.written.clone();
        if !case.mode.writes_in_order {
            case.holes.iter().for_each(|hole| passed.insert(hole));
        }
        let is_whole = passed.gaps(all).is_empty();
        if self.outcome.failure.is_none() && !self.file.is_stopped() {
            assert!(is_whole, "{:?} is missing: {case:?}", passed.gaps(all));
            assert_eq!(self.counted.load(Ordering::Relaxed), case.size, "{case:?}");
            assert_eq!(self.tally.remaining(), 0, "{case:?}");
            let hashed = if case.mode.digest.is_some() { case.size } else { case.written.total() };
            assert_eq!(self.hashed.total(), hashed, "{case:?}");
        }
        assert!(self.counted.load(Ordering::Relaxed) <= case.size);
        assert!(self.written.total() <= case.size);
        if case.mode.journal {
            let moved = self.written.total() - case.written.total();
            assert!(self.skipped == 0 || is_whole, "a record of an incomplete file was left out");
            let recorded = self.recorded.total() + self.skipped;
            assert!(moved - recorded <= 1 << 20, "too little is recorded");
        } else {
            assert!(self.recorded.is_empty());
        }
        self.rooms.clear();
        self.others.clear();
        let (in_flight, held) = self.flow.counted();
        let retained = self.file.records.retained_bytes();
        assert_eq!((in_flight, held), (0, retained), "permits were not released: {case:?}");
        // A stream may deliver more at once than its permit covers.
        let is_to_disk = case.mode.reads == Reads::Ranges && case.mode.destination == Medium::Disk;
        if case.mode.journal && is_to_disk && is_whole && !self.file.is_stopped() {
            // A rerun after a kill now repeats what is not in the journal, besides what others have in flight.
            let moved = self.written.total() - case.written.total();
            let repeated = moved - self.recorded.total();
            assert!(
                repeated <= held,
                "{repeated} bytes would be repeated, permits hold {held}: {case:?}"
            );
        }
    }

    fn soon(&mut self, event: Event) {
        let most = if self.chance(self.case.late) { 3_000_000 } else { 20_000 };
        let micros = self.below(most);
        self.after(Duration::from_micros(micros), event);
    }

    fn after(&mut self, pause: Duration, event: Event) {
        self.number += 1;
        self.events.insert((self.flow.now() + pause, self.number), event);
    }

    fn chance(&mut self, percent: u64) -> bool {
        percent > 0 && self.below(100) < percent
    }

    fn below(&mut self, most: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % most
    }
}

fn unreachable_error() -> Error {
    Error::new(ErrorKind::Unreachable, "read").with_retry(Retry::Later)
}

#[track_caller]
fn insert_once(set: &mut RangeSet, range: Range) {
    assert_eq!(set.gaps(range), [range], "part of {range} was inserted before");
    set.insert(range);
}

/// The bytes of the file in a range, a pattern with a period of 251 bytes: data that is written to a wrong
/// offset differs, unless it is off by a multiple of 251.
fn content(range: Range) -> Block {
    const PERIOD: u64 = 251;
    static PATTERN: LazyLock<Bytes> =
        LazyLock::new(|| (0..PERIOD * 5000).map(|at| (at % PERIOD) as u8).collect());
    let start = (range.start() % PERIOD) as usize;
    PATTERN.slice(start..start + range.len() as usize).into()
}

/// The digests to test with.
pub const DIGESTS: [Option<DigestKind>; 3] =
    [None, Some(DigestKind::Blake3), Some(DigestKind::Sha256)];
