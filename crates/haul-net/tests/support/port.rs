//! Ports for servers that cannot be told to take any and say which.
//!
//! A test includes it with `#[path = ".../haul-net/tests/support/port.rs"] mod port;`.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below all that the system gives away by itself (from 32768 on). Of those, one that is free now
/// may be somebody's a moment later: a server's passive port, a client's own.
const FIRST: u16 = 10_000;
const COUNT: u16 = 22_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A port of 127.0.0.1 on which nobody listens, and which no other test is given.
pub fn free_port() -> u16 {
    // Test programs that run at the same time begin at different places.
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
