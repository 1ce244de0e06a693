//! asyncssh as the server: it sends channel data while keys are renewed.

use std::process::{Command, Stdio};

use crate::peer::Peer;
use crate::{echo, pattern};

const PYTHON: &str = "/usr/bin/python3";

/// Echoes the bytes that it receives, and renews the keys every 64 KiB.
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

fn start() -> Option<Peer> {
    let mut probe = Command::new(PYTHON);
    probe.args(["-c", "import asyncssh"]).stderr(Stdio::null());
    if !probe.status().is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: python3-asyncssh (Debian's) is not installed");
        return None;
    }
    let mut command = Command::new(PYTHON);
    command.args(["-c", SERVER]);
    Some(Peer::start(command))
}

#[tokio::test]
async fn rekeying_by_asyncssh_during_data_in_both_directions_keeps_it_intact() {
    let Some(server) = start() else { return };
    let connection = server.host(&[]).connect().await.unwrap();
    let mut channel = connection.subsystem("echo").await.unwrap();
    for _ in 0..4 {
        echo(&mut channel, pattern(3_000_000)).await;
    }
    connection.close().await;
}
