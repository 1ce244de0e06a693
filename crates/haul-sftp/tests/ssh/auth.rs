//! Authentication: keys, certificates, agents, passwords, keyboard-interactive, second factors; and refusals.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use futures_util::future::join_all;
use haul_bench::guard::end_with_thread;
use haul_sftp::ssh::{PasswordSource, Secret, SshOptions};
use haul_storage::{Error, ErrorKind, Retry};

use crate::prompter::ScriptedUser;
use crate::sshd::Sshd;
use crate::{greet, host, host_with_prompter, with};

fn denied(error: &Error) -> String {
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unauthenticated, Retry::Never));
    error.to_string()
}

fn keyless(sshd: &Sshd) -> SshOptions {
    with(SshOptions { identities: Vec::new(), ..sshd.options() }, &["IdentityFile=none"])
}

#[tokio::test]
async fn a_connection_with_a_key_takes_four_rtts_and_a_channel_one_more() {
    let sshd = Sshd::start();
    let connection = host(&sshd, &sshd.options()).connect().await.unwrap();
    // TCP; versions and algorithms; keys; the service and the key, signed.
    assert_eq!(connection.rtts(), 4);
    assert!(connection.server_version().starts_with("SSH-2.0-OpenSSH_"));
    greet(&connection).await.unwrap();
    assert_eq!(connection.rtts(), 5);
    assert!(!connection.rtt().is_zero());
    connection.close().await;
    assert!(greet(&connection).await.is_err());
}

#[tokio::test]
async fn keys_of_every_type_are_accepted() {
    let sshd = Sshd::start();
    for kind in ["rsa", "ecdsa", "ed25519"] {
        let key = sshd.new_key(kind, kind, "");
        sshd.authorize(&key, "");
        let options = SshOptions { identities: vec![key], ..sshd.options() };
        let connection = host(&sshd, &options).connect().await;
        greet(&connection.unwrap()).await.unwrap();
    }
}

#[tokio::test]
async fn the_error_for_a_wrong_key_names_the_keys_that_were_tried() {
    let sshd = Sshd::start();
    let wrong = sshd.new_key("wrong", "ed25519", "");
    let options = SshOptions { identities: vec![wrong.clone()], ..sshd.options() };
    let error = host(&sshd, &options).connect().await.unwrap_err();
    let text = denied(&error);
    assert!(text.contains(&wrong.display().to_string()) && text.contains("SHA256:"), "{text}");
    assert!(text.contains("the server accepts publickey"), "{text}");
}

#[tokio::test]
async fn keys_are_tried_in_order_and_the_right_one_is_remembered() {
    let sshd = Sshd::start();
    let wrong = sshd.new_key("wrong", "ed25519", "");
    let options = SshOptions { identities: vec![wrong, sshd.user_key()], ..sshd.options() };
    let host = host(&sshd, &options);
    // One RTT more for the wrong key, and none once the right one is known.
    assert_eq!(host.connect().await.unwrap().rtts(), 5);
    // One fewer once the server's key exchange method is known too.
    assert_eq!(host.connect().await.unwrap().rtts(), 3);
}

#[tokio::test]
async fn concurrent_connections_all_succeed_though_the_first_key_is_wrong() {
    let sshd = Sshd::start();
    let wrong = sshd.new_key("wrong", "ed25519", "");
    let options = SshOptions { identities: vec![wrong, sshd.user_key()], ..sshd.options() };
    let host = host(&sshd, &options);
    for connection in join_all((0..6).map(|_| host.connect())).await {
        greet(&connection.unwrap()).await.unwrap();
    }
}

#[tokio::test]
async fn concurrent_connections_prompt_for_the_second_factor_once() {
    for second in ["password", "keyboard-interactive"] {
        let sshd = Sshd::builder()
            .password("correct horse")
            .line(&format!("AuthenticationMethods publickey,{second}"))
            .start();
        let user = ScriptedUser::responding(&["correct horse"]);
        let host = host_with_prompter(&sshd, &sshd.options(), Arc::clone(&user) as _);
        for connection in join_all((0..4).map(|_| host.connect())).await {
            greet(&connection.unwrap()).await.unwrap();
        }
        assert_eq!(user.prompts_shown().len(), 1, "{:?}", user.prompts_shown());
    }
}

