//! The SSH transport against real servers: OpenSSH's sshd, and asyncssh.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![expect(
    clippy::print_stderr,
    reason = "a skipped test prints that, and a failed one shows a log"
)]

#[path = "../support/peer.rs"]
mod peer;
#[path = "../../../haul-net/tests/support/port.rs"]
mod port;
#[path = "../support/prompter.rs"]
mod prompter;
#[path = "../support/sshd.rs"]
#[expect(dead_code, reason = "the tests of the program use the rest")]
mod sshd;

mod asyncssh;
mod audit;
mod auth;
mod configuration;
mod early;
mod host_keys;
mod key_files;
mod reach;
mod terrapin;
mod transfer;

use std::sync::Arc;

use bytes::Bytes;
use haul_sftp::ssh::{Channel, NoPrompter, Prompter, SshConnection, SshHost, SshOptions};
use haul_storage::Result;

use self::sshd::Sshd;

/// The host of a server, without a prompter.
fn host(sshd: &Sshd, options: &SshOptions) -> SshHost {
    host_with_prompter(sshd, options, Arc::new(NoPrompter))
}

/// The host of a server, with a prompter.
fn host_with_prompter(sshd: &Sshd, options: &SshOptions, prompter: Arc<dyn Prompter>) -> SshHost {
    SshHost::resolve(None, &sshd.host(), Some(sshd.port()), options, prompter).unwrap()
}

/// The host of a server that is reached through another address.
fn host_at(address: std::net::SocketAddr, options: &SshOptions) -> SshHost {
    let host = address.ip().to_string();
    SshHost::resolve(None, &host, Some(address.port()), options, Arc::new(NoPrompter)).unwrap()
}

/// Options with further `-o` options, which take precedence.
fn with(mut options: SshOptions, more: &[&str]) -> SshOptions {
    // The first option of a name wins.
    options.options.splice(0..0, more.iter().map(|&option| option.to_owned()));
    options
}

/// Exchanges SSH_FXP_INIT and VERSION, to check that bytes pass in both directions.
async fn greet(connection: &SshConnection) -> Result<()> {
    let mut channel = connection.subsystem("sftp").await?;
    // SSH_FXP_INIT, version 3.
    channel.outgoing.send(Bytes::from_static(&[0, 0, 0, 5, 1, 0, 0, 0, 3])).await?;
    let response = channel.incoming.next().await?.expect("the server closed the channel");
    assert_eq!(response[4], 2, "that is not SSH_FXP_VERSION");
    Ok(())
}

/// Sends bytes through a channel that echoes them.
async fn echo(channel: &mut Channel, message: Bytes) {
    let outgoing = channel.outgoing.clone();
    let expected = message.clone();
    let sending = tokio::spawn(async move { outgoing.send(message).await });
    let mut received = 0;
    while received < expected.len() {
        let piece = channel.incoming.next().await.unwrap().expect("the echo ended");
        assert_eq!(piece, expected[received..received + piece.len()], "at {received}");
        received += piece.len();
    }
    sending.await.unwrap().unwrap();
}

/// Pseudo-random bytes.
fn pattern(length: usize) -> Bytes {
    let mut state = 1_u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}
