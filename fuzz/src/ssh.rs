//! Fuzzed parsers of SSH: data from a server until the login is done, and the files that configure SSH.
//!
//! The results for files are compared with those of OpenSSH's tools, where these are installed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use haul_sftp::ssh::fuzzing::{self, known_host_lines};
use haul_sftp::ssh::{ConfigFile, NoPrompter, SshHost, SshOptions};

/// The identification of a server, with the lines before it (RFC 4253, 4.2).
pub fn ssh_identification(data: &[u8]) {
    fuzzing::identification(data);
}

/// A KEXINIT.
pub fn ssh_offer(data: &[u8]) {
    fuzzing::offer(data);
}

/// Packets.
pub fn ssh_packets(data: &[u8]) {
    fuzzing::packets(data);
}

/// Responses to authentication requests.
pub fn ssh_authentication(data: &[u8]) {
    fuzzing::authentication(data);
}

/// Host keys and certificates.
pub fn ssh_certificate(data: &[u8]) {
    fuzzing::certificate(data);
}

/// The host name that is looked up.
const HOST: &str = "host.example.org";

/// A known_hosts file: `ssh-keygen -F` finds every line that haul finds about a host.
pub fn ssh_known_hosts(data: &[u8]) {
    // Only text files are compared: OpenSSH takes a NUL for the end of a line.
    let ours = known_host_lines(data, HOST);
    if data.contains(&0) || std::str::from_utf8(data).is_err() {
        return;
    }
    let Some(theirs) = with_file(data, |path| {
        let mut find = Command::new("ssh-keygen");
        let output = find.arg("-l").arg("-F").arg(HOST).arg("-f").arg(path).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines = text
            .lines()
            .filter_map(|line| line.strip_prefix("# Host ")?.split_once(" found: line "));
        Some(
            lines
                .filter_map(|(_, rest)| rest.split(' ').next()?.parse().ok())
                .collect::<Vec<usize>>(),
        )
    }) else {
        return;
    };
    // ssh-keygen knows more types of keys than haul, so it has to find every line that haul accepts.
    for line in ours {
        assert!(theirs.contains(&line), "only haul finds line {line} for {HOST}: {theirs:?}");
    }
}

/// A configuration: user, name and port of a host are those of `ssh -G`, where both accept the file.
pub fn ssh_config(data: &[u8]) {
    let text = String::from_utf8_lossy(data).to_ascii_lowercase();
    // Files that may run a command or read another file are skipped.
    if data.contains(&0)
        || ["exec", "include", "localcommand", "$", "~"].iter().any(|word| text.contains(word))
    {
        return;
    }
    with_file(data, |path| {
        let options =
            SshOptions { config: ConfigFile::Path(path.to_owned()), ..SshOptions::default() };
        let ours = SshHost::resolve(None, "host", None, &options, Arc::new(NoPrompter)).ok()?;
        let output = Command::new("ssh").arg("-G").arg("-F").arg(path).arg("host").output().ok()?;
        if !output.status.success() {
            return None;
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let theirs =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let port = ours.port().to_string();
        for (name, ours) in [("user", ours.user()), ("hostname", ours.host_name()), ("port", &port)]
        {
            assert_eq!(Some(ours), theirs(name), "{name}");
        }
        Some(())
    });
}

/// Runs `run` on a temporary file with these bytes.
fn with_file<T>(data: &[u8], run: impl FnOnce(&Path) -> Option<T>) -> Option<T> {
    let path = std::env::temp_dir().join(format!(
        "haul-fuzz-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    fs::write(&path, data).ok()?;
    let result = run(&path);
    // If this fails, the next input overwrites the file.
    drop(fs::remove_file(&path));
    result
}