#[tokio::test]
async fn a_key_file_that_others_can_read_is_not_used() {
    let sshd = Sshd::start();
    fs::set_permissions(sshd.user_key(), fs::Permissions::from_mode(0o644)).unwrap();
    let error = host(&sshd, &sshd.options()).connect().await.unwrap_err();
    assert!(denied(&error).contains("permissions 0644 are too open"), "{error}");
}

#[tokio::test]
async fn without_a_key_the_error_reports_that_there_was_nothing_to_try() {
    let sshd = Sshd::builder().line("PasswordAuthentication no").start();
    let options = with(keyless(&sshd), &["BatchMode=yes"]);
    let error = host(&sshd, &options).connect().await.unwrap_err();
    assert!(denied(&error).contains("there was nothing to try"), "{error}");
    let missing = SshOptions { identities: vec!["/no/such/key".into()], ..sshd.options() };
    let error = host(&sshd, &missing).connect().await.unwrap_err();
    assert!(denied(&error).contains("/no/such/key: no such file"), "{error}");
}

#[tokio::test]
async fn many_connections_prompt_for_the_passphrase_of_a_key_once() {
    let sshd = Sshd::start();
    let key = sshd.new_key("locked", "ed25519", "open sesame");
    sshd.authorize(&key, "");
    let options = SshOptions { identities: vec![key], ..sshd.options() };
    let user = ScriptedUser::responding(&["wrong", "open sesame"]);
    let host = host_with_prompter(&sshd, &options, Arc::clone(&user) as _);
    for connection in join_all((0..4).map(|_| host.connect())).await {
        greet(&connection.unwrap()).await.unwrap();
    }
    assert_eq!(user.shown_count("Enter passphrase for key"), 2);
    assert_eq!(user.shown_count("the passphrase is wrong"), 1);
}

#[tokio::test]
async fn an_encrypted_key_in_pkcs8_format_is_unlocked() {
    let sshd = Sshd::start();
    let key = sshd.new_key("locked", "rsa", "open sesame");
    let convert = ["-q", "-p", "-m", "PKCS8", "-P", "open sesame", "-N", "open sesame", "-f"];
    assert!(
        Command::new("ssh-keygen")
            .args(convert)
            .arg(&key)
            .stdout(Stdio::null())
            .status()
            .unwrap()
            .success()
    );
    sshd.authorize(&key, "");
    // Without the .pub file, the public half is known only after decryption.
    fs::remove_file(sshd.path("locked.pub")).unwrap();
    let options = SshOptions { identities: vec![key], ..sshd.options() };
    let user = ScriptedUser::responding(&["open sesame"]);
    let host = host_with_prompter(&sshd, &options, user);
    greet(&host.connect().await.unwrap()).await.unwrap();
}

#[tokio::test]
async fn an_encrypted_key_is_skipped_without_a_terminal() {
    let sshd = Sshd::start();
    let key = sshd.new_key("locked", "ed25519", "open sesame");
    sshd.authorize(&key, "");
    let options = SshOptions { identities: vec![key.clone(), sshd.user_key()], ..sshd.options() };
    greet(&host(&sshd, &options).connect().await.unwrap()).await.unwrap();
    let options = SshOptions { identities: vec![key], ..sshd.options() };
    let error = host(&sshd, &options).connect().await.unwrap_err();
    assert!(denied(&error).contains("its passphrase was not given"), "{error}");
}

/// Issues a user certificate of a key for `principals`.
fn certify(sshd: &Sshd, key: &Path, principals: &str) -> PathBuf {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-I", "test user", "-n", principals, "-s"]).arg(sshd.path("authority"));
    assert!(command.arg(key.with_extension("pub")).status().unwrap().success());
    sshd.path(&format!("{}-cert.pub", key.file_name().unwrap().display()))
}

#[tokio::test]
async fn certificates_of_every_type_are_found_next_to_their_key_or_by_option() {
    let sshd = Sshd::start();
    for kind in ["ed25519", "rsa", "ecdsa"] {
        let key = sshd.new_key(&format!("certified_{kind}"), kind, "");
        let certificate = certify(&sshd, &key, &sshd.user());
        let options = SshOptions { identities: vec![key], ..sshd.options() };
        let connection = host(&sshd, &options).connect().await.unwrap();
        assert_eq!(connection.rtts(), 4, "{kind}");
        let elsewhere = sshd.path("elsewhere");
        fs::rename(certificate, &elsewhere).unwrap();
        assert!(host(&sshd, &options).connect().await.is_err());
        let options = with(options, &[&format!("CertificateFile={}", elsewhere.display())]);
        greet(&host(&sshd, &options).connect().await.unwrap()).await.unwrap();
    }
}

