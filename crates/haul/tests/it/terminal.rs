//! Output on a terminal: nothing that servers send controls the terminal, and messages have colours.
//!
//! Colours, window titles and reversed text are tried in everything that a server chooses:
//! names of files, algorithms, banners, certificates, replies. `script` gives the program a terminal.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::thread;

use haul_bench::guard::end_with_thread;

use crate::session::{Session, isolate};
use crate::sftp::sshd::Sshd;

/// OSC, a window title; CSI in one character, as UTF-8; a right-to-left override.
const EVIL: &str = "a\x1b]0;owned\x07b\u{9b}31mc\u{202e}d";
const SHOWN: &str = "a\\033]0;owned\\007b\\302\\23331mc\\342\\200\\256d";

/// Runs the program on a terminal without input; returns what was sent to the terminal.
pub(crate) fn on_a_terminal(session: &Session, line: &str) -> String {
    let haul = session.command("");
    let output = isolate(&mut Command::new("script"))
        .args(["--quiet", "--return", "--command"])
        .arg(format!("{} {line}", haul.get_program().display()))
        .arg("/dev/null")
        .current_dir(session.path(""))
        .env("HOME", session.path("home"))
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Asserts that a text has none of the control sequences of [`EVIL`].
#[track_caller]
fn is_harmless(text: &str) {
    for control in ["\x1b]", "\x07", "\u{9b}", "\u{202e}"] {
        assert!(!text.contains(control), "{text:?}");
    }
}

/// Accepts one connection after the other, and sends a script on each: the first piece at once, each
/// further one after the client has sent something.
fn scripted(script: Vec<Vec<u8>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut buffer = [0; 4096];
            for (at, words) in script.iter().enumerate() {
                if at > 0 && stream.read(&mut buffer).unwrap_or(0) == 0 {
                    break;
                }
                // Errors are ignored: the client may have disconnected.
                drop(stream.write_all(words));
            }
            // Reads until the client closes: an earlier close could reset the connection, and lose data.
            while stream.read(&mut buffer).unwrap_or(0) > 0 {}
        }
    });
    address
}

#[test]
fn names_are_escaped_on_a_terminal_and_exact_in_a_pipe() {
    let session = Session::new().file(format!("d/{EVIL}"), "").file("d/plain\\name", "");
    let text = on_a_terminal(&session, "ls d");
    is_harmless(&text);
    assert_eq!(text.replace("\r\n", "\n"), format!("{SHOWN}\nplain\\name\n"));
    let piped = session.haul("ls d").status(0);
    assert_eq!(piped.bytes(), format!("{EVIL}\nplain\\name\n").as_bytes());
    let json = session.haul("ls --json d").status(0);
    is_harmless(&json.out());
    assert_eq!(json.objects()[0]["path"], EVIL);
    let copied = session.haul("cp -v -r d e").status(0);
    is_harmless(&copied.out());
    copied.stdout_has(SHOWN);
    let name = OsStr::from_bytes(b"--\x1b]0;owned\x07");
    let usage = session.haul_with("ls", name.as_bytes()).status(2);
    is_harmless(&usage.err());
}

/// The command line that lists the root directory of a server.
fn ls(sshd: &Sshd, more: &str) -> String {
    let isolated = sshd.isolated().iter().map(|option| format!(" -o {option}")).collect::<String>();
    let key = sshd.user_key().display().to_string();
    format!("ls -F none -i {key} {more}{isolated} sftp://{}/", sshd.address())
}

#[test]
fn a_banner_and_a_certificate_do_not_control_a_terminal() {
    let banner = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(banner.path(), format!("welcome {EVIL}\nline two\n")).unwrap();
    let banner = format!("Banner {}", banner.path().display());
    let builder = Sshd::builder().line(&banner);
    let key_id = format!("id {EVIL}\nline");
    let names = format!("{EVIL},other");
    let sshd = builder.certificate(&["-I", &key_id, "-n", &names]).start();
    let session = Session::new();
    // The prompt, with the names of the certificate.
    let text = on_a_terminal(&session, &ls(&sshd, ""));
    is_harmless(&text);
    assert!(text.contains("Continue connecting"), "{text}");
    assert!(text.contains(&format!("\"id {SHOWN}\\012line\"")), "{text}");
    assert!(text.contains(&format!("is for {SHOWN}, other, not for")), "{text}");
    // The banner keeps its line breaks.
    let text = on_a_terminal(&session, &ls(&sshd, "-o StrictHostKeyChecking=no"));
    is_harmless(&text);
    assert!(text.contains(&format!("welcome {SHOWN}\r\nline two\r\n")), "{text}");
}

/// An SFTP server that prints its argument to standard error and fails. OpenSSH and others discard that output.
const FAILING: &str = r#"
import asyncio, os, sys
import asyncssh

class Session(asyncssh.SSHServerSession):
    def connection_made(self, channel):
        self.channel = channel

    def subsystem_requested(self, subsystem):
        return True

    def session_started(self):
        self.channel.write_stderr(os.fsencode(sys.argv[1]))
        # Final: haul does not retry.
        self.channel.exit(127)

class Server(asyncssh.SSHServer):
    def begin_auth(self, username):
        return False

    def session_requested(self):
        return Session()

