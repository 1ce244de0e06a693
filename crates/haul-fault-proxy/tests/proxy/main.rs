//! What the proxy passes on and what it does to it, against real sockets.
//!
//! Nothing here is limited in time: delays are asserted from below, and where something must not
//! happen, a moment is waited in which it could. Timeouts of sockets only keep a broken proxy from
//! hanging the tests.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod admission;
mod bytes;
mod cuts;
mod passing;
mod peers;
#[path = "../../../haul-net/tests/support/port.rs"]
mod port;
mod rates;
mod time;
