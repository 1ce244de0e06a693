//! What haul's backends share of the network: reaching a host, TLS, passwords, what the kernel
//! knows of a connection, how many connections a server takes, and who is waited for.

mod dial;
mod gauge;
mod inflow;
mod pace;
mod places;
mod secret;
mod socks;
#[cfg(target_os = "linux")]
mod tcp;
pub mod tls;
mod waits;
mod window;

pub use dial::{DialOptions, Dialled, Family, Reach, dial, with_port};
pub use gauge::{Direction, Gauge, Hold, RoundTrips, queueing};
pub use inflow::{Feeder, Inflow, TELLS_WHAT_CAME};
pub use pace::Pace;
pub use places::{Place, Places};
pub use secret::{
    MOST_TYPED, Nobody, PasswordSource, Prompter, Secret, TRY_AGAIN, secret_variables,
};
pub use socks::Socks5;
pub use waits::{HostWaits, Pause, REPORTED_AFTER, SILENCE, Wait, Waits};
pub use window::receive_at_most;
