//! A real nginx, in the foreground and with a directory of its own.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use haul_bench::guard::end_with_thread;
use tempfile::TempDir;

use crate::port::free_port;

const NGINX: &str = "/usr/sbin/nginx";

/// The server; it ends with its test.
pub(super) struct Nginx {
    directory: TempDir,
    address: SocketAddr,
    child: Child,
}

impl Nginx {
    /// Starts nginx with these lines added to `http` and to `location /`. `None`, with the reason printed, where
    /// nginx is not installed.
    pub(super) fn start(http: &str, location: &str) -> Option<Self> {
        if !Path::new(NGINX).exists() {
            eprintln!("skipped: there is no {NGINX} (Debian: nginx-light)");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        fs::create_dir(root.join("www")).unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let at = root.display();
        let config = format!(
            "daemon off; master_process off; worker_processes 1; pid {at}/pid; error_log {at}/errors;
             events {{ worker_connections 256; }}
             http {{
                 access_log off; default_type application/octet-stream; sendfile on;
                 client_body_temp_path {at}/t1; proxy_temp_path {at}/t2; fastcgi_temp_path {at}/t3;
                 uwsgi_temp_path {at}/t4; scgi_temp_path {at}/t5;
                 {http}
                 server {{ listen {address}; root {at}/www; location / {{ {location} }} }}
             }}"
        );
        fs::write(root.join("config"), config).unwrap();
        // As root, nginx would switch to another user, who cannot read the test's directory.
        let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
        let mut command = Command::new(NGINX);
        command.args(["-p", &at.to_string(), "-c", "config", "-e", "errors", "-g", user]);
        end_with_thread(&mut command);
        let log = File::create(root.join("stderr")).unwrap();
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            let ended = child.try_wait().unwrap();
            let log = || fs::read_to_string(root.join("stderr")).unwrap();
            assert!(ended.is_none(), "nginx does not start: {}", log());
            assert!(begun.elapsed() < Duration::from_secs(20), "nginx does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(Self { directory, address, child })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// A path below the served directory.
    pub(super) fn www(&self, path: &str) -> PathBuf {
        self.directory.path().join("www").join(path)
    }

    /// The URL of a path.
    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
