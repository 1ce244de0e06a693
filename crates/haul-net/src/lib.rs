//! What haul's backends share of TCP.

mod gauge;
#[cfg(target_os = "linux")]
mod tcp_info;

pub use gauge::{Gauge, Hold, RoundTrips};