async def main():
    key = asyncssh.generate_private_key('ssh-ed25519')
    listener = await asyncssh.create_server(Server, '127.0.0.1', 0, server_host_keys=[key],
        encoding=None)
    print(listener.sockets[0].getsockname()[1], flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"#;

/// The text after the carriage return would overwrite the start of the line.
#[test]
fn standard_error_of_the_sftp_server_does_not_control_a_terminal() {
    // Debian's, not another one in PATH, which may lack asyncssh.
    let python = || Command::new("/usr/bin/python3");
    let probe = python().args(["-c", "import asyncssh"]).stderr(Stdio::null()).status();
    if !probe.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: python3-asyncssh (Debian's) is not installed");
        return;
    }
    let mut server = python();
    server.args(["-c", FAILING, &format!("sorry {EVIL}\rover\nline two\n")]);
    end_with_thread(&mut server);
    let mut server = server.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut port = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let session = Session::new();
    let line = format!(
        "ls -F none --accept-new-host-keys -o IdentityAgent=none sftp://127.0.0.1:{}/",
        port.trim()
    );
    let ran = session.haul(&line);
    let seen = on_a_terminal(&session, &line);
    server.kill().unwrap();
    server.wait().unwrap();
    let ran = ran.status(1);
    for text in [seen, ran.err()] {
        is_harmless(&text);
        assert!(!text.contains("\rover"), "{text:?}");
        assert!(text.contains(&format!("sorry {SHOWN}\\015over; line two")), "{text:?}");
    }
}

/// DISCONNECT (RFC 4253, 11.1) with a reason that is final, and with one after which haul retries.
#[test]
fn the_description_of_a_disconnect_does_not_control_a_terminal() {
    let session = Session::new();
    for reason in [8_u32, 11] {
        let mut payload = vec![1];
        payload.extend(reason.to_be_bytes());
        string(&mut payload, &format!("sorry {EVIL}\rover\nline two"));
        string(&mut payload, EVIL);
        let mut hello = b"SSH-2.0-evil\r\n".to_vec();
        hello.extend(packet(payload));
        let line = format!("ls -F none --accept-new-host-keys sftp://{}/", scripted(vec![hello]));
        let text = on_a_terminal(&session, &line);
        is_harmless(&text);
        assert!(!text.contains("\rover"), "{text:?}");
        assert!(text.contains(&format!("sorry {SHOWN}\\015over; line two")), "{text:?}");
    }
}

/// A string in a message (RFC 4251, 5).
fn string(payload: &mut Vec<u8>, text: &str) {
    payload.extend((text.len() as u32).to_be_bytes());
    payload.extend(text.as_bytes());
}

/// A KEXINIT (RFC 4253, 7.1) in a packet, with `name` for every algorithm.
fn kexinit(name: &str) -> Vec<u8> {
    let mut payload = vec![20];
    payload.extend([7; 16]);
    for _ in 0..10 {
        string(&mut payload, name);
    }
    payload.extend([0; 5]);
    packet(payload)
}

/// A message in a packet that is not encrypted.
fn packet(payload: Vec<u8>) -> Vec<u8> {
    let padding = 8 - (payload.len() + 5) % 8 + 8;
    let mut packet = ((payload.len() + 1 + padding) as u32).to_be_bytes().to_vec();
    packet.push(padding as u8);
    packet.extend(payload);
    packet.extend(vec![0; padding]);
    packet
}

#[test]
fn algorithms_and_replies_of_servers_do_not_control_a_terminal() {
    let session = Session::new();
    let mut hello = b"SSH-2.0-evil\r\n".to_vec();
    hello.extend(kexinit(EVIL));
    let ssh = scripted(vec![hello]);
    let goodbye = scripted(vec![format!("530 {EVIL}\r\n").into_bytes()]);
    let head = format!("HTTP/1.1 403 {}\r\nContent-Length: 0\r\n\r\n", "c\u{9b}31m\u{202e}d");
    let http = scripted(vec![Vec::new(), head.into_bytes()]);
    for url in [format!("sftp://{ssh}/"), format!("ftp://{goodbye}/"), format!("http://{http}/x")] {
        let line = format!("ls -F none --accept-new-host-keys {url}");
        let line = if url.starts_with("sftp") { line } else { format!("ls {url}") };
        let ran = session.haul(&line).status(1);
        is_harmless(&ran.err());
        if url.starts_with("sftp") {
            ran.stderr_has(SHOWN);
        }
    }
}

#[test]
fn a_terminal_gets_colours_but_a_pipe_and_a_file_do_not() {
    let session = Session::new().file("a", "a");
    let plain = |ran: crate::session::Ran| assert!(!ran.err().contains('\x1b'), "{:?}", ran.err());
    for line in ["cp none b", "cp --progress=files a b", "cp --nonsense", "cp --color never none b"]
    {
        plain(session.haul(line));
    }
    plain(session.haul_where("cp none b", &[("CLICOLOR_FORCE", "1"), ("TERM", "xterm-256color")]));
    let red = "\x1b[1;31mhaul:\x1b[0m ";
    assert!(on_a_terminal(&session, "cp none b").contains(red));
    assert!(!on_a_terminal(&session, "cp --color never none b").contains('\x1b'));
    session.haul("cp --color always none b").status(1).stderr_has(red);
    let log = "cp --color always --log-file log none b";
    session.haul(log).status(1);
    assert!(!session.read("log").contains('\x1b'));
    // https://no-color.org, and a terminal without colours.
    for variable in ["NO_COLOR=1", "TERM=dumb"] {
        session.write("run", format!("{variable} exec \"$@\"\n"));
        let haul = session.command("");
        let line = format!("sh run {} cp none b", haul.get_program().display());
        let out = isolate(&mut Command::new("script"))
            .args(["--quiet", "--return", "--command", &line, "/dev/null"])
            .current_dir(session.path(""))
            .env("HOME", session.path("home"))
            .env("TERM", "xterm")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(text.contains("none: cannot open") && !text.contains('\x1b'), "{text:?}");
    }
}
