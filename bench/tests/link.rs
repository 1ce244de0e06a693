//! The link against theory: round trip, rate, loss, IPv4 and IPv6, several servers.
//!
//! It needs root for network namespaces, and says so where it is skipped. The proofs measure, so
//! each takes the best of several attempts: what else the machine does can only spoil a figure.
#![expect(
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a failed expectation is the failure of the test, and a skipped test says so"
)]

mod others;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use haul_bench::link::{LinkSpec, Means, Namespace, Network};
use others::lineage;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

/// One link at a time: they would take each other's processor.
static ALONE: Mutex<()> = Mutex::new(());

/// None, and the test says that it is skipped, without the right to make namespaces.
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

/// The median round trip of 20 pings, in milliseconds.
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

/// The medians of `least` pings, and of up to 20 until one of them is `near`: a machine that is busy
/// elsewhere for a moment wakes nobody in time, which can only make them longer.
fn pings(
    client: &Namespace,
    address: IpAddr,
    least: usize,
    near: impl Fn(f64) -> bool,
) -> Vec<f64> {
    let mut measured = Vec::new();
    while measured.len() < least
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
fn ping_takes_the_set_round_trip_within_a_millisecond() {
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
            assert!(best >= rtt as f64, "never less than set: {best} ms of {rtt}");
            assert!(best <= rtt as f64 + 1.0, "{best} ms of {rtt}");
        }
    }
}

/// A server that ends with the test.
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

/// Received payload in bits per second, after the first seconds.
fn iperf(client: &Namespace, arguments: &[&str]) -> f64 {
    let output =
        client.command("iperf3").args(arguments).arg("--json").output().expect("iperf3 runs");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    json["end"]["sum_received"]["bits_per_second"].as_f64().unwrap_or_else(|| panic!("{json}"))
}

/// What the line carries in a direction for so long, headers included.
fn carried_mbit(network: &Network, way: &str, time: Duration) -> f64 {
    let bytes = || {
        let passed = network.passed().expect("counters");
        if way == "up" { passed.up } else { passed.down }
    };
    let (before, start) = (bytes(), Instant::now());
    thread::sleep(time);
    (bytes() - before) as f64 * 8e-6 / start.elapsed().as_secs_f64()
}

/// The processor seconds that processes have used which do not descend from this one.
fn seconds_of_others() -> f64 {
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
        // After the name, which may have anything in it: user and system time, also of children that have ended.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
        ticks += fields.skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum::<u64>();
    }
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

