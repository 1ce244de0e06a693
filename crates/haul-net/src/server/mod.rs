//! Common parts of haul's servers: admission of clients, start and end, threads, reports about clients, and
//! the jail that confines them to the directory.

mod accept;
mod admission;
#[cfg(target_os = "linux")]
mod jail;
mod observer;
mod workers;

pub use accept::{Running, Stopper};
pub use admission::{Admission, Admitted, network};
#[cfg(target_os = "linux")]
pub use jail::{Jail, PATH_MAX, proc_path};
pub use observer::{ClientEvent, Observer};
pub use workers::{Workers, start_workers};
