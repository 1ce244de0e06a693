//! `haul serve sftp`, with sftp(1) and haul as clients. [`Serving`] also runs the other servers, shares and mounts.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;

use crate::session::Session;

/// A running server, share or mount, and the first lines that it printed. Killed when dropped.
pub(crate) struct Serving {
    child: Child,
    pub(crate) output: String,
    /// Kept open, so that the server can write to it.
    stdout: BufReader<ChildStdout>,
}

impl Serving {
    /// Starts it and waits for its first `lines` lines.
    pub(crate) fn start(session: &Session, line: &str, lines: usize) -> Self {
        let mut command = session.command(line);
        command.env("USER", "me");
        Self::spawn(command, lines)
    }

    pub(crate) fn spawn(mut command: Command, lines: usize) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut output = String::new();
        for _ in 0..lines {
            stdout.read_line(&mut output).unwrap();
        }
        Self { child, output, stdout }
    }

    pub(crate) fn json(session: &Session, line: &str) -> (Self, serde_json::Value) {
        let mut command = session.command(&format!("{line} --json"));
        command.env("USER", "me");
        Self::parsed(command)
    }

    /// Starts a command that has `--json`; returns it with the object that it prints.
    pub(crate) fn parsed(command: Command) -> (Self, serde_json::Value) {
        let serving = Self::spawn(command, 1);
        let object = serde_json::from_str(&serving.output).unwrap();
        (serving, object)
    }

    /// Waits for its next line on standard output.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    /// Ends it with a signal; returns the rest of its standard output.
    pub(crate) fn rest(mut self, signal: &str) -> String {
        self.signal(signal);
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.stdout, &mut rest).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        rest
    }

    /// Waits until it has ended by itself; returns its status.
    pub(crate) fn wait(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    }

    /// Ends it with a signal; returns its status and its standard error.
    pub(crate) fn end(self, signal: &str) -> (Option<i32>, String) {
        self.signal(signal);
        self.ended()
    }

    /// Waits until it has ended by itself; returns its status and its standard error.
    pub(crate) fn ended(mut self) -> (Option<i32>, String) {
        let mut printed = String::new();
        let mut stderr = self.child.stderr.take().unwrap();
        std::io::Read::read_to_string(&mut stderr, &mut printed).unwrap();
        (self.child.wait().unwrap().code(), printed)
    }
}

/// No server outlives its test.
impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn make_key(session: &Session, name: &str) {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", "ed25519", "-N", "", "-f", name]).current_dir(session.path(""));
    assert!(command.status().unwrap().success());
}

fn session() -> Session {
    let session = Session::new().file("data/file", "content").directory("home");
    make_key(&session, "key");
    session
}

/// Makes the host key of a server the only known one.
fn trust(session: &Session, object: &serde_json::Value) {
    let key = object["host_key"].as_str().unwrap();
    session.write("known", format!("[127.0.0.1]:{} {key}\n", port(object)));
}

fn sftp(session: &Session, port: u64, batch: &str) -> (bool, String) {
    session.write("batch", batch);
    let mut command = Command::new("timeout");
    command.args(["60", "sftp", "-F", "none", "-i", "key", "-P", &port.to_string(), "-b", "batch"]);
    for option in [
        "StrictHostKeyChecking=yes",
        "UserKnownHostsFile=known",
        "IdentityAgent=none",
        "PasswordAuthentication=no",
    ] {
        command.args(["-o", option]);
    }
    let output =
        command.arg("me@127.0.0.1").current_dir(session.path("")).stdin(Stdio::null()).output();
    let output = output.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout) + &text(&output.stderr))
}

fn port(object: &serde_json::Value) -> u64 {
    object["address"].as_str().unwrap().rsplit(':').next().unwrap().parse().unwrap()
}

/// Formerly, servers of a test program that was killed went on running.
#[test]
fn a_server_ends_with_the_thread_that_has_started_it() {
    let session = Session::new().directory("data");
    let start = || Serving::json(&session, "serve dav data --listen 127.0.0.1:0").0;
    let serving = thread::scope(|scope| scope.spawn(start).join().unwrap());
    // Killed already: SIGTERM would end it with status 0.
    assert_eq!(serving.end("TERM").0, None);
}

#[test]
fn without_variables_for_it_the_user_name_is_that_of_the_account() {
    let session = session();
    let line = "serve sftp data --listen 127.0.0.1:0 --authorized-keys key.pub --json";
    let mut command = session.command(line);
    command.env_remove("USER").env_remove("LOGNAME");
    let serving = Serving::spawn(command, 1);
    let object: serde_json::Value = serde_json::from_str(&serving.output).unwrap();
    let account = Command::new("id").arg("-un").output().unwrap();
    assert_eq!(object["user"], String::from_utf8_lossy(&account.stdout).trim());
}

