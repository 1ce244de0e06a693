//! A pyftpdlib for one test: it supports MLSD and MFMT, which vsftpd does not.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use haul_bench::guard::end_with_thread;
use tempfile::TempDir;

use super::vsftpd::{certificate, start};

/// Debian's Python: another one on the machine may lack its packages.
const PYTHON: &str = "/usr/bin/python3";

pub const USER: &str = "me";
pub const PASSWORD: &str = "correct horse";

/// A running server; dropping it stops it.
pub struct Pyftpdlib {
    child: Child,
    port: u16,
    dir: TempDir,
}

impl Pyftpdlib {
    /// Starts one; prints the reason and returns `None` if it is not installed.
    pub fn start(tls: bool) -> Option<Self> {
        Self::start_for(tls, 0)
    }

    /// Starts one that accepts `connections` connections per address (0: any number).
    pub fn start_for(tls: bool, connections: usize) -> Option<Self> {
        let import = ["-c", "import pyftpdlib, OpenSSL"];
        let found = Command::new(PYTHON).args(import).stderr(Stdio::null()).status();
        if !found.is_ok_and(|status| status.success()) {
            eprintln!("skipped: python3-pyftpdlib and python3-openssl (Debian's) are needed");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("up")).unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../haul-ftp/tests/support/serve.py");
        let both = tls.then(|| {
            let (certificate, key) = certificate(dir.path());
            let both = dir.path().join("both.pem");
            let text = fs::read_to_string(&certificate).unwrap();
            fs::write(&both, text + &fs::read_to_string(&key).unwrap()).unwrap();
            both
        });
        let (child, port) = start(|port| {
            let mut command = Command::new(PYTHON);
            command.arg(script).arg(port.to_string()).arg(&root);
            command.arg(connections.to_string()).args(&both);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            end_with_thread(&mut command);
            command.spawn().unwrap()
        });
        Some(Self { child, port, dir })
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The directory `/up` of the server.
    pub fn root(&self) -> PathBuf {
        self.dir.path().join("root/up")
    }

    /// The certificate to be trusted.
    pub fn certificate(&self) -> PathBuf {
        self.dir.path().join("certificate.pem")
    }
}

impl Drop for Pyftpdlib {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
