//! Copies to and from many hosts, each with an OpenSSH server.

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::content;
use super::sshd::Sshd;
use crate::session::{Ran, Session, isolate};

/// Hosts `n1`, `n2`, …, which are remotes in the configuration. Each has an sshd and a directory of its own.
struct Hosts {
    session: Session,
    sshds: Vec<Sshd>,
}

impl Hosts {
    fn start(count: usize, builder: fn() -> super::sshd::Builder) -> Self {
        let session = Session::new();
        let sshds: Vec<Sshd> = (0..count).map(|_| builder().start()).collect();
        let (mut config, mut known) = (String::new(), String::new());
        for (n, sshd) in sshds.iter().enumerate() {
            let n = n + 1;
            fs::create_dir_all(session.path(format!("hosts/n{n}"))).unwrap();
            let root = session.path(format!("hosts/n{n}"));
            let url = format!("sftp://{}{}", sshd.address(), root.display());
            config.push_str(&format!("[remote.n{n}]\nurl = \"{url}\"\n"));
            known.push_str(&fs::read_to_string(sshd.known_hosts()).unwrap());
        }
        let session = session.file("config.toml", config).file("known", known);
        session.write("src/large", content(1, 3 << 20));
        session.write("src/d/small", "small");
        Self { session, sshds }
    }

    /// Adds options for configuration, keys and host keys to a command line.
    fn line(&self, line: &str) -> String {
        let (command, rest) = line.split_once(' ').unwrap();
        let mut options = "--config config.toml -F none".to_owned();
        for sshd in &self.sshds {
            options.push_str(&format!(" -i {}", sshd.user_key().display()));
        }
        for option in
            ["UserKnownHostsFile=known", "GlobalKnownHostsFile=none", "IdentityAgent=none"]
        {
            options.push_str(&format!(" -o {option}"));
        }
        format!("{command} {options} {rest}")
    }

    fn haul(&self, line: &str) -> Ran {
        self.session.haul(&self.line(line))
    }
}

/// Both transfers go over one path, and share its window and connections.
#[test]
fn two_names_of_one_server_get_their_trees_at_the_same_time() {
    let hosts = Hosts::start(1, Sshd::builder);
    let session = &hosts.session;
    let root = session.path("hosts/n2");
    fs::create_dir_all(&root).unwrap();
    let mut config = fs::read_to_string(session.path("config.toml")).unwrap();
    let url = format!("sftp://{}{}", hosts.sshds[0].address(), root.display());
    config.push_str(&format!("[remote.n2]\nurl = \"{url}\"\n"));
    session.write("config.toml", config);
    session.write("src/larger", content(2, 40 << 20));
    for options in ["", "--lanes 3 --window 2M", "--window 64K --chunk 64K", "--bwlimit 40M"] {
        hosts.haul(&format!("cp {options} src n[1-2]:data")).status(0);
        for host in ["n1", "n2"] {
            session.tool(&format!("diff -r src hosts/{host}/data/src"));
            fs::remove_dir_all(session.path(format!("hosts/{host}/data"))).unwrap();
        }
    }
}

#[test]
fn an_unreachable_host_does_not_affect_the_others_and_each_has_a_line() {
    let mut hosts = Hosts::start(3, Sshd::builder);
    hosts.sshds[1].stop();
    fs::write(hosts.session.path("list"), "# those of the test\nn1\nn[2-3]\n").unwrap();
    for line in ["cp --retries 1 src n[1-3]:data", "cp --retries 1 --hosts list src :data"] {
        let ran = hosts.haul(line).status(1);
        let out = ran.out();
        assert_eq!(out.lines().count(), 3, "{out}");
        for line in ["n1: 2 files", "n2: failed: ", "n3: 2 files"] {
            assert!(out.lines().any(|found| found.starts_with(line)), "{out}");
        }
        assert!(out.contains("Connection refused"), "{out}");
        assert!(ran.err().contains("3 hosts, 1 failed; 4 files"), "{}", ran.err());
        for host in ["n1", "n3"] {
            hosts.session.tool(&format!("diff -r src hosts/{host}/data/src"));
            fs::remove_dir_all(hosts.session.path(format!("hosts/{host}/data"))).unwrap();
        }
    }
    // And from the hosts, into one directory per host.
    for n in 1..=3 {
        hosts.session.write(format!("hosts/n{n}/log/of"), format!("n{n}"));
    }
    let ran = hosts.haul("cp --retries 0 n[1-3]:log all").status(1);
    assert!(ran.out().contains("n2: failed: "), "{}", ran.out());
    assert_eq!(hosts.session.read("all/n1/log/of"), "n1");
    assert_eq!(hosts.session.read("all/n3/log/of"), "n3");
    assert!(!hosts.session.has("all/n2/log"));
    hosts.sshds[1].restart();
    hosts.haul("cp n[1-3]:log all").status(0);
    assert_eq!(hosts.session.read("all/n2/log/of"), "n2");
}

