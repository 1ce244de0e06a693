//! A whole server with a key and a password: authentication, session limits, and stopping.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use haul_sftp::server::{AuthorizedKeys, Credentials, Password, SftpServer, SftpServerBuilder};
use tempfile::TempDir;

use crate::events::Trusting;

/// A server, a directory for it and one for its client.
pub(crate) struct Site {
    pub(crate) server: SftpServer,
    directory: TempDir,
}

/// The password of the user `me`.
pub(crate) const PASSWORD: &str = "correct horse";

impl Site {
    pub(crate) async fn new() -> Self {
        Self::with(|builder| builder).await
    }

    pub(crate) async fn with(
        settings: impl FnOnce(SftpServerBuilder) -> SftpServerBuilder,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["served", "here"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let key = directory.path().join("key");
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(&key)
            .status();
        assert!(made.unwrap().success());
        let keys = AuthorizedKeys::read(&key.with_extension("pub")).unwrap();
        let credentials =
            Credentials::new("me").with_keys(keys).with_password(Password::new(PASSWORD));
        let builder = SftpServer::builder(directory.path().join("served")).credentials(credentials);
        let server = settings(builder).bind().await.unwrap();
        let known = format!("[127.0.0.1]:{} {}\n", server.address().port(), server.public_key());
        fs::write(directory.path().join("known"), known).unwrap();
        Self { server, directory }
    }

    /// A path below the served directory, the client's `/`.
    pub(crate) fn served(&self, path: &str) -> PathBuf {
        self.directory.path().join("served").join(path)
    }

    /// A path below the client's working directory.
    pub(crate) fn here(&self, path: &str) -> PathBuf {
        self.directory.path().join("here").join(path)
    }

    pub(crate) fn beside(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    pub(crate) fn port(&self) -> u16 {
        self.server.address().port()
    }

    /// Options of OpenSSH's programs for this server and no other configuration.
    pub(crate) fn ssh_options(&self) -> Vec<String> {
        let mut options = vec!["-F".to_owned(), "none".to_owned()];
        for option in [
            format!("Port={}", self.port()),
            format!("IdentityFile={}", self.beside("key").display()),
            format!("UserKnownHostsFile={}", self.beside("known").display()),
            "IdentitiesOnly=yes".to_owned(),
            "IdentityAgent=none".to_owned(),
            "StrictHostKeyChecking=yes".to_owned(),
            "PasswordAuthentication=no".to_owned(),
        ] {
            options.extend(["-o".to_owned(), option]);
        }
        options
    }

    /// A command in the client's directory; it is killed if it hangs.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("timeout");
        command.args(["120", program]).current_dir(self.here("")).env("HOME", self.here(""));
        command.stdin(Stdio::null());
        command
    }

    /// The output of a command that succeeds.
    pub(crate) async fn run(&self, mut command: Command) -> String {
        let line = format!("{command:?}");
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let (out, err) = both(&output);
        assert!(output.status.success(), "{line}\n{out}{err}");
        out
    }

    /// The output of a command that fails.
    pub(crate) async fn fails(&self, mut command: Command) -> String {
        let line = format!("{command:?}");
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let (out, err) = both(&output);
        assert!(
            !output.status.success() && output.status.code() != Some(124),
            "{line}\n{out}{err}"
        );
        format!("{out}{err}")
    }

    /// OpenSSH's sftp with a batch.
    pub(crate) fn sftp(&self, batch: &str) -> Command {
        fs::write(self.here("batch"), batch).unwrap();
        let mut command = self.command("sftp");
        command.args(self.ssh_options()).args(["-b", "batch", "me@127.0.0.1"]);
        command
    }
}

fn both(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[tokio::test]
async fn a_key_authenticates_its_user_only() {
    let site = Site::new().await;
    site.run(site.sftp("pwd")).await;

    let mut other_user = site.command("sftp");
    other_user.args(site.ssh_options()).args(["-b", "batch", "you@127.0.0.1"]);
    assert!(site.fails(other_user).await.contains("Permission denied"));

    fs::remove_file(site.beside("key")).unwrap();
    fs::remove_file(site.beside("key.pub")).unwrap();
    let mut keygen = site.command("ssh-keygen");
    keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(site.beside("key"));
    site.run(keygen).await;
    assert!(site.fails(site.sftp("pwd")).await.contains("Permission denied"));
}

#[tokio::test]
async fn the_reported_fingerprint_is_that_of_the_host_key() {
    let site = Site::new().await;
    let mut scan = site.command("ssh-keyscan");
    scan.args(["-p", &site.port().to_string(), "127.0.0.1"]);
    fs::write(site.here("scanned"), site.run(scan).await).unwrap();
    let mut list = site.command("ssh-keygen");
    list.args(["-l", "-f", "scanned"]);
    assert!(site.run(list).await.contains(site.server.fingerprint()));
}

#[tokio::test]
async fn the_right_password_is_accepted_and_a_connection_ends_after_six_wrong_ones() {
    use russh::client::{Config, connect};
    let site = Site::new().await;
    let config = std::sync::Arc::new(Config::default());
    let address = site.server.address();
    let mut client = connect(std::sync::Arc::clone(&config), address, Trusting).await.unwrap();
    assert!(!client.authenticate_password("you", PASSWORD).await.unwrap().success());
    assert!(client.authenticate_password("me", PASSWORD).await.unwrap().success());

    let mut client = connect(config, address, Trusting).await.unwrap();
    let mut attempts = 0;
    while let Ok(outcome) = client.authenticate_password("me", "wrong").await
        && !client.is_closed()
    {
        assert!(!outcome.success());
        attempts += 1;
    }
    assert_eq!(attempts, 6);
    assert!(client.authenticate_password("me", PASSWORD).await.map_or(true, |one| !one.success()));
}

#[tokio::test]
async fn a_server_without_credentials_or_directory_does_not_start() {
    let directory = tempfile::tempdir().unwrap();
    let error = SftpServer::builder(directory.path()).bind().await.unwrap_err();
    assert!(error.to_string().contains("no client could log in"), "{error}");
    let credentials = Credentials::new("me").with_password(Password::new("x"));
    let error = SftpServer::builder(directory.path().join("none"))
        .credentials(credentials)
        .bind()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), haul_storage::ErrorKind::NotFound);
}

