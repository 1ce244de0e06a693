//! A real sshd for tests: host keys, user keys and configuration are in a directory of its own, and it listens on a
//! port of its own, at 127.0.0.1 by default. It is killed when it is dropped, or when the thread that started it ends.
//!
//! For passwords it runs in a mount namespace with its own /etc/shadow, in which the user of the test
//! has a password, so that nothing on the machine changes. That needs root; everything else works
//! without, if /run/sshd exists.
//!
//! A test binary includes it with `#[path = "../support/sshd.rs"] mod sshd;`, with
//! `#[expect(dead_code, reason = "…")]` if it does not use all of it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use haul_bench::guard::end_with_thread;
use haul_sftp::ssh::{ConfigFile, SshOptions};
use tempfile::TempDir;

/// Path of sshd on Debian.
const SSHD: &str = "/usr/sbin/sshd";

/// Time limit for a server to start.
const START: Duration = Duration::from_secs(20);

/// A running server.
#[derive(Debug)]
pub struct Sshd {
    directory: TempDir,
    address: SocketAddr,
    process: Option<Child>,
}

/// Settings of a server before it starts.
#[derive(Debug)]
pub struct Builder {
    lines: Vec<String>,
    host_keys: Vec<String>,
    host: IpAddr,
    password: Option<String>,
    certificate: Option<Vec<String>>,
}

impl Sshd {
    /// Whether sshd is installed; otherwise prints that the test is skipped.
    pub fn is_installed() -> bool {
        let installed = Path::new(SSHD).exists();
        if !installed {
            eprintln!("SKIPPED: {SSHD} is not installed");
        }
        installed
    }