#[test]
fn with_fail_fast_the_first_failure_stops_all_hosts() {
    let mut hosts = Hosts::start(2, Sshd::builder);
    hosts.sshds[0].stop();
    hosts.session.write("src/large", content(1, 40 << 20));
    let line = "cp --fail-fast --retries 0 --bwlimit 4M src n[1-2]:data";
    let ran = hosts.haul(line).status(1);
    assert!(ran.out().contains("n1: failed: "), "{}", ran.out());
    assert!(ran.err().contains("2 hosts, 1 failed, 1 stopped"), "{}", ran.err());
    assert!(!hosts.session.has("hosts/n2/data/src/large"));
}

#[test]
fn passwords_of_several_hosts_are_prompted_for_one_at_a_time() {
    let hosts = Hosts::start(3, || Sshd::builder().password("open sesame"));
    let line = hosts.line("cp -o PreferredAuthentications=password src n[1-3]:data");
    let command = hosts.session.command(&line);
    // script(1) runs the command on a terminal.
    let words: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    let mut terminal = Command::new("script");
    terminal.args(["-q", "-e", "-c", &words.join(" "), "/dev/null"]);
    terminal.current_dir(hosts.session.path("")).env("HOME", hosts.session.path("home"));
    terminal.stdin(Stdio::piped()).stdout(Stdio::piped());
    isolate(&mut terminal);
    let mut child = terminal.spawn().unwrap();
    let mut keys = child.stdin.take().unwrap();
    let (mut screen, printed) =
        (child.stdout.take().unwrap(), std::sync::Arc::new(std::sync::Mutex::new(String::new())));
    let reader = std::thread::spawn({
        let printed = std::sync::Arc::clone(&printed);
        move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = screen.read(&mut buffer) {
                printed.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..length]));
            }
        }
    });
    let prompts = || printed.lock().unwrap().matches("assword").count();
    for host in 1..=3 {
        let begun = Instant::now();
        while prompts() < host {
            let printed = printed.lock().unwrap().clone();
            assert!(begun.elapsed() < Duration::from_secs(30), "{printed}");
            std::thread::sleep(Duration::from_millis(10));
        }
        // By now the other hosts need their passwords, too, but must not have prompted.
        std::thread::sleep(Duration::from_millis(700));
        assert_eq!(prompts(), host, "{}", printed.lock().unwrap());
        keys.write_all(b"open sesame\n").unwrap();
    }
    let status = child.wait().unwrap();
    reader.join().unwrap();
    assert!(status.success(), "{}", printed.lock().unwrap());
    for host in ["n1", "n2", "n3"] {
        hosts.session.tool(&format!("diff -r src hosts/{host}/data/src"));
    }
    assert!(!printed.lock().unwrap().contains("sesame"));
}

#[test]
fn a_host_name_that_cannot_be_resolved_fails_without_retries() {
    // A DNS label has at most 63 bytes, so this one fails without a query.
    let name = "a".repeat(64);
    let session = Session::new().file("src", "content");
    let ran = session.haul(&format!("cp --json -F none src {name}:f")).status(1);
    let events = |ran: &Ran, event: &str| {
        ran.objects().into_iter().filter(|one| one["event"] == event).collect::<Vec<_>>()
    };
    assert!(events(&ran, "retry").is_empty(), "{}", ran.out());
    let output = format!("{}{}", ran.out(), ran.err());
    assert!(output.contains(&format!("@{name}")), "{output}");
    assert!(output.contains("Name or service not known"), "{output}");

    // In a list of hosts, with one that exists.
    fs::create_dir_all(session.path("near")).unwrap();
    let near = session.path("near");
    let config = format!(
        "[remote.n1]\nurl = \"{}\"\n[remote.n2]\nurl = \"sftp://{name}/\"\n\
         [remote.n3]\nurl = \"sftp://{name}b/\"\n",
        near.display()
    );
    session.write("config.toml", config);
    let line = "cp --json -F none --config config.toml src n[1-3]:";
    let ran = session.haul(line).status(1);
    assert!(events(&ran, "retry").is_empty(), "{}", ran.out());
    let hosts = events(&ran, "host");
    let status = |name: &str| {
        let host = hosts.iter().find(|one| one["host"] == name).unwrap();
        host["status"].as_str().unwrap().to_owned()
    };
    assert_eq!([status("n1"), status("n2"), status("n3")], ["done", "failed", "failed"]);
    assert_eq!(session.read("near/src"), "content");
}
