//! What each server's module is given, and what it makes of it: a command that starts the server.

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::link::Namespace;
use crate::tools::on_path;

/// Where a server runs and what it may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    /// Its network.
    pub(crate) namespace: &'a Namespace,
    /// Its address there.
    pub(crate) address: Ipv4Addr,
    /// What it serves.
    pub(crate) root: &'a Path,
    /// For configuration, keys, logs.
    pub(crate) private: &'a Path,
    /// The haul that is measured, which may be the server too.
    pub(crate) haul: &'a Path,
}

/// What a protocol's module gives: how to start, and what clients have to know.
pub(super) struct Recipe {
    pub(super) command: Command,
    pub(super) port: u16,
    /// Variables besides HOST, PORT and URL.
    pub(super) variables: Vec<(&'static str, String)>,
    /// Scheme of URLs.
    pub(super) scheme: &'static str,
    pub(super) prefix: String,
}

/// A program of a server, or how to get it.
pub(super) fn program(name: &str, package: &str) -> io::Result<PathBuf> {
    on_path(name).ok_or_else(|| {
        io::Error::other(format!("{name} is not installed (apt-get install {package})"))
    })
}
