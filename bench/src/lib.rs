//! The measuring stick: links, peers, servers, scenarios and reports.
//!
//! [`scenario`] says what is measured and [`tools`] with what, both from data files. [`run`] plays
//! scenarios under a [`guard`], over a [`link`] and against servers where they need one, and writes
//! [`record`]s.

pub mod data;
pub mod guard;
pub mod link;
pub mod machine;
mod mounts;
mod processes;
pub mod record;
pub mod run;
pub mod scenario;
mod servers;
mod sys;
pub mod tools;
