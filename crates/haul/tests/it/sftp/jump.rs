//! Jump hosts: an error at a jump host names that host, an error at the target names the target.

use std::fs;

use super::sshd::Sshd;
use crate::port::free_port;
use crate::session::Session;

/// A session whose SSH configuration has the host keys of `known`, and the keys that the servers `keys` accept.
fn session(known: &[&Sshd], keys: &[&Sshd]) -> Session {
    let text = |sshd: &&Sshd| fs::read_to_string(sshd.known_hosts()).unwrap();
    let session = Session::new().file("known_hosts", known.iter().map(text).collect::<String>());
    let mut config = format!(
        "UserKnownHostsFile {}\nGlobalKnownHostsFile none\nIdentityAgent none\nIdentityFile none\n",
        session.path("known_hosts").display()
    );
    for sshd in keys {
        config += &format!("IdentityFile {}\n", sshd.user_key().display());
    }
    session.file("config", config)
}

fn login(sshd: &Sshd) -> String {
    format!("{}@{}", sshd.user(), sshd.address())
}

#[test]
fn a_failure_at_a_jump_host_names_it_and_not_the_target() {
    let (first, second, goal) = (Sshd::start(), Sshd::start(), Sshd::start());
    let way = format!("{},{}", login(&first), login(&second));
    let ls = |session: &Session, way: &str| {
        session.haul(&format!("ls -F config -J {way} sftp://{}/", login(&goal)))
    };
    let hint = |number: usize| {
        format!("\nhint: this is jump host {number} of 2 on the way to {}", login(&goal))
    };
    let all = [&first, &second, &goal];
    ls(&session(&all, &all), &way).status(0);

    // A jump host refuses the login.
    for (keys, refuses, number) in [([&second, &goal], &first, 1), ([&first, &goal], &second, 2)] {
        let ran = ls(&session(&all, &keys), &way).status(1);
        let start = format!("haul: {}: cannot authenticate (permission denied", login(refuses));
        assert!(ran.err().starts_with(&start), "{}", ran.err());
        ran.stderr_has(&hint(number));
    }
    // Its host key is not known; the hint also says to compare the fingerprint.
    for (known, unknown, number) in [([&second, &goal], &first, 1), ([&first, &goal], &second, 2)] {
        let ran = ls(&session(&known, &all), &way).status(1);
        let start = format!("haul: {}: cannot verify the host key (", login(unknown));
        assert!(ran.err().starts_with(&start), "{}", ran.err());
        ran.stderr_has(&format!("{}; compare the fingerprint", hint(number)));
    }
    // Its port is closed.
    let closed = format!("me@127.0.0.1:{}", free_port());
    let ran = ls(&session(&all, &all), &format!("{closed},{}", login(&second))).status(1);
    let start = format!("haul: {closed}: cannot connect (");
    assert!(ran.err().starts_with(&start), "{}", ran.err());
    ran.stderr_has(&hint(1)).stderr_has("Connection refused");
    // The first jump host cannot reach the second.
    let ran = ls(&session(&all, &all), &format!("{},{closed}", login(&first))).status(1);
    let start = format!("haul: {}: cannot connect through a jump host (", login(&first));
    assert!(ran.err().starts_with(&start), "{}", ran.err());
    ran.stderr_has(&hint(1)).stderr_has("cannot connect to 127.0.0.1");
    // A single jump host has no number.
    let ran = ls(&session(&all, &[&goal]), &login(&first)).status(1);
    ran.stderr_has(&format!("\nhint: this is the jump host on the way to {}\n", login(&goal)));
    // An error at the target names the target.
    let ran = ls(&session(&all, &[&first, &second]), &way).status(1);
    let start = format!("haul: {}: cannot connect (permission denied", login(&goal));
    assert!(ran.err().starts_with(&start) && !ran.err().contains("jump"), "{}", ran.err());
}
