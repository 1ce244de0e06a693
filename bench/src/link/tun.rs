//! TUN devices of two namespaces, and the threads that carry packets between them.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::direction::{Counters, Direction, Nanos, Settings};
use super::packet::{LARGEST, Wire};
use super::{Ends, LinkError, LinkSpec, Namespace};
use crate::sys;

/// Packets read in a row before those that have arrived are delivered.
const BATCH: usize = 64;
/// How long a thread waits before it looks whether it is to stop.
const PATIENCE: Nanos = 50_000_000;

/// Two devices and the two threads between them. Dropped, it stops.
#[derive(Debug)]
pub(super) struct Tun {
    stopping: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    pub(super) up: Arc<Counters>,
    pub(super) down: Arc<Counters>,
}

impl Tun {
    /// Makes the devices of both ends and starts to carry.
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
        let mut tun = Self {
            stopping: Arc::default(),
            threads: Vec::new(),
            up: Arc::default(),
            down: Arc::default(),
        };
        let settings = Settings {
            delay: spec.rtt / 2,
            jitter: spec.jitter,
            rate: spec.up,
            queue: spec.queue,
            loss: spec.loss,
            seed: spec.seed.wrapping_mul(2),
        };
        let back = Settings { rate: spec.down, seed: settings.seed.wrapping_add(1), ..settings };
        let (up, down) = (Arc::clone(&tun.up), Arc::clone(&tun.down));
        tun.carry(clone(&from)?, clone(&to)?, settings, up)?;
        tun.carry(to, from, back, down)?;
        Ok(tun)
    }

    fn carry(
        &mut self,
        from: File,
        to: File,
        settings: Settings,
        counters: Arc<Counters>,
    ) -> Result<(), LinkError> {
        let stopping = Arc::clone(&self.stopping);
        let carrier = Carrier { from, to, direction: Direction::new(settings), counters };
        let thread = thread::Builder::new()
            .name("link".to_owned())
            .spawn(move || carrier.run(&stopping))
            .map_err(|error| LinkError::new("starting a thread", &error))?;
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for Tun {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic of a carrier was printed by the thread itself; there is nothing left to carry.
            let _ = thread.join();
        }
    }
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

/// One thread: one direction.
struct Carrier {
    from: File,
    to: File,
    direction: Direction,
    counters: Arc<Counters>,
}

impl Carrier {
    fn run(mut self, stopping: &AtomicBool) {
        // The default slack of 50 µs would be added to every delay. Where it cannot be set, it is.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1000));
        let start = Instant::now();
        let now = || Nanos::try_from(start.elapsed().as_nanos()).unwrap_or(Nanos::MAX);
        let mut buffer = vec![0; LARGEST];
        while !stopping.load(Ordering::Relaxed) {
            let mut taken = 0;
            while taken < BATCH {
                match self.from.read(&mut buffer) {
                    Ok(length) => self.take(now(), &buffer[..length]),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // Nothing there; or the device is down, and then nothing will be.
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

    /// A packet that the receiving stack refuses is lost, as it would be on any machine.
    fn deliver(&mut self, packet: &[u8]) {
        while let Err(error) = self.to.write(packet) {
            match error.kind() {
                io::ErrorKind::WouldBlock => thread::yield_now(),
                io::ErrorKind::Interrupted => {}
                _ => return,
            }
        }
    }

    /// Until a packet comes, one arrives, or it is time to look whether to stop.
    fn wait(&self, now: Nanos) {
        let wait = self.direction.next_due().map_or(PATIENCE, |due| due.saturating_sub(now));
        if wait == 0 {
            return;
        }
        let wait = wait.min(PATIENCE);
        let wait = Timespec {
            tv_sec: (wait / 1_000_000_000).cast_signed(),
            tv_nsec: (wait % 1_000_000_000).cast_signed(),
        };
        let mut readable = [PollFd::new(&self.from, PollFlags::IN)];
        // Interrupted or not: the loop looks at everything anew.
        let _ = poll(&mut readable, Some(&wait));
    }
}
