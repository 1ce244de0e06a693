//! The measuring stick: links, peers, servers, scenarios and reports.
//!
//! [`scenario`] says what is measured and [`tools`] with what, both from data files. [`run`] plays
//! scenarios under a [`guard`], over a [`link`] and against servers where they need one, and writes
//! [`record`]s, which [`report`] makes tables and a page of.

mod command;
pub mod data;
pub mod guard;
pub mod link;
pub mod machine;
mod mounts;
mod processes;
pub mod record;
pub mod report;
pub mod run;
pub mod scenario;
mod servers;
pub mod stats;
mod sys;
pub mod tools;
