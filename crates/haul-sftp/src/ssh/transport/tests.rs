//! Tests with a misbehaving server: wrong numbers, forged packets, floods; in [`exchanges`] during key
//! exchange, in [`logins`] during authentication.

mod exchanges;
mod logins;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use haul_storage::{ErrorKind, Result, Retry};
use russh::keys::signature::Signer;
use russh::keys::ssh_key::Signature;
use russh::keys::ssh_key::private::{Ed25519Keypair, KeypairData, RsaKeypair};
use russh::keys::{HashAlg, PrivateKey};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::channel::Channel;
use super::cipher::{Cipher, Suite};
use super::kex::{Exchange, Exchanged};
use super::line::to;
use super::packet::{Opened, Opener, Sealer};
use super::wire::{Put, Reader, message};
use crate::ssh::SshHost;
use crate::ssh::connection::SshConnection;
use crate::ssh::options::{ConfigFile, NoPrompter, PasswordSource, Secret, SshOptions};

const VERSION: &str = "SSH-2.0-OpenSSH_of_a_test";
const SUITE: Suite = Suite { cipher: "aes128-gcm@openssh.com", mac: "none" };

struct Server {
    stream: TcpStream,
    sealer: Sealer,
    opener: Opener,
    buffer: BytesMut,
    /// The client's identification.
    version: String,
    /// The hash of the first exchange.
    session_id: Option<Vec<u8>>,
    /// Received messages to return again from `receive`.
    read_already: Vec<Vec<u8>>,
}

/// What the server does in a key exchange.
#[derive(Clone)]
struct Plan {
    kex: Vec<&'static str>,
    host_keys: Vec<&'static str>,
    suite: Suite,
    /// Whether it announces that a guess follows its offer.
    guess: bool,
    /// Messages before its KEXINIT, after it, and between its KEX_REPLY and NEWKEYS.
    before_offer: Vec<Vec<u8>>,
    after_offer: Vec<Vec<u8>>,
    after_half: Vec<Vec<u8>>,
    /// A message before NEWKEYS that an attacker inserts: the server does not count it.
    inserted: Option<Vec<u8>>,
    /// The seed of its host key is 32 of this byte.
    seed: u8,
    /// Its host key, in place of one from the seed.
    rsa: Option<Rsa>,
    /// What it sends in place of its host key and its public value.
    blob: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    /// Whether it signs something else than the exchange hash.
    forged: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            kex: vec!["curve25519-sha256", STRICT],
            host_keys: vec!["ssh-ed25519"],
            suite: SUITE,
            guess: false,
            before_offer: Vec::new(),
            after_offer: Vec::new(),
            after_half: Vec::new(),
            inserted: None,
            seed: 7,
            rsa: None,
            blob: None,
            value: None,
            forged: false,
        }
    }
}

/// An RSA host key, and how it signs.
#[derive(Clone)]
struct Rsa {
    pair: RsaKeypair,
    /// `None` is SHA-1.
    hash: Option<HashAlg>,
    /// The name in the signature.
    label: &'static str,
}

const STRICT: &str = "kex-strict-s-v00@openssh.com";

impl Plan {
    fn offer(&self) -> Vec<u8> {
        let mut offer = vec![message::KEXINIT];
        offer.extend_from_slice(&[0; 16]);
        offer.names(&self.kex);
        offer.names(&self.host_keys);
        let Suite { cipher, mac } = self.suite;
        for list in [cipher, cipher, mac, mac, "none", "none", "", ""] {
            offer.names(&[list]);
        }
        offer.boolean(self.guess);
        offer.u32(0);
        offer
    }
}

impl Server {
    /// Accepts a connection and exchanges keys.
    async fn accept(listener: &TcpListener) -> Self {
        Self::accept_with(listener, &Plan::default()).await
    }

    /// Accepts a connection and exchanges keys as planned.
    async fn accept_with(listener: &TcpListener, plan: &Plan) -> Self {
        let mut server = Self::before_exchange(listener).await;
        server.exchange(plan).await;
        server
    }

