//! Compares emulated links with their settings: RTT, rate, loss, jitter, IPv4 and IPv6, several servers.
//!
//! The tests need root for network namespaces; without it they are skipped with a message. Most take the best of
//! several measurements, since other load on the machine can only make a figure worse.
#![expect(
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a failed expectation is the failure of the test, and a skipped test prints that"
)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use haul_bench::link::{LinkSpec, Means, Namespace, Network};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

/// One test at a time: several would compete for the processor.
static ALONE: Mutex<()> = Mutex::new(());

/// Waits until no other test runs. Without `tool`, or the right to create namespaces, prints that the test is skipped
/// and returns `None`.
fn alone(tool: &str) -> Option<MutexGuard<'static, ()>> {
    if let Err(error) = Namespace::new() {
        eprintln!("skipped: {error}");
        return None;
    }
    if Command::new(tool).arg("--version").output().is_err() {
        eprintln!("skipped: {tool} is not installed");
        return None;
    }
    Some(ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
}

fn means() -> Means {
    let means = Means::of_this_machine();
    eprintln!("links by {means}");
    means
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The median RTT of 20 pings, in milliseconds.
fn ping(client: &Namespace, address: IpAddr) -> f64 {
    let output = client
        .command("ping")
        .args(["-n", "-c", "20", "-i", "0.05", "-W", "5", &address.to_string()])
        .output()
        .expect("ping runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let mut times: Vec<f64> = text
        .lines()
        .filter_map(|line| line.split_once("time=")?.1.split_whitespace().next()?.parse().ok())
        .collect();
    assert_eq!(times.len(), 20, "{text}");
    times.sort_by(f64::total_cmp);
    times[10]
}

/// Results of at least `min_runs` calls of [`ping`], and of up to 20 until one of them is `near`: on a busy machine
/// threads wake late, which can only make an RTT longer.
fn pings(
    client: &Namespace,
    address: IpAddr,
    min_runs: usize,
    near: impl Fn(f64) -> bool,
) -> Vec<f64> {
    let mut measured = Vec::new();
    while measured.len() < min_runs
        || (measured.len() < 20 && !measured.iter().any(|&time| near(time)))
    {
        measured.push(ping(client, address));
    }
    measured
}

fn shortest(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}

#[test]
fn ping_measures_the_configured_rtt_within_a_millisecond() {
    let Some(_alone) = alone("ping") else { return };
    for rtt in [0, 1, 50, 200, 330] {
        let network =
            Network::new(&[LinkSpec::new(ms(rtt), Some(5e8))], means()).expect("a network");
        let link = &network.links()[0];
        for address in [IpAddr::V4(link.address()), IpAddr::V6(link.address6())] {
            let near = |time| time <= rtt as f64 + 1.0;
            let measured = pings(network.client(), address, 3, near);
            eprintln!("set {rtt} ms, {address}: measured {measured:?} ms");
            let best = shortest(&measured);
            assert!(best >= rtt as f64, "less than the configured RTT: {best} ms of {rtt}");
            assert!(best <= rtt as f64 + 1.0, "{best} ms of {rtt}");
        }
    }
}

/// An iperf3 server, killed when dropped.
struct Iperf(Child);

impl Iperf {
    fn start(namespace: &Namespace) -> Self {
        let mut child = namespace
            .command("iperf3")
            .args(["-s", "--forceflush"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("iperf3 starts");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("listening")));
        thread::spawn(move || lines.for_each(drop));
        Self(child)
    }
}

impl Drop for Iperf {
    fn drop(&mut self) {
        self.0.kill().expect("it can be killed");
        self.0.wait().expect("it can be waited for");
    }
}

/// The rate of received payload in bits per second, as iperf3 reports it. Its server may still be ending the previous
/// test, and then resets the connection before anything is measured: that attempt is repeated.
fn iperf(client: &Namespace, arguments: &[&str]) -> f64 {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
        let output =
            client.command("iperf3").args(arguments).arg("--json").output().expect("iperf3 runs");
        let json: serde_json::Value =
            serde_json::from_slice(&output.stdout).expect("it prints JSON");
        if let Some(rate) = json["end"]["sum_received"]["bits_per_second"].as_f64() {
            return rate;
        }
        let is_measured = json["intervals"].as_array().is_some_and(|all| !all.is_empty());
        assert!(json["error"].is_string() && !is_measured, "{json}");
        thread::sleep(Duration::from_millis(500));
    }
    panic!("the server of iperf3 refuses every attempt");
}

/// The rate on the wire in Mbit/s, headers included, in a direction (`up` or `down`) over `time`.
fn carried_mbit(network: &Network, direction: &str, time: Duration) -> f64 {
    let bytes = || {
        let passed = network.traffic().expect("counters");
        if direction == "up" { passed.up } else { passed.down }
    };
    let (before, start) = (bytes(), Instant::now());
    thread::sleep(time);
    (bytes() - before) as f64 * 8e-6 / start.elapsed().as_secs_f64()
}

/// A process and its ancestors, up to but not including process 1.
fn lineage(process: u32) -> Vec<u32> {
    std::iter::successors(Some(process), |process| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        parent.trim().parse().ok().filter(|parent| *parent > 1)
    })
    .collect()
}

