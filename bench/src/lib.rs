//! The measuring stick: links, peers, servers, scenarios and reports.

pub mod record;
pub mod report;
pub mod stats;
