//! A whole server with a key and a password: authentication, session limits, and stopping.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use haul_sftp::server::{
    AuthorizedKeys, ClientAction, ClientEvent, Credentials, Password, SftpServer, SftpServerBuilder,
};
use haul_sftp::ssh::{ConfigFile, SshHost, SshOptions};
use haul_storage::ErrorKind;
use tempfile::TempDir;

use crate::events::{Log, connected};
use crate::prompter::ScriptedUser;

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
        let key = new_key(directory.path(), "key");
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

    /// Generates a key that the server does not accept.
    pub(crate) fn new_key(&self, name: &str) -> PathBuf {
        new_key(self.directory.path(), name)
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

fn new_key(directory: &Path, name: &str) -> PathBuf {
    let key = directory.join(name);
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key);
    assert!(command.status().unwrap().success());
    key
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
    site.new_key("key");
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
async fn the_right_password_is_accepted_for_its_user_only() {
    let site = Site::new().await;
    let mut client = connected(&site).await;
    assert!(!client.authenticate_password("you", PASSWORD).await.unwrap().success());
    assert!(client.authenticate_password("me", PASSWORD).await.unwrap().success());
}

/// A command of OpenSSH that logs in with these passwords one after the other, then with the last one again and
/// again. Each prompt leaves a line in the file `prompts` of its directory.
fn ssh_with_passwords(site: &Site, passwords: &[&str], options: &[&str]) -> Command {
    fs::write(site.here("passwords"), passwords.join("\n") + "\n").unwrap();
    let script =
        "#!/bin/sh\necho prompt >> prompts\nhead -n $(wc -l < prompts) passwords | tail -n 1\n";
    fs::write(site.here("askpass"), script).unwrap();
    fs::set_permissions(site.here("askpass"), fs::Permissions::from_mode(0o700)).unwrap();
    let mut command = site.command("sftp");
    for option in ["PasswordAuthentication=yes"].iter().chain(options) {
        command.args(["-o", option]);
    }
    command.env("SSH_ASKPASS", site.here("askpass")).env("SSH_ASKPASS_REQUIRE", "force");
    command.args(site.ssh_options()).arg("me@127.0.0.1");
    command
}

/// Regression: after the first wrong password, the server no longer offered the method.
#[tokio::test]
async fn a_user_of_openssh_can_mistype_the_password_twice() {
    let site = Site::new().await;
    let passwords = ["wrong", "still wrong", PASSWORD];
    site.run(ssh_with_passwords(&site, &passwords, &["PubkeyAuthentication=no"])).await;
    assert_eq!(fs::read_to_string(site.here("prompts")).unwrap().lines().count(), 3);

    // The same after a wrong key.
    let key = site.new_key("other");
    fs::remove_file(site.here("prompts")).unwrap();
    let identity = format!("IdentityFile={}", key.display());
    fs::remove_file(site.beside("key")).unwrap();
    site.run(ssh_with_passwords(&site, &passwords, &[&identity])).await;
    assert_eq!(fs::read_to_string(site.here("prompts")).unwrap().lines().count(), 3);
}

/// A server as haul's host, with these keys and no others.
fn host(site: &Site, identities: Vec<PathBuf>, user: &Arc<ScriptedUser>) -> SshHost {
    let options = SshOptions {
        identities,
        config: ConfigFile::None,
        options: vec![
            format!("UserKnownHostsFile={}", site.beside("known").display()),
            "GlobalKnownHostsFile=none".to_owned(),
            "IdentityAgent=none".to_owned(),
        ],
        ..SshOptions::default()
    };
    let prompter = Arc::clone(user) as _;
    SshHost::resolve(Some("me"), "127.0.0.1", Some(site.port()), &options, prompter).unwrap()
}

/// Regression: after the first wrong password, the server no longer offered the method.
#[tokio::test]
async fn a_user_of_haul_can_mistype_the_password_twice() {
    let site = Site::new().await;
    let user = ScriptedUser::responding(&["wrong", "still wrong", PASSWORD]);
    host(&site, vec![site.new_key("other")], &user).connect().await.unwrap();
    assert_eq!(user.shown_count("'s password: "), 3);
}

#[tokio::test]
async fn haul_reports_that_a_server_has_refused_too_many_keys() {
    let site = Site::new().await;
    let user = ScriptedUser::responding(&[]);
    let keys = (0..7).map(|n| site.new_key(&format!("other{n}"))).collect();
    let error = host(&site, keys, &user).connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
    assert!(error.to_string().contains("Too many authentication failures"), "{error}");
}

/// The number of logins that a server has refused.
fn refused_logins(events: &[ClientEvent]) -> usize {
    let is_refusal = |event: &&ClientEvent| matches!(event.action, ClientAction::Refused { .. });
    events.iter().filter(is_refusal).count()
}

#[tokio::test]
async fn a_connection_ends_with_the_sixth_refused_login() {
    let log = Log::default();
    let site = Site::with(|builder| log.of(builder)).await;
    let mut client = connected(&site).await;
    while !client.is_closed() {
        // An error if the connection ends meanwhile.
        let outcome = client.authenticate_password("me", "wrong").await;
        assert!(outcome.map_or(true, |outcome| !outcome.success()));
    }
    let events = log.until_disconnected(1).await;
    assert_eq!(refused_logins(&events), 6, "{events:?}");
}

/// As with sshd (MaxAuthTries 6). Regression: the request `none`, with which OpenSSH begins, counted too.
#[tokio::test]
async fn six_logins_of_openssh_are_checked_before_the_connection_ends() {
    let log = Log::default();
    let site = Site::with(|builder| log.of(builder)).await;
    let options = ["PubkeyAuthentication=no", "NumberOfPasswordPrompts=20"];
    let output = site.fails(ssh_with_passwords(&site, &["wrong"], &options)).await;
    assert!(output.contains("Too many authentication failures"), "{output}");
    let events = log.until_disconnected(1).await;
    assert_eq!(refused_logins(&events), 6, "{events:?}");

    // The sixth is accepted if it is the right one.
    fs::remove_file(site.here("prompts")).unwrap();
    let passwords = ["1", "2", "3", "4", "5", PASSWORD];
    site.run(ssh_with_passwords(&site, &passwords, &options)).await;
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
    assert_eq!(error.kind(), ErrorKind::NotFound);
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