/// Processor seconds used so far by processes that do not descend from this one.
fn cpu_seconds_of_others() -> f64 {
    let own = std::process::id();
    let mut ticks = 0;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        if lineage(process).contains(&own) {
            continue;
        }
        // The name in parentheses may contain anything. After it come, among others, user and system time, also of
        // children that have ended.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
        ticks += fields.skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum::<u64>();
    }
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

#[test]
fn sixteen_streams_use_95_to_100_percent_of_the_configured_rate() {
    let Some(_alone) = alone("iperf3") else { return };
    for (rtt, mbit) in [(1, 1000.0), (50, 500.0), (200, 500.0)] {
        let mut spec = LinkSpec::new(ms(rtt), Some(mbit * 1e6));
        // This tests the link, not how 16 streams share it. Headers take 3.5 %, so there is no room for
        // retransmissions: hence a long queue. BBR leaves the link idle now and then to measure the RTT: hence CUBIC,
        // which every Linux has.
        spec.queue = ms(200 + 2 * rtt);
        let network = Network::new(&[spec], means()).expect("a network");
        let _server = Iperf::start(network.links()[0].server());
        let address = network.links()[0].address().to_string();
        for direction in ["up", "down"] {
            let mut arguments =
                vec!["-c", &address, "-P", "16", "-t", "8", "-O", "4", "-i", "0", "-C", "cubic"];
            if direction == "down" {
                arguments.push("-R");
            }
            let (mut best, mut least): (f64, f64) = (0.0, f64::INFINITY);
            let (begun, others) = (Instant::now(), cpu_seconds_of_others());
            for _ in 0..3 {
                let (measured, carried) = thread::scope(|scope| {
                    let running = scope.spawn(|| iperf(network.client(), &arguments) / 1e6);
                    thread::sleep(Duration::from_secs(5));
                    let carried = carried_mbit(&network, direction, Duration::from_secs(3));
                    (running.join().expect("iperf3 ends"), carried)
                });
                best = best.max(measured);
                if measured >= 0.95 * mbit {
                    // After a stall of the machine, delayed packets arrive in a burst. Only a rate that is too high
                    // in every attempt is an error of the link.
                    least = least.min(carried);
                    if carried <= 1.01 * mbit {
                        break;
                    }
                }
            }
            eprintln!(
                "set {mbit} Mbit/s at {rtt} ms, {direction}: {best:.1}, on the wire {least:.1}"
            );
            let busy = (cpu_seconds_of_others() - others) / begun.elapsed().as_secs_f64();
            if best < 0.95 * mbit && busy > 0.5 {
                eprintln!("skipped: {mbit} Mbit/s beside programs that use {busy:.1} processors");
                continue;
            }
            assert!(best >= 0.95 * mbit, "{best} of {mbit} Mbit/s");
            assert!(least <= 1.01 * mbit, "{least} of {mbit} Mbit/s on the wire");
        }
    }
}

#[test]
fn each_direction_has_its_own_rate() {
    let Some(_alone) = alone("iperf3") else { return };
    let mut spec = LinkSpec::new(ms(10), Some(200e6));
    spec.up = Some(50e6);
    let network = Network::new(&[spec], means()).expect("a network");
    let _server = Iperf::start(network.links()[0].server());
    let address = network.links()[0].address().to_string();
    for (direction, mbit) in [("", 50.0), ("-R", 200.0)] {
        // CUBIC, since BBR leaves the link idle now and then; several attempts, since a busy machine may do so too.
        let mut arguments =
            vec!["-c", &address, "-P", "4", "-t", "4", "-O", "2", "-i", "0", "-C", "cubic"];
        arguments.extend(Some(direction).filter(|direction| !direction.is_empty()));
        let mut measured = Vec::new();
        let is_full = |rate: &f64| *rate >= 0.9 * mbit;
        while measured.len() < 3 || (measured.len() < 10 && !measured.iter().any(is_full)) {
            measured.push(iperf(network.client(), &arguments) / 1e6);
        }
        eprintln!("set {mbit} Mbit/s: measured {measured:?}");
        assert!(measured.iter().any(is_full), "{measured:?} of {mbit} Mbit/s");
        // After a stall of the machine, delayed packets arrive in a burst: one attempt may seem too fast.
        measured.sort_by(f64::total_cmp);
        let median = measured[measured.len() / 2];
        assert!(median < 0.98 * mbit, "{measured:?} of {mbit} Mbit/s");
    }
}

