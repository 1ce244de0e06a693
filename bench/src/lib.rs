//! The library of `haul-bench`, which compares haul with similar tools.
//!
//! [`scenario`] defines what is measured and [`tools`] the tools, both from data files. [`run`] runs scenarios under a
//! [`guard`], over emulated [`link`]s and against real servers, and writes [`record`]s. [`report`] turns these into
//! tables and an HTML page.

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
