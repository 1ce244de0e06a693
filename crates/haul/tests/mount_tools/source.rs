//! The mounted directory: `far` of a session, as a local directory or behind a server.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use haul_fault_proxy::FaultProxy;
use rustix::process::{Pid, Signal, kill_process};

use crate::lab::{SmallDisk, is_night};
use crate::session::Session;
use crate::sshd::Sshd;

/// How the directory is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// As a local directory.
    Local,
    /// Through sshd.
    OpenSsh,
    /// Through `haul serve sftp`, which is a single process.
    HaulSftp,
    /// Through `haul serve dav`.
    Dav,
}

/// A session with a directory `far`, a mount point `mnt`, and a server for the first. By day, it is in memory.
pub(crate) struct Source {
    server: Server,
    /// haul connects to it instead of the server.
    proxy: Option<FaultProxy>,
    /// Unmounted before the session's directory is removed.
    _disk: Option<SmallDisk>,
    pub(crate) session: Session,
}

enum Server {
    None,
    OpenSsh(Sshd),
    Sftp(Haul),
    Dav(Haul),
}

/// A server of haul.
struct Haul {
    child: Child,
    address: SocketAddr,
    /// Kept open, so that the server can write to it.
    _stdout: BufReader<ChildStdout>,
}

impl Source {
    /// Creates the session and starts its server; `None`, with the reason printed, if that is not possible.
    pub(crate) fn start(kind: Kind) -> Option<Self> {
        if kind == Kind::OpenSsh && !Sshd::is_installed() {
            return None;
        }
        let session = Session::new();
        // By day, no sync waits for a disk.
        let disk = if is_night() { None } else { Some(SmallDisk::mount(session.path(""), "1g")?) };
        let session = session.directory("far").directory("mnt").directory("home");
        let server = match kind {
            Kind::Local => Server::None,
            Kind::OpenSsh => Server::OpenSsh(Sshd::start()),
            Kind::HaulSftp => Server::Sftp(Haul::sftp(&session)),
            Kind::Dav => {
                let line = "serve dav far --listen 127.0.0.1:0";
                Server::Dav(Haul::start(&session, line).0)
            }
        };
        Some(Self { server, proxy: None, _disk: disk, session })
    }

    /// As [`Source::start`], with a proxy in front of the server that can inject faults.
    pub(crate) fn behind_proxy(kind: Kind) -> Option<Self> {
        let mut source = Self::start(kind)?;
        source.proxy = Some(FaultProxy::to(source.server.address().unwrap()).start().unwrap());
        Some(source)
    }

    /// The proxy of [`Source::behind_proxy`].
    pub(crate) fn proxy(&self) -> &FaultProxy {
        self.proxy.as_ref().unwrap()
    }

    /// A path on the server.
    pub(crate) fn far(&self, path: &str) -> PathBuf {
        self.session.path("far").join(path)
    }

    /// Writes a file on the server.
    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        self.session.write(format!("far/{path}"), content);
    }

    /// The names in a directory on the server, sorted.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.far(path)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    /// Arguments of haul: options of SSH, and the location.
    pub(crate) fn arguments(&self) -> String {
        let address = self.proxy.as_ref().map(FaultProxy::address);
        let address = address.or_else(|| self.server.address()).map(|to| to.to_string());
        let address = address.unwrap_or_default();
        let far = self.far("").display().to_string();
        match &self.server {
            Server::None => far,
            Server::Dav(_) => format!("dav://{address}/"),
            Server::OpenSsh(sshd) => {
                let mut options = format!("-F none -i {}", sshd.user_key().display());
                for option in sshd.isolated() {
                    options.push_str(&format!(" -o {option}"));
                }
                format!("{options} -o HostKeyAlias={} sftp://{address}{far}", sshd.known_name())
            }
            Server::Sftp(haul) => {
                let path = |name| self.session.path(name).display().to_string();
                format!(
                    "-F none -i {} -o UserKnownHostsFile={} -o GlobalKnownHostsFile=none \
                     -o IdentityAgent=none -o HostKeyAlias=[127.0.0.1]:{} sftp://me@{address}/",
                    path("key"),
                    path("known"),
                    haul.address.port()
                )
            }
        }
    }

    /// Sends a signal to the server, which must be one of haul.
    pub(crate) fn signal_server(&self, signal: Signal) {
        match &self.server {
            Server::Sftp(haul) | Server::Dav(haul) => {
                kill_process(Pid::from_child(&haul.child), signal).unwrap();
            }
            Server::None | Server::OpenSsh(_) => panic!("this server is not a single process"),
        }
    }
}

impl Server {
    fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::None => None,
            Self::OpenSsh(sshd) => Some(sshd.address()),
            Self::Sftp(haul) | Self::Dav(haul) => Some(haul.address),
        }
    }
}

impl Haul {
    /// Starts a server; returns also the object that it prints.
    fn start(session: &Session, line: &str) -> (Self, serde_json::Value) {
        let mut command = session.command(&format!("{line} --json"));
        command.env("USER", "me").stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut printed = String::new();
        stdout.read_line(&mut printed).unwrap();
        let object: serde_json::Value = serde_json::from_str(&printed).unwrap();
        let address = object["address"].as_str().unwrap().parse().unwrap();
        (Self { child, address, _stdout: stdout }, object)
    }

    /// `haul serve sftp`, with a key for its client.
    fn sftp(session: &Session) -> Self {
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-f", "key"]).current_dir(session.path(""));
        assert!(keygen.status().unwrap().success());
        let line = "serve sftp far --listen 127.0.0.1:0 --authorized-keys key.pub";
        let (server, object) = Self::start(session, line);
        let key = object["host_key"].as_str().unwrap();
        session.write("known", format!("[127.0.0.1]:{} {key}\n", server.address.port()));
        server
    }
}

impl Drop for Haul {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