#[test]
fn a_directory_is_served_until_a_signal() {
    let session = session();
    let line = "serve sftp data --listen 127.0.0.1:0 --authorized-keys key.pub";
    let mut fingerprints = Vec::new();
    for signal in ["INT", "TERM"] {
        let (serving, object) = Serving::json(&session, line);
        assert_eq!(object["event"], "serving");
        assert_eq!(object["user"], "me");
        assert_eq!(object["password"], serde_json::Value::Null);
        trust(&session, &object);
        let (worked, text) = sftp(&session, port(&object), "put key.pub up\nget file got\n");
        assert!(worked, "{text}");
        assert_eq!(session.read("got"), "content");
        assert_eq!(session.read("data/up"), session.read("key.pub"));
        fingerprints.push(object["fingerprint"].clone());
        assert_eq!(serving.end(signal), (Some(0), "haul: stopping\n".to_owned()));
    }
    assert_eq!(fingerprints[0], fingerprints[1], "the host key has changed");
    use std::os::unix::fs::MetadataExt;
    let key = session.path("home/.local/state/haul/sftp_host_ed25519_key");
    assert_eq!(std::fs::metadata(key).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn without_json_the_server_prints_address_host_key_and_password() {
    let session = session();
    let serving = Serving::start(&session, "serve sftp data --listen 127.0.0.1:0 --read-only", 4);
    let words: Vec<_> = serving.output.split_whitespace().collect();
    assert_eq!(words[..3], ["serving", "data,", "read-only"], "{}", serving.output);
    assert!(serving.output.contains("address   sftp://me@127.0.0.1:"), "{}", serving.output);
    assert!(serving.output.contains("host key  SHA256:"), "{}", serving.output);
    assert!(serving.output.contains("password  "), "{}", serving.output);
    assert_eq!(serving.end("INT").0, Some(0));
}

#[test]
fn a_server_may_be_read_only_and_use_an_existing_host_key() {
    let session = session();
    make_key(&session, "host");
    let line = "serve sftp data --listen 127.0.0.1:0 --authorized-keys key.pub --read-only \
                --host-key host";
    let (serving, object) = Serving::json(&session, line);
    let listed = session.tool("ssh-keygen -l -f host.pub");
    assert!(listed.contains(object["fingerprint"].as_str().unwrap()), "{listed}");
    let known = format!("[127.0.0.1]:{} {}", port(&object), session.read("host.pub"));
    session.write("known", known);
    let (worked, text) = sftp(&session, port(&object), "get file got\nput got other\n");
    assert!(!worked && text.contains("Permission denied"), "{text}");
    assert_eq!(session.read("got"), "content");
    assert!(!session.has("data/other"));
    assert!(!session.has("home/.local"), "another key is made");
    assert_eq!(serving.end("INT").0, Some(0));
}

#[test]
fn an_address_that_others_can_reach_requires_a_way_to_log_in() {
    let session = session();
    session.haul("serve sftp data --listen 0.0.0.0:0").status(2).stderr(
        "haul: 0.0.0.0:0 is reachable from other machines, and needs a way to log in\n\
         hint: write --authorized-keys FILE or --password-command CMD\n",
    );
    session
        .haul("serve sftp data --listen 2022")
        .status(2)
        .stderr_has("is not an address and port");
}

#[test]
fn errors_name_their_location() {
    let session = session();
    session
        .haul("serve sftp none --listen 127.0.0.1:0")
        .status(1)
        .stderr_has("none: cannot serve (not found)");
    session.write("keys", "command=\"x\" ssh-ed25519 AAAA\n");
    session.haul("serve sftp data --authorized-keys keys").status(1).stderr(
        "haul: keys: cannot read authorized keys (no usable key; line 1: not a public key)\n",
    );
    session
        .haul("serve sftp data --password-command false")
        .status(1)
        .stderr_has("cannot ask for the password (the command ended with exit status: 1");
    session.write("open", session.read("key"));
    session
        .haul("serve sftp data --authorized-keys key.pub --host-key open")
        .status(1)
        .stderr_has("gives others access; make it 0600");
}

#[test]
fn a_line_with_an_unsupported_option_is_ignored_with_a_warning() {
    let session = session();
    let key = session.read("key.pub");
    session.write("keys", format!("{key}from=\"10.0.0.1\" {key}"));
    let line = "serve sftp data --listen 127.0.0.1:0 --authorized-keys keys";
    let serving = Serving::start(&session, line, 3);
    let (_, text) = serving.end("INT");
    assert_eq!(
        text,
        "haul: warning: keys:2: option 'from' is not supported; this line is ignored\n\
         haul: stopping\n"
    );
}

#[test]
fn verbose_logs_connections_logins_and_refusals() {
    let session = session();
    make_key(&session, "host");
    let line = "serve sftp data -v --listen 127.0.0.1:0 --authorized-keys key.pub --host-key host";
    let serving = Serving::start(&session, line, 3);
    let url = serving.output.split_whitespace().find(|word| word.starts_with("sftp://")).unwrap();
    let port = url.trim_end_matches('/').rsplit(':').next().unwrap().parse().unwrap();
    session.write("known", format!("[127.0.0.1]:{port} {}", session.read("host.pub")));
    let (worked, text) = sftp(&session, port, "pwd\n");
    assert!(worked, "{text}");
    session.write("home/.ssh/known_hosts", session.read("known"));
    let from = format!("sftp://you@127.0.0.1:{port}/file");
    session.haul(&format!("cp -F none -i key -o IdentityAgent=none {from} got")).status(1);
    let (status, text) = serving.end("TERM");
    assert_eq!(status, Some(0));
    let listed = session.tool("ssh-keygen -l -f key.pub");
    let key = listed.split(' ').nth(1).unwrap();
    let logged = text.lines().filter_map(|line| line.strip_prefix("haul: 127.0.0.1:"));
    let logged: Vec<_> = logged.map(|line| line.split_once(": ").unwrap().1).collect();
    let count = |start: &str| logged.iter().filter(|line| line.starts_with(start)).count();
    assert_eq!(count("connected"), 2, "{text}");
    assert_eq!(count(&format!("logged in as me with key {key}")), 1, "{text}");
    assert_eq!(count(&format!("refused as you with key {key}")), 1, "{text}");
    assert_eq!(count("disconnected after "), 2, "{text}");
    assert_eq!(logged.len(), 6, "{text}");
}

#[test]
fn verbose_json_has_an_object_for_each_client_event() {
    let session = session();
    let line = "serve sftp data --listen 127.0.0.1:0 --authorized-keys key.pub";
    for (verbose, expected) in [(" -v", &["connected", "logged in", "left"][..]), ("", &[])] {
        let (serving, object) = Serving::json(&session, &format!("{line}{verbose}"));
        trust(&session, &object);
        let (worked, text) = sftp(&session, port(&object), "pwd\n");
        assert!(worked, "{text}");
        let rest = serving.rest("INT");
        let objects = rest.lines().map(|line| serde_json::from_str(line).unwrap());
        let objects: Vec<serde_json::Value> = objects.collect();
        let actions: Vec<_> = objects.iter().map(|one| one["action"].as_str().unwrap()).collect();
        assert_eq!(actions, expected);
        assert!(objects.iter().all(|one| one["event"] == "client"), "{rest}");
        assert!(objects.last().is_none_or(|one| one["user"] == "me" && one["seconds"].is_f64()));
    }
}

#[test]
fn the_password_that_a_command_prints_is_accepted_and_never_shown() {
    let session = session();
    session.write("secret", "right horse\nsecond line\n");
    let line = "serve sftp data -v --listen 127.0.0.1:0 --password-command cat<secret --user ada";
    let (serving, object) = Serving::json(&session, line);
    assert_eq!(object["password"], serde_json::Value::Null);
    trust(&session, &object);
    let get = |password: &str, to: &str| {
        let from = format!("sftp://ada@{}/file", object["address"].as_str().unwrap());
        let options = "-F none -o UserKnownHostsFile=known -o IdentityAgent=none";
        let mut command = session.command(&format!("cp {options} {from} {to}"));
        command.env("HAUL_PASSWORD", password).output().unwrap()
    };
    let got = get("right horse", "got");
    assert!(got.status.success(), "{}", String::from_utf8_lossy(&got.stderr));
    assert_eq!(session.read("got"), "content");
    for wrong in ["second line", "right horse\nsecond line", "right horse "] {
        assert_eq!(get(wrong, "other").status.code(), Some(1), "{wrong:?}");
        assert!(!session.has("other"));
    }
    let (first, rest) = (serving.output.clone(), serving.rest("INT"));
    assert!(rest.contains(r#""action":"logged in","user":"ada","with":"password""#), "{rest}");
    assert!(rest.contains(r#""action":"refused","user":"ada","with":"password""#), "{rest}");
    assert!(!format!("{first}{rest}").contains("horse"), "{first}{rest}");
}