    /// Accepts a connection and exchanges identifications.
    async fn before_exchange(listener: &TcpListener) -> Self {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        stream.write_all(format!("{VERSION}\r\n").as_bytes()).await.unwrap();
        let mut version = Vec::new();
        while version.last() != Some(&b'\n') {
            version.push(stream.read_u8().await.unwrap());
        }
        let version = String::from_utf8(version).unwrap().trim_end().to_owned();
        Self {
            stream,
            sealer: Sealer::clear(),
            opener: Opener::clear(),
            buffer: BytesMut::new(),
            version,
            session_id: None,
            read_already: Vec::new(),
        }
    }

    /// Exchanges keys, for the first time or again.
    async fn exchange(&mut self, plan: &Plan) {
        for message in &plan.before_offer {
            self.send(message).await;
        }
        let offer = plan.offer();
        self.send(&offer).await;
        for message in &plan.after_offer {
            self.send(message).await;
        }
        let theirs = self.receive_one(message::KEXINIT).await;
        let half = self.receive_one(message::KEX_INIT).await;
        let value = Reader::new(&half[1..]).string().unwrap();
        let mut exchange = Exchange::begin("curve25519-sha256").unwrap();
        let shared = exchange.agree(value).unwrap();
        // `Exchange` hashes as the client: `ours` has to be the client's value.
        let own = std::mem::replace(&mut exchange.ours, value.to_vec());
        let own = plan.value.clone().unwrap_or(own);
        let keypair = match &plan.rsa {
            Some(rsa) => KeypairData::from(rsa.pair.clone()),
            None => KeypairData::from(Ed25519Keypair::from_seed(&[plan.seed; 32])),
        };
        let key = PrivateKey::new(keypair, "").unwrap();
        let blob = key.public_key().to_bytes().unwrap();
        let blob = plan.blob.clone().unwrap_or(blob);
        let hash = exchange.hash(
            &Exchanged {
                our_version: &self.version,
                their_version: VERSION,
                our_offer: &theirs,
                their_offer: &offer,
                host_key: &blob,
                theirs: &own,
            },
            &shared,
        );
        let signed = if plan.forged { b"something else".as_slice() } else { &hash };
        let made: Signature = match &plan.rsa {
            Some(rsa) => (&rsa.pair, rsa.hash).try_sign(signed).unwrap(),
            None => key.try_sign(signed).unwrap(),
        };
        let label = plan.rsa.as_ref().map_or("ssh-ed25519", |rsa| rsa.label);
        let mut signature = Vec::new();
        signature.string(label.as_bytes());
        signature.string(made.as_bytes());
        let mut reply = vec![message::KEX_REPLY];
        reply.string(&blob);
        reply.string(&own);
        reply.string(&signature);
        self.send(&reply).await;
        for message in &plan.after_half {
            self.send(message).await;
        }
        if let Some(inserted) = &plan.inserted {
            let mut packet = Vec::new();
            Sealer::clear().seal(&mut packet, |out| out.extend_from_slice(inserted)).unwrap();
            self.stream.write_all(&packet).await.unwrap();
        }
        self.send(&[message::NEWKEYS]).await;
        let session_id = self.session_id.get_or_insert_with(|| hash.clone()).clone();
        let strict = plan.kex.contains(&STRICT);
        let cipher = |letters| {
            let material =
                exchange.material(&plan.suite.material(), letters, &shared, &hash, &session_id);
            Cipher::new(plan.suite, &material).unwrap()
        };
        self.sealer.renew(cipher(*b"BDF"), strict);
        self.receive_one(message::NEWKEYS).await;
        self.opener.renew(cipher(*b"ACE"), strict);
    }

    /// The next message with this number; others are skipped.
    async fn receive_one(&mut self, number: u8) -> Vec<u8> {
        loop {
            let message = self.receive().await;
            if message[0] == number {
                return message;
            }
        }
    }

