//! Hosts that are not reached, and people that are not let in.

use std::fs;

use super::sshd::Sshd;
use super::{Far, content};

#[test]
fn a_wrong_key_is_said_with_what_was_tried() {
    let far = Far::start();
    let stranger = far.sshd.new_key("stranger", "ed25519", "");
    let line = far
        .line("cp @/x dst")
        .replace(&far.sshd.user_key().display().to_string(), &stranger.display().to_string());
    let ran = far.session.haul(&line).status(1);
    let said = ran.err();
    assert!(said.contains(&format!("{}@{}", far.sshd.user(), far.sshd.address())), "{said}");
    assert!(said.contains("permission denied for root"), "{said}");
    assert!(said.contains(&stranger.display().to_string()), "{said}");
    assert!(!said.contains("again in"), "{said}");
    assert!(!far.session.has("dst"));
}

#[test]
fn a_wrong_password_is_said_and_not_tried_again() {
    let sshd = Sshd::builder().password("open sesame").start();
    let far = Far::on(sshd);
    far.session.write("far/x", "content");
    let line = far.line("cp -o PreferredAuthentications=password @/x dst");
    let run = |password: &str| {
        let mut command = far.session.command(&line);
        let output = command.env("HAUL_PASSWORD", password).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (status, said) = run("open barley");
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("tried the password of HAUL_PASSWORD"), "{said}");
    assert!(!said.contains("barley") && !said.contains("sesame"), "{said}");
    assert_eq!(far.sshd.log().matches("Failed password").count(), 1, "{}", far.sshd.log());
    let (status, said) = run("open sesame");
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(far.session.read("dst"), "content");
}

#[test]
fn a_key_that_does_not_exist_is_an_error() {
    let far = Far::start();
    let ran = far.haul("ls -i nokey @/").status(1);
    ran.stderr_has("haul: nokey: cannot read the key (not found)\nhint: ");
}

#[test]
fn a_host_key_that_has_changed_or_is_not_known_is_refused() {
    let far = Far::start();
    far.session.write("far/x", "content");
    let known = fs::read_to_string(far.sshd.known_hosts()).unwrap();
    let other = far.sshd.new_key("other", "ed25519", "").with_extension("pub");
    let other = fs::read_to_string(other).unwrap();
    fs::write(far.sshd.known_hosts(), format!("{} {other}", far.sshd.known_name())).unwrap();
    for option in ["", "--accept-new-host-keys", "-o StrictHostKeyChecking=accept-new"] {
        let ran = far.haul(&format!("cp {option} @/x dst")).status(1);
        assert!(ran.err().contains("HAS CHANGED"), "{}", ran.err());
        let place = format!("{}:1", far.sshd.known_hosts().display());
        assert!(ran.err().contains(&place), "{}", ran.err());
    }
    fs::write(far.sshd.known_hosts(), "").unwrap();
    let ran = far.haul("cp @/x dst").status(1);
    assert!(ran.err().contains("not known"), "{}", ran.err());
    assert!(!far.session.has("dst"));
    far.haul("cp --accept-new-host-keys @/x dst").status(0);
    assert_eq!(far.session.read("dst"), "content");
    let learned = fs::read_to_string(far.sshd.known_hosts()).unwrap();
    let key = |text: &str| text.split_whitespace().nth(2).unwrap().to_owned();
    assert_eq!(key(&learned), key(&known));
}

#[test]
fn a_host_name_that_does_not_exist_is_tried_once() {
    let far = Far::start();
    let session = &far.session;
    session.write("src", "content");
    for line in ["cp src no-such-host.invalid:x", "cp no-such-host.invalid:x dst"] {
        let ran = session.haul(&format!("{line} -F none")).status(1);
        assert!(ran.err().contains("no-such-host.invalid"), "{}", ran.err());
        assert!(ran.err().contains("failed to lookup address"), "{}", ran.err());
        let said = ran.err();
        let errors = said.lines().filter(|line| line.starts_with("haul: "));
        assert_eq!(errors.count(), 1, "{said}");
        assert!(!said.contains("again in"), "{said}");
    }
}

#[test]
fn a_port_where_nobody_listens_is_tried_once() {
    let mut far = Far::start();
    far.sshd.stop();
    far.session.write("src", content(1, 100));
    let ran = far.haul("cp src @/x").status(1);
    assert!(ran.err().contains("Connection refused"), "{}", ran.err());
    assert_eq!(ran.err().lines().count(), 1, "{}", ran.err());
}

#[test]
fn with_v_it_says_once_a_host_what_connecting_took() {
    let far = Far::start();
    far.session.write("src/a", "a");
    for (line, lines) in [("cp -v src @/dst", 1), ("cp -v @/dst/src @/again", 1), ("cp src @/x", 0)]
    {
        let said = far.haul(line).status(0).err();
        let connected = said.lines().filter(|line| line.contains(": connected in "));
        let connected: Vec<&str> = connected.collect();
        assert_eq!(connected.len(), lines, "{said}");
        let place = format!("{}@{}: ", far.sshd.user(), far.sshd.address());
        for line in connected {
            assert!(line.starts_with(&place) && line.contains(" round trips; latency "), "{said}");
        }
    }
}
