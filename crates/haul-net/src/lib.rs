//! Network code that haul's backends share: dialling, TLS, passwords, TCP statistics of the kernel,
//! pools of lanes, reports about silent hosts, and the common part of the servers.

mod authority;
mod dial;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod pace;
pub mod pool;
mod receive_budget;
mod received;
mod rtt;
mod secret;
mod server;
mod socks;
#[cfg(target_os = "linux")]
mod tcp;
mod tcp_info;
pub mod tls;
mod waits;
mod window;

pub use authority::with_port;
pub use dial::{DialOptions, Dialled, Family, Reach, dial};
pub use pace::Pace;
pub use receive_budget::{BudgetShare, COUNTS_RECEIVED_BYTES, ReceiveBudget};
pub use received::Received;
pub use rtt::{Hold, RttGauge, RttSample, queueing};
pub use secret::{MAX_PROMPTS, NoPrompter, PasswordSource, Prompter, Secret, TRY_AGAIN};
pub use server::{
    Admission, Admitted, ClientEvent, Observer, Running, Stopper, Workers, network, start_workers,
};
#[cfg(target_os = "linux")]
pub use server::{Jail, PATH_MAX, proc_path};
pub use socks::Socks5;
pub use tcp_info::Direction;
pub use waits::{HostWaits, Pause, REPORTED_AFTER, SILENCE, Wait, Waits};
pub use window::receive_at_most;
