//! Targets behind servers on this machine; the destination is a local directory.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::image::find_program;
use super::keeps::Keeps;
use super::local::on;
use super::ready::{Guard, Made, Site, Target, is_root};
use crate::at;
use crate::grow::Features;

/// Version 3 of SFTP: whole seconds from 1970 to 2106, no extended attributes.
const SFTP: Keeps = Keeps {
    xattrs: false,
    reports_links: false,
    precision_ns: 1_000_000_000,
    earliest: 0,
    latest: 0xffff_ffff,
    ..Keeps::ALL
};

/// WebDAV: files with times.
const DAV: Keeps = Keeps {
    mode: false,
    owner: false,
    xattrs: false,
    symlinks: false,
    hard_links: false,
    link_times: false,
    directory_times: false,
    precision_ns: 1_000_000_000,
    ..Keeps::ALL
};

/// `haul serve sftp`.
pub(super) fn haul_sftp(site: &Site<'_>) -> io::Result<Made> {
    let Some(key) = make_key(site.work, "key")? else {
        return Ok(Made::Skipped("there is no ssh-keygen".into()));
    };
    let point = make_point(site.work)?;
    let arguments: Vec<OsString> = vec![
        "serve".into(),
        "sftp".into(),
        point.clone().into(),
        "--listen=127.0.0.1:0".into(),
        "--user=root".into(),
        "--authorized-keys".into(),
        format!("{key}.pub").into(),
    ];
    let (guard, serving) = serve(site, &arguments)?;
    let address = text(&serving, "address")?;
    let port = address.rsplit(':').next().unwrap_or_default();
    let known = site.work.join("known");
    fs::write(&known, format!("[127.0.0.1]:{port} {}\n", text(&serving, "host_key")?))?;
    let mut target = on("sftp-haul", site.work, &point)?;
    target.argument = format!("sftp://root@{address}/dst").into();
    target.arguments = client(&key, &known);
    target.features.far_times = false;
    Ok(ready(target, SFTP, guard))
}

/// OpenSSH's sshd with its sftp-server, for root.
pub(super) fn openssh(site: &Site<'_>) -> io::Result<Made> {
    if !is_root() {
        return Ok(Made::Skipped("sshd is started by root".into()));
    }
    let (Some(sshd), Some(key), Some(host_key)) =
        (find_program("sshd"), make_key(site.work, "key")?, make_key(site.work, "host")?)
    else {
        return Ok(Made::Skipped("there is no OpenSSH".into()));
    };
    let Some(server) = ["/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server"]
        .into_iter()
        .find(|path| Path::new(path).exists())
    else {
        return Ok(Made::Skipped("there is no sftp-server".into()));
    };
    let point = make_point(site.work)?;
    // Debian's sshd does not start without this directory.
    fs::create_dir_all("/run/sshd")?;
    let port = free_port()?;
    let configuration = site.work.join("sshd_config");
    // bash reads ~/.bashrc when sshd starts it as the outermost shell; SHLVL prevents that.
    fs::write(
        &configuration,
        format!(
            "ListenAddress 127.0.0.1\nPort {port}\nHostKey {host_key}\nPidFile none\n\
             AuthorizedKeysFile {key}.pub\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n\
             PermitRootLogin yes\nMaxStartups 200\nMaxSessions 100\nUseDNS no\nPrintMotd no\n\
             SetEnv SHLVL=9\nSubsystem sftp {server}\n"
        ),
    )?;
    let mut command = Command::new(sshd);
    command.args(["-D", "-e", "-f"]).arg(&configuration);
    let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let guard = Guard::Process(child);
    listening(port)?;
    let known = site.work.join("known");
    let public = fs::read_to_string(format!("{host_key}.pub"))?;
    fs::write(&known, format!("[127.0.0.1]:{port} {public}"))?;
    let mut target = on("sftp-openssh", site.work, &point)?;
    target.argument =
        format!("sftp://root@127.0.0.1:{port}{}", target.destination.display()).into();
    target.arguments = client(&key, &known);
    target.features.far_times = false;
    Ok(ready(target, SFTP, guard))
}

