//! Runs the `haul` commands of README and docs in a shell, against real servers: those in indented lines and after a
//! prompt. Code fences without prompts contain commands that cannot run here. Another test compares the events in
//! `json.md` with those in the help.
//!
//! Everything that a command names is created first: `photos`, `data`, `big.iso` here, `server` and `node01`
//! as hosts of `~/.ssh/config`, `nas:` as a remote of the configuration, a web server, WebDAV and FTP. The
//! URLs in the documentation have names and TLS; here they are replaced by servers of this machine without
//! TLS.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::dav::{self, servers};
use crate::ftp::vsftpd::{Tls, Vsftpd};
use crate::serve::Serving;
use crate::session::{Session, isolate};
use crate::sftp::sshd::Sshd;

/// Marks an example of an option that is refused.
const REFUSED: &str = "--transfers";

/// The commands of a page: indented lines, and lines after a prompt.
fn commands(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap();
    let mut commands = Vec::new();
    for line in text.lines() {
        let code = line.strip_prefix("    ").or_else(|| line.strip_prefix("$ "));
        let code = code.filter(|code| code.starts_with("haul ") || code.contains("| haul "));
        commands.extend(code.map(str::to_owned));
    }
    commands.retain(|line| !line.contains(REFUSED));
    if !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED: no /dev/fuse for haul mount");
        commands.retain(|line| !line.starts_with("haul mount "));
    }
    commands
}

fn pages() -> Vec<PathBuf> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages: Vec<_> =
        fs::read_dir(top.join("docs")).unwrap().flatten().map(|e| e.path()).collect();
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.push(top.join("README.md"));
    pages.sort();
    pages
}

struct World {
    session: Session,
    sshd: Sshd,
    dav: dav::DavServer,
    web: servers::Server,
    ftp: Vsftpd,
    /// A running share of `shared`, and its ticket.
    share: Serving,
    ticket: String,
    /// A running bridge, and its name for `--bridge`.
    bridge: Serving,
    named: String,
}

impl World {
    fn start() -> Option<Self> {
        let session = Session::new().directory("ssh-home");
        let home = session.path("ssh-home");
        let start = format!("ForceCommand internal-sftp -d {}", home.display());
        let sshd = Sshd::builder().line(&start).start();
        let dav = dav::haul(&session);
        let web = servers::nginx()?;
        let ftp = Vsftpd::start(Tls::None, &[])?;
        session.write("shared/file", "");
        let line = "share --writable --listen 127.0.0.1:0 shared";
        let (share, object) = Serving::json(&session, line);
        let ticket = object["ticket"].as_str().unwrap().to_owned();
        let line = "bridge --listen 127.0.0.1:0 --token secret";
        let (bridge, object) = Serving::json(&session, line);
        let named = object["bridges"][0].as_str().unwrap().to_owned();
        let world = Self { session, sshd, dav, web, ftp, share, ticket, bridge, named };
        world.configure();
        Some(world)
    }

    fn configure(&self) {
        let session = &self.session;
        let certificate = rcgen::generate_simple_self_signed(vec!["nas".to_owned()]).unwrap();
        session.write("work/nas.pem", certificate.cert.pem());
        let config = format!(
            "[profile.night]\nbwlimit = \"100M\"\n[remote.nas]\nurl = \"{}\"\n",
            session.path("nas").display()
        );
        session.write("home/.config/haul/config.toml", config);
        let mut ssh = "Host server node*\n HostName 127.0.0.1\n".to_owned();
        ssh += &format!(" Port {}\n User {}\n", self.sshd.port(), self.sshd.user());
        ssh += &format!(" IdentityFile {}\n", self.sshd.user_key().display());
        ssh += &format!(" HostKeyAlias {}\n", self.sshd.known_name());
        for option in self.sshd.isolated() {
            ssh += &format!(" {}\n", option.replacen('=', " ", 1));
        }
        session.write("home/.ssh/config", ssh);
    }

