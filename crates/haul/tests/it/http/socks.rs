//! SOCKS5 proxies: that of OpenSSH (`ssh -D`), and a scripted one.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use haul_bench::guard::end_with_thread;

use super::response::File;
use super::server::Server;
use super::whole;
use crate::content::content;
use crate::ftp::vsftpd::{Tls, Vsftpd};
use crate::port::free_port;
use crate::session::Session;
use crate::sftp::sshd::Sshd;

const SIZE: usize = 4 << 20;

/// The address of the proxy. vsftpd does not listen there, so a data connection to the proxy's address itself fails.
const PROXY: &str = "127.0.0.3";

/// `ssh -D`, and its server.
struct Socks {
    port: u16,
    child: Child,
    sshd: Sshd,
}

impl Socks {
    /// `None`, with the reason printed, where there is no OpenSSH.
    fn start() -> Option<Self> {
        if !Path::new("/usr/bin/ssh").exists() {
            eprintln!("skipped: there is no /usr/bin/ssh (Debian: openssh-client)");
            return None;
        }
        if !Sshd::is_installed() {
            return None;
        }
        let sshd = Sshd::start();
        let port = free_port();
        let mut command = Command::new("/usr/bin/ssh");
        command.args(["-F", "none", "-N", "-D", &format!("{PROXY}:{port}")]);
        command.arg("-i").arg(sshd.user_key());
        for option in sshd.isolated() {
            command.args(["-o", &option]);
        }
        command.args(["-o", &format!("HostKeyAlias={}", sshd.known_name())]);
        command.args(["-p", &sshd.port().to_string(), &format!("{}@127.0.0.1", sshd.user())]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        end_with_thread(&mut command);
        let mut child = command.spawn().unwrap();
        let begun = Instant::now();
        while TcpStream::connect((PROXY, port)).is_err() {
            assert!(child.try_wait().unwrap().is_none(), "ssh has ended: {}", sshd.log());
            assert!(begun.elapsed() < Duration::from_secs(20), "ssh does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        Some(Self { port, child, sshd })
    }

    fn url(&self, scheme: &str) -> String {
        format!("{scheme}://{PROXY}:{}", self.port)
    }

    fn stop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Socks {
    fn drop(&mut self) {
        self.stop();
        self.sshd.stop();
    }
}

#[test]
fn a_file_is_downloaded_through_a_socks_proxy_of_option_or_environment() {
    let Some(mut socks) = Socks::start() else { return };
    let file = File::new(content(1, SIZE));
    let bytes = file.content.clone();
    let server = Server::start(move |request| file.respond(request));
    let by_name = server.url("/f").replace("127.0.0.1", "localhost");
    let get = |session: &Session, options: &str, url: &str, variable: (&str, &str)| {
        let line = format!("cp --lanes 4 --chunk 256K --retries 0 {options} {url} dst/");
        session.haul_where(&line, &[variable])
    };
    let through = [
        (format!("--proxy {}", socks.url("socks5h")), ("no_proxy", "")),
        (format!("--all-proxy {}", socks.url("socks5")), ("no_proxy", "")),
        (String::new(), ("ALL_PROXY", &socks.url("socks5")[..])),
        (String::new(), ("http_proxy", &socks.url("socks5h")[..])),
    ];
    for (options, variable) in &through {
        for url in [&server.url("/f"), &by_name] {
            let session = Session::new();
            let before = server.requests().len();
            get(&session, options, url, *variable).status(0);
            whole(&session, &bytes);
            let requests = server.requests().split_off(before);
            assert!(requests.len() > 5);
            // A SOCKS proxy is not an HTTP proxy: the server gets the same requests as without it.
            assert!(requests.iter().all(|request| request.target == "/f"));
            assert!(requests.iter().all(|request| request.field("proxy-authorization").is_none()));
        }
    }
    // A name is resolved by the proxy (socks5h) or here (socks5).
    let nowhere = "http://nowhere.invalid/f";
    let session = Session::new();
    let by_proxy = get(&session, &through[0].0, nowhere, ("a", "b")).status(1);
    let expected = format!("the proxy socks5h://{PROXY}");
    assert!(by_proxy.err().contains(&expected), "{}", by_proxy.err());
    let by_haul = get(&session, &through[1].0, nowhere, ("a", "b")).status(1);
    assert!(!by_haul.err().contains("socks5"), "{}", by_haul.err());
    // Without the proxy, the same commands fail, so they went through it.
    socks.stop();
    let accepted = server.accepted();
    for (options, variable) in &through {
        let ran = get(&session, options, &server.url("/f"), *variable).status(1);
        let text = format!("{PROXY}:{} cannot be reached: ", socks.port);
        assert!(
            ran.err().contains("the proxy socks5") && ran.err().contains(&text),
            "{}",
            ran.err()
        );
    }
    assert_eq!(server.accepted(), accepted);
    for options in ["--proxy none", "--proxy="] {
        let session = Session::new();
        let variable = ("ALL_PROXY", &socks.url("socks5")[..]);
        get(&session, options, &server.url("/f"), variable).status(0);
        whole(&session, &bytes);
    }
    let session = Session::new();
    let excepted = [("ALL_PROXY", &socks.url("socks5")[..]), ("no_proxy", "127.0.0.1")];
    session.haul_where(&format!("cp {} dst/", server.url("/f")), &excepted).status(0);
}

#[test]
fn ftp_and_its_data_connections_go_through_a_socks_proxy() {
    let Some(mut socks) = Socks::start() else { return };
    let Some(server) = Vsftpd::start(Tls::None, &[]) else { return };
    let session = Session::new();
    session.write("src/f", content(1, SIZE));
    session.write("src/g", "small");
    let url = format!("ftp://localhost:{}/up", server.port());
    let proxy = format!("--proxy {}", socks.url("socks5h"));
    session.haul(&format!("cp {proxy} src {url}/")).status(0);
    session.haul(&format!("cp {proxy} {url}/src back")).status(0);
    session.tool("diff -r src back/src");
    socks.stop();
    let refused = session.haul(&format!("ls {proxy} {url}/")).status(1);
    let expected = format!("the proxy socks5h://{PROXY}");
    assert!(refused.err().contains(&expected), "{}", refused.err());
    let http = session.haul(&format!("ls --proxy http://127.0.0.1:9 {url}/")).status(1);
    assert!(http.err().contains("FTP goes through SOCKS proxies only"), "{}", http.err());
    // An HTTP proxy of the environment is for other protocols.
    let variables = [("all_proxy", "http://127.0.0.1:9"), ("ftp_proxy", "http://127.0.0.1:9")];
    session.haul_where(&format!("ls {url}/"), &variables).status(0);
    let through = [("all_proxy", &socks.url("socks5")[..])];
    session.haul_where(&format!("ls {url}/"), &through).status(1);
}

/// Acts as a SOCKS proxy for one client: refuses its request, and returns the host name in it.
fn refuse_one(listener: &TcpListener) -> String {
    let (mut client, _) = listener.accept().unwrap();
    let mut greeting = [0; 3];
    client.read_exact(&mut greeting).unwrap();
    client.write_all(&[5, 0]).unwrap();
    // CONNECT to a name, and its length.
    let mut head = [0; 5];
    client.read_exact(&mut head).unwrap();
    assert_eq!(head[..4], [5, 1, 0, 3]);
    let mut name = vec![0; usize::from(head[4]) + 2];
    client.read_exact(&mut name).unwrap();
    client.write_all(&[5, 2, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
    name.truncate(name.len() - 2);
    String::from_utf8(name).unwrap()
}

#[test]
fn a_host_name_beyond_ascii_is_resolved_in_its_dns_form() {
    for scheme in ["http", "https", "dav", "davs", "ftp", "ftps"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = format!("socks5h://{}", listener.local_addr().unwrap());
        let requested_name = thread::spawn(move || refuse_one(&listener));
        let url = format!("{scheme}://b\u{fc}cher.example/x");
        let ran = Session::new().haul(&format!("cp --retries 0 --proxy {proxy} {url} dst/"));
        let ran = ran.status(1);
        assert!(ran.err().contains("its rules do not allow the connection"), "{}", ran.err());
        assert_eq!(requested_name.join().unwrap(), "xn--bcher-kva.example", "{scheme}");
    }
}

#[test]
fn a_proxy_that_cannot_be_used_is_reported_without_its_password() {
    let session = Session::new();
    for (value, text) in [
        ("socks4://u:open-sesame@h", "--proxy names a SOCKS proxy of another version than 5"),
        ("ftp://u:open-sesame@h", "--proxy names a proxy whose scheme is not http, https, socks5"),
        ("http://u:open-sesame@h/x", "--proxy is not the URL of a proxy"),
        ("socks5://open-sesame@h", "with a user or password that is empty or longer than 255"),
    ] {
        let variable = [("all_proxy", value)];
        let ran = session.haul_where("ls http://127.0.0.1:1/", &variable).status(1);
        assert!(ran.err().contains(&text.replace("--proxy", "all_proxy")), "{}", ran.err());
        assert!(!ran.err().contains("open-sesame"), "{}", ran.err());
        let ran = session.haul(&format!("ls --proxy {value} http://127.0.0.1:1/")).status(2);
        assert!(ran.err().contains(text), "{}", ran.err());
        assert!(!ran.err().contains("open-sesame"), "{}", ran.err());
    }
}
