//! Passwords that are typed at a terminal, for real servers.

use std::fs;

use crate::dav::login;
use crate::ftp::pyftpdlib::{PASSWORD, Pyftpdlib};
use crate::pty::Terminal;
use crate::serve::Serving;
use crate::session::Session;
use crate::sftp::sshd::Sshd;

const AGAIN: &str = "Permission denied, please try again.";

/// Asserts that a password is prompted for until it is right, three times at most. `right` is the server's password.
fn prompts_up_to_three_times(session: &Session, line: &str, prompt: &str, right: &str) {
    let mut terminal = Terminal::start(session, line);
    terminal.type_line(prompt, "wrong");
    terminal.until(AGAIN);
    terminal.type_line(prompt, "wrong again");
    terminal.type_line(prompt, right);
    let (status, shown) = terminal.end();
    assert_eq!(status, 0, "{shown}");
    assert_eq!((shown.matches(prompt).count(), shown.matches(AGAIN).count()), (3, 2), "{shown}");
    assert!(!shown.contains("wrong") && !shown.contains(right), "{shown}");

    let mut terminal = Terminal::start(session, line);
    for wrong in ["wrong", "wrong again", "wrong at last"] {
        terminal.type_line(prompt, wrong);
    }
    let (status, shown) = terminal.end();
    assert_eq!(status, 1, "{shown}");
    assert_eq!((shown.matches(prompt).count(), shown.matches(AGAIN).count()), (3, 2), "{shown}");
    assert!(!shown.contains("wrong"), "{shown}");
}

/// Stops a server; returns how many wrong passwords it has refused.
fn refused_by(serving: Serving) -> usize {
    serving.rest("INT").matches("\"action\":\"refused\"").count()
}

/// Asserts that no prompt appears if the environment contains a password, even a wrong one.
fn is_not_prompted(session: &Session, line: &str, prompt: &str) {
    let variables = [("HAUL_PASSWORD", "wrong")];
    let (status, shown) = Terminal::start_where(session, line, &variables).end();
    assert_eq!(status, 1, "{shown}");
    assert!(!shown.contains(prompt) && !shown.contains(AGAIN), "{shown}");
}

#[test]
fn a_password_for_sftp_may_be_mistyped() {
    let builder = Sshd::builder().password("right horse");
    let sshd = builder.line("KbdInteractiveAuthentication no").start();
    let session = Session::new().file("src", "content");
    let isolated: String = sshd.isolated().iter().map(|option| format!(" -o {option}")).collect();
    let copy = session.path("copy");
    let line = format!(
        "cp -F none -o IdentityFile=none{isolated} src sftp://{}{}",
        sshd.address(),
        copy.display()
    );
    let prompt = format!("{}@{}'s password: ", sshd.user(), sshd.host());
    prompts_up_to_three_times(&session, &line, &prompt, "right horse");
    assert_eq!(session.read("copy"), "content");
    // Two wrong passwords before the right one, then three wrong ones.
    assert_eq!(sshd.log().matches("Failed password").count(), 2 + 3, "{}", sshd.log());
    is_not_prompted(&session, &line, "password: ");
    assert_eq!(sshd.log().matches("Failed password").count(), 2 + 3 + 1, "{}", sshd.log());
}

#[test]
fn a_password_for_webdav_may_be_mistyped() {
    let session = Session::new().file("src", "content").directory("far");
    session.write("secret", "right horse\n");
    let line = "serve dav far --listen 127.0.0.1:0 --user ada --password-command cat<secret -v";
    let (serving, object) = Serving::json(&session, line);
    let url = object["url"].as_str().unwrap().replacen("http://", "dav://ada@", 1);
    let line = format!("cp src {url}");
    prompts_up_to_three_times(&session, &line, "Password of ada at ", "right horse");
    assert_eq!(session.read("far/src"), "content");
    is_not_prompted(&session, &line, "Password of ada");
    // Two wrong passwords before the right one, then three wrong ones, and the one from the environment.
    assert_eq!(refused_by(serving), 2 + 3 + 1);
}