#[test]
fn packet_loss_is_the_configured_share() {
    let Some(_alone) = alone("ping") else { return };
    const PACKETS: u32 = 100_000;
    for percent in [0.1, 1.0, 5.0] {
        let mut spec = LinkSpec::new(ms(2), None);
        spec.loss = percent / 100.0;
        let network = Network::new(&[spec], means()).expect("a network");
        let link = &network.links()[0];
        let receiver = link
            .server()
            .within(|| UdpSocket::bind((link.address(), 0)))
            .expect("the server's namespace")
            .expect("a socket");
        // No packet may be lost because the receiver had to wait for a processor.
        set_socket_recv_buffer_size_force(&receiver, 256 << 20).expect("root may have it large");
        receiver.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
        let to = receiver.local_addr().expect("an address");
        // On a link with neighbour discovery, its requests and responses may be lost too: finish it first.
        let found = network
            .client()
            .command("ping")
            .args(["-c", "1", "-w", "20", &to.ip().to_string()])
            .output()
            .expect("ping runs");
        assert!(found.status.success(), "{found:?}");
        // A timeout of the receiver means that all packets have arrived only if all were sent before it began to wait.
        // Otherwise the machine stalled.
        let all_sent = Arc::new(AtomicBool::new(false));
        let is_all_sent = Arc::clone(&all_sent);
        let counting = thread::spawn(move || {
            let mut buffer = [0; 2048];
            let mut received = 0;
            loop {
                let was_all_sent = is_all_sent.load(Ordering::SeqCst);
                match receiver.recv(&mut buffer) {
                    Ok(_) => received += 1,
                    Err(_) if was_all_sent => break received,
                    Err(_) => {}
                }
            }
        });
        network
            .client()
            .within(|| {
                let sender = UdpSocket::bind((link.client_address(), 0)).expect("a socket");
                for n in 0..PACKETS {
                    sender.send_to(&[0; 1000], to).expect("it is sent");
                    if n % 16 == 15 {
                        // Do not overflow the receiver's buffer.
                        thread::sleep(Duration::from_micros(300));
                    }
                }
            })
            .expect("the client's namespace");
        all_sent.store(true, Ordering::SeqCst);
        let received: u32 = counting.join().expect("it counts");
        let (n, p) = (f64::from(PACKETS), percent / 100.0);
        let lost = f64::from(PACKETS - received);
        // Five standard deviations of the binomial distribution.
        let spread = 5.0 * (n * p * (1.0 - p)).sqrt();
        eprintln!("set {percent} %: lost {lost} of {n}");
        assert!((lost - n * p).abs() <= spread, "{lost} lost of {n}, set {percent} %");
    }
}

#[test]
fn jitter_adds_to_the_rtt_within_its_configured_range() {
    let Some(_alone) = alone("ping") else { return };
    let mut spec = LinkSpec::new(ms(20), None);
    spec.jitter = ms(10);
    let network = Network::new(&[spec], means()).expect("a network");
    // Each direction adds 0 to 10 ms: the average RTT is 30 ms.
    let address = network.links()[0].address().into();
    let measured = pings(network.client(), address, 1, |time| time < 38.0);
    eprintln!("set 20 ms and 10 ms of jitter each way: measured {measured:?} ms");
    assert!((23.0..38.0).contains(&shortest(&measured)), "{measured:?} ms");
}

#[test]
fn each_of_several_servers_has_its_own_link() {
    let Some(_alone) = alone("ping") else { return };
    let specs: Vec<LinkSpec> = [5, 30, 60].map(|rtt| LinkSpec::new(ms(rtt), Some(1e8))).to_vec();
    let network = Network::new(&specs, means()).expect("a network");
    let mut sent = 0;
    for (link, rtt) in network.links().iter().zip([5.0, 30.0, 60.0]) {
        let measured = pings(network.client(), link.address().into(), 1, |time| time < rtt + 2.0);
        eprintln!("set {rtt} ms: measured {measured:?} ms");
        assert!((rtt..rtt + 2.0).contains(&shortest(&measured)), "{measured:?} ms of {rtt}");
        // Each measurement is 20 pings of 84 bytes.
        sent += 20 * 84 * measured.len() as u64;
    }
    let passed = network.traffic().expect("counters");
    // The rest is neighbour discovery and, with netem, Ethernet headers.
    assert!(passed.up >= sent && passed.up < sent + 15_000, "{passed:?}, pings {sent}");
}
