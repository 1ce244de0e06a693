//! A vsftpd for one test, on a free port, with a directory that anonymous users may write to.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use haul_bench::guard::end_with_thread;
use tempfile::TempDir;

use crate::port::free_port;

const VSFTPD: &str = "/usr/sbin/vsftpd";

/// A running vsftpd; dropping it stops the server.
pub struct Vsftpd {
    child: Child,
    port: u16,
    dir: TempDir,
}

/// The server's TLS mode.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tls {
    None,
    /// Required, and data connections have to resume the control connection's session (vsftpd's default).
    Explicit,
    Implicit,
}

impl Vsftpd {
    /// Starts one with further lines in its configuration; prints the reason and returns `None` if it
    /// is not installed, or without root.
    pub fn start(tls: Tls, more: &[&str]) -> Option<Self> {
        if !Path::new(VSFTPD).exists() || !rustix::process::getuid().is_root() {
            eprintln!("skipped: vsftpd (Debian's package) and root are needed");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let [root, empty] = ["root", "empty"].map(|name| dir.path().join(name));
        fs::create_dir(&root).unwrap();
        fs::create_dir(&empty).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        // The user "ftp" has to be able to write, but vsftpd requires a root that it cannot write to.
        let below = root.join("up");
        fs::create_dir(&below).unwrap();
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&below, fs::Permissions::from_mode(0o777)).unwrap();
        // The passive ports are below those of the tests' servers (`port.rs`) and below the ephemeral ports:
        // so many of the latter stay in TIME_WAIT for a minute that vsftpd fails to bind one.
        let mut configuration = format!(
            "background=NO\nlisten=YES\nlisten_address=127.0.0.1\n\
             pasv_min_port=1024\npasv_max_port=9999\n\
             anonymous_enable=YES\nanon_root={}\nlocal_enable=NO\n\
             write_enable=YES\nanon_upload_enable=YES\nanon_mkdir_write_enable=YES\n\
             anon_other_write_enable=YES\nanon_umask=022\nanon_world_readable_only=NO\n\
             secure_chroot_dir={}\nallow_writeable_chroot=YES\npasv_enable=YES\n\
             connect_from_port_20=NO\nxferlog_enable=NO\nseccomp_sandbox=NO\nmax_per_ip=0\n",
            root.display(),
            empty.display()
        );
        if tls != Tls::None {
            let (certificate, key) = certificate(dir.path());
            write!(
                configuration,
                "ssl_enable=YES\nallow_anon_ssl=YES\nforce_anon_data_ssl=YES\n\
                 force_anon_logins_ssl=YES\nrequire_ssl_reuse=YES\nssl_ciphers=HIGH\n\
                 rsa_cert_file={}\nrsa_private_key_file={}\n",
                certificate.display(),
                key.display()
            )
            .unwrap();
        }
        if tls == Tls::Implicit {
            configuration.push_str("implicit_ssl=YES\n");
        }
        for line in more {
            configuration.push_str(line);
            configuration.push('\n');
        }
        let file = dir.path().join("vsftpd.conf");
        let (child, port) = start(|port| {
            fs::write(&file, format!("{configuration}listen_port={port}\n")).unwrap();
            let mut command = Command::new(VSFTPD);
            command.arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
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

impl Drop for Vsftpd {
    fn drop(&mut self) {
        // Its sessions end when their connections do.
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// A certificate for 127.0.0.1 and its key, in a directory.
pub fn certificate(dir: &Path) -> (PathBuf, PathBuf) {
    let names = ["127.0.0.1", "localhost"].map(str::to_owned);
    let certified = rcgen::generate_simple_self_signed(names).unwrap();
    let [certificate, key] = ["certificate.pem", "key.pem"].map(|name| dir.join(name));
    fs::write(&certificate, certified.cert.pem()).unwrap();
    fs::write(&key, certified.signing_key.serialize_pem()).unwrap();
    (certificate, key)
}

/// Starts a server on a free port; tries another one if some other process took it first.
pub fn start(mut spawn: impl FnMut(u16) -> Child) -> (Child, u16) {
    for _ in 0..20 {
        let port = free_port();
        let mut child = spawn(port);
        if listens(&mut child, port) {
            return (child, port);
        }
    }
    panic!("the server ended on each of 20 ports");
}

/// Waits until `server` itself listens; false if it has ended. A test connection would not show which process
/// accepted it, and the server would count it for a while: with a limit of one per address, it would refuse the next.
fn listens(server: &mut Child, port: u16) -> bool {
    let began = Instant::now();
    while !has_listener(server.id(), port) {
        if server.try_wait().unwrap().is_some() {
            return false;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "no server listens on port {port}");
        thread::sleep(Duration::from_millis(20));
    }
    true
}

/// Whether a process has a socket that listens on a port of IPv4 (proc(5), `/proc/net/tcp`).
fn has_listener(process: u32, port: u16) -> bool {
    const LISTENS: &str = "0A";
    let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
    let inode = sockets.lines().find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [_, local, _, state, _, _, _, _, _, inode, ..] = fields[..] else { return None };
        (state == LISTENS && local.ends_with(&format!(":{port:04X}"))).then_some(inode)
    });
    let Some(inode) = inode else { return false };
    let socket = PathBuf::from(format!("socket:[{inode}]"));
    // The process may have ended meanwhile.
    let files = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    files.filter_map(|file| fs::read_link(file.path()).ok()).any(|file| file == socket)
}
