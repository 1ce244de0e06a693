//! Input and output of each server module: from a [`Site`] it builds a [`Recipe`], the command that
//! starts the server.

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::link::Namespace;
use crate::tools::on_path;

/// Where a server runs and what it may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site<'a> {
    /// Its network namespace.
    pub(crate) namespace: &'a Namespace,
    /// Its address in that namespace.
    pub(crate) address: Ipv4Addr,
    /// Where a bridge runs: its namespace, and its address as both sides reach it.
    pub(crate) hub: (&'a Namespace, Ipv4Addr),
    /// The directory that it serves.
    pub(crate) root: &'a Path,
    /// Directory for its configuration, keys and logs.
    pub(crate) private: &'a Path,
    /// The haul executable under test, which may also be the server.
    pub(crate) haul: &'a Path,
}

/// How to start a server, and the parameters that clients need.
pub(super) struct Recipe {
    pub(super) command: Command,
    pub(super) port: u16,
    /// Variables for client commands besides HOST, PORT and SERVER_URL.
    pub(super) variables: Vec<(&'static str, String)>,
    /// Scheme of the server's URLs.
    pub(super) scheme: &'static str,
    pub(super) prefix: String,
}

/// Path of a server program.
///
/// # Errors
/// If it is not installed; the message names the Debian package.
pub(super) fn program(name: &str, package: &str) -> io::Result<PathBuf> {
    on_path(name).ok_or_else(|| {
        io::Error::other(format!("{name} is not installed (apt-get install {package})"))
    })
}
