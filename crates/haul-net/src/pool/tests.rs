//! A pool in virtual time, with a server that takes a while to open a lane, or refuses it.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use haul_storage::{Error, ErrorKind, Result};
use proptest::prelude::*;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::*;

const MOST_OPENING: usize = 4;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[derive(Debug, Default)]
struct TestLane {
    number: usize,
    load: AtomicU64,
    outstanding: AtomicU64,
    has_ended: AtomicBool,
    is_taken: AtomicBool,
}

impl SharedLane for TestLane {
    fn load(&self) -> u64 {
        self.load.load(Relaxed)
    }

    fn outstanding(&self) -> u64 {
        self.outstanding.load(Relaxed)
    }

    fn rtt(&self) -> Option<Duration> {
        Some(ms(10))
    }

    fn current_rtt(&self) -> Option<Duration> {
        None
    }
}

/// What the server does, and what it observed.
#[derive(Debug, Default)]
struct Server {
    takes_ms: AtomicU64,
    refuses: AtomicBool,
    is_excess: AtomicBool,
    /// When the pool tried to open each lane.
    tried: Mutex<Vec<Instant>>,
    opening: AtomicUsize,
    most_opening: AtomicUsize,
}

#[derive(Debug)]
struct Opener(Arc<Server>);

impl Connect for Opener {
    type Connection = usize;
    type Lane = TestLane;

    const MOST_OPENING: usize = MOST_OPENING;

    fn connect(&mut self, _: &Arc<Lanes<Self>>) -> BoxFuture<'static, Result<Option<usize>>> {
        let server = Arc::clone(&self.0);
        let mut tried = self.0.tried.lock().unwrap();
        tried.push(Instant::now());
        let number = tried.len();
        Box::pin(async move {
            let opening = server.opening.fetch_add(1, Relaxed) + 1;
            server.most_opening.fetch_max(opening, Relaxed);
            sleep(ms(server.takes_ms.load(Relaxed))).await;
            server.opening.fetch_sub(1, Relaxed);
            match server.refuses.load(Relaxed) {
                true => {
                    Err(Error::new(ErrorKind::Busy, "connect").because(format!("try {number}")))
                }
                false => Ok(Some(number).filter(|_| !server.is_excess.load(Relaxed))),
            }
        })
    }

    fn start(&mut self, number: usize, supply: &mut Supply, _: &Arc<Notify>) -> Arc<TestLane> {
        supply.on_admitted();
        Arc::new(TestLane { number, ..TestLane::default() })
    }

    fn review(&mut self, lanes: &mut Vec<Arc<TestLane>>, supply: &mut Supply) -> usize {
        let ended = lanes.extract_if(.., |lane| lane.has_ended.load(Relaxed)).count();
        supply.on_lost(ended);
        close_excess(lanes, supply.target());
        0
    }
}

type TestLanes = Arc<Lanes<Opener>>;

fn pool(takes_ms: u64) -> (TestLanes, Arc<Server>) {
    let server = Arc::new(Server { takes_ms: takes_ms.into(), ..Server::default() });
    (Lanes::new(Opener(Arc::clone(&server)), Handle::current()), server)
}

fn lanes(pool: &TestLanes) -> Vec<Arc<TestLane>> {
    pool.with(|_, open, _| open.to_vec())
}

async fn choose(pool: &TestLanes) -> Result<Arc<TestLane>> {
    pool.choose(WhenFull::WaitForNew, Arc::clone).await
}

/// Polls the status as a transfer does.
async fn poll_status(pool: &TestLanes, time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        pool.status();
        sleep(ms(5)).await;
    }
}

