//! Slow links, and servers with low limits or few features.

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use haul_bench::guard::end_with_thread;
use haul_fault_proxy::{Connections, Direction, Fault};

use super::sshd::Sshd;
use super::{SftpSession, content};
use crate::faults::is_root;
use crate::port::free_port;
use crate::session::Session;

/// A tree with a large file and small ones, at both ends.
pub(super) fn tree(sftp: &SftpSession, large: usize) {
    for root in ["src", "far/src"] {
        sftp.session.write(format!("{root}/large"), content(1, large));
        for n in 0..20 {
            sftp.session.write(format!("{root}/d{}/small{n}", n % 3), content(n, 100 * n as usize));
        }
    }
}

/// Copies the tree down and up.
pub(super) fn both_ways(sftp: &SftpSession, options: &str) {
    sftp.haul(&format!("cp {options} @/src down")).status(0);
    sftp.same("src", "down/src");
    sftp.haul(&format!("cp {options} src @/up")).status(0);
    sftp.same("src", "far/up/src");
}

/// A file at both ends, and a link of this rate between them.
fn slow_link(bytes_per_second: u64, large: usize) -> SftpSession {
    let sftp = SftpSession::behind_proxy();
    sftp.session.write("src/large", content(1, large));
    sftp.session.write("far/src/large", content(1, large));
    for direction in Direction::BOTH {
        sftp.proxy().set(Connections::All, direction, Fault::SharedRate(bytes_per_second));
    }
    sftp
}

#[test]
fn a_slow_link_is_no_error_while_bytes_move() {
    // Silence of two seconds would be an error.
    let patience = "-o ServerAliveInterval=1 -o ServerAliveCountMax=2";
    for lanes in ["", "--lanes 2"] {
        both_ways(&slow_link(1 << 20, 4 << 20), &format!("{patience} {lanes}"));
    }
}

#[test]
fn a_very_slow_link_is_no_error_while_bytes_move() {
    let sftp = slow_link(20 << 10, 140 << 10);
    let patience = "-o ServerAliveInterval=1 -o ServerAliveCountMax=2";
    sftp.haul(&format!("cp {patience} @/src down")).status(0);
    sftp.same("src", "down/src");
    // sshd sends a window adjustment every 96 KiB, so it is silent for 5 s.
    let patience = "-o ServerAliveInterval=3 -o ServerAliveCountMax=2";
    sftp.haul(&format!("cp {patience} src @/up")).status(0);
    sftp.same("src", "far/up/src");
}

#[test]
fn copies_adapt_to_a_server_that_drops_connections_at_random() {
    for limit in ["10:30:100", "2:50:3"] {
        let sftp = SftpSession::on(Sshd::builder().line(&format!("MaxStartups {limit}")).start())
            .with_proxy();
        // On a long path, lanes are opened in parallel from the beginning.
        for direction in Direction::BOTH {
            let delay = Fault::delay(Duration::from_millis(15));
            sftp.proxy().set(Connections::All, direction, delay);
        }
        tree(&sftp, 3 << 20);
        both_ways(&sftp, "--lanes 8");
    }
}

#[test]
fn a_server_with_one_session_per_connection_is_enough() {
    let sftp = SftpSession::on(Sshd::builder().line("MaxSessions 1").start());
    tree(&sftp, 6 << 20);
    both_ways(&sftp, "--lanes 4");
}

#[test]
fn copies_work_with_a_server_without_extensions() {
    let refuse = "posix-rename,statvfs,fstatvfs,hardlink,fsync,lsetstat,limits,expand-path,copy-data,\
                  home-directory,users-groups-by-id";
    let subsystem = format!("Subsystem sftp /usr/lib/openssh/sftp-server -P {refuse}");
    let sftp = SftpSession::on(Sshd::builder().line(&subsystem).start());
    tree(&sftp, 6 << 20);
    both_ways(&sftp, "");
    // Existing files are replaced, too.
    sftp.session.write("src/large", content(7, 5 << 20));
    sftp.haul("cp src @/up").status(0);
    sftp.same("src", "far/up/src");
}

/// Dropbear, which starts OpenSSH's sftp-server. It accepts the key of the session, and runs in a mount
/// namespace with another home directory.
struct Dropbear(Child);

impl Dropbear {
    /// Starts it; returns its port, too. `None`, with the reason printed, if it cannot run here.
    fn start(session: &Session) -> Option<(Self, u16)> {
        let installed = Command::new("dropbear").arg("-V").output().is_ok();
        let home = std::env::home_dir().filter(|home| installed && is_root() && home.is_dir());
        let Some(home) = home else {
            eprintln!("skipped: it needs dropbear, root and a home directory");
            return None;
        };
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-f", "key"]).current_dir(session.path(""));
        assert!(keygen.status().unwrap().success());
        session.tool("dropbearkey -t ed25519 -f host");
        let text = session.tool("dropbearkey -y -f host");
        let key = text.lines().find(|line| line.starts_with("ssh-ed25519")).unwrap();
        session.write("root/.ssh/authorized_keys", session.read("key.pub"));
        let port = free_port();
        session.write("known", format!("[127.0.0.1]:{port} {key}\n"));
        let script = format!(
            "mount --bind root {} && exec dropbear -F -E -s -r host -P pid -p 127.0.0.1:{port}",
            home.display()
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
        command.current_dir(session.path("")).stdin(Stdio::null()).stderr(Stdio::null());
        end_with_thread(&mut command);
        let mut server = Self(command.spawn().unwrap());
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert_eq!(server.0.try_wait().unwrap(), None, "dropbear ended");
            assert!(begun.elapsed() < Duration::from_secs(20), "dropbear does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some((server, port))
    }
}

impl Drop for Dropbear {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn copies_work_with_dropbear() {
    let session = Session::new().directory("far");
    let Some((_server, port)) = Dropbear::start(&session) else { return };
    session.write("src/large", content(1, 70 << 20));
    for n in 0..20 {
        session.write(format!("src/d{}/small{n}", n % 3), content(n, 100 * n as usize));
    }
    let url = format!("sftp://root@127.0.0.1:{port}{}", session.path("far").display());
    let options = "-F none -i key -o UserKnownHostsFile=known -o GlobalKnownHostsFile=none \
                   -o IdentityAgent=none --lanes 2";
    session.haul(&format!("cp {options} src {url}")).status(0);
    session.tool("diff -r src far/src");
    session.haul(&format!("cp {options} {url}/src down")).status(0);
    session.tool("diff -r src down/src");
}