#[tokio::test]
async fn sessions_beyond_the_limit_are_refused_with_a_reason() {
    let site = Site::with(|builder| builder.max_sessions(1)).await;
    let mut first = site.command("sftp");
    first.args(site.ssh_options()).arg("me@127.0.0.1").stdin(Stdio::piped());
    let mut first = first.stdout(Stdio::piped()).spawn().unwrap();
    use std::io::{BufRead, BufReader, Write};
    let mut input = first.stdin.take().unwrap();
    writeln!(input, "pwd").unwrap();
    let mut lines = BufReader::new(first.stdout.take().unwrap()).lines();
    let printed = tokio::task::spawn_blocking(move || {
        lines.any(|line| line.unwrap().contains("Remote working directory: /"))
    });
    assert!(printed.await.unwrap());
    let output = site.fails(site.sftp("pwd")).await;
    assert!(output.contains("all 1 sessions of this server are taken"), "{output}");
    drop(input);
    tokio::task::spawn_blocking(move || first.wait().unwrap()).await.unwrap();
    site.run(site.sftp("pwd")).await;
}

#[tokio::test]
async fn stopping_the_server_closes_all_connections() {
    let site = Site::new().await;
    let mut client = site.command("sftp");
    client.args(site.ssh_options()).arg("me@127.0.0.1").stdin(Stdio::piped());
    let mut client = client.stdout(Stdio::piped()).spawn().unwrap();
    use std::io::{BufRead, BufReader, Write};
    let mut input = client.stdin.take().unwrap();
    writeln!(input, "pwd").unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap()).lines();
    let printed = tokio::task::spawn_blocking(move || {
        lines.any(|line| line.unwrap().contains("Remote working directory: /"))
    });
    assert!(printed.await.unwrap());
    let address = site.server.address();
    assert!(listens(address));
    site.server.stop().await;
    // sftp notices with its next command.
    writeln!(input, "ls").unwrap();
    drop(input);
    let ended = tokio::task::spawn_blocking(move || client.wait().unwrap()).await.unwrap();
    assert!(!ended.success() && ended.code() != Some(124), "{ended}");
    assert!(!listens(address));
}

/// Whether this process listens on an IPv4 address. Another one may, as soon as the port is free.
fn listens(address: std::net::SocketAddr) -> bool {
    let std::net::IpAddr::V4(ip) = address.ip() else { panic!("{address}") };
    let local = format!("{:08X}:{:04X}", u32::from_ne_bytes(ip.octets()), address.port());
    let own: Vec<_> = fs::read_dir("/proc/self/fd").unwrap().collect();
    let is_own = |inode: &str| {
        let socket = format!("socket:[{inode}]");
        own.iter()
            .flatten()
            .any(|fd| fs::read_link(fd.path()).is_ok_and(|target| target.as_os_str() == &*socket))
    };
    fs::read_to_string("/proc/self/net/tcp").unwrap().lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(1) == Some(&&*local) && fields.get(3) == Some(&"0A") && is_own(fields[9])
    })
}
