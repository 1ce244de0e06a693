//! SSH servers other than OpenSSH, for tests: each is a program that prints its port and its known_hosts
//! line and serves until it is killed. It accepts any password.
//!
//! A test binary includes it with `#[path = "../support/peer.rs"] mod peer;`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use haul_bench::guard::end_with_thread;
use haul_sftp::ssh::{ConfigFile, NoPrompter, PasswordSource, Secret, SshHost, SshOptions};
use tempfile::TempDir;

/// The password that [`options`] sends.
pub const PASSWORD: &str = "correct horse";

/// A running server.
#[derive(Debug)]
pub struct Peer {
    process: Child,
    port: u16,
    /// The directory of its known_hosts file, removed with it.
    directory: TempDir,
}

impl Peer {
    /// Starts a program and reads its first line, `PORT HOST KEY-TYPE KEY`.
    pub fn start(mut command: Command) -> Self {
        end_with_thread(&mut command);
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (port, known) = line.trim().split_once(' ').unwrap();
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("known_hosts"), format!("{known}\n")).unwrap();
        Self { process, port: port.parse().unwrap(), directory }
    }

    /// The server as haul's host, with further `-o` options.
    pub fn host(&self, more: &[&str]) -> SshHost {
        host(None, self.port, &options(&self.directory.path().join("known_hosts"), more))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// Options that use none of the machine's files except this known_hosts file, and authenticate with
/// [`PASSWORD`].
pub fn options(known_hosts: &Path, more: &[&str]) -> SshOptions {
    let mut options = vec![
        format!("UserKnownHostsFile={}", known_hosts.display()),
        "GlobalKnownHostsFile=none".to_owned(),
        "IdentityAgent=none".to_owned(),
        "PubkeyAuthentication=no".to_owned(),
        "StrictHostKeyChecking=yes".to_owned(),
    ];
    options.extend(more.iter().map(|&option| option.to_owned()));
    SshOptions {
        config: ConfigFile::None,
        options,
        password: Some(PasswordSource::Secret(Secret::new(PASSWORD))),
        ..SshOptions::default()
    }
}

/// A server on a port of 127.0.0.1.
pub fn host(user: Option<&str>, port: u16, options: &SshOptions) -> SshHost {
    SshHost::resolve(user, "127.0.0.1", Some(port), options, Arc::new(NoPrompter)).unwrap()
}