#[tokio::test]
async fn a_certificate_for_another_user_is_refused() {
    let sshd = Sshd::start();
    let key = sshd.new_key("certified", "ed25519", "");
    certify(&sshd, &key, "somebody-else");
    let options = SshOptions { identities: vec![key], ..sshd.options() };
    let error = host(&sshd, &options).connect().await.unwrap_err();
    assert!(denied(&error).contains("with certificate"), "{error}");
}

/// A real ssh-agent.
struct Agent {
    process: Child,
    socket: PathBuf,
}

impl Agent {
    fn start(sshd: &Sshd) -> Self {
        // Called to confirm a signature with a key of `ssh-add -c`.
        let script = sshd.path("confirm");
        let line = format!("#!/bin/sh\necho signed >> {}\n", sshd.path("confirmed").display());
        fs::write(&script, line).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).unwrap();
        let socket = sshd.path("agent");
        // Debian installs it set-group-ID; the kernel clears the death signal of such a program.
        let mut command = Command::new("setpriv");
        command.args(["--no-new-privs", "ssh-agent"]);
        command.env("SSH_ASKPASS", script).env("SSH_ASKPASS_REQUIRE", "force").env("DISPLAY", ":0");
        end_with_thread(&mut command);
        let mut process =
            command.arg("-D").arg("-a").arg(&socket).stdout(Stdio::piped()).spawn().unwrap();
        // The agent prints its address once it listens.
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { process, socket }
    }

    fn add(&self, key: &Path) {
        self.add_with(&[], key);
    }

    fn add_with(&self, options: &[&str], key: &Path) {
        let mut command = Command::new("ssh-add");
        command.arg("-q").args(options).arg(key).env("SSH_AUTH_SOCK", &self.socket);
        assert!(command.status().unwrap().success());
    }

    fn options(&self, sshd: &Sshd) -> SshOptions {
        with(
            SshOptions { identities: Vec::new(), ..sshd.options() },
            &[&format!("IdentityAgent={}", self.socket.display())],
        )
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[tokio::test]
async fn keys_in_an_agent_are_accepted() {
    let sshd = Sshd::start();
    let agent = Agent::start(&sshd);
    for kind in ["rsa", "ecdsa", "ed25519"] {
        let key = sshd.new_key(kind, kind, "");
        sshd.authorize(&key, "");
        agent.add(&key);
        // Only the agent has the private key now.
        fs::remove_file(&key).unwrap();
        let options = SshOptions { identities: vec![key.clone()], ..agent.options(&sshd) };
        let connection = host(&sshd, &options).connect().await.unwrap();
        assert_eq!(connection.rtts(), 4, "{kind}");
    }
    greet(&host(&sshd, &agent.options(&sshd)).connect().await.unwrap()).await.unwrap();
}

/// Formerly, the agent prompted for every key, also for those that the server refused.
#[tokio::test]
async fn an_agent_confirms_only_the_key_that_the_server_accepts() {
    let sshd = Sshd::start();
    let agent = Agent::start(&sshd);
    for name in ["one", "two", "right"] {
        let key = sshd.new_key(name, "ed25519", "");
        if name == "right" {
            sshd.authorize(&key, "");
        }
        agent.add_with(&["-c"], &key);
    }
    let host = host(&sshd, &agent.options(&sshd));
    for connections in 1..=2 {
        host.connect().await.unwrap();
        let confirmed = fs::read_to_string(sshd.path("confirmed")).unwrap();
        assert_eq!(confirmed.lines().count(), connections);
    }
}

#[tokio::test]
async fn a_certificate_in_an_agent_is_accepted() {
    let sshd = Sshd::start();
    let agent = Agent::start(&sshd);
    for kind in ["ed25519", "rsa"] {
        let key = sshd.new_key(kind, kind, "");
        let certificate = certify(&sshd, &key, &sshd.user());
        agent.add(&key);
        fs::remove_file(certificate).unwrap();
    }
    let options = with(agent.options(&sshd), &["IdentityFile=none"]);
    greet(&host(&sshd, &options).connect().await.unwrap()).await.unwrap();
}

#[tokio::test]
async fn identities_only_excludes_the_other_keys_of_the_agent() {
    let sshd = Sshd::start();
    let agent = Agent::start(&sshd);
    agent.add(&sshd.user_key());
    let wrong = sshd.new_key("wrong", "ed25519", "");
    let options = SshOptions { identities: vec![wrong], ..agent.options(&sshd) };
    greet(&host(&sshd, &options).connect().await.unwrap()).await.unwrap();
    let error = host(&sshd, &with(options, &["IdentitiesOnly=yes"])).connect().await.unwrap_err();
    denied(&error);
}

#[tokio::test]
async fn a_missing_agent_is_reported_and_key_files_are_used() {
    let sshd = Sshd::start();
    let gone = format!("IdentityAgent={}", sshd.path("gone").display());
    greet(&host(&sshd, &with(sshd.options(), &[&gone])).connect().await.unwrap()).await.unwrap();
    let error = host(&sshd, &with(keyless(&sshd), &[&gone])).connect().await.unwrap_err();
    assert!(denied(&error).contains("agent"), "{error}");
}

fn secret(password: &str) -> Option<PasswordSource> {
    Some(PasswordSource::Secret(Secret::new(password)))
}

#[tokio::test]
async fn a_password_from_the_environment_or_a_command_is_used_without_a_prompt() {
    let sshd = Sshd::builder().password("correct horse").start();
    let command = PasswordSource::Command("echo correct horse".to_owned());
    for password in [secret("correct horse"), Some(command)] {
        let options = SshOptions { password, ..keyless(&sshd) };
        let connection = host(&sshd, &options).connect().await.unwrap();
        // TCP, versions, keys, password.
        assert_eq!(connection.rtts(), 4);
    }
}

#[tokio::test]
async fn a_failing_password_command_is_reported() {
    let sshd = Sshd::builder().password("correct horse").start();
    let password = Some(PasswordSource::Command("exit 3".to_owned()));
    let options = SshOptions { password, ..keyless(&sshd) };
    let error = host(&sshd, &options).connect().await.unwrap_err();
    assert!(denied(&error).contains("password-command failed"), "{error}");
}

#[tokio::test]
async fn the_error_for_a_wrong_password_does_not_contain_it() {
    let sshd = Sshd::builder().password("correct horse").start();
    let options = SshOptions { password: secret("hunter2"), ..keyless(&sshd) };
    let host = host(&sshd, &options);
    let error = host.connect().await.unwrap_err();
    let text = format!("{} {error:?} {host:?}", denied(&error));
    assert!(text.contains("the password of HAUL_PASSWORD"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
}

#[tokio::test]
async fn many_connections_prompt_for_the_password_once() {
    let sshd =
        Sshd::builder().password("correct horse").line("KbdInteractiveAuthentication no").start();
    let user = ScriptedUser::responding(&["wrong", "correct horse"]);
    let host = host_with_prompter(&sshd, &keyless(&sshd), Arc::clone(&user) as _);
    for connection in join_all((0..3).map(|_| host.connect())).await {
        greet(&connection.unwrap()).await.unwrap();
    }
    assert_eq!(user.shown_count("'s password: "), 2);
}

#[tokio::test]
async fn a_cancelled_password_prompt_is_not_repeated_for_other_connections() {
    let sshd = Sshd::builder().password("correct horse").start();
    let user = ScriptedUser::responding(&[]);
    let host = host_with_prompter(&sshd, &keyless(&sshd), Arc::clone(&user) as _);
    for result in join_all((0..3).map(|_| host.connect())).await {
        denied(&result.unwrap_err());
    }
    assert_eq!(user.prompts_shown().len(), 1, "{:?}", user.prompts_shown());
}

/// Regression: connections that had waited for a credential which they could not use prompted one after the other.
#[tokio::test]
async fn a_cancelled_prompt_for_a_one_time_password_is_not_repeated() {
    let sshd = Sshd::builder().password("unused").line("KbdInteractiveAuthentication no").start();
    let path = |name: &str| sshd.path(name).display().to_string();
    // The first password is accepted, all others are refused.
    fs::write(path("code"), "").unwrap();
    let script = format!("/bin/cat >/dev/null; /bin/mv {} {}\n", path("code"), path("used"));
    fs::write(path("once"), script).unwrap();
    let pam = format!(
        "auth required pam_exec.so expose_authtok quiet /bin/sh {}\n\
         account required pam_permit.so\nsession required pam_permit.so\n",
        path("once")
    );
    fs::write(path("pam"), pam).unwrap();
    let user = ScriptedUser::responding(&["123456"]);
    let host = host_with_prompter(&sshd, &keyless(&sshd), Arc::clone(&user) as _);
    let connections = join_all((0..4).map(|_| host.connect())).await;
    let refused: Vec<_> = connections.into_iter().filter_map(Result::err).collect();
    assert_eq!(refused.len(), 3);
    for error in &refused {
        denied(error);
    }
    assert_eq!(user.shown_count("'s password: "), 2, "{:?}", user.prompts_shown());
}

#[tokio::test]
async fn keyboard_interactive_uses_a_prompt_or_the_password_source() {
    let sshd = Sshd::builder().password("correct horse").line("PasswordAuthentication no").start();
    let user = ScriptedUser::responding(&["correct horse"]);
    let prompting_host = host_with_prompter(&sshd, &keyless(&sshd), Arc::clone(&user) as _);
    for connection in join_all((0..3).map(|_| prompting_host.connect())).await {
        greet(&connection.unwrap()).await.unwrap();
    }
    assert_eq!(user.shown_count("Password:"), 1);
    let options = with(
        SshOptions { password: secret("correct horse"), ..keyless(&sshd) },
        &["PreferredAuthentications=keyboard-interactive"],
    );
    greet(&host(&sshd, &options).connect().await.unwrap()).await.unwrap();
    // The server does not accept the method that haul would try first.
    let options = SshOptions { password: secret("correct horse"), ..keyless(&sshd) };
    greet(&host(&sshd, &options).connect().await.unwrap()).await.unwrap();
    // Formerly, the error named HAUL_PASSWORD too.
    let password = Some(PasswordSource::Command("echo wrong".to_owned()));
    let options = SshOptions { password, ..keyless(&sshd) };
    let error = host(&sshd, &options).connect().await.unwrap_err();
    let text = denied(&error);
    assert!(text.contains("password-command") && !text.contains("HAUL_PASSWORD"), "{text}");
}

#[tokio::test]
async fn the_second_factor_is_prompted_for_once_and_reused() {
    for second in ["password", "keyboard-interactive"] {
        let sshd = Sshd::builder()
            .password("correct horse")
            .line(&format!("AuthenticationMethods publickey,{second}"))
            .start();
        let user = ScriptedUser::responding(&["correct horse"]);
        let host = host_with_prompter(&sshd, &sshd.options(), Arc::clone(&user) as _);
        for _ in 0..2 {
            greet(&host.connect().await.unwrap()).await.unwrap();
        }
        assert_eq!(user.prompts_shown().len(), 1, "{:?}", user.prompts_shown());
        let error = crate::host(&sshd, &sshd.options()).connect().await.unwrap_err();
        assert!(denied(&error).contains("after it accepted the first factors"), "{error}");
    }
}

#[tokio::test]
async fn batch_mode_does_not_prompt() {
    let sshd = Sshd::builder().password("correct horse").start();
    let user = ScriptedUser::responding(&["correct horse"]);
    let options = with(keyless(&sshd), &["BatchMode=yes"]);
    let error =
        host_with_prompter(&sshd, &options, Arc::clone(&user) as _).connect().await.unwrap_err();
    denied(&error);
    assert!(user.prompts_shown().is_empty());
}

#[tokio::test]
async fn the_error_for_too_many_wrong_keys_contains_the_servers_message() {
    let sshd = Sshd::builder().line("MaxAuthTries 2").start();
    let wrong = (0..4).map(|n| sshd.new_key(&format!("wrong{n}"), "ed25519", "")).collect();
    let options = SshOptions { identities: wrong, ..sshd.options() };
    let error = host(&sshd, &options).connect().await.unwrap_err();
    assert!(denied(&error).contains("Too many authentication failures"), "{error}");
}

#[tokio::test]
async fn a_banner_is_shown_once_and_without_terminal_escapes() {
    let sshd = Sshd::start();
    let banner = sshd.path("banner");
    fs::write(&banner, "Welcome\u{1b}[31m!\n").unwrap();
    let config = fs::read_to_string(sshd.path("sshd_config")).unwrap();
    fs::write(sshd.path("sshd_config"), format!("Banner {}\n{config}", banner.display())).unwrap();
    let mut sshd = sshd;
    sshd.restart();
    let user = ScriptedUser::responding(&[]);
    let host = host_with_prompter(&sshd, &sshd.options(), Arc::clone(&user) as _);
    for connection in join_all((0..3).map(|_| host.connect())).await {
        connection.unwrap();
    }
    assert_eq!(user.shown_count("Welcome"), 1, "{:?}", user.prompts_shown());
    assert_eq!(user.shown_count("\u{1b}"), 0);
}