/// `haul serve dav`.
pub(super) fn haul_dav(site: &Site<'_>) -> io::Result<Made> {
    let point = make_point(site.work)?;
    let arguments: Vec<OsString> =
        vec!["serve".into(), "dav".into(), point.clone().into(), "--listen=127.0.0.1:0".into()];
    let (guard, serving) = serve(site, &arguments)?;
    let mut target = on("dav-haul", site.work, &point)?;
    target.argument = format!("dav://{}/dst", text(&serving, "address")?).into();
    // haul's WebDAV server does not show pipes and sockets.
    target.features =
        Features { symlinks: false, specials: false, far_times: false, ..target.features };
    Ok(ready(target, DAV, guard))
}

/// `haul share`, whose ticket allows everything. It preserves what the file system below it does.
pub(super) fn haul_share(site: &Site<'_>) -> io::Result<Made> {
    let point = make_point(site.work)?;
    let options = ["--writable", "--owners", "--ephemeral", "--no-lan", "--no-port-mapping"];
    let mut arguments: Vec<OsString> = vec!["share".into(), "--listen=127.0.0.1:0".into()];
    arguments.extend(options.map(OsString::from));
    arguments.push(point.clone().into());
    let (guard, sharing) = serve(site, &arguments)?;
    let mut target = on("peer", site.work, &point)?;
    target.argument = format!("{}/dst", text(&sharing, "ticket")?).into();
    Ok(ready(target, Keeps::EXT4, guard))
}

fn ready(mut target: Target, keeps: Keeps, guard: Guard) -> Made {
    target.keeps = keeps;
    // rsync's copy is on the local disk.
    target.oracle_keeps = Keeps::EXT4;
    target.users = false;
    target.is_server = true;
    target.guards.push(guard);
    Made::Ready(Box::new(target))
}

fn make_point(work: &Path) -> io::Result<std::path::PathBuf> {
    let point = work.join("on");
    fs::create_dir(&point).map_err(|error| at("making", &point, &error))?;
    Ok(point)
}

/// Starts `haul serve` or `haul share`, and reads the line of JSON that it prints when it is ready.
fn serve(site: &Site<'_>, arguments: &[OsString]) -> io::Result<(Guard, serde_json::Value)> {
    let mut command = Command::new(site.haul);
    command.args(arguments).arg("--json").env("HOME", site.work);
    for name in ["HAUL_CONFIG", "XDG_CONFIG_HOME", "XDG_STATE_HOME"] {
        command.env_remove(name);
    }
    let child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let (guard, line) = first_line(child)?;
    let serving = serde_json::from_str(&line)
        .map_err(|error| io::Error::other(format!("haul printed '{line}': {error}")))?;
    Ok((guard, serving))
}

fn first_line(mut child: Child) -> io::Result<(Guard, String)> {
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line)?;
    }
    Ok((Guard::Process(child), line))
}

fn text<'a>(object: &'a serde_json::Value, field: &str) -> io::Result<&'a str> {
    object[field]
        .as_str()
        .ok_or_else(|| io::Error::other(format!("haul printed no {field}: {object}")))
}

/// Generates a key and returns its path; `None` if ssh-keygen is missing.
fn make_key(work: &Path, name: &str) -> io::Result<Option<String>> {
    let Some(program) = find_program("ssh-keygen") else { return Ok(None) };
    let path = work.join(name);
    let status = Command::new(program)
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(&path)
        .stdin(Stdio::null())
        .status()?;
    if !status.success() {
        return Err(at("making key", &path, &status));
    }
    Ok(Some(path.display().to_string()))
}

/// The arguments with which haul authenticates.
fn client(key: &str, known: &Path) -> Vec<OsString> {
    let known = format!("UserKnownHostsFile={}", known.display());
    ["-F", "none", "-i", key, "-o", &known, "-o", "StrictHostKeyChecking=yes"]
        .map(OsString::from)
        .into()
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Waits until a server listens on the port.
fn listening(port: u16) -> io::Result<()> {
    let started = Instant::now();
    loop {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok(()),
            Err(error) if started.elapsed() > Duration::from_secs(60) => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}