    /// Accepts a connection and authenticates any user.
    async fn let_in(listener: &TcpListener) -> Self {
        let mut server = Self::accept(listener).await;
        assert_eq!(server.receive().await[0], message::SERVICE_REQUEST);
        assert_eq!(server.receive().await[0], message::USERAUTH_REQUEST);
        server.send(&[message::USERAUTH_SUCCESS]).await;
        server
    }

    /// Accepts a connection and its first channel, under the given number.
    async fn with_channel(listener: &TcpListener, number: u32) -> Self {
        let mut server = Self::let_in(listener).await;
        assert_eq!(server.receive().await[0], message::CHANNEL_OPEN);
        let mut confirmation = to(message::CHANNEL_OPEN_CONFIRMATION, 0);
        for value in [number, 1 << 20, 32_768] {
            confirmation.u32(value);
        }
        server.send(&confirmation).await;
        server
    }

    async fn send(&mut self, message: &[u8]) {
        let packet = self.sealed(message);
        self.stream.write_all(&packet).await.unwrap();
    }

    fn sealed(&mut self, message: &[u8]) -> Vec<u8> {
        let mut packet = Vec::new();
        self.sealer.seal(&mut packet, |out| out.extend_from_slice(message)).unwrap();
        packet
    }

    async fn receive(&mut self) -> Vec<u8> {
        if !self.read_already.is_empty() {
            return self.read_already.remove(0);
        }
        loop {
            let whole = self.opener.packet_length(&mut self.buffer).unwrap();
            if let Some(whole) = whole.filter(|whole| self.buffer.len() >= *whole) {
                let mut packet = self.buffer.split_to(whole);
                let Opened::Within(range) = self.opener.open(&mut packet).unwrap() else {
                    panic!("nothing is compressed");
                };
                return packet[range].to_vec();
            }
            assert_ne!(self.stream.read_buf(&mut self.buffer).await.unwrap(), 0, "disconnected");
        }
    }
}

async fn listen() -> (TcpListener, SshHost) {
    listen_preferring(&[]).await
}

async fn listen_preferring(more: &[&str]) -> (TcpListener, SshHost) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let ip = address.ip().to_string();
    let prompter = Arc::new(NoPrompter);
    let host = SshHost::resolve(None, &ip, Some(address.port()), &options(more), prompter).unwrap();
    (listener, host)
}

fn options(more: &[&str]) -> SshOptions {
    let settings = [
        "StrictHostKeyChecking=no",
        "UserKnownHostsFile=none",
        "GlobalKnownHostsFile=none",
        "IdentityAgent=none",
        "IdentityFile=none",
    ];
    SshOptions {
        config: ConfigFile::None,
        options: settings.iter().chain(more).map(|&option| option.to_owned()).collect(),
        password: Some(PasswordSource::Secret(Secret::new("secret"))),
        ..SshOptions::default()
    }
}

fn hello(_: &str) -> Bytes {
    Bytes::from_static(b"hello")
}

type Opening = Result<(SshConnection, Channel)>;

/// A client with a channel, and its server.
async fn pair() -> (SshConnection, Channel, Server) {
    let (listener, host) = listen().await;
    let server = Server::with_channel(&listener, 0);
    let (opened, mut server): (Opening, Server) =
        tokio::join!(host.connect_to("sftp", &hello), server);
    let (connection, channel) = opened.unwrap();
    for expected in [message::CHANNEL_REQUEST, message::CHANNEL_DATA] {
        assert_eq!(server.receive().await[0], expected);
    }
    (connection, channel, server)
}

#[tokio::test]
async fn after_a_wrong_channel_number_the_next_connection_does_not_guess() {
    let (listener, host) = listen().await;
    let serving = async {
        let mut first = Server::with_channel(&listener, 5).await;
        assert_eq!(first.receive().await[..5], to(message::CHANNEL_REQUEST, 0));
        let mut second = Server::with_channel(&listener, 5).await;
        assert_eq!(second.receive().await[..5], to(message::CHANNEL_REQUEST, 5));
        assert_eq!(second.receive().await[9..], *b"hello");
        let mut data = to(message::CHANNEL_DATA, 0);
        data.string(b"and you");
        second.send(&data).await;
        second
    };
    let (opened, _server): (Opening, Server) =
        tokio::join!(host.connect_to("sftp", &hello), serving);
    let (_connection, mut channel) = opened.unwrap();
    assert_eq!(channel.incoming.next().await.unwrap().unwrap(), "and you");
}

