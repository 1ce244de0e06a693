//! One source to many hosts, in virtual time: how often the source is read, which hosts wait for others,
//! and how a failed host affects the others.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::path;
use haul_engine::fan::{
    FanEvent, FanSettings, FanSink, FanSummary, HostEnd, HostOutcome, Opened, fan_out,
};
use haul_engine::{Cancel, Event, Filter, Job, Settings};
use haul_storage::memory::{MemoryStorage, Operation, SimulatedLink};
use haul_storage::{DigestKind, Error, ErrorKind, Storage};

const MIB: u64 = 1 << 20;

struct Outcome {
    summary: FanSummary,
    ends: Vec<HostEnd>,
    events: Vec<FanEvent>,
}

impl Outcome {
    fn end(&self, host: usize) -> &HostEnd {
        self.ends.iter().find(|end| end.host == host).unwrap()
    }

    fn seconds(&self, host: usize) -> f64 {
        self.end(host).elapsed.as_secs_f64()
    }

    #[track_caller]
    fn assert_clean(&self) -> &Self {
        assert!(self.ends.iter().all(HostEnd::is_done), "{:?}", self.events);
        assert_eq!((self.summary.failed_hosts, self.summary.total.failed), (0, 0));
        self
    }
}

fn settings(memory: u64) -> FanSettings {
    let transfer =
        Settings { memory, retry_pause: Duration::from_millis(1), ..Settings::default() };
    FanSettings { transfer, at_once: 32, fail_fast: false, one_source: true }
}

/// A host behind a link of 20 ms and `bytes_per_second`.
fn host(bytes_per_second: u64) -> Arc<MemoryStorage> {
    let link = SimulatedLink::new(Duration::from_millis(20), bytes_per_second);
    MemoryStorage::builder().with_link(link).build()
}

async fn fan(
    source: &Arc<MemoryStorage>,
    hosts: &[Arc<MemoryStorage>],
    settings: FanSettings,
) -> Outcome {
    fan_until(source, hosts, settings, Cancel::default()).await
}

async fn fan_until(
    source: &Arc<MemoryStorage>,
    hosts: &[Arc<MemoryStorage>],
    settings: FanSettings,
    cancel: Cancel,
) -> Outcome {
    let open = |host: usize| async move {
        // Fails for a host that cannot be reached.
        hosts[host].stat(&path("")).await?;
        let jobs = vec![Job {
            source: Arc::clone(source) as Arc<dyn Storage>,
            source_path: path(""),
            destination: Arc::clone(&hosts[host]) as Arc<dyn Storage>,
            destination_path: path("to"),
            expected: None,
        }];
        Ok(Opened { jobs, filter: Filter::default() })
    };
    let received = Arc::new(Mutex::new(Vec::new()));
    let sink = {
        let received = Arc::clone(&received);
        FanSink::new(move |event| received.lock().unwrap().push(event))
    };
    let summary = fan_out(hosts.len(), open, settings, sink, cancel).await;
    let received = std::mem::take(&mut *received.lock().unwrap());
    let (mut ends, mut events) = (Vec::new(), Vec::new());
    for event in received {
        match event {
            FanEvent::Ended(end) => ends.push(end),
            event => events.push(event),
        }
    }
    Outcome { summary, ends, events }
}

/// A disk with small files, three large ones (one with holes), a link and an empty directory; and the number of its
/// bytes without holes.
fn tree() -> (Arc<MemoryStorage>, u64) {
    let source = MemoryStorage::new();
    source.add_pattern_file("big", 40 * MIB + 77, 1);
    source.add_pattern_file("d/middle", 3 * MIB, 2);
    source.add_sparse_file("d/holes", 20 * MIB, &[(5 * MIB, &[7; 100_000])]);
    source.add_symlink("d/link", "../big");
    source.add_dir("empty");
    for at in 0..200 {
        source.add_pattern_file(format!("small/{}/f{at}", at % 5), 1000 + at, at);
    }
    let small: u64 = (0..200).map(|at| 1000 + at).sum();
    (source, 43 * MIB + 77 + 100_000 + small)
}

