//! The protocol without its connections: command lines, replies, features, times, listings.
//!
//! Names are bytes throughout. Nothing here reads more than it is given, and what gives it is bounded
//! (`control` for replies, `list` for listings).

mod command;
mod features;
pub(crate) mod listing;
mod passive;
mod reply;
mod time;

pub(crate) use command::Command;
pub(crate) use features::Features;
pub(crate) use passive::{extended_port, port};
pub(crate) use reply::{Reply, ReplyParser};
pub(crate) use time::{format_time, parse_time};
