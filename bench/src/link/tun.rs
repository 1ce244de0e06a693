//! TUN devices of two namespaces, and the threads that carry packets between them.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::direction::{Counters, Direction, Nanos, Settings};
use super::ends::Ends;
use super::error::LinkError;
use super::namespace::Namespace;
use super::packet::{MAX_PACKET, Wire};
use super::spec::LinkSpec;
use crate::sys;

/// Packets read in a row before those that are due are delivered.
const BATCH: usize = 64;
/// The longest that a thread waits before it checks whether to stop.
const PATIENCE: Nanos = 50_000_000;

/// Two devices and the two threads between them, which stop when it is dropped.
#[derive(Debug)]
pub(super) struct Tun {
    clock: Arc<Clock>,
    threads: Vec<JoinHandle<()>>,
    pub(super) up: Arc<Counters>,
    pub(super) down: Arc<Counters>,
}

/// Time, as the threads of a link share it.
#[derive(Debug)]
struct Clock {
    start: Instant,
    /// The moment from which the times of the link's changes count, in nanoseconds since `start`.
    began: AtomicU64,
    stopping: AtomicBool,
}

impl Clock {
    fn now(&self) -> Nanos {
        Nanos::try_from(self.start.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
    }
}

impl Tun {
    /// Makes the devices of both ends and starts to carry packets.
    pub(super) fn start(
        client: &Namespace,
        server: &Namespace,
        ends: &Ends,
        spec: &LinkSpec,
    ) -> Result<Self, LinkError> {
        let from = open(client, &ends.client_device, spec)?;
        let to = open(server, &ends.server_device, spec)?;
        ends.configure(client, server)?;
        let clone = |device: &File| {
            device.try_clone().map_err(|error| LinkError::new("cloning a descriptor", &error))
        };
        let (start, began, stopping) = (Instant::now(), AtomicU64::new(0), AtomicBool::new(false));
        let mut tun = Self {
            clock: Arc::new(Clock { start, began, stopping }),
            threads: Vec::new(),
            up: Arc::default(),
            down: Arc::default(),
        };
        let seed = spec.seed.wrapping_mul(2);
        let to_server = direction(spec, seed, |spec| spec.up);
        let to_client = direction(spec, seed.wrapping_add(1), |spec| spec.down);
        let (up, down) = (Arc::clone(&tun.up), Arc::clone(&tun.down));
        tun.carry(clone(&from)?, clone(&to)?, to_server, up)?;
        tun.carry(to, from, to_client, down)?;
        Ok(tun)
    }

    /// Returns to the first settings; the times of the link's changes count from now.
    pub(super) fn restart(&self) {
        self.clock.began.store(self.clock.now(), Ordering::Relaxed);
    }

    fn carry(
        &mut self,
        from: File,
        to: File,
        direction: Direction,
        counters: Arc<Counters>,
    ) -> Result<(), LinkError> {
        let clock = Arc::clone(&self.clock);
        let carrier = Carrier { from, to, direction, counters };
        let thread = thread::Builder::new()
            .name("link".to_owned())
            .spawn(move || carrier.run(&clock))
            .map_err(|error| LinkError::new("starting a thread", &error))?;
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for Tun {
    fn drop(&mut self) {
        self.clock.stopping.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic of a carrier was printed by the thread itself; there is nothing left to carry.
            let _ = thread.join();
        }
    }
}

/// One direction of a link, with all its changes.
fn direction(spec: &LinkSpec, seed: u64, rate: impl Fn(&LinkSpec) -> Option<f64>) -> Direction {
    let settings = |spec: &LinkSpec| Settings {
        delay: spec.rtt / 2,
        jitter: spec.jitter,
        rate: rate(spec),
        queue: spec.queue,
        loss: spec.loss,
    };
    let first = Direction::new(settings(spec), seed);
    spec.stages().iter().fold(first, |line, (after, stage)| line.then(*after, settings(stage)))
}

/// Opens a TUN device in `namespace`.
fn open(namespace: &Namespace, name: &str, spec: &LinkSpec) -> Result<File, LinkError> {
    let path = "/dev/net/tun";
    namespace.within(|| {
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
            .open(path)
            .map_err(|error| LinkError::new(format!("opening {path}"), &error))?;
        sys::become_tun(&device, name, spec.large_segments())
            .map_err(|error| LinkError::new(format!("making the device {name}"), &error))?;
        Ok(device)
    })?
}

/// The work of one thread: it carries packets in one direction.
struct Carrier {
    from: File,
    to: File,
    direction: Direction,
    counters: Arc<Counters>,
}

impl Carrier {
    fn run(mut self, clock: &Clock) {
        // The default timer slack adds up to 50 µs to every delay. If this call fails, the delays have that error.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1000));
        let now = || clock.now();
        let mut buffer = vec![0; MAX_PACKET];
        while !clock.stopping.load(Ordering::Relaxed) {
            self.direction.begin(clock.began.load(Ordering::Relaxed));
            self.direction.pass_time(now());
            let mut taken = 0;
            while taken < BATCH {
                match self.from.read(&mut buffer) {
                    Ok(length) => self.take(now(), &buffer[..length]),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // No packet; or the device is down, and then none will come.
                    Err(_) => break,
                }
                taken += 1;
            }
            while let Some(packet) = self.direction.arrived(now(), &self.counters) {
                self.deliver(&packet.bytes);
            }
            if taken < BATCH {
                self.wait(now());
            }
        }
    }

    fn take(&mut self, now: Nanos, packet: &[u8]) {
        if let Some(wire) = Wire::of(packet) {
            self.direction.offer(now, packet, wire, &self.counters);
        }
    }

    /// Hands a packet to the receiving stack. If the stack refuses it, the packet is lost, as on any machine.
    fn deliver(&mut self, packet: &[u8]) {
        while let Err(error) = self.to.write(packet) {
            match error.kind() {
                io::ErrorKind::WouldBlock => thread::yield_now(),
                io::ErrorKind::Interrupted => {}
                _ => return,
            }
        }
    }

    /// Waits for a packet to be sent or to become due, a change of the link, or [`PATIENCE`].
    fn wait(&self, now: Nanos) {
        let wait = self.direction.next_event().map_or(PATIENCE, |due| due.saturating_sub(now));
        if wait == 0 {
            return;
        }
        let wait = wait.min(PATIENCE);
        let wait = Timespec {
            tv_sec: (wait / 1_000_000_000).cast_signed(),
            tv_nsec: (wait % 1_000_000_000).cast_signed(),
        };
        let mut readable = [PollFd::new(&self.from, PollFlags::IN)];
        // Interrupted or not: the loop checks everything again.
        let _ = poll(&mut readable, Some(&wait));
    }
}
