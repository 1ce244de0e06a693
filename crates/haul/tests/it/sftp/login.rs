//! Hosts that cannot be reached, logins that are refused, and the time to connect.

use std::fs;

use super::sshd::Sshd;
use super::{SftpSession, content};

#[test]
fn a_refused_key_is_reported_with_its_path() {
    let sftp = SftpSession::start();
    let refused = sftp.sshd.new_key("stranger", "ed25519", "");
    let line = sftp
        .line("cp @/x dst")
        .replace(&sftp.sshd.user_key().display().to_string(), &refused.display().to_string());
    let ran = sftp.session.haul(&line).status(1);
    let text = ran.err();
    assert!(text.contains(&format!("{}@{}", sftp.sshd.user(), sftp.sshd.address())), "{text}");
    let denied = format!("permission denied for {}", sftp.sshd.user());
    assert!(text.contains(&denied), "{text}");
    assert!(text.contains(&refused.display().to_string()), "{text}");
    assert!(!text.contains("; retry "), "{text}");
    assert!(!sftp.session.has("dst"));
}

#[test]
fn a_wrong_password_is_reported_and_not_tried_again() {
    let sshd = Sshd::builder().password("open sesame").start();
    let sftp = SftpSession::on(sshd);
    sftp.session.write("far/x", "content");
    let line = sftp.line("cp -o PreferredAuthentications=password @/x dst");
    let run = |password: &str| {
        let mut command = sftp.session.command(&line);
        let output = command.env("HAUL_PASSWORD", password).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (status, text) = run("open barley");
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("tried the password of HAUL_PASSWORD"), "{text}");
    assert!(!text.contains("barley") && !text.contains("sesame"), "{text}");
    assert_eq!(sftp.sshd.log().matches("Failed password").count(), 1, "{}", sftp.sshd.log());
    let (status, text) = run("open sesame");
    assert_eq!(status, Some(0), "{text}");
    assert_eq!(sftp.session.read("dst"), "content");
}

#[test]
fn a_key_that_does_not_exist_is_an_error() {
    let sftp = SftpSession::start();
    let ran = sftp.haul("ls -i nokey @/").status(1);
    ran.stderr_has("haul: nokey: cannot read the key (not found)\nhint: ");
}

#[test]
fn a_host_key_that_has_changed_or_is_not_known_is_refused() {
    let sftp = SftpSession::start();
    sftp.session.write("far/x", "content");
    let known = fs::read_to_string(sftp.sshd.known_hosts()).unwrap();
    let other = sftp.sshd.new_key("other", "ed25519", "").with_extension("pub");
    let other = fs::read_to_string(other).unwrap();
    fs::write(sftp.sshd.known_hosts(), format!("{} {other}", sftp.sshd.known_name())).unwrap();
    for option in ["", "--accept-new-host-keys", "-o StrictHostKeyChecking=accept-new"] {
        let ran = sftp.haul(&format!("cp {option} @/x dst")).status(1);
        assert!(ran.err().contains("HAS CHANGED"), "{}", ran.err());
        let line = format!("{}:1", sftp.sshd.known_hosts().display());
        assert!(ran.err().contains(&line), "{}", ran.err());
    }
    fs::write(sftp.sshd.known_hosts(), "").unwrap();
    let ran = sftp.haul("cp @/x dst").status(1);
    assert!(ran.err().contains("not known"), "{}", ran.err());
    assert!(!sftp.session.has("dst"));
    sftp.haul("cp --accept-new-host-keys @/x dst").status(0);
    assert_eq!(sftp.session.read("dst"), "content");
    let learned = fs::read_to_string(sftp.sshd.known_hosts()).unwrap();
    let key = |text: &str| text.split_whitespace().nth(2).unwrap().to_owned();
    assert_eq!(key(&learned), key(&known));
}

#[test]
fn a_host_name_that_does_not_exist_is_tried_once() {
    let sftp = SftpSession::start();
    let session = &sftp.session;
    session.write("src", "content");
    for line in ["cp src no-such-host.invalid:x", "cp no-such-host.invalid:x dst"] {
        let ran = session.haul(&format!("{line} -F none")).status(1);
        assert!(ran.err().contains("no-such-host.invalid"), "{}", ran.err());
        assert!(ran.err().contains("failed to lookup address"), "{}", ran.err());
        let text = ran.err();
        let errors = text.lines().filter(|line| line.starts_with("haul: "));
        assert_eq!(errors.count(), 1, "{text}");
        assert!(!text.contains("; retry "), "{text}");
    }
}

#[test]
fn a_closed_port_is_tried_once() {
    let mut sftp = SftpSession::start();
    sftp.sshd.stop();
    sftp.session.write("src", content(1, 100));
    let ran = sftp.haul("cp src @/x").status(1);
    assert!(ran.err().contains("Connection refused"), "{}", ran.err());
    assert_eq!(ran.err().lines().count(), 1, "{}", ran.err());
}

#[test]
fn verbose_prints_the_time_to_connect_once_per_host() {
    let sftp = SftpSession::start();
    sftp.session.write("src/a", "a");
    for (line, lines) in [("cp -v src @/dst", 1), ("cp -v @/dst/src @/again", 1), ("cp src @/x", 0)]
    {
        let text = sftp.haul(line).status(0).err();
        let connected = text.lines().filter(|line| line.contains(": connected in "));
        let connected: Vec<&str> = connected.collect();
        assert_eq!(connected.len(), lines, "{text}");
        let start = format!("{}@{}: ", sftp.sshd.user(), sftp.sshd.address());
        for line in connected {
            assert!(line.starts_with(&start) && line.contains(" round trips; latency "), "{text}");
        }
    }
}
