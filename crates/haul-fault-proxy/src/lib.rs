//! A TCP proxy for tests that stands between a client and a real server and injects network faults.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::net::{TcpListener, TcpStream};
//! use std::time::Duration;
//!
//! use haul_fault_proxy::{Connections, Direction, Fault, FaultProxy};
//!
//! # fn main() -> std::io::Result<()> {
//! // A server that greets each client that sends a byte.
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let server = listener.local_addr()?;
//! std::thread::spawn(move || {
//!     while let Ok((mut client, _)) = listener.accept() {
//!         let _ = client.read_exact(&mut [0]);
//!         let _ = client.write_all(b"hello, world");
//!     }
//! });
//! let request = |proxy: &FaultProxy, received: &mut Vec<u8>| {
//!     let mut client = TcpStream::connect(proxy.address())?;
//!     client.write_all(b"?")?;
//!     client.read_to_end(received)
//! };
//!
//! // The first connection breaks after five bytes; all are delayed.
//! let proxy = FaultProxy::to(server)
//!     .set(Connections::Nth(1), Direction::ToClient, Fault::CutHard { after: 5 })
//!     .start()?;
//! proxy.set(Connections::All, Direction::ToClient, Fault::delay(Duration::from_millis(10)));
//!
//! let mut received = Vec::new();
//! let broken = request(&proxy, &mut received);
//! assert_eq!(received, b"hello");
//! assert_eq!(broken.map_err(|error| error.kind()), Err(std::io::ErrorKind::ConnectionReset));
//!
//! received.clear();
//! request(&proxy, &mut received)?;
//! assert_eq!(received, b"hello, world");
//! assert_eq!(proxy.fired().len(), 3); // one cut, two delays
//! # Ok(())
//! # }
//! ```
//!
//! # How data passes
//!
//! One thread owns the listener and all sockets, and sleeps in poll(2) until a socket is ready, bytes are
//! due or the test changes something. Bytes of each direction of a connection wait in a queue (`line`):
//!
//! ```text
//! read → rates (transmission time) → line → delays → cuts, flips, discards, blackholes → write
//! ```
//!
//! The FIN or RST of a side travels in the same line behind its bytes, and is passed on as such. The proxy
//! needs no async runtime, and uses real time even if the test's runtime does not. It runs on Unix only. On
//! Linux a hard cut waits until the receiver has acknowledged everything, elsewhere for 200 ms.

mod builder;
mod connection;
mod engine;
mod fault;
mod flow;
mod line;
mod link;
mod pair;
mod proxy;
mod random;
mod rules;
mod shared;
mod socket;
mod stats;

pub use builder::Builder;
pub use fault::{Connections, Direction, Fault, RuleId};
pub use proxy::FaultProxy;
pub use stats::{Bytes, ConnectionState, ConnectionStats, Failure, Fired, Injected, Stats};