#[tokio::test]
async fn a_corrupted_packet_ends_the_connection() {
    let mut data = to(message::CHANNEL_DATA, 0);
    data.string(b"true");
    // In the padding length, the message, the padding and the tag; the next test changes the length.
    for at in [4, 5, 9, 17, 20, 36] {
        let (_connection, mut channel, mut server) = pair().await;
        let mut packet = server.sealed(&data);
        packet[at] ^= 1;
        server.stream.write_all(&packet).await.unwrap();
        let error = channel.incoming.next().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        assert!(error.to_string().contains("MAC"), "{error}");
    }
}

#[tokio::test]
async fn an_invalid_packet_length_is_refused() {
    for length in [0, 1, 5, 17, (256 << 10) + 16, u32::MAX] {
        let (_connection, mut channel, mut server) = pair().await;
        server.stream.write_all(&length.to_be_bytes()).await.unwrap();
        let error = channel.incoming.next().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    }
}

#[tokio::test]
async fn a_server_that_floods_requests_and_reads_no_responses_is_disconnected() {
    let (_connection, mut channel, mut server) = pair().await;
    let mut request = vec![message::GLOBAL_REQUEST];
    request.string(b"are-you-there");
    request.boolean(true);
    let flooding = async {
        loop {
            let packets: Vec<u8> = (0..1000).flat_map(|_| server.sealed(&request)).collect();
            // Fails once the client has disconnected.
            if server.stream.write_all(&packets).await.is_err() {
                return;
            }
        }
    };
    let (read, ()) = tokio::join!(channel.incoming.next(), flooding);
    let error = read.unwrap_err();
    assert!(error.to_string().contains("without reading the responses"), "{error}");
}

#[tokio::test]
async fn more_data_than_the_window_allows_ends_the_connection() {
    let (connection, channel, mut server) = pair().await;
    let mut data = to(message::CHANNEL_DATA, 0);
    data.string(&vec![0; 64 << 10]);
    // The channel is not read, so the client does not enlarge its window again.
    let sending = async {
        for _ in 0..=(super::line::WINDOW / (64 << 10)) {
            let packet = server.sealed(&data);
            if server.stream.write_all(&packet).await.is_err() {
                return;
            }
        }
    };
    let opening = connection.subsystem("sftp");
    let (opened, ()) = tokio::join!(opening, sending);
    let error = opened.unwrap_err();
    assert!(error.to_string().contains("window"), "{error}");
    drop(channel);
}

#[tokio::test]
async fn no_malformed_message_makes_the_client_panic_or_hang() {
    // Every message number, with truncated fields, fields that are too long, and invalid text.
    for body in [&[][..], &[0; 5], &[0xff; 40], &[0, 0, 0, 1, 0xff, 0, 0, 0, 9, 1, 2]] {
        for number in 0..=u8::MAX {
            let (_connection, mut channel, mut server) = pair().await;
            let malformed = [&[number], body].concat();
            server.send(&malformed).await;
            let mut goodbye = vec![message::DISCONNECT];
            goodbye.u32(11);
            goodbye.string(b"that was all");
            goodbye.string(b"");
            // The client may have disconnected already.
            let packet = server.sealed(&goodbye);
            drop(server.stream.write_all(&packet).await);
            let end = loop {
                match channel.incoming.next().await {
                    Ok(Some(_)) => {}
                    end => break end,
                }
            };
            if let Err(error) = end {
                let text = error.to_string();
                let endings =
                    ["that was all", "violated the SSH protocol", "the server disconnected"];
                let expected = endings.iter().any(|words| text.contains(words))
                    || error.kind() == ErrorKind::Unsupported;
                assert!(expected, "message {number}: {text}");
            }
        }
    }
}