#[test]
fn sixteen_streams_fill_95_percent_of_the_set_rate_and_no_more() {
    let Some(_alone) = alone("iperf3") else { return };
    for (rtt, mbit) in [(1, 1000.0), (50, 500.0), (200, 500.0)] {
        let mut spec = LinkSpec::new(ms(rtt), Some(mbit * 1e6));
        // What is proved is the line, not how 16 streams share it. Headers take 3.5 %, so that each
        // percent sent again would be missing: hence a long queue; and BBR leaves the line idle now and
        // then to measure its round trip: hence CUBIC, which every Linux has.
        spec.queue = ms(200 + 2 * rtt);
        let network = Network::new(&[spec], means()).expect("a network");
        let _server = Iperf::start(network.links()[0].server());
        let address = network.links()[0].address().to_string();
        for way in ["up", "down"] {
            let mut arguments =
                vec!["-c", &address, "-P", "16", "-t", "8", "-O", "4", "-i", "0", "-C", "cubic"];
            if way == "down" {
                arguments.push("-R");
            }
            let (mut best, mut least): (f64, f64) = (0.0, f64::INFINITY);
            let (begun, others) = (Instant::now(), seconds_of_others());
            for _ in 0..3 {
                let (measured, carried) = thread::scope(|scope| {
                    let running = scope.spawn(|| iperf(network.client(), &arguments) / 1e6);
                    thread::sleep(Duration::from_secs(5));
                    let carried = carried_mbit(&network, way, Duration::from_secs(3));
                    (running.join().expect("iperf3 ends"), carried)
                });
                best = best.max(measured);
                if measured >= 0.95 * mbit {
                    // After the machine stood still, what was late comes at once: a line that is too
                    // fast is so each time.
                    least = least.min(carried);
                    if carried <= 1.01 * mbit {
                        break;
                    }
                }
            }
            eprintln!("set {mbit} Mbit/s at {rtt} ms, {way}: {best:.1}, on the wire {least:.1}");
            let busy = (seconds_of_others() - others) / begun.elapsed().as_secs_f64();
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
fn each_way_has_its_own_rate() {
    let Some(_alone) = alone("iperf3") else { return };
    let mut spec = LinkSpec::new(ms(10), Some(200e6));
    spec.up = Some(50e6);
    let network = Network::new(&[spec], means()).expect("a network");
    let _server = Iperf::start(network.links()[0].server());
    let address = network.links()[0].address().to_string();
    for (direction, mbit) in [("", 50.0), ("-R", 200.0)] {
        // BBR leaves the line idle now and then, and a machine that is busy elsewhere may.
        let mut arguments =
            vec!["-c", &address, "-P", "4", "-t", "4", "-O", "2", "-i", "0", "-C", "cubic"];
        arguments.extend(Some(direction).filter(|direction| !direction.is_empty()));
        let mut measured = Vec::new();
        let is_full = |rate: &f64| *rate >= 0.9 * mbit;
        while measured.len() < 3 || (measured.len() < 10 && !measured.iter().any(is_full)) {
            measured.push(iperf(network.client(), &arguments) / 1e6);
        }
        eprintln!("set {mbit} Mbit/s: measured {measured:?}");
        let rate = measured.iter().copied().fold(0.0, f64::max);
        assert!((0.9 * mbit..0.98 * mbit).contains(&rate), "{rate} of {mbit} Mbit/s");
    }
}

#[test]
fn the_share_of_packets_lost_is_the_share_set() {
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
        // On a link that has neighbours to be found, a question or answer may be lost too.
        let found = network
            .client()
            .command("ping")
            .args(["-c", "1", "-w", "20", &to.ip().to_string()])
            .output()
            .expect("ping runs");
        assert!(found.status.success(), "{found:?}");
        // A pause while packets are being sent is one of the machine.
        let all_sent = Arc::new(AtomicBool::new(false));
        let is_last_pause = Arc::clone(&all_sent);
        let counting = thread::spawn(move || {
            let mut buffer = [0; 2048];
            let mut received = 0;
            loop {
                let was_all_sent = is_last_pause.load(Ordering::SeqCst);
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
                        // The receiver's buffer must not be what loses packets.
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
fn jitter_spreads_round_trips_within_what_is_set() {
    let Some(_alone) = alone("ping") else { return };
    let mut spec = LinkSpec::new(ms(20), None);
    spec.jitter = ms(10);
    let network = Network::new(&[spec], means()).expect("a network");
    // Each way adds between nothing and 10 ms: 30 ms on average.
    let address = network.links()[0].address().into();
    let measured = pings(network.client(), address, 1, |time| time < 38.0);
    eprintln!("set 20 ms and 10 ms of jitter each way: measured {measured:?} ms");
    assert!((23.0..38.0).contains(&shortest(&measured)), "{measured:?} ms");
}

#[test]
fn several_servers_have_links_of_their_own() {
    let Some(_alone) = alone("ping") else { return };
    let specs: Vec<LinkSpec> = [5, 30, 60].map(|rtt| LinkSpec::new(ms(rtt), Some(1e8))).to_vec();
    let network = Network::new(&specs, means()).expect("a network");
    let mut sent = 0;
    for (link, rtt) in network.links().iter().zip([5.0, 30.0, 60.0]) {
        let measured = pings(network.client(), link.address().into(), 1, |time| time < rtt + 2.0);
        eprintln!("set {rtt} ms: measured {measured:?} ms");
        assert!((rtt..rtt + 2.0).contains(&shortest(&measured)), "{measured:?} ms of {rtt}");
        // 20 pings of 84 bytes each time.
        sent += 20 * 84 * measured.len() as u64;
    }
    let passed = network.passed().expect("counters");
    // The rest is neighbour discovery.
    assert!(passed.up >= sent && passed.up < sent + 15_000, "{passed:?}, pings {sent}");
}
