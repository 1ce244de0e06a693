//! Common parts of haul's servers: admission of clients, start and end, reports about clients, and
//! the jail that confines them to the directory.

mod accept;
mod admission;
#[cfg(target_os = "linux")]
mod jail;
mod observer;

pub use accept::{Running, Stopper};
pub use admission::{Admission, Admitted};
#[cfg(target_os = "linux")]
pub use jail::{Jail, PATH_MAX, proc_path};
pub use observer::{ClientEvent, Observer};