#[track_caller]
fn assert_same(source: &MemoryStorage, host: &MemoryStorage) {
    let copied = host.files();
    assert_eq!(copied.len(), source.files().len());
    for (name, content) in source.files() {
        let name = path("to").join_path(&name);
        assert!(copied[&name] == content, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn hosts_of_equal_speed_share_one_read() {
    for digest in [None, Some(DigestKind::Blake3)] {
        let (source, bytes) = tree();
        let hosts: Vec<_> = (0..8).map(|_| host(50 * MIB)).collect();
        let mut settings = settings(64 * MIB);
        settings.transfer.digest = digest;
        let outcome = fan(&source, &hosts, settings).await;
        outcome.assert_clean();
        hosts.iter().for_each(|host| assert_same(&source, host));
        assert_eq!(outcome.summary.total.files, 8 * 203);
        let read = outcome.summary.source_bytes;
        assert!((bytes..=bytes + MIB).contains(&read), "{read} of {bytes}");
        // Directories: the root, d, empty, small and the five in it.
        assert_eq!(source.faults().count(Operation::List), 9);
        assert_eq!(source.faults().count(Operation::ReadWhole), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn hosts_of_nearly_equal_speed_stay_together_with_little_memory() {
    let source = MemoryStorage::new();
    source.add_pattern_file("big", 1 << 30, 1);
    let rates = [50, 51, 49, 50, 50, 50, 51, 49];
    let hosts: Vec<_> = rates.into_iter().map(|rate| host(rate * MIB)).collect();
    hosts.iter().for_each(|host| host.expect_pattern("to/big", 1));
    let outcome = fan(&source, &hosts, settings(64 * MIB)).await;
    outcome.assert_clean();
    let share = outcome.summary.source_bytes as f64 / (1_u64 << 30) as f64;
    println!("8 hosts of 49 to 51 MiB/s, 64 MiB of memory: the source was read {share:.3} times");
    assert!(share < 1.1, "{share}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_host_reads_again_for_itself_and_slows_no_other() {
    let source = MemoryStorage::new();
    source.add_pattern_file("big", 1 << 30, 1);
    let run = async |rates: &[u64]| {
        let hosts: Vec<_> = rates.iter().map(|rate| host(rate * MIB)).collect();
        hosts.iter().for_each(|host| host.expect_pattern("to/big", 1));
        let outcome = fan(&source, &hosts, settings(64 * MIB)).await;
        outcome.assert_clean();
        outcome
    };
    let even = run(&[50, 50, 50, 50]).await;
    let uneven = run(&[50, 50, 50, 5]).await;
    for host in 0..3 {
        let (alone, beside) = (even.seconds(host), uneven.seconds(host));
        println!("host {host}: {alone:.1} s among its like, {beside:.1} s beside a slow one");
        assert!(beside <= alone * 1.01, "{beside} after {alone}");
    }
    let slow = uneven.seconds(3);
    assert!(slow >= 200.0, "{slow}");
    assert!(slow <= 240.0, "{slow}");
    let share = |outcome: &Outcome| outcome.summary.source_bytes as f64 / (1_u64 << 30) as f64;
    println!("read {:.3} and {:.3} times", share(&even), share(&uneven));
    assert!(share(&even) < 1.02, "{}", share(&even));
    assert!(share(&uneven) < 2.05, "{}", share(&uneven));
}

#[tokio::test(start_paused = true)]
async fn held_bytes_stay_within_the_memory() {
    let source = MemoryStorage::new();
    source.add_pattern_file("big", 256 * MIB, 1);
    for memory in [8 * MIB, 16 * MIB, 64 * MIB] {
        let hosts: Vec<_> = [80, 60, 40, 20, 10, 5].map(|rate| host(rate * MIB)).to_vec();
        hosts.iter().for_each(|host| host.expect_pattern("to/big", 1));
        let outcome = fan(&source, &hosts, settings(memory)).await;
        outcome.assert_clean();
        let held = outcome.summary.most_held_bytes;
        println!("of {} MiB at most {:.1} MiB were held", memory / MIB, held as f64 / MIB as f64);
        assert!(held > memory / 4 && held <= memory, "{held} of {memory}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_host_fails_alone_after_its_retries() {
    let (source, _) = tree();
    let hosts: Vec<_> = (0..4).map(|_| host(50 * MIB)).collect();
    hosts[1].faults().on(Operation::Stat).from(1).fail(ErrorKind::Unreachable);
    // This one dies in the middle.
    hosts[2].faults().on(Operation::Write).from(20).fail(ErrorKind::Unreachable);
    let mut settings = settings(64 * MIB);
    settings.transfer.retries = 2;
    let outcome = fan(&source, &hosts, settings).await;
    assert_eq!((outcome.summary.hosts, outcome.summary.failed_hosts), (4, 2));
    let HostOutcome::Unopened(error) = &outcome.end(1).outcome else { panic!("it is dead") };
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    let tries = outcome
        .events
        .iter()
        .filter(|event| matches!(event, FanEvent::Opening { host: 1, attempt: 1 | 2, .. }));
    assert_eq!(tries.count(), 2);
    let HostOutcome::Moved(summary) = &outcome.end(2).outcome else { panic!("it was opened") };
    assert!(summary.failed > 0 && !summary.interrupted);
    for host in [0, 3] {
        assert!(outcome.end(host).is_done());
        assert_same(&source, &hosts[host]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stalled_host_delays_no_other() {
    let source = MemoryStorage::new();
    source.add_pattern_file("big", 512 * MIB, 1);
    let hosts: Vec<_> = (0..3).map(|_| host(50 * MIB)).collect();
    hosts.iter().for_each(|host| host.expect_pattern("to/big", 1));
    hosts[1].faults().on(Operation::Write).from(30).stall();
    let cancel = Cancel::default();
    let stop = cancel.clone();
    let watch = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        let is_complete = |host: usize| hosts[host].is_pattern("to/big", 512 * MIB, 1);
        assert!(is_complete(0) && is_complete(2));
        stop.cancel();
    };
    let all = fan_until(&source, &hosts, settings(64 * MIB), cancel);
    let (outcome, ()) = tokio::join!(all, watch);
    assert_eq!([0, 1, 2].map(|host| outcome.end(host).is_done()), [true, false, true]);
}

#[tokio::test(start_paused = true)]
async fn fail_fast_stops_all_at_the_first_failure() {
    for dead in [true, false] {
        let (source, _) = tree();
        let hosts: Vec<_> = (0..4).map(|_| host(MIB)).collect();
        if dead {
            hosts[1].faults().on(Operation::Stat).from(1).fail(ErrorKind::PermissionDenied);
        } else {
            hosts[1].faults().on(Operation::Create).from(1).fail(ErrorKind::NoSpace);
        }
        let settings = FanSettings { fail_fast: true, at_once: 3, ..settings(64 * MIB) };
        let outcome = fan(&source, &hosts, settings).await;
        assert_eq!(outcome.summary.failed_hosts, 1, "dead: {dead}");
        assert_eq!(outcome.summary.stopped_hosts, 3);
        assert!(!outcome.summary.total.interrupted, "the caller did not cancel it");
        assert!(matches!(outcome.end(3).outcome, HostOutcome::NotBegun));
        // 43 MiB at 1 MiB/s would take longer.
        assert!(outcome.summary.total.elapsed < Duration::from_secs(20));
    }
}

#[tokio::test(start_paused = true)]
async fn a_rerun_sends_only_what_is_missing() {
    let (source, _) = tree();
    let hosts: Vec<_> = (0..3).map(|_| host(50 * MIB)).collect();
    fan(&source, &hosts, settings(64 * MIB)).await.assert_clean();
    hosts[1].take_away("to/d/middle");
    let again = fan(&source, &hosts, settings(64 * MIB)).await;
    again.assert_clean();
    assert_eq!(again.summary.total.moved_bytes, 3 * MIB);
    assert_eq!(again.summary.source_bytes, 3 * MIB);
    assert_eq!(again.summary.total.unchanged, 3 * 203 - 1);
    assert_same(&source, &hosts[1]);
}

#[tokio::test]
async fn a_host_that_failed_in_the_middle_of_a_file_resumes_it_in_the_next_run() {
    let source = MemoryStorage::new();
    source.add_pattern_file("big", 32 * MIB, 1);
    let build = |before: Option<&Arc<MemoryStorage>>| {
        let builder = MemoryStorage::builder().with_records();
        match before {
            Some(before) => builder.sharing(before).build(),
            None => builder.build(),
        }
    };
    let hosts = [build(None), build(None)];
    hosts[1].faults().on(Operation::Write).from(60).fail(ErrorKind::NoSpace);
    let first = fan(&source, &hosts, settings(64 * MIB)).await;
    assert!(first.end(0).is_done() && !first.end(1).is_done());
    let hosts = [build(Some(&hosts[0])), build(Some(&hosts[1]))];
    let second = fan(&source, &hosts, settings(64 * MIB)).await;
    second.assert_clean();
    assert!(hosts[1].is_pattern("to/big", 32 * MIB, 1));
    let total = &second.summary.total;
    assert!(total.resumed_bytes > 4 * MIB, "{}", total.resumed_bytes);
    assert_eq!(total.moved_bytes + total.resumed_bytes, 32 * MIB);
}

#[tokio::test(start_paused = true)]
async fn an_error_at_any_operation_of_the_source_leaves_only_whole_files_everywhere() {
    let tree = MemoryStorage::new();
    tree.add_pattern_file("d/big", 3 * MIB, 1);
    tree.add_pattern_file("d/small", 1000, 2);
    tree.add_pattern_file("other", 2000, 3);
    let run = async |nth: u64, kind: ErrorKind| {
        let source = MemoryStorage::builder().sharing(&tree).build();
        if nth > 0 {
            source.faults().on_any().nth(nth).fail(kind);
        }
        let hosts: Vec<_> = (0..3).map(|_| host(50 * MIB)).collect();
        let outcome = fan(&source, &hosts, settings(64 * MIB)).await;
        let mut whole = 0;
        for (index, host) in hosts.iter().enumerate() {
            for (name, content) in tree.files() {
                let name = path("to").join_path(&name);
                if host.exists(name.as_bytes()) {
                    assert!(host.content(name.as_bytes()) == content, "{name} at call {nth}");
                    whole += 1;
                } else {
                    assert!(!outcome.end(index).is_done(), "{name} is missing at call {nth}");
                }
            }
        }
        // The error fails at most one host; the others get all files.
        assert!(outcome.summary.failed_hosts <= 1, "call {nth}: {}", outcome.summary.failed_hosts);
        assert!(whole >= 6, "call {nth}: {whole}");
        source.faults().count_all()
    };
    let calls = run(0, ErrorKind::Io).await;
    assert!(calls > 10, "{calls}");
    for nth in 1..=calls {
        for kind in [ErrorKind::Io, ErrorKind::Unreachable] {
            run(nth, kind).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_interruption_stops_all_hosts() {
    let source = MemoryStorage::new();
    source.add_pattern_file("big", 64 * MIB, 1);
    let hosts: Vec<_> = (0..3).map(|_| host(MIB)).collect();
    let cancel = Cancel::default();
    let stop = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        cancel.cancel();
    };
    let settings = FanSettings { at_once: 2, ..settings(64 * MIB) };
    let (outcome, ()) = tokio::join!(fan_until(&source, &hosts, settings, cancel.clone()), stop);
    let summary = &outcome.summary;
    assert!(summary.total.interrupted);
    assert_eq!((summary.stopped_hosts, summary.failed_hosts, summary.total.failed), (3, 0, 0));
    assert!(matches!(outcome.end(2).outcome, HostOutcome::NotBegun));
    assert!(hosts.iter().all(|host| !host.exists("to/big")));
}

#[tokio::test(start_paused = true)]
async fn more_hosts_than_may_be_served_at_once_take_turns() {
    let (source, bytes) = tree();
    let hosts: Vec<_> = (0..10).map(|_| host(50 * MIB)).collect();
    let settings = FanSettings { at_once: 4, ..settings(64 * MIB) };
    let outcome = fan(&source, &hosts, settings).await;
    outcome.assert_clean();
    hosts.iter().for_each(|host| assert_same(&source, host));
    assert_eq!(outcome.ends.len(), 10);
    let read = outcome.summary.source_bytes;
    assert!(read <= 3 * bytes + MIB, "{read}");
}

#[tokio::test(start_paused = true)]
async fn a_source_behind_a_link_is_read_once_too() {
    let (_, bytes) = tree();
    let link = SimulatedLink::new(Duration::from_millis(50), 20 * MIB);
    let source = MemoryStorage::builder().with_link(link).sharing(&tree().0).build();
    let hosts: Vec<_> = (0..4).map(|_| host(50 * MIB)).collect();
    let outcome = fan(&source, &hosts, settings(64 * MIB)).await;
    outcome.assert_clean();
    hosts.iter().for_each(|host| assert_same(&source, host));
    let read = outcome.summary.source_bytes;
    assert!(read <= bytes + bytes / 20, "{read} of {bytes}");
    println!("{} bytes over the link for {bytes}", source.traffic().bytes);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_changes_in_the_middle_arrives_as_one_version_everywhere() {
    let source = MemoryStorage::new();
    source.add_file("f", vec![1; 8 << 20]);
    let hosts: Vec<_> = (0..3).map(|_| host(4 * MIB)).collect();
    let change = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        source.overwrite("f", 0, vec![2; 8 << 20]);
    };
    let (outcome, ()) = tokio::join!(fan(&source, &hosts, settings(64 * MIB)), change);
    outcome.assert_clean();
    assert!(outcome.summary.total.retries >= 3);
    for host in &hosts {
        assert!(host.content("to/f") == vec![2; 8 << 20]);
    }
}

/// In its first attempt the host opens the source, and closes it without reading anything.
#[tokio::test(start_paused = true)]
async fn a_host_that_creates_its_copy_at_the_second_attempt_gets_what_the_others_have_read() {
    let source = MemoryStorage::new();
    source.add_pattern_file("big", 20 * MIB, 1);
    let hosts: Vec<_> = (0..3).map(|_| host(50 * MIB)).collect();
    hosts[2].faults().on(Operation::Create).nth(1).fail(ErrorKind::Unreachable);
    let mut settings = settings(128 * MIB);
    settings.transfer.retry_pause = Duration::from_secs(10);
    let outcome = fan(&source, &hosts, settings).await;
    outcome.assert_clean();
    hosts.iter().for_each(|host| assert_same(&source, host));
    assert_eq!(outcome.summary.total.retries, 1);
    assert!(outcome.seconds(2) > outcome.seconds(0).max(outcome.seconds(1)) + 2.0);
    assert_eq!(outcome.summary.source_bytes, 20 * MIB);
}

#[tokio::test(start_paused = true)]
async fn each_host_may_have_a_source_of_its_own() {
    let sources: Vec<_> = (0..3).map(|_| host(50 * MIB)).collect();
    for (at, source) in sources.iter().enumerate() {
        source.add_pattern_file("log", 5 * MIB, at as u64);
    }
    let here = MemoryStorage::new();
    let (from, to) = (&sources, &here);
    let open = |host: usize| async move {
        let jobs = vec![Job {
            source: Arc::clone(&from[host]) as Arc<dyn Storage>,
            source_path: path("log"),
            destination: Arc::clone(to) as Arc<dyn Storage>,
            destination_path: path(format!("node{host}/log")),
            expected: None,
        }];
        Ok::<_, Error>(Opened { jobs, filter: Filter::default() })
    };
    let settings = FanSettings { one_source: false, ..settings(64 * MIB) };
    let files = Arc::new(Mutex::new(0));
    let count = Arc::clone(&files);
    let sink = FanSink::new(move |event| {
        if matches!(event, FanEvent::Of { event: Event::File(_), .. }) {
            *count.lock().unwrap() += 1;
        }
    });
    let summary = fan_out(3, open, settings, sink, Cancel::default()).await;
    assert_eq!((summary.failed_hosts, summary.total.files), (0, 3));
    assert_eq!(*files.lock().unwrap(), 3);
    for at in 0..3 {
        assert!(here.is_pattern(format!("node{at}/log"), 5 * MIB, at));
    }
}
