//! Faults in SFTP, as the user sees them: the program against a real sshd, over a bad network, or with
//! a server behind sshd that violates the protocol.
//!
//! In a command `@/` is the directory `far` of the session on the server, so that a test can look
//! at both ends.

#[path = "../../../../haul-sftp/tests/support/sshd.rs"]
#[expect(dead_code, reason = "the tests of SSH use the rest")]
pub(crate) mod sshd;

mod attributes;
mod cuts;
mod files;
mod jump;
mod limits;
mod login;
mod long;
mod lying;
mod managed;
mod many;
mod nobody;
mod quirks;
mod replacing;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use haul_fault_proxy::FaultProxy;

use self::sshd::Sshd;
use crate::content::{Chance, content, unfinished};
use crate::session::{Ran, Session};

/// A session, and a server on which it has a directory `far`.
pub(crate) struct SftpSession {
    pub(crate) session: Session,
    sshd: Sshd,
    /// The program connects to the proxy instead of the server.
    proxy: Option<FaultProxy>,
}

impl SftpSession {
    /// A server with default settings.
    pub(crate) fn start() -> Self {
        Self::on(Sshd::start())
    }

    /// A server with a proxy in front of it.
    fn behind_proxy() -> Self {
        Self::start().with_proxy()
    }

    fn on(sshd: Sshd) -> Self {
        let session = Session::new().directory("far");
        Self { session, sshd, proxy: None }
    }

    fn with_proxy(mut self) -> Self {
        self.proxy = Some(FaultProxy::to(self.sshd.address()).start().unwrap());
        self
    }

    fn proxy(&self) -> &FaultProxy {
        self.proxy.as_ref().unwrap()
    }

    /// A path at the far end.
    fn far(&self, path: &str) -> PathBuf {
        self.session.path("far").join(path)
    }

    fn address(&self) -> std::net::SocketAddr {
        self.proxy.as_ref().map_or(self.sshd.address(), FaultProxy::address)
    }

    /// `@/` as a location.
    fn location(&self) -> String {
        format!("sftp://{}{}/", self.address(), self.session.path("far").display())
    }

    /// The options with which the program can log in.
    fn options(&self) -> String {
        let mut options = format!("-F none -i {}", self.sshd.user_key().display());
        for option in self.sshd.isolated() {
            options.push_str(&format!(" -o {option}"));
        }
        options + &format!(" -o HostKeyAlias={}", self.sshd.known_name())
    }

    /// A command in which `@/` is the far end.
    pub(crate) fn line(&self, line: &str) -> String {
        line_for(line, &self.location(), &self.options())
    }

    /// Runs the program.
    pub(crate) fn haul(&self, line: &str) -> Ran {
        self.session.haul(&self.line(line))
    }

    /// Starts the program.
    pub(crate) fn spawn(&self, line: &str) -> Running {
        Running::start(&self.session, &self.line(line))
    }

    /// Asserts that both files or directories have the same content.
    #[track_caller]
    pub(crate) fn same(&self, one: &str, other: &str) {
        let output = Command::new("diff")
            .args(["-r", "--no-dereference"])
            .args([self.session.path(one), self.session.path(other)])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// A command in which `@/` is `location`, with the options that it needs.
fn line_for(line: &str, location: &str, options: &str) -> String {
    let words = line.split_whitespace().map(|word| match word.strip_prefix("@/") {
        Some(path) => format!("{location}{path}"),
        None => word.to_owned(),
    });
    let words: Vec<String> = words.collect();
    let (command, rest) = words.split_first().unwrap();
    format!("{command} {options} {}", rest.join(" "))
}

/// The running program, killed when dropped.
pub(crate) struct Running(Option<Child>);

impl Running {
    /// Starts it.
    pub(crate) fn start(session: &Session, line: &str) -> Self {
        let mut command = session.command(line);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(Some(command.spawn().unwrap()))
    }

    /// Its process ID.
    pub(crate) fn id(&self) -> u32 {
        self.0.as_ref().unwrap().id()
    }

    /// Waits until this many bytes have moved, as it reports with `--json`.
    #[track_caller]
    pub(crate) fn until_moved(&mut self, bytes: u64) {
        let output = BufReader::new(self.0.as_mut().unwrap().stdout.as_mut().unwrap());
        let moved = output.lines().map_while(Result::ok).any(|line| {
            let event: serde_json::Value = serde_json::from_str(&line).unwrap();
            event["moved_bytes"].as_u64().is_some_and(|moved| moved >= bytes)
                && event["event"] == "progress"
        });
        assert!(moved, "it ended before {bytes} bytes had moved");
    }

    /// Whether it has not ended yet.
    pub(crate) fn is_running(&mut self) -> bool {
        self.0.as_mut().unwrap().try_wait().unwrap().is_none()
    }

    /// Waits for its end; returns its output, without what [`Running::until_moved`] has read.
    pub(crate) fn finish(mut self) -> Output {
        self.0.take().unwrap().wait_with_output().unwrap()
    }

    /// Ends it by a signal.
    pub(crate) fn end(mut self, signal: &str) {
        let process = self.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &process]).status().unwrap();
        assert!(sent.success());
        self.0.take().unwrap().wait().unwrap();
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) {
        let mut child = self.0.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // It may have ended already.
            drop(child.kill());
            drop(child.wait());
        }
    }
}
