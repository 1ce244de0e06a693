//! Entry points of the fuzz targets: decoders of what a server sends, and of files that identify
//! it, before anything is trusted.

pub use super::known_hosts::lines_about as known_host_lines;
pub use super::transport::fuzzing::{authentication, certificate, identification, offer, packets};
