//! ssh-audit's verdict on haul's algorithms.

use std::process::{Command, Stdio};
use std::time::Duration;

use haul_sftp::ssh::{ConfigFile, NoPrompter, SshHost, SshOptions};
use std::sync::Arc;

use crate::port::free_port;

/// haul offers only what OpenSSH offers, too. ssh-audit rejects the NIST curves in any use; servers with only
/// an ECDSA key are common, so they stay, behind Ed25519 and X25519.
#[tokio::test]
async fn ssh_audit_fails_only_nist_curves() {
    let port = free_port();
    let audit = Command::new("ssh-audit")
        .args(["--no-colors", "--client-audit", "--timeout", "60", "--port", &port.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut audit) = audit else {
        eprintln!("SKIPPED: ssh-audit is not installed");
        return;
    };
    let options =
        ["StrictHostKeyChecking=no", "UserKnownHostsFile=none", "GlobalKnownHostsFile=none"];
    let options = SshOptions {
        config: ConfigFile::None,
        options: options.map(str::to_owned).to_vec(),
        ..SshOptions::default()
    };
    let host =
        SshHost::resolve(None, "127.0.0.1", Some(port), &options, Arc::new(NoPrompter)).unwrap();
    // ssh-audit reads one offer and exits. Until it listens, connections are refused.
    while audit.try_wait().unwrap().is_none() {
        host.connect().await.unwrap_err();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let output = String::from_utf8(audit.wait_with_output().unwrap().stdout).unwrap();
    let graded = |grade: &str| -> Vec<&str> {
        let is_algorithm = |line: &&str| {
            ["(kex)", "(key)", "(enc)", "(mac)"].iter().any(|kind| line.starts_with(kind))
        };
        let lines = output.lines().filter(is_algorithm).filter(|line| line.contains(grade));
        lines.map(|line| line.split_whitespace().nth(1).unwrap()).collect()
    };
    let fails = graded("[fail]");
    assert!(fails.iter().all(|name| name.contains("nistp")), "{output}");
    // The audit took place, and haul offers the countermeasure against Terrapin.
    assert!(graded("").contains(&"curve25519-sha256"), "{output}");
    assert!(graded("").contains(&"kex-strict-c-v00@openssh.com"), "{output}");
    // X25519 is preferred to the NIST curves.
    let position = |wanted: &str| graded("").iter().position(|name| name.contains(wanted)).unwrap();
    assert!(position("curve25519-sha256") < position("ecdh-sha2-nistp256"), "{output}");
}
