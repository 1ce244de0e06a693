//! Entry points of the fuzz targets: decoders of a server's packets and certificates, and of known_hosts files.

pub use super::known_hosts::lines_about as known_host_lines;
pub use super::transport::fuzzing::{authentication, certificate, identification, offer, packets};
