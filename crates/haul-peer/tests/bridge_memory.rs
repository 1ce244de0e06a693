//! The memory of a bridge with many idle sharers, and the cost of forwarding. The bridge runs in a process of its own,
//! which is measured.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::env;
use std::io::{BufRead as _, BufReader, Lines, Read as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use haul_peer::bridge::messages::{
    FromBridge, Register, RoomOffer, ToBridge, from_bridge, to_bridge,
};
use haul_peer::bridge::{BridgeLimits, BridgeServer, Joiner, Registration, preamble};
use haul_peer::identity::Identity;
use haul_peer::ticket::{BridgeAddress, PeerKey, Secret};
use haul_peer::tls;
use haul_peer::wire::{Deframer, Frame, Limits, decode, message_frame};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::mpsc::unbounded_channel;
use tokio_rustls::client::TlsStream;

/// Environment variable that is set in the bridge's process.
const IS_BRIDGE: &str = "HAUL_TEST_IS_BRIDGE";

/// Precedes the bridge's address and key in the output of its process.
const MARK: &str = "the bridge: ";

/// Number of idle sharers, which register [`STEP`] at a time. The environment variable [`WANTED`] sets another number.
const SHARERS: usize = 2000;
const WANTED: &str = "HAUL_TEST_SHARERS";
const STEP: usize = 50;

/// Limit of the bridge's resident memory per idle sharer, in bytes: 256 MiB for ten thousand.
const EACH: usize = (256 << 20) / 10_000;

/// Pairs of connections that carry data, and bytes through each of them.
const PAIRS: usize = 4;
const BYTES: usize = 256 << 20;

/// Limit of the bridge's resident memory while it forwards this data, in bytes.
const FORWARDING: usize = 64 << 20;

/// `USER_HZ`: 100 on x86-64 and aarch64.
const TICKS_PER_SECOND: f64 = 100.0;

/// A bridge in a process of its own.
struct Bridge {
    process: Child,
    /// Its output. Stays open until the process has ended, since libtest prints the result of the test to it.
    lines: Lines<BufReader<ChildStdout>>,
    address: SocketAddr,
    key: PeerKey,
}

impl Bridge {
    fn start() -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["--exact", "the_bridge_in_its_own_process", "--nocapture"])
            .env(IS_BRIDGE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let printed = lines.find_map(|line| Some(line.unwrap().split_once(MARK)?.1.to_owned()));
        let printed = printed.unwrap();
        let (address, key) = printed.split_once(' ').unwrap();
        let (address, key) = (address.parse().unwrap(), key.parse().unwrap());
        Self { process, lines, address, key }
    }

    /// Ends the process. Its clients must have closed their connections.
    fn end(mut self) {
        drop(self.process.stdin.take());
        assert!(self.process.wait().unwrap().success());
        drop(self.lines);
    }

    /// Resident memory in bytes.
    fn resident(&self) -> usize {
        self.memory("VmRSS:")
    }

    /// Peak resident memory so far, in bytes.
    fn peak(&self) -> usize {
        self.memory("VmHWM:")
    }

    fn memory(&self, field: &str) -> usize {
        let status = read_proc(self.process.id(), "status");
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
    }

    /// Processor time so far, in seconds.
    fn processor(&self) -> f64 {
        let stat = read_proc(self.process.id(), "stat");
        // After the name in parentheses, user and system time are the 12th and 13th fields.
        let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
        let ticks = fields.skip(11).take(2).map(|field| field.parse::<f64>().unwrap());
        ticks.sum::<f64>() / TICKS_PER_SECOND
    }
}

fn read_proc(process: u32, file: &str) -> String {
    std::fs::read_to_string(format!("/proc/{process}/{file}")).unwrap()
}