/// Both sources are on the same server.
#[test]
fn a_rejected_password_is_not_sent_again() {
    let session = Session::new().directory("far").file("far/a", "a").file("far/b", "b");
    session.write("secret", "right horse\n");
    let line = "serve dav far --listen 127.0.0.1:0 --user ada --password-command cat<secret -v";
    let (serving, object) = Serving::json(&session, line);
    let url = object["url"].as_str().unwrap().replacen("http://", "dav://ada@", 1);
    let line = format!("du {url}a {url}b");
    let ran = session.haul_where(&line, &[("HAUL_PASSWORD", "wrong")]).status(1);
    assert_eq!(ran.err().matches("rejected the user name or password").count(), 2, "{}", ran.err());
    let mut terminal = Terminal::start(&session, &line);
    for wrong in ["wrong", "wrong again", "wrong at last"] {
        terminal.type_line("Password of ada", wrong);
    }
    let (status, shown) = terminal.end();
    assert_eq!((status, shown.matches("Password of").count()), (1, 3), "{shown}");
    assert_eq!(refused_by(serving), 1 + 3);
}

/// Formerly, concurrent requests sent the wrong password before the first response arrived.
#[test]
fn a_wrong_password_is_sent_once_whatever_the_number_of_files() {
    for tls in ["", "--tls-self-signed "] {
        let mut session = Session::new().directory("far");
        for name in 0..20 {
            session = session.file(format!("far/{name}"), "content");
        }
        session.write("secret", "right horse\n");
        let line = format!(
            "serve dav far --listen 127.0.0.1:0 {tls}--user ada --password-command cat<secret -v"
        );
        let (serving, object) = Serving::json(&session, &line);
        let url = object["url"].as_str().unwrap().replacen("http", "dav", 1);
        let url = url.replacen("://", "://ada@", 1);
        let sources: String = (0..20).map(|name| format!(" {url}{name}")).collect();
        let line = format!("cp --insecure{sources} .");
        session.haul_where(&line, &[("HAUL_PASSWORD", "wrong")]).status(1);
        session.haul_where(&line, &[("HAUL_PASSWORD", "right horse")]).status(0);
        assert_eq!(session.read("19"), "content");
        assert_eq!(refused_by(serving), 1, "{tls}");
    }
}

#[test]
fn a_password_for_digest_may_be_mistyped() {
    let session = Session::new().file("src", "content");
    let Some(server) = login::apache_by_digest(&session) else { return };
    let line = format!("cp src {}", server.url.replacen("dav://", "dav://ada@", 1));
    prompts_up_to_three_times(&session, &line, "Password of ada at ", "right horse");
    assert_eq!(fs::read_to_string(server.root.join("src")).unwrap(), "content");
}

#[test]
fn a_password_for_ftp_may_be_mistyped() {
    let Some(server) = Pyftpdlib::start(false) else { return };
    let session = Session::new().file("src", "content");
    let line = format!("cp src ftp://me@127.0.0.1:{}/up/f", server.port());
    prompts_up_to_three_times(&session, &line, "Password for me@", PASSWORD);
    assert_eq!(fs::read_to_string(server.root().join("f")).unwrap(), "content");
    is_not_prompted(&session, &line, "Password for");
}

#[test]
fn ctrl_d_at_a_password_prompt_ends_the_prompts() {
    let session = Session::new().directory("far");
    session.write("secret", "right horse\n");
    let line = "serve dav far --listen 127.0.0.1:0 --user ada --password-command cat<secret";
    let (_serving, object) = Serving::json(&session, line);
    let url = object["url"].as_str().unwrap().replacen("http://", "dav://ada@", 1);
    let mut terminal = Terminal::start(&session, &format!("ls {url}"));
    // Ctrl-D.
    terminal.type_line("Password of ada", "\x04");
    let (status, shown) = terminal.end();
    assert_eq!((status, shown.matches("Password of").count()), (1, 1), "{shown}");
}