/// Starts a task that waits for a lane that only one task at a time may use; once it has the lane,
/// it adds its name to `served`.
fn wait(
    pool: &TestLanes,
    queue: usize,
    name: &'static str,
    served: &Arc<Mutex<Vec<&'static str>>>,
) -> JoinHandle<Arc<TestLane>> {
    let (pool, served) = (Arc::clone(pool), Arc::clone(served));
    tokio::spawn(async move {
        let idle = |lane: &&Arc<TestLane>| !lane.is_taken.swap(true, Relaxed);
        let lane = pool.take_turn(queue, |_, open, _| open.iter().find(idle).cloned());
        let lane = lane.await.unwrap();
        served.lock().unwrap().push(name);
        lane
    })
}

fn release(pool: &TestLanes, lane: &TestLane) {
    lane.is_taken.store(false, Relaxed);
    pool.tend();
}

#[tokio::test(start_paused = true)]
async fn lanes_being_opened_are_limited_by_the_backend() {
    let (pool, server) = pool(100);
    choose(&pool).await.unwrap();
    pool.set_target(11);
    poll_status(&pool, ms(1000)).await;
    assert_eq!(pool.status().open, 11);
    assert_eq!(server.most_opening.load(Relaxed), MOST_OPENING);
    assert_eq!(server.tried.lock().unwrap().len(), 11);
}

#[tokio::test(start_paused = true)]
async fn no_lane_is_opened_before_a_task_needs_one() {
    let (pool, server) = pool(100);
    pool.set_target(4);
    poll_status(&pool, ms(1000)).await;
    assert!(server.tried.lock().unwrap().is_empty());
    assert_eq!(choose(&pool).await.unwrap().number, 1);
    poll_status(&pool, ms(1000)).await;
    assert_eq!(pool.status().open, 4);
}

#[tokio::test(start_paused = true)]
async fn open_lanes_can_be_closed_while_others_are_being_opened() {
    let (pool, _server) = pool(100);
    let lane = Arc::downgrade(&choose(&pool).await.unwrap());
    pool.set_target(4);
    pool.tend();
    assert!(pool.with(|_, _, supply| supply.opening()) > 0);
    assert!(lane.upgrade().is_some());
    pool.close();
    assert!(lane.upgrade().is_none());
}

#[tokio::test(start_paused = true)]
async fn the_pause_after_refusals_doubles_up_to_30_s() {
    let (pool, server) = pool(0);
    choose(&pool).await.unwrap();
    server.refuses.store(true, Relaxed);
    pool.set_target(2);
    poll_status(&pool, Duration::from_secs(130)).await;
    let tried = server.tried.lock().unwrap().clone();
    let pauses = tried[1..].windows(2).map(|pair| (pair[1] - pair[0]).as_secs());
    assert_eq!(pauses.collect::<Vec<_>>(), [1, 2, 4, 8, 16, 30, 30, 30]);
    assert_eq!(pool.status().refused, 9);
    server.refuses.store(false, Relaxed);
    poll_status(&pool, Duration::from_secs(30)).await;
    assert_eq!(pool.status().open, 2);
    // One lane was admitted, so the next refusal counts as the first again.
    server.refuses.store(true, Relaxed);
    pool.set_target(3);
    poll_status(&pool, ms(1500)).await;
    assert_eq!(pool.status().refused, 11);
}

