//! What haul's backends share of the network: reaching a host, TLS, passwords, what the kernel
//! knows of a connection, and how many connections a server takes.

mod dial;
mod gauge;
mod inflow;
mod pace;
mod places;
mod secret;
#[cfg(target_os = "linux")]
mod tcp;
pub mod tls;
mod window;

pub use dial::{DialOptions, Dialled, Family, dial, with_port};
pub use gauge::{Gauge, Hold, RoundTrips};
pub use inflow::{Feeder, Inflow, TELLS_WHAT_CAME};
pub use pace::Pace;
pub use places::{Place, Places};
pub use secret::{Nobody, PasswordSource, Prompter, Secret};
pub use window::receive_at_most;