    /// Restores the state before a command.
    fn reset(&self) {
        let session = &self.session;
        let ftp = self.ftp.root();
        let roots = [self.dav.root.clone(), self.web.root(), ftp.clone()];
        for directory in roots.iter().chain([&session.path("ssh-home"), &session.path("shared")]) {
            for entry in fs::read_dir(directory).unwrap().flatten() {
                let path = entry.path();
                drop(fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path)));
            }
        }
        for name in ["work", "nas", "srv"] {
            drop(fs::remove_dir_all(session.path(name)));
        }
        let tree = |top: &str| {
            session.write(format!("{top}/2025/a.jpg"), "a");
            session.write(format!("{top}/2026/b.jpg"), "b");
        };
        for top in ["work/photos", "work/data", "nas/photos", "nas/2026", "srv/data", "shared"] {
            tree(top);
        }
        session.write("work/backup/old", "old");
        session.tool("cp -a work/photos work/backup/");
        self.write_manifest("work/backup");
        fs::create_dir_all(session.path("work/mnt")).unwrap();
        session.write("work/big.iso", "iso".repeat(100_000));
        session.write("work/notes.txt", "notes");
        session.write("work/ticket.txt", &self.ticket);
        session.write("work/token", "secret\n");
        session.write("work/list.txt", "2025/a.jpg\n");
        session.write("work/hosts.txt", "server\nnode01\n");
        session.write(
            "work/urls.txt",
            self.with_local_servers("https://server/big.iso\nserver:notes.txt\n"),
        );
        session.write("work/cookies.txt", "server\tFALSE\t/\tTRUE\t0\tid\t7\n");
        session.tool(&format!("cp {} work/key", self.sshd.user_key().display()));
        session.tool("chmod 600 work/key");
        let certificate = rcgen::generate_simple_self_signed(vec!["nas".to_owned()]).unwrap();
        session.write("work/nas.pem", certificate.cert.pem());
        for (path, content) in [
            ("logs/a.gz", "gz"),
            ("notes.txt", "notes"),
            ("backup/x.tmp", "x"),
            ("backup/dump.sql", "sql"),
        ] {
            session.write(format!("ssh-home/{path}"), content);
        }
        tree("ssh-home/photos");
        let web = self.web.root();
        for root in [&web, &ftp, &self.dav.root] {
            for path in
                ["big.iso", "pub/big.iso", "pub/data/x", "photos/x", "backup/photos/x", "get"]
            {
                fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
                fs::write(root.join(path), "content").unwrap();
            }
            let sum = "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73\n";
            fs::write(root.join("big.iso.sha256"), sum).unwrap();
        }
        for root in [&web, &ftp] {
            session.tool(&format!("chmod -R a+rwX {}", root.display()));
        }
    }

    /// Writes the manifest of a directory of the session.
    fn write_manifest(&self, top: &str) {
        let sums = Command::new("sh")
            .args(["-c", "find . -type f ! -name SHA256SUMS | xargs sha256sum >SHA256SUMS"])
            .current_dir(self.session.path(top))
            .status();
        assert!(sums.unwrap().success());
    }

    /// Replaces the servers, paths and secrets of the documentation in a command by those of this test.
    fn with_local_servers(&self, line: &str) -> String {
        let web = self.web.url.trim_end_matches('/').to_owned();
        let dav = self.dav.url.trim_end_matches('/').to_owned();
        let ftp = format!("ftp://127.0.0.1:{}/up", self.ftp.port());
        let srv = self.session.path("srv/data").display().to_string();
        let sftp = format!("sftp://server{srv}");
        let table = [
            ("https://server", web.as_str()),
            ("https://mirror", web.as_str()),
            ("davs://ada@nas:8443", &dav),
            ("ftps://ada@server/~", &ftp),
            ("ftps://ada@server:990", &ftp),
            ("ftp://server", &ftp),
            ("sftp://ada@server:2222/srv/data", &sftp),
            ("ada@", ""),
            ("/srv/data", &srv),
            ("0.0.0.0:2022", "127.0.0.1:0"),
            ("0.0.0.0:4180", "127.0.0.1:0"),
            ("0.0.0.0:4181", "127.0.0.1:0"),
            ("127.0.0.1:9181", "127.0.0.1:0"),
            ("bridge.example:4181/KEY", &self.named),
            ("TICKET", &self.ticket),
            ("0.0.0.0:8443", "127.0.0.1:0"),
            ("--authorized-keys keys", "--authorized-keys key.pub"),
            ("pass show nas", "echo secret"),
        ];
        let mut line = line.to_owned();
        for (written, here) in table {
            line = line.replace(written, here);
        }
        line
    }

    fn shell(&self, line: &str) -> Command {
        let directory = Path::new(env!("CARGO_BIN_EXE_haul")).parent().unwrap();
        let path = format!("{}:{}", directory.display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("sh");
        isolate(&mut shell)
            .args(["-c", &format!("exec {line}")])
            .current_dir(self.session.path("work"))
            .env("PATH", path)
            .env("HOME", self.session.path("home"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        shell
    }

    /// Runs a command; if it fails, the error is what it printed.
    fn run(&self, line: &str) -> Result<(), String> {
        let mut child = self.shell(line).spawn().unwrap();
        // Not all commands read their input.
        drop(child.stdin.take().unwrap().write_all(b"select 1;\n"));
        let serving = ["haul serve ", "haul share ", "haul bridge ", "haul mount "];
        if serving.iter().any(|command| line.starts_with(command)) {
            let mut first = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
            rustix::process::kill_process(
                rustix::process::Pid::from_child(&child),
                rustix::process::Signal::INT,
            )
            .unwrap();
            let ended = child.wait_with_output().unwrap();
            let text = String::from_utf8_lossy(&ended.stderr).into_owned();
            let mut words = ["serving", "sharing", "bridge", "mounted"].iter();
            return match words.any(|word| first.starts_with(word)) && ended.status.success() {
                true => Ok(()),
                false => Err(format!("{}: {first}{text}", ended.status)),
            };
        }
        let output = child.wait_with_output().unwrap();
        if output.status.success() {
            return Ok(());
        }
        let text = [output.stdout, output.stderr].concat();
        Err(format!("{}: {}", output.status, String::from_utf8_lossy(&text)))
    }
}

#[test]
fn the_help_names_all_events_of_the_documentation() {
    let page = pages().into_iter().find(|page| page.ends_with("json.md")).unwrap();
    let text = fs::read_to_string(page).unwrap();
    let events = text.lines().filter_map(|line| line.strip_prefix("**")?.split("**").next());
    let events: Vec<_> = events.collect();
    assert!(events.len() > 20, "{events:?}");
    let help = Session::new().haul("--help").out();
    let (_, listed) = help.split_once("JSON (--json)").unwrap();
    let (listed, _) = listed.split_once("Exit status").unwrap();
    let listed: Vec<_> = listed.split(|c: char| !c.is_ascii_alphabetic()).collect();
    for event in events {
        assert!(listed.contains(&event), "{event}");
    }
}

#[test]
fn the_commands_of_the_documentation_work() {
    let Some(world) = World::start() else {
        eprintln!("SKIPPED: nginx or vsftpd is missing");
        return;
    };
    let (mut count, mut failed) = (0, Vec::new());
    for page in pages() {
        for line in commands(&page) {
            world.reset();
            world.session.tool("cp work/key work/keys");
            let public = crate::sftp::sshd::public(&world.sshd.user_key());
            world.session.write("work/key.pub", public);
            // The page assumes that this manifest exists.
            if line.contains("verify --strict nas:") {
                world.write_manifest("nas/photos");
            }
            let here = world.with_local_servers(&line);
            let mut ran = world.run(&here);
            // All these hosts share one directory here, so their copies disturb each other. Repeating the
            // command copies the missing files.
            for _ in 0..4 {
                if ran.is_err() && (line.contains("node[") || line.contains("--hosts")) {
                    ran = world.run(&here);
                }
            }
            if let Err(text) = ran {
                let page = page.file_name().unwrap().display();
                failed.push(format!("{page}: {line}\n    {text}"));
            }
            count += 1;
        }
    }
    world.share.end("INT");
    world.bridge.end("INT");
    eprintln!("{count} commands");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(count > 80, "{count}");
}
