//! What haul's servers share: who may connect, how they begin and end, what is told about clients, and the directory
//! that nobody gets out of.

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
