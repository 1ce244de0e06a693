//! Events about clients, and limits on connections, time to log in, and channels.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use haul_sftp::server::{ClientAction, ClientEvent, Proof, SftpServerBuilder};
use russh::client::{Config, Handle, Handler, connect};

use crate::login::{PASSWORD, Site};

/// The events of a server.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<ClientEvent>>>);

impl Log {
    /// Records the events of a server.
    pub fn of(&self, builder: SftpServerBuilder) -> SftpServerBuilder {
        let log = Arc::clone(&self.0);
        builder.observer(move |event| log.lock().unwrap().push(event))
    }

    /// All events, once `count` clients are disconnected.
    pub async fn until_disconnected(&self, count: usize) -> Vec<ClientEvent> {
        loop {
            let events = self.0.lock().unwrap().clone();
            let is_end =
                |event: &&ClientEvent| matches!(event.action, ClientAction::Disconnected { .. });
            if events.iter().filter(is_end).count() == count {
                return events;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Accepts any host key.
pub struct Trusting;

impl Handler for Trusting {
    type Error = russh::Error;
    async fn check_server_key(
        &mut self,
        _key: &russh::keys::PublicKeyOrCertificate,
    ) -> Result<bool, Self::Error> {
        Ok(true)
    }
}

/// A client that has not logged in.
pub async fn connected(site: &Site) -> Handle<Trusting> {
    connect(Arc::new(Config::default()), site.server.address(), Trusting).await.unwrap()
}

#[tokio::test]
async fn connection_login_and_end_are_reported() {
    let log = Log::default();
    let site = Site::with(|builder| log.of(builder)).await;
    site.run(site.sftp("pwd")).await;
    let events = log.until_disconnected(1).await;
    let mut list = site.command("ssh-keygen");
    list.args(["-l", "-f"]).arg(site.beside("key"));
    let listed = site.run(list).await;
    let fingerprint = listed.split(' ').nth(1).unwrap().to_owned();
    let actions: Vec<_> = events.iter().map(|event| event.action.clone()).collect();
    let with = Proof::Key(fingerprint);
    let user = "me".to_owned();
    assert_eq!(actions[..2], [ClientAction::Connected, ClientAction::LoggedIn { user, with }]);
    let [_, _, ClientAction::Disconnected { user, .. }] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(user.as_deref(), Some("me"));
    let address = events[0].address;
    assert!(address.ip().is_loopback() && address != site.server.address());
    assert!(events.iter().all(|event| event.address == address));
}

#[tokio::test]
async fn every_refused_login_is_reported_with_the_unescaped_name() {
    let log = Log::default();
    let site = Site::with(|builder| log.of(builder)).await;
    let mut client = connected(&site).await;
    for (user, password) in [("you\n\u{1b}[1m", PASSWORD), ("me", "wrong")] {
        assert!(!client.authenticate_password(user, password).await.unwrap().success());
    }
    drop(client);
    site.new_key("other");
    fs::rename(site.beside("other"), site.beside("key")).unwrap();
    fs::rename(site.beside("other.pub"), site.beside("key.pub")).unwrap();
    site.fails(site.sftp("pwd")).await;
    let refused: Vec<_> = log
        .until_disconnected(2)
        .await
        .into_iter()
        .filter_map(|event| match event.action {
            ClientAction::Refused { user, with } => Some((user, with)),
            ClientAction::LoggedIn { .. } => panic!("{event:?}"),
            _ => None,
        })
        .collect();
    let [name, password, key] = &refused[..] else { panic!("{refused:?}") };
    assert_eq!(*name, ("you\n\u{1b}[1m".to_owned(), Proof::Password));
    assert_eq!(*password, ("me".to_owned(), Proof::Password));
    assert!(
        matches!(key, (user, Proof::Key(print)) if user == "me" && print.starts_with("SHA256:"))
    );
    assert!(!format!("{refused:?}").contains("wrong"), "a password was reported");
}

#[tokio::test]
async fn only_clients_that_do_not_log_in_in_time_are_disconnected() {
    let log = Log::default();
    let grace = Duration::from_secs(4);
    let site = Site::with(|builder| log.of(builder).login_grace(grace)).await;
    let mut inside = connected(&site).await;
    assert!(inside.authenticate_password("me", PASSWORD).await.unwrap().success());
    // One client that sends nothing, and one that does not authenticate after the handshake.
    let mut silent = TcpStream::connect(site.server.address()).unwrap();
    let waiting = connected(&site).await;
    let events = log.until_disconnected(2).await;
    let timed_out: Vec<_> =
        events.iter().filter(|event| event.action == ClientAction::LoginTimedOut).collect();
    assert_eq!(timed_out.len(), 2, "{events:?}");
    for event in &events {
        if let ClientAction::Disconnected { user, after } = &event.action {
            assert!(user.is_none() && *after >= grace, "{event:?}");
        }
    }
    let mut received = Vec::new();
    // The connection may end with FIN or with a reset.
    drop(silent.read_to_end(&mut received));
    assert!(received.is_empty() || received.starts_with(b"SSH-2.0-haul"), "{received:?}");
    drop(waiting);
    tokio::time::sleep(grace).await;
    inside.channel_open_session().await.unwrap();
}

#[tokio::test]
async fn excess_connections_are_refused_with_a_message() {
    let log = Log::default();
    let site = Site::with(|builder| log.of(builder).max_sessions(1)).await;
    let address = site.server.address();
    // A client that has logged in holds one of the 33 connections.
    let mut inside = connected(&site).await;
    assert!(inside.authenticate_password("me", PASSWORD).await.unwrap().success());
    // At most 32 connections may be unauthenticated.
    let held: Vec<_> = (0..32).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut received = String::new();
    TcpStream::connect(address).unwrap().read_to_string(&mut received).unwrap();
    assert_eq!(received, "haul: too many connections; try again later\r\n");
    inside.channel_open_session().await.unwrap();
    drop((held, inside));
    let events = log.until_disconnected(33).await;
    assert_eq!(
        events.iter().filter(|event| event.action == ClientAction::ConnectionRefused).count(),
        1
    );
    site.run(site.sftp("pwd")).await;
}

#[tokio::test]
async fn logged_in_clients_do_not_count_against_the_limit_of_others() {
    let site = Site::with(|builder| builder.max_sessions(2)).await;
    let address = site.server.address();
    let mut inside = Vec::new();
    for _ in 0..2 {
        let mut one = connected(&site).await;
        assert!(one.authenticate_password("me", PASSWORD).await.unwrap().success());
        inside.push(one);
    }
    let held: Vec<_> = (0..31).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut last = connected(&site).await;
    assert!(last.authenticate_password("me", PASSWORD).await.unwrap().success());
    drop(held);
}

#[tokio::test]
async fn a_connection_may_have_ten_channels_at_a_time() {
    let site = Site::new().await;
    let mut client = connected(&site).await;
    assert!(client.authenticate_password("me", PASSWORD).await.unwrap().success());
    let mut channels = Vec::new();
    for _ in 0..10 {
        channels.push(client.channel_open_session().await.unwrap());
    }
    let refused = client.channel_open_session().await.unwrap_err();
    assert!(matches!(refused, russh::Error::ChannelOpenFailure(_)), "{refused:?}");
    let first = channels.remove(0);
    first.close().await.unwrap();
    // Wait until the server's task of that channel has ended.
    while client.channel_open_session().await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
