//! Tests of the proxy over real sockets.
//!
//! No test has an upper time limit: delays are asserted from below, and where something must not
//! happen, the test waits a moment in which it could. Socket timeouts only keep a broken proxy from
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
