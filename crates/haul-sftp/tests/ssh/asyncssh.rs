//! A server of another make: asyncssh, which goes on sending while keys are renewed.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use haul_sftp::ssh::{ConfigFile, Nobody, SshHost, SshOptions};
use tempfile::TempDir;

use crate::{echo, pattern};

const PYTHON: &str = "/usr/bin/python3";

/// Echoes what comes, in pieces, and renews the keys every 64 KiB.
const SERVER: &str = r#"
import asyncio, sys
import asyncssh

class Server(asyncssh.SSHServer):
    def begin_auth(self, username):
        return False

async def process(process):
    while True:
        piece = await process.stdin.read(32768)
        if not piece:
            break
        process.stdout.write(piece)
    process.exit(0)

async def main():
    key = asyncssh.generate_private_key('ssh-ed25519')
    listener = await asyncssh.create_server(Server, '127.0.0.1', 0, server_host_keys=[key],
        process_factory=process, encoding=None, rekey_bytes=65536)
    port = listener.sockets[0].getsockname()[1]
    public = key.export_public_key().decode().strip()
    print(port, '[127.0.0.1]:%d %s' % (port, public), flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"#;

struct Server {
    child: Child,
    port: u16,
    dir: TempDir,
}

impl Server {
    fn start() -> Option<Self> {
        let mut probe = Command::new(PYTHON);
        probe.args(["-c", "import asyncssh"]).stderr(Stdio::null());
        if !probe.status().is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED: python3-asyncssh (Debian's) is not installed");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let mut child =
            Command::new(PYTHON).args(["-c", SERVER]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (port, known) = line.trim().split_once(' ').unwrap();
        fs::write(dir.path().join("known_hosts"), format!("{known}\n")).unwrap();
        Some(Self { child, port: port.parse().unwrap(), dir })
    }

    fn host(&self) -> SshHost {
        let known = self.dir.path().join("known_hosts");
        let options = SshOptions {
            config: ConfigFile::None,
            options: vec![
                format!("UserKnownHostsFile={}", known.display()),
                "GlobalKnownHostsFile=none".to_owned(),
                "IdentityAgent=none".to_owned(),
                "StrictHostKeyChecking=yes".to_owned(),
            ],
            ..SshOptions::default()
        };
        SshHost::resolve(None, "127.0.0.1", Some(self.port), &options, Arc::new(Nobody)).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[tokio::test]
async fn keys_are_renewed_in_the_midst_of_data_both_ways() {
    let Some(server) = Server::start() else { return };
    let connection = server.host().connect().await.unwrap();
    let mut channel = connection.subsystem("echo").await.unwrap();
    for _ in 0..4 {
        echo(&mut channel, pattern(3_000_000)).await;
    }
    connection.close().await;
}
