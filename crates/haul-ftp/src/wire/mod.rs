//! The protocol without I/O: command lines, replies, features, times, listings.
//!
//! Names are bytes throughout. The callers bound the length of a line (`control` for replies, `lines` for listings).

mod command;
mod features;
mod hash;
pub mod listing;
mod passive;
mod quoted;
mod reply;
mod time;

pub use command::Command;
pub use features::Features;
pub use hash::{HashCommand, SHA_256};
pub use passive::{announced_size, extended_port, port};
pub use quoted::quoted;
pub use reply::{Reply, ReplyParser, mentions};
pub use time::{STORED_TIMES, format_time, parse_time};