#[tokio::test(start_paused = true)]
async fn a_failure_ends_the_waits_of_earlier_tasks_only() {
    let (pool, server) = pool(100);
    server.refuses.store(true, Relaxed);
    let waiting: Vec<_> = (0..5)
        .map(|task| {
            let pool = Arc::clone(&pool);
            tokio::spawn(async move {
                sleep(ms(task * 10)).await;
                choose(&pool).await.map(drop)
            })
        })
        .collect();
    sleep(ms(101)).await;
    server.refuses.store(false, Relaxed);
    let later = choose(&pool).await.unwrap();
    assert_eq!(later.number, 2, "the later task gets the next attempt");
    for task in waiting {
        let error = task.await.unwrap().unwrap_err();
        assert_eq!((error.kind(), error.cause().as_str()), (ErrorKind::Busy, "try 1"));
    }
    assert_eq!(server.tried.lock().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_no_failure_while_another_lane_is_opening() {
    let (pool, server) = pool(100);
    server.refuses.store(true, Relaxed);
    let chosen = tokio::spawn({
        let pool = Arc::clone(&pool);
        async move { choose(&pool).await }
    });
    sleep(ms(50)).await;
    pool.with(|_, _, supply| {
        supply.expect(2);
        supply.on_path(true);
    });
    pool.tend();
    sleep(ms(60)).await;
    server.refuses.store(false, Relaxed);
    assert_eq!(chosen.await.unwrap().unwrap().number, 2);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lane_is_replaced() {
    let (pool, _) = pool(100);
    choose(&pool).await.unwrap();
    pool.set_target(3);
    poll_status(&pool, ms(500)).await;
    lanes(&pool)[1].has_ended.store(true, Relaxed);
    let status = pool.status();
    assert_eq!((status.open, status.opening, status.refused), (2, 1, 1));
    poll_status(&pool, ms(500)).await;
    let numbers: Vec<_> = lanes(&pool).iter().map(|lane| lane.number).collect();
    assert_eq!(numbers, [1, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn after_all_lanes_are_lost_only_a_task_opens_one() {
    let (pool, server) = pool(100);
    choose(&pool).await.unwrap().has_ended.store(true, Relaxed);
    poll_status(&pool, ms(500)).await;
    assert_eq!((pool.status().open, server.tried.lock().unwrap().len()), (0, 1));
    assert_eq!(choose(&pool).await.unwrap().number, 2);
}

#[tokio::test(start_paused = true)]
async fn the_first_lane_does_not_wait_for_a_pause_to_end() {
    let (pool, server) = pool(10);
    let first = choose(&pool).await.unwrap();
    server.refuses.store(true, Relaxed);
    pool.set_target(2);
    poll_status(&pool, ms(100)).await;
    server.refuses.store(false, Relaxed);
    first.has_ended.store(true, Relaxed);
    let before = Instant::now();
    choose(&pool).await.unwrap();
    assert!(before.elapsed() < ms(50));
}

#[tokio::test(start_paused = true)]
async fn excess_lanes_are_closed_once_nothing_is_outstanding() {
    let (pool, _) = pool(10);
    choose(&pool).await.unwrap();
    pool.set_target(4);
    poll_status(&pool, ms(100)).await;
    let all = lanes(&pool);
    all[1..].iter().for_each(|lane| lane.outstanding.store(1, Relaxed));
    pool.set_target(2);
    let open = || lanes(&pool).iter().map(|lane| lane.number).collect::<Vec<_>>();
    assert_eq!(open(), [2, 3, 4]);
    all[3].outstanding.store(0, Relaxed);
    pool.tend();
    assert_eq!(open(), [2, 3]);
    all[2].outstanding.store(0, Relaxed);
    pool.tend();
    assert_eq!(open(), [2, 3], "as many lanes are open as the target");
}

#[tokio::test(start_paused = true)]
async fn an_excess_lane_does_not_count_as_refused() {
    let (pool, server) = pool(10);
    choose(&pool).await.unwrap();
    server.is_excess.store(true, Relaxed);
    pool.set_target(2);
    sleep(ms(100)).await;
    pool.set_target(1);
    let status = pool.status();
    assert_eq!((status.open, status.opening, status.refused), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn over_a_long_path_expected_lanes_are_opened_beside_the_first() {
    let (pool, server) = pool(300);
    pool.with(|_, _, supply| supply.expect(3));
    let first = tokio::spawn({
        let pool = Arc::clone(&pool);
        async move { choose(&pool).await.map(drop) }
    });
    sleep(ms(100)).await;
    assert_eq!(server.tried.lock().unwrap().len(), 1);
    pool.with(|_, _, supply| supply.on_path(true));
    pool.tend();
    assert_eq!(server.tried.lock().unwrap().len(), 3);
    first.await.unwrap().unwrap();
    sleep(ms(200)).await;
    assert_eq!(pool.status().open, 3);
    pool.set_target(1);
    assert_eq!(pool.status().open, 3, "the window has not measured anything yet");
}

#[tokio::test(start_paused = true)]
async fn the_least_loaded_lane_is_chosen_and_full_lanes_are_awaited() {
    let (pool, _) = pool(100);
    let first = choose(&pool).await.unwrap();
    first.load.store(ENOUGH, Relaxed);
    assert_eq!(choose(&pool).await.unwrap().number, 1, "there is no other lane to wait for");
    pool.set_target(2);
    assert_eq!(choose(&pool).await.unwrap().number, 2);
    lanes(&pool)[1].load.store(ENOUGH + 1, Relaxed);
    assert_eq!(choose(&pool).await.unwrap().number, 1);
    let waits = pool.choose(WhenFull::Wait, |lane| lane.number);
    let frees = async {
        sleep(ms(1000)).await;
        lanes(&pool)[1].load.store(0, Relaxed);
    };
    let began = Instant::now();
    assert_eq!(tokio::join!(waits, frees).0.unwrap(), 2);
    assert!(began.elapsed() >= ms(1000));
}

#[tokio::test(start_paused = true)]
async fn waiting_tasks_of_a_queue_are_served_in_order() {
    let (pool, _) = pool(100);
    let served = Arc::default();
    let mut tasks = Vec::new();
    for name in ["a", "b", "c", "d"] {
        tasks.push(wait(&pool, 0, name, &served));
        sleep(ms(1)).await;
    }
    for task in tasks {
        let lane = task.await.unwrap();
        sleep(ms(50)).await;
        release(&pool, &lane);
    }
    assert_eq!(*served.lock().unwrap(), ["a", "b", "c", "d"]);
    assert_eq!(pool.status().open, 1);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_task_is_skipped_in_the_queue() {
    let (pool, server) = pool(100);
    let served = Arc::default();
    let first = wait(&pool, 0, "first", &served);
    sleep(ms(1)).await;
    let gone = wait(&pool, 0, "gone", &served);
    sleep(ms(1)).await;
    let last = wait(&pool, 0, "last", &served);
    let lane = first.await.unwrap();
    gone.abort();
    sleep(ms(1)).await;
    release(&pool, &lane);
    assert_eq!(last.await.unwrap().number, 1);
    assert_eq!(*served.lock().unwrap(), ["first", "last"]);
    assert_eq!(server.tried.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_first_lane_of_a_cancelled_task_goes_to_the_next() {
    let (pool, server) = pool(100);
    let served = Arc::default();
    let gone = wait(&pool, 0, "gone", &served);
    sleep(ms(1)).await;
    let next = wait(&pool, 0, "next", &served);
    sleep(ms(50)).await;
    gone.abort();
    assert_eq!(next.await.unwrap().number, 1);
    assert_eq!(server.tried.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_blocked_queue_does_not_delay_the_others() {
    let (pool, _) = pool(100);
    let never = tokio::spawn({
        let pool = Arc::clone(&pool);
        async move { pool.take_turn(0, |_, _, _| None::<()>).await }
    });
    sleep(ms(1)).await;
    let served = Arc::default();
    wait(&pool, 1, "other", &served).await.unwrap();
    pool.with(|_, _, supply| assert_eq!(supply.waiting(), [0]));
    never.abort();
    assert!(never.await.is_err());
    pool.with(|_, _, supply| assert!(!supply.has_waiting_tasks()));
}

/// An event of a supply.
#[derive(Debug, Clone, Copy)]
enum Event {
    Target(usize),
    Expect(usize),
    Path(bool),
    Cap(usize),
    Wait(usize),
    WaitOver,
    Opens(bool),
    Fails,
    IsExcess,
    Ends,
    Passes(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        1 => (0..12_usize).prop_map(Event::Target),
        1 => (0..12_usize).prop_map(Event::Expect),
        1 => any::<bool>().prop_map(Event::Path),
        1 => (0..12_usize).prop_map(Event::Cap),
        3 => (0..QUEUES).prop_map(Event::Wait),
        1 => Just(Event::WaitOver),
        4 => any::<bool>().prop_map(Event::Opens),
        3 => Just(Event::Fails),
        1 => Just(Event::IsExcess),
        2 => Just(Event::Ends),
        3 => (0..40_000_u64).prop_map(Event::Passes),
    ]
}

proptest! {
    /// Any sequence of events. After each, `to_open` is called twice: the second call checks that the first
    /// left nothing to open.
    #[test]
    fn a_supply_stays_within_its_limits(events in prop::collection::vec(event(), 1..200)) {
        let mut supply = Supply::new(MOST_OPENING);
        let mut now = std::time::Instant::now();
        let (mut open, mut refused, mut paused_until) = (0_usize, 0, None);
        let mut waiting = Vec::new();
        for event in events {
            let opening = supply.opening();
            match event {
                Event::Target(lanes) => supply.set_target(lanes),
                Event::Expect(lanes) => supply.expect(lanes),
                Event::Path(is_long) => supply.on_path(is_long),
                Event::Cap(lanes) => supply.cap(lanes),
                Event::Wait(queue) => waiting.push((supply.on_wait(queue), queue)),
                Event::WaitOver if !waiting.is_empty() => {
                    supply.on_wait_over(waiting.remove(waiting.len() / 2).0);
                }
                Event::Opens(is_admitted) if opening > 0 => {
                    open += 1;
                    supply.on_open(ms(1));
                    if is_admitted {
                        supply.on_admitted();
                        prop_assert!(!supply.is_refused());
                    }
                }
                Event::Fails if opening > 0 => {
                    refused += 1;
                    let is_last = supply.on_failed(now, open);
                    prop_assert_eq!(is_last, open + opening == 1);
                    prop_assert!(supply.is_refused());
                    // The pause is longer after several refusals in a row.
                    paused_until = (!is_last).then_some(now + ms(1000));
                    if is_last {
                        waiting.clear();
                    }
                }
                Event::IsExcess if opening > 0 => supply.on_excess(),
                Event::Ends if open > 0 => {
                    open -= 1;
                    refused += 1;
                    supply.on_lost(1);
                }
                Event::Passes(millis) => now += ms(millis),
                _ => continue,
            }
            let queues: Vec<_> = waiting.iter().map(|(_, queue)| *queue).collect();
            prop_assert_eq!(supply.waiting(), queues);
            let (before, was_refused) = (supply.opening(), supply.is_refused());
            let more = supply.to_open(now, open, 0);
            prop_assert_eq!(supply.opening(), before + more);
            prop_assert!(supply.opening() <= MOST_OPENING);
            if more > 0 {
                prop_assert!(open + supply.opening() <= supply.target());
                let is_first = open + before == 0;
                prop_assert!(!is_first || (more == 1 && !waiting.is_empty()));
                prop_assert!(is_first || paused_until.is_none_or(|until| now >= until));
                prop_assert!(is_first || open > 0 || !was_refused);
            }
            // A waiting task gets a lane.
            prop_assert!(waiting.is_empty() || open + supply.opening() > 0);
            prop_assert_eq!(supply.to_open(now, open, 0), {
                // Everything permitted now has been started, except lanes beside the first one.
                let side_by_side = more == 1 && open + before == 0 && !supply.is_refused();
                if side_by_side { supply.opening() - before - 1 } else { 0 }
            });
            let status = supply.status(open, None, None);
            prop_assert_eq!((status.open, status.refused), (open, refused));
        }
    }
}
