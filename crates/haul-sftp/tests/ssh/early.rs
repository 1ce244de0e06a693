//! Requests sent early: the first channel together with authentication.

use std::sync::Arc;

use bytes::Bytes;
use haul_sftp::ssh::{PasswordSource, Secret, SshHost, SshOptions};
use haul_storage::{ErrorKind, Retry};

use crate::prompter::ScriptedUser;
use crate::sshd::Sshd;
use crate::{host, host_with_prompter, pattern, with};

/// SSH_FXP_INIT of version 3, and five STAT requests for `/`.
fn first_requests(_server: &str) -> Bytes {
    let mut bytes = vec![0, 0, 0, 5, 1, 0, 0, 0, 3];
    for id in 1..=5 {
        bytes.extend_from_slice(&[0, 0, 0, 10, 17, 0, 0, 0, id, 0, 0, 0, 1, b'/']);
    }
    bytes.into()
}

/// Opens a channel and waits for the responses to all requests. Returns the number of RTTs.
async fn connect_and_request(host: &SshHost) -> haul_storage::Result<u32> {
    let (connection, mut channel) = host.connect_to("sftp", &first_requests).await?;
    let mut received = Vec::new();
    // SSH_FXP_VERSION is followed by responses with the ids of the requests.
    let is_complete = |received: &[u8]| {
        let mut rest = received;
        let mut ids = Vec::new();
        while let Some((length, after)) = rest.split_at_checked(4) {
            let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
            let Some((packet, after)) = after.split_at_checked(length) else { break };
            ids.push((packet[0], packet[4]));
            rest = after;
        }
        ids.len() == 6 && ids[0].0 == 2 && ids[1..].iter().map(|id| id.1).eq(1..=5)
    };
    while !is_complete(&received) {
        received.extend(channel.incoming.next().await?.expect("the server closed the channel"));
    }
    Ok(connection.rtts())
}

#[tokio::test]
async fn the_first_responses_arrive_with_the_fourth_rtt() {
    let sshd = Sshd::builder().line("LogLevel DEBUG3").start();
    let host = host(&sshd, &sshd.options());
    // TCP; identifications and algorithms; keys; everything else.
    assert_eq!(connect_and_request(&host).await.unwrap(), 4);
    // Now the key exchange of the server is known.
    assert_eq!(connect_and_request(&host).await.unwrap(), 3);
    let log = sshd.log();
    assert!(log.contains("subsystem request for sftp"), "{log}");
    for complaint in ["rcvd too much data", "UNIMPLEMENTED", "dispatch_protocol_error"] {
        assert!(!log.contains(complaint), "{complaint}");
    }
}

#[tokio::test]
async fn a_server_whose_key_exchange_has_changed_can_still_be_reached() {
    let mut sshd = Sshd::start();
    let host = host(&sshd, &sshd.options());
    assert_eq!(connect_and_request(&host).await.unwrap(), 4);
    let config = std::fs::read_to_string(sshd.path("sshd_config")).unwrap();
    let changed = format!("KexAlgorithms ecdh-sha2-nistp384\n{config}");
    std::fs::write(sshd.path("sshd_config"), changed).unwrap();
    sshd.restart();
    // One RTT (TCP) for the connection that is lost, and four for another.
    assert_eq!(connect_and_request(&host).await.unwrap(), 1 + 4);
    assert_eq!(connect_and_request(&host).await.unwrap(), 3);
}

#[tokio::test]
async fn early_requests_are_repeated_until_a_key_is_accepted() {
    let sshd = Sshd::builder().line("LogLevel DEBUG3").start();
    let wrong = ["a", "b"].map(|name| sshd.new_key(name, "ed25519", ""));
    let identities = [&wrong[..], &[sshd.user_key()]].concat();
    let host = host(&sshd, &SshOptions { identities, ..sshd.options() });
    assert_eq!(connect_and_request(&host).await.unwrap(), 6);
    // sshd ignores the channel, its request and its data, twice.
    assert_eq!(sshd.log().matches("dispatch_protocol_error").count(), 2 * 3);
    assert_eq!(connect_and_request(&host).await.unwrap(), 3);
}

#[tokio::test]
async fn early_requests_are_repeated_with_a_second_authentication_method() {
    for second in ["password", "keyboard-interactive"] {
        let sshd = Sshd::builder()
            .password("correct horse")
            .line(&format!("AuthenticationMethods publickey,{second}"))
            .start();
        let user = ScriptedUser::responding(&["wrong", "correct horse"]);
        let host = host_with_prompter(&sshd, &sshd.options(), user);
        connect_and_request(&host).await.unwrap();
        connect_and_request(&host).await.unwrap();
    }
    let sshd = Sshd::builder().password("correct horse").start();
    let wrong = sshd.new_key("wrong", "rsa", "");
    let options = SshOptions {
        identities: vec![wrong],
        password: Some(PasswordSource::Secret(Secret::new("correct horse"))),
        ..sshd.options()
    };
    let options = with(options, &["PreferredAuthentications=publickey,password"]);
    assert_eq!(connect_and_request(&host(&sshd, &options)).await.unwrap(), 5);
}

#[tokio::test]
async fn a_refused_early_channel_is_a_busy_error() {
    let sshd = Sshd::builder().line("MaxSessions 0").start();
    let error = connect_and_request(&host(&sshd, &sshd.options())).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Busy, Retry::Later), "{error}");
    assert!(error.to_string().contains("MaxSessions"), "{error}");
}

#[tokio::test]
async fn a_missing_subsystem_is_reported_even_if_it_was_requested_early() {
    let sshd = Sshd::start();
    let host = host(&sshd, &sshd.options());
    let (_connection, mut channel) = host.connect_to("teleport", &first_requests).await.unwrap();
    let error = channel.incoming.next().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("\"teleport\""), "{error}");
}

#[tokio::test]
async fn with_compression_nothing_is_sent_early() {
    let sshd = Sshd::start();
    let options = SshOptions { compress: true, ..sshd.options() };
    assert_eq!(connect_and_request(&host(&sshd, &options)).await.unwrap(), 6);
}

#[tokio::test]
async fn first_bytes_above_the_early_limit_wait_for_the_channel() {
    let sshd = Sshd::start();
    let message = pattern(100_000);
    let first = message.clone();
    let (connection, mut channel) =
        host(&sshd, &sshd.options()).connect_to("echo", &move |_| first.clone()).await.unwrap();
    let mut received = Vec::new();
    while received.len() < message.len() {
        received.extend(channel.incoming.next().await.unwrap().unwrap());
    }
    assert_eq!(received, message);
    assert_eq!(connection.rtts(), 5);
}

#[tokio::test]
async fn a_key_with_a_passphrase_is_only_unlocked_for_a_server_that_accepts_it() {
    let sshd = Sshd::start();
    let key = sshd.new_key("locked", "ed25519", "open sesame");
    let options = SshOptions { identities: vec![key.clone(), sshd.user_key()], ..sshd.options() };
    let user = ScriptedUser::responding(&["open sesame"]);
    let host = host_with_prompter(&sshd, &options, Arc::clone(&user) as _);
    connect_and_request(&host).await.unwrap();
    assert!(user.prompts_shown().is_empty(), "{:?}", user.prompts_shown());
    sshd.authorize(&key, "");
    let host = host_with_prompter(&sshd, &options, Arc::clone(&user) as _);
    // A locked key is offered before it is unlocked, which takes one more RTT.
    assert_eq!(connect_and_request(&host).await.unwrap(), 5);
    assert_eq!(connect_and_request(&host).await.unwrap(), 3);
    assert_eq!(user.shown_count("Enter passphrase"), 1);
}
