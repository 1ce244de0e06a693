//! Free ports for servers that cannot bind port 0 and report the port.
//!
//! A test includes it with `#[path = ".../haul-net/tests/support/port.rs"] mod port;`.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// First port of a range below the ephemeral ports (32768 and up). An ephemeral port that is free now may be
/// in use a moment later, as a server's passive port or a client's source port.
const FIRST: u16 = 10_000;
const COUNT: u16 = 22_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// Returns a free port of 127.0.0.1 that no other test of this process gets.
pub fn free_port() -> u16 {
    // Concurrent test programs start at different ports.
    let begin = (std::process::id().wrapping_mul(97) % u32::from(COUNT)) as u16;
    for _ in 0..COUNT {
        let number = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        let port = FIRST + (begin + number) % COUNT;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no port of {FIRST} to {} is free", FIRST + COUNT - 1);
}
