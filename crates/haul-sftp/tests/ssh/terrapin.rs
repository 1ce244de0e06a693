//! CVE-2023-48795 (Terrapin) against a real sshd: a man in the middle inserts packets before the first
//! NEWKEYS, or drops the first packet after it. `transport/tests/exchanges.rs` tests the same with a
//! scripted server, message by message.

use std::net::SocketAddr;

use haul_storage::{ErrorKind, Retry};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::sshd::Sshd;
use crate::{greet, host_at, with};

/// SSH_MSG_IGNORE, SSH_MSG_KEXINIT and SSH_MSG_NEWKEYS (RFC 4253, 12).
const IGNORE: u8 = 2;
const KEXINIT: u8 = 20;
const NEWKEYS: u8 = 21;

const STRICT: &[u8] = b",kex-strict-s-v00@openssh.com";

/// How the server's stream is manipulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attack {
    Nothing,
    /// SSH_MSG_IGNORE before the server's NEWKEYS.
    Insert,
    /// The first encrypted packet, EXT_INFO, is dropped. Its tag has `tag` bytes.
    Drop {
        tag: usize,
    },
    /// The server's marker of strict key exchange is removed.
    Strip,
}

/// Starts a man in the middle in front of a server, and returns its address.
async fn man_in_the_middle(server: SocketAddr, attack: Attack) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            let (mut from_client, to_client) = client.into_split();
            let (from_server, mut to_server) =
                TcpStream::connect(server).await.unwrap().into_split();
            // Both tasks end with the connection.
            tokio::spawn(async move { drop(copy(&mut from_client, &mut to_server).await) });
            tokio::spawn(async move { drop(tamper(from_server, to_client, attack).await) });
        }
    });
    address
}

async fn tamper(
    mut server: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    attack: Attack,
) -> std::io::Result<()> {
    loop {
        let byte = server.read_u8().await?;
        client.write_u8(byte).await?;
        if byte == b'\n' {
            break;
        }
    }
    loop {
        let packet = packet(&mut server, 0).await?;
        // After packet length and padding length.
        let number = packet[5];
        match (number, attack) {
            (NEWKEYS, Attack::Insert) => {
                client.write_all(&clear(&[IGNORE, 0, 0, 0, 0])).await?;
            }
            (KEXINIT, Attack::Strip) => {
                client.write_all(&clear(&without_strict(&packet))).await?;
                continue;
            }
            _ => {}
        }
        client.write_all(&packet).await?;
        if number == NEWKEYS {
            break;
        }
    }
    if let Attack::Drop { tag } = attack {
        packet(&mut server, tag).await?;
    }
    copy(&mut server, &mut client).await.map(drop)
}

/// Reads a packet whose length is in the clear, with its tag.
async fn packet(server: &mut OwnedReadHalf, tag: usize) -> std::io::Result<Vec<u8>> {
    let length = server.read_u32().await?;
    let mut packet = length.to_be_bytes().to_vec();
    packet.resize(4 + length as usize + tag, 0);
    server.read_exact(&mut packet[4..]).await?;
    Ok(packet)
}

/// A message as an unencrypted packet.
fn clear(message: &[u8]) -> Vec<u8> {
    let padding = 16 - (5 + message.len()) % 8;
    let length = u32::try_from(1 + message.len() + padding).unwrap();
    let mut packet = length.to_be_bytes().to_vec();
    packet.push(u8::try_from(padding).unwrap());
    packet.extend_from_slice(message);
    packet.resize(packet.len() + padding, 0);
    packet
}

/// The message of a KEXINIT packet, without the marker in its first list.
fn without_strict(packet: &[u8]) -> Vec<u8> {
    let padding = usize::from(packet[4]);
    let mut message = packet[5..packet.len() - padding].to_vec();
    let at = message.windows(STRICT.len()).position(|window| window == STRICT).unwrap();
    message.drain(at..at + STRICT.len());
    // The length of the list follows the message number and the cookie.
    let length = u32::from_be_bytes(message[17..21].try_into().unwrap());
    let length = length - u32::try_from(STRICT.len()).unwrap();
    message[17..21].copy_from_slice(&length.to_be_bytes());
    message
}

/// The error message of a connection under attack; `None` if it succeeds.
async fn connect(sshd: &Sshd, cipher: &str, attack: Attack) -> Option<String> {
    let address = man_in_the_middle(sshd.address(), attack).await;
    let alias = format!("HostKeyAlias={}", sshd.known_name());
    let cipher = format!("Ciphers={cipher}");
    let more = [&alias, &cipher, "MACs=hmac-sha2-256-etm@openssh.com"];
    let host = host_at(address, &with(sshd.options(), &more.map(|option| option)));
    match host.connect().await {
        Ok(connection) => {
            greet(&connection).await.unwrap();
            None
        }
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Protocol | ErrorKind::Unauthenticated));
            assert_eq!(error.retry(), Retry::Never, "{error}");
            Some(error.to_string())
        }
    }
}

#[tokio::test]
async fn strict_key_exchange_prevents_terrapin_with_every_kind_of_cipher() {
    let sshd = Sshd::start();
    for (cipher, tag) in [
        ("aes128-gcm@openssh.com", Some(16)),
        ("aes256-ctr", Some(32)),
        // The packet length is encrypted, so the packet cannot be dropped here.
        ("chacha20-poly1305@openssh.com", None),
    ] {
        assert_eq!(connect(&sshd, cipher, Attack::Nothing).await, None, "{cipher}");
        let inserted = connect(&sshd, cipher, Attack::Insert).await.unwrap();
        assert!(inserted.contains("message 2 during a key exchange"), "{inserted}");
        if let Some(tag) = tag {
            let dropped = connect(&sshd, cipher, Attack::Drop { tag }).await.unwrap();
            assert!(dropped.contains("MAC is wrong"), "{cipher}: {dropped}");
        }
    }
}

#[tokio::test]
async fn removing_strict_key_exchange_from_an_offer_is_detected() {
    let sshd = Sshd::start();
    let error = connect(&sshd, "chacha20-poly1305@openssh.com", Attack::Strip).await.unwrap();
    assert!(error.contains("does not hold the private key"), "{error}");
}