    /// A server with one ed25519 host key; the user of the test can log in with [`Sshd::user_key`].
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// A server with other settings.
    pub fn builder() -> Builder {
        Builder {
            lines: Vec::new(),
            host_keys: vec!["ed25519".to_owned()],
            host: Ipv4Addr::LOCALHOST.into(),
            password: None,
            certificate: None,
        }
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The ID of its process; 0 once it was stopped.
    pub fn process(&self) -> u32 {
        self.process.as_ref().map_or(0, Child::id)
    }

    /// The IP address, without the port.
    pub fn host(&self) -> String {
        self.address.ip().to_string()
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The user that can log in: the one that the test runs as.
    pub fn user(&self) -> String {
        output(Command::new("id").arg("-un"))
    }

    /// A path in the server's directory, which is removed with the server.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The user's private key.
    pub fn user_key(&self) -> PathBuf {
        self.path("user_key")
    }

    /// Its host key of a type, without `.pub`.
    pub fn host_key(&self, kind: &str) -> PathBuf {
        self.path(&format!("host_{kind}"))
    }

    /// A known_hosts file with its keys, or the authority of its certificate.
    pub fn known_hosts(&self) -> PathBuf {
        self.path("known_hosts")
    }

    /// Its name in a known_hosts file.
    pub fn known_name(&self) -> String {
        format!("[{}]:{}", self.host(), self.port())
    }

    /// Options with which haul can log in, and which use none of the machine's files.
    pub fn options(&self) -> SshOptions {
        SshOptions {
            identities: vec![self.user_key()],
            config: ConfigFile::None,
            options: self.isolated(),
            ..SshOptions::default()
        }
    }

    /// `-o` options that exclude the machine's known_hosts files and agents.
    pub fn isolated(&self) -> Vec<String> {
        vec![
            format!("UserKnownHostsFile={}", self.known_hosts().display()),
            "GlobalKnownHostsFile=none".to_owned(),
            "IdentityAgent=none".to_owned(),
        ]
    }

    /// Generates a key; with a passphrase it is encrypted.
    pub fn new_key(&self, name: &str, kind: &str, passphrase: &str) -> PathBuf {
        let path = self.path(name);
        keygen(&path, kind, passphrase);
        path
    }

    /// Authorizes a key, with options of authorized_keys(5).
    pub fn authorize(&self, key: &Path, options: &str) {
        let mut list = fs::read_to_string(self.path("authorized_keys")).unwrap();
        list.push_str(&format!("{options} {}", public(key)));
        fs::write(self.path("authorized_keys"), list).unwrap();
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap()
    }

    /// The number of connections that it has accepted, according to its log.
    pub fn connections(&self) -> usize {
        self.log().lines().filter(|line| line.starts_with("Connection from ")).count()
    }

    /// Kills the daemon only; its connections live on, as when a daemon dies.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Kills the daemon and all its children, so that all connections end at once.
    pub fn kill_all(&mut self) {
        let Some(process) = &self.process else { return };
        // The children are listed first, then the daemon is killed before them, so that it starts no more.
        let children = descendants(process.id());
        self.stop();
        for pid in children {
            // The process may have ended with the daemon.
            drop(Command::new("kill").args(["-s", "KILL", &pid.to_string()]).output());
        }
    }

    /// Starts it again on the same port.
    pub fn restart(&mut self) {
        self.stop();
        self.launch().unwrap();
    }

    fn launch(&mut self) -> Result<(), String> {
        let log = fs::File::options().create(true).append(true).open(self.path("log")).unwrap();
        // The log also has the lines of earlier starts. A connection made to find out whether the server listens would
        // count as one of the test's.
        let starts = |sshd: &Self| sshd.log().matches("Server listening on").count();
        let earlier = starts(self);
        let directory = self.directory.path().display();
        let mut script = String::new();
        for (private, real) in [("shadow", "/etc/shadow"), ("pam", "/etc/pam.d/sshd")] {
            if self.path(private).exists() {
                script.push_str(&format!("mount --bind {directory}/{private} {real} && "));
            }
        }
        let sshd = format!("exec {SSHD} -D -e -f {directory}/sshd_config");
        let mut command = if script.is_empty() {
            Command::new("sh")
        } else {
            let mut command = Command::new("unshare");
            command.args(["--mount", "--propagation", "private", "sh"]);
            command
        };
        command.arg("-c").arg(script + &sshd);
        end_with_thread(&mut command);
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        self.process = Some(process.unwrap());
        let start = Instant::now();
        while start.elapsed() < START {
            let ended = self.process.as_mut().and_then(|process| process.try_wait().unwrap());
            if let Some(status) = ended {
                self.process = None;
                return Err(format!("sshd ended with {status}: {}", self.log()));
            }
            if starts(self) > earlier {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err("sshd does not start".to_owned())
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        if std::thread::panicking() && self.path("log").exists() {
            eprintln!("--- log of sshd ---\n{}", self.log());
        }
        // A session survives its daemon: forever if its network namespace disappears before the session
        // notices that the client is gone.
        let sessions =
            self.process.as_ref().map_or(Vec::new(), |process| descendants(process.id()));
        self.stop();
        for session in sessions {
            // Most sessions have ended by themselves.
            drop(Command::new("kill").arg(session.to_string()).stderr(Stdio::null()).status());
        }
    }
}

impl Builder {
    /// Adds a line of sshd_config(5). The first line of a keyword wins, and these come first.
    pub fn line(mut self, line: &str) -> Self {
        self.lines.push(line.to_owned());
        self
    }

    /// The types of its host keys: `ed25519`, `ecdsa`, `rsa`.
    pub fn host_keys(mut self, kinds: &[&str]) -> Self {
        self.host_keys = kinds.iter().map(|&kind| kind.to_owned()).collect();
        self
    }

    /// Listens on this address instead of 127.0.0.1.
    pub fn on(mut self, host: IpAddr) -> Self {
        self.host = host;
        self
    }

    /// Listens on ::1.
    pub fn ipv6(mut self) -> Self {
        self.host = Ipv6Addr::LOCALHOST.into();
        self
    }

    /// Accepts a password too, and keyboard-interactive through PAM.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Presents a host certificate, issued with these arguments of `ssh-keygen -s` (`-n names`, `-V
    /// times`), and puts a line `@cert-authority *` into known_hosts in place of the key.
    pub fn certificate(mut self, arguments: &[&str]) -> Self {
        self.certificate = Some(arguments.iter().map(|&argument| argument.to_owned()).collect());
        self
    }

    /// Starts it.
    pub fn start(self) -> Sshd {
        // sshd requires this directory even if it does not use it.
        fs::create_dir_all("/run/sshd").unwrap();
        let directory = tempfile::tempdir().unwrap();
        let address = SocketAddr::new(self.host, 0);
        let mut sshd = Sshd { directory, address, process: None };
        keygen(&sshd.user_key(), "ed25519", "");
        keygen(&sshd.path("authority"), "ed25519", "");
        fs::write(sshd.path("authorized_keys"), public(&sshd.user_key())).unwrap();
        for kind in &self.host_keys {
            keygen(&sshd.host_key(kind), kind, "");
        }
        if let Some(arguments) = &self.certificate {
            let mut command = Command::new("ssh-keygen");
            command.args(["-q", "-h", "-I", "test host", "-s"]).arg(sshd.path("authority"));
            command.args(arguments).arg(sshd.host_key(&self.host_keys[0]).with_extension("pub"));
            assert!(command.status().unwrap().success());
        }
        if let Some(password) = &self.password {
            self.set_password(&sshd, password);
        }
        // Another process can take the port before sshd binds it.
        let mut failure = String::new();
        for _ in 0..10 {
            let probe = TcpListener::bind(address).unwrap();
            sshd.address = probe.local_addr().unwrap();
            drop(probe);
            self.configure(&sshd);
            match sshd.launch() {
                Ok(()) => return sshd,
                Err(cause) => failure = cause,
            }
        }
        panic!("{failure}");
    }

    fn configure(&self, sshd: &Sshd) {
        let mut config: Vec<String> = self.lines.clone();
        let file = |name: &str| sshd.path(name).display().to_string();
        config.push(format!("ListenAddress {}", self.host));
        config.push(format!("Port {}", sshd.port()));
        config.extend(
            self.host_keys.iter().map(|kind| format!("HostKey {}", sshd.host_key(kind).display())),
        );
        if self.certificate.is_some() {
            let key = sshd.host_key(&self.host_keys[0]);
            config.push(format!("HostCertificate {}-cert.pub", key.display()));
        }
        config.push(format!("AuthorizedKeysFile {}", file("authorized_keys")));
        config.push(format!("TrustedUserCAKeys {}", file("authority.pub")));
        config.push(format!("UsePAM {}", if self.password.is_some() { "yes" } else { "no" }));
        for line in [
            "PidFile none",
            "StrictModes no",
            "PermitRootLogin yes",
            "PrintMotd no",
            "PrintLastLog no",
            "UseDNS no",
            "LogLevel VERBOSE",
            "Subsystem echo /bin/cat",
            "Subsystem broken echo no such program >&2; exit 127",
        ] {
            config.push(line.to_owned());
        }
        if !self.lines.iter().any(|line| line.starts_with("Subsystem sftp ")) {
            config.push("Subsystem sftp internal-sftp".to_owned());
        }
        fs::write(sshd.path("sshd_config"), config.join("\n") + "\n").unwrap();
        let mut known = String::new();
        if self.certificate.is_some() {
            known.push_str(&format!("@cert-authority * {}", public(&sshd.path("authority"))));
        } else {
            for kind in &self.host_keys {
                known.push_str(&format!("{} {}", sshd.known_name(), public(&sshd.host_key(kind))));
            }
        }
        fs::write(sshd.known_hosts(), known).unwrap();
    }

    fn set_password(&self, sshd: &Sshd, password: &str) {
        let line = shadow(&sshd.user(), password);
        fs::write(sshd.path("shadow"), line).unwrap();
        fs::set_permissions(sshd.path("shadow"), fs::Permissions::from_mode(0o600)).unwrap();
        let pam = "auth required pam_unix.so\naccount required pam_permit.so\n\
                   session required pam_permit.so\n";
        fs::write(sshd.path("pam"), pam).unwrap();
    }
}

/// The line of shadow(5) that gives a user a password.
pub fn shadow(user: &str, password: &str) -> String {
    // `$6$` is SHA-512 in crypt(3).
    let script = "print crypt($ARGV[0], '$6$haul$')";
    let hash = output(Command::new("perl").args(["-e", script, password]));
    format!("{user}:{hash}:19000:0:99999:7:::\n")
}

/// Generates a key pair. RSA keys have 2048 bits, because larger ones take long to generate.
fn keygen(path: &Path, kind: &str, passphrase: &str) {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-C", "test", "-t", kind, "-N", passphrase, "-f"]).arg(path);
    if kind == "rsa" {
        command.args(["-b", "2048"]);
    }
    assert!(command.status().unwrap().success());
}

/// The line with the public half of a key.
pub fn public(key: &Path) -> String {
    let mut path = key.as_os_str().to_owned();
    path.push(".pub");
    fs::read_to_string(path).unwrap()
}

/// All descendants of a process, without itself.
fn descendants(process: u32) -> Vec<u32> {
    let path = format!("/proc/{process}/task/{process}/children");
    let children = fs::read_to_string(path).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|id| id.parse().ok());
    children.flat_map(|child| [vec![child], descendants(child)].concat()).collect()
}

/// The standard output of a command, without the line end.
pub fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}