fn wanted_sharers() -> usize {
    env::var(WANTED).map_or(SHARERS, |wanted| wanted.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_sharers_take_little_memory() {
    if !raise_file_limit() {
        eprintln!("SKIPPED: too few open files are allowed");
        return;
    }
    let wanted = wanted_sharers();
    let bridge = Bridge::start();
    let (address, key) = (bridge.address, bridge.key);
    // The first sharers cause allocations that are made only once, so they are not measured.
    let mut sharers = join_all((0..STEP).map(|_| sharer(address, key))).await;
    let before = bridge.resident();
    while sharers.len() < STEP + wanted {
        sharers.extend(join_all((0..STEP).map(|_| sharer(address, key))).await);
    }
    // The memory of the last handshakes is released with a delay.
    let start = Instant::now();
    let (all, each) = loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let all = bridge.resident();
        let each = all.saturating_sub(before) / wanted;
        if each < EACH || start.elapsed() > Duration::from_secs(60) {
            break (all, each);
        }
    };
    eprintln!("{} sharers: {} KiB resident, {each} bytes for one", sharers.len(), all >> 10);
    drop(sharers);
    bridge.end();
    assert!(each < EACH, "{each} bytes for a sharer");
}

/// The bridge forwards within the kernel.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn connections_that_carry_data_take_little_memory() {
    let bridge = Bridge::start();
    let address = BridgeAddress::new(&bridge.address.ip().to_string(), bridge.address.port());
    let address = address.unwrap().with_key(Some(*bridge.key.as_bytes()));
    let secret = Secret::generate().unwrap();
    let (sender, mut accepted) = unbounded_channel();
    let registration = Registration::builder(address.clone())
        .secret(secret.clone())
        .start(move |stream, _| drop(sender.send(stream)))
        .await
        .unwrap();
    let joiner = Joiner::new(address, secret, Handle::current()).unwrap();
    let mut pairs = Vec::new();
    for _ in 0..PAIRS {
        let connection = joiner.connect().await.unwrap();
        pairs.push((connection, accepted.recv().await.unwrap()));
    }
    let (start, before) = (Instant::now(), bridge.processor());
    let carrying = pairs.into_iter().map(|(connection, far)| async move {
        let sending = tokio::spawn(send(far));
        let received = receive(connection.stream).await;
        sending.await.unwrap();
        received
    });
    let received: usize = join_all(carrying).await.iter().sum();
    let (seconds, processor) = (start.elapsed().as_secs_f64(), bridge.processor() - before);
    let (gib, peak) = (received as f64 / f64::from(1 << 30), bridge.peak());
    eprintln!(
        "{PAIRS} pairs: {:.2} GB/s, {:.2} CPU s/GiB, at most {} KiB resident",
        received as f64 / seconds / 1e9,
        processor / gib,
        peak >> 10
    );
    drop((registration, joiner));
    bridge.end();
    assert_eq!(received, PAIRS * BYTES);
    assert!(peak < FORWARDING, "{peak} bytes");
}

async fn send(mut stream: TcpStream) {
    let block = vec![7; 256 << 10];
    for _ in 0..BYTES / block.len() {
        stream.write_all(&block).await.unwrap();
    }
    stream.shutdown().await.unwrap();
}

/// Receives to the end; returns the number of bytes.
async fn receive(mut stream: TcpStream) -> usize {
    let mut block = vec![0; 256 << 10];
    let mut received = 0;
    loop {
        match stream.read(&mut block).await.unwrap() {
            0 => return received,
            read => received += read,
        }
    }
}

/// Does nothing unless another test has started it.
#[tokio::test]
async fn the_bridge_in_its_own_process() {
    if env::var_os(IS_BRIDGE).is_none() {
        return;
    }
    assert!(raise_file_limit());
    let identity = Identity::ephemeral().unwrap();
    // The sharers of the test send nothing, and there may be more than a bridge admits by default.
    let limits = BridgeLimits { silence: Duration::from_secs(3600), ..BridgeLimits::default() };
    let bridge = BridgeServer::builder().open(true).limits(limits).max_sessions(65_536);
    let bridge = bridge.bind(&identity).await.unwrap();
    println!("{MARK}{} {}", bridge.addresses()[0], bridge.key().to_text());
    // Runs until the other process closes its standard input.
    drop(std::io::stdin().read_to_end(&mut Vec::new()));
    bridge.stop().await;
}

/// Connects and registers a sharer.
async fn sharer(address: SocketAddr, key: PeerKey) -> TlsStream<TcpStream> {
    let identity = Identity::ephemeral().unwrap();
    let config =
        tls::bridge_client_config(identity.pkcs8(), &identity.spki(), *key.as_bytes()).unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let mut stream = tls::connect(stream, config, Duration::from_secs(60)).await.unwrap();
    let random = || Bytes::copy_from_slice(&preamble::random_id().unwrap());
    let rooms = (0..3).map(|_| RoomOffer { name: random(), key: random() }).collect();
    let register = Register { min_version: 1, max_version: 1, token_proof: Bytes::new(), rooms };
    let body = Some(to_bridge::Body::Register(register));
    stream.write_all(&message_frame(&ToBridge { id: 1, body }).unwrap()).await.unwrap();
    stream.flush().await.unwrap();
    let mut deframer = Deframer::new(Limits::EARLY);
    loop {
        if let Some(Frame::Message(bytes)) = deframer.next_frame().unwrap() {
            let FromBridge { body, .. } = decode(bytes).unwrap();
            assert!(matches!(body, Some(from_bridge::Body::Registered(_))), "{body:?}");
            return stream;
        }
        let mut received = vec![0; 512];
        let read = stream.read(&mut received).await.unwrap();
        assert_ne!(read, 0);
        deframer.push(received[..read].to_vec());
    }
}

/// Raises the limit of open files to the hard limit; `false` if that is too low.
fn raise_file_limit() -> bool {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    maximum.is_none_or(|maximum| maximum >= 2 * wanted_sharers() as u64)
}
