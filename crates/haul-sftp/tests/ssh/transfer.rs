//! Data through channels: ciphers, compression, rekeying, channels that fail.

use bytes::Bytes;
use haul_sftp::ssh::SshOptions;
use haul_storage::{ErrorKind, Retry};

use crate::sshd::Sshd;
use crate::{echo, greet, host, pattern, with};

#[tokio::test]
async fn data_is_intact_with_every_cipher_and_mac() {
    let all = "aes128-ctr,aes192-ctr,aes256-ctr,aes128-gcm@openssh.com,\
               aes256-gcm@openssh.com,chacha20-poly1305@openssh.com";
    let sshd = Sshd::builder().line(&format!("Ciphers {all}")).line("LogLevel DEBUG1").start();
    let message = pattern(300_000);
    for cipher in all.split(',') {
        let macs: &[&str] = if cipher.contains('@') {
            &["hmac-sha2-256"]
        } else {
            &[
                "hmac-sha2-256-etm@openssh.com",
                "hmac-sha2-512-etm@openssh.com",
                "hmac-sha2-256",
                "hmac-sha2-512",
                "hmac-sha1",
                "hmac-sha1-etm@openssh.com",
            ]
        };
        for mac in macs {
            let options = [format!("Ciphers={cipher}"), format!("MACs={mac}")];
            let options = with(sshd.options(), &[&options[0], &options[1]]);
            let connection = host(&sshd, &options).connect().await.unwrap();
            let mut channel = connection.subsystem("echo").await.unwrap();
            echo(&mut channel, message.clone()).await;
            connection.close().await;
        }
        let chosen = format!("cipher: {cipher}");
        assert!(sshd.log().contains(&chosen), "{cipher} was not used");
    }
}

#[tokio::test]
async fn aes_gcm_is_chosen_where_the_processor_has_aes() {
    let sshd = Sshd::builder().line("LogLevel DEBUG1").start();
    greet(&host(&sshd, &sshd.options()).connect().await.unwrap()).await.unwrap();
    let has_aes = std::fs::read_to_string("/proc/cpuinfo").unwrap().contains(" aes ");
    let expected = if has_aes { "aes128-gcm@openssh.com" } else { "chacha20-poly1305@openssh.com" };
    assert!(sshd.log().contains(&format!("cipher: {expected}")));
}

#[tokio::test]
async fn every_classical_key_exchange_method_works_in_one_rtt() {
    let sshd = Sshd::builder().line("LogLevel DEBUG1").start();
    for kex in [
        "curve25519-sha256",
        "curve25519-sha256@libssh.org",
        "ecdh-sha2-nistp256",
        "ecdh-sha2-nistp384",
        "ecdh-sha2-nistp521",
        "diffie-hellman-group14-sha256",
        "diffie-hellman-group16-sha512",
        "diffie-hellman-group18-sha512",
    ] {
        let options = with(sshd.options(), &[&format!("KexAlgorithms={kex}")]);
        let connection = host(&sshd, &options).connect().await.unwrap();
        assert_eq!(connection.rtts(), 4, "{kex}");
        greet(&connection).await.unwrap();
        assert!(sshd.log().contains(&format!("kex: algorithm: {kex} ")), "{kex}");
    }
}

#[tokio::test]
async fn without_a_common_algorithm_the_error_names_both_sides() {
    let sshd = Sshd::builder().line("Ciphers aes256-ctr").start();
    let options = with(sshd.options(), &["Ciphers=chacha20-poly1305@openssh.com"]);
    let error = host(&sshd, &options).connect().await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Protocol, Retry::Never));
    let text = error.to_string();
    assert!(text.contains("chacha20") && text.contains("aes256-ctr"), "{text}");
}

#[tokio::test]
async fn data_is_intact_with_compression() {
    let sshd = Sshd::builder().line("LogLevel DEBUG1").start();
    let options = SshOptions { compress: true, ..sshd.options() };
    let connection = host(&sshd, &options).connect().await.unwrap();
    let mut channel = connection.subsystem("echo").await.unwrap();
    echo(&mut channel, Bytes::from(vec![b'a'; 4 << 20])).await;
    echo(&mut channel, pattern(1 << 20)).await;
    assert!(sshd.log().contains("compression: zlib@openssh.com"), "{}", sshd.log());
}

#[tokio::test]
async fn a_transfer_survives_rekeying_by_either_side() {
    let by_server = Sshd::builder().line("RekeyLimit 1M").line("LogLevel DEBUG1").start();
    let by_client = Sshd::builder().line("LogLevel DEBUG1").start();
    let limited = with(by_client.options(), &["RekeyLimit=1M"]);
    for (sshd, options) in [(&by_server, by_server.options()), (&by_client, limited)] {
        let connection = host(sshd, &options).connect().await.unwrap();
        let mut channel = connection.subsystem("echo").await.unwrap();
        for _ in 0..4 {
            echo(&mut channel, pattern(4 << 20)).await;
        }
        let exchanges = sshd.log().matches("SSH2_MSG_NEWKEYS received").count();
        assert!(exchanges > 4, "{exchanges} key exchanges");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_busy_channels_survive_rekeying_by_both_sides() {
    let sshd = Sshd::builder().line("RekeyLimit 512K").line("LogLevel DEBUG1").start();
    for cipher in ["aes128-gcm@openssh.com", "chacha20-poly1305@openssh.com", "aes128-ctr"] {
        let options = with(sshd.options(), &["RekeyLimit=700K", &format!("Ciphers={cipher}")]);
        let options = SshOptions { compress: cipher == "aes128-ctr", ..options };
        let connection = host(&sshd, &options).connect().await.unwrap();
        let echoes = (0..3).map(|_| async {
            let mut channel = connection.subsystem("echo").await.unwrap();
            for _ in 0..3 {
                echo(&mut channel, pattern(3 << 20)).await;
            }
        });
        futures_util::future::join_all(echoes).await;
    }
    let exchanges = sshd.log().matches("SSH2_MSG_NEWKEYS received").count();
    assert!(exchanges > 30, "{exchanges} key exchanges");
}

#[tokio::test]
async fn a_channel_that_is_not_read_does_not_stall_another() {
    let sshd = Sshd::start();
    let connection = host(&sshd, &sshd.options()).connect().await.unwrap();
    let full = connection.subsystem("echo").await.unwrap();
    let outgoing = full.outgoing.clone();
    // More than the windows of both directions hold together.
    let sending = tokio::spawn(async move { outgoing.send(vec![7; 64 << 20].into()).await });
    let mut other = connection.subsystem("echo").await.unwrap();
    for _ in 0..4 {
        echo(&mut other, pattern(4 << 20)).await;
    }
    assert!(!sending.is_finished());
    drop(full);
    assert!(sending.await.unwrap().is_err());
    echo(&mut other, pattern(1000)).await;
}

#[tokio::test]
async fn a_subsystem_missing_on_the_server_is_unsupported() {
    let sshd = Sshd::start();
    let connection = host(&sshd, &sshd.options()).connect().await.unwrap();
    let mut channel = connection.subsystem("teleport").await.unwrap();
    let error = channel.incoming.next().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("\"teleport\""), "{error}");
    assert!(channel.outgoing.send(Bytes::from_static(b"x")).await.is_err());
    greet(&connection).await.unwrap();
}

#[tokio::test]
async fn a_failing_remote_program_is_reported_with_its_status() {
    let sshd = Sshd::start();
    let connection = host(&sshd, &sshd.options()).connect().await.unwrap();
    let mut channel = connection.subsystem("broken").await.unwrap();
    let error = channel.incoming.next().await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("broken program ended with status 127"), "{text}");
    assert_eq!(error.retry(), Retry::Never);
}

#[tokio::test]
async fn messages_of_several_senders_do_not_mix() {
    let sshd = Sshd::start();
    let connection = host(&sshd, &sshd.options()).connect().await.unwrap();
    let mut channel = connection.subsystem("echo").await.unwrap();
    let length = 1 << 20;
    let senders: Vec<_> = (0..4_u8)
        .map(|n| {
            let outgoing = channel.outgoing.clone();
            tokio::spawn(async move { outgoing.send(Bytes::from(vec![n; length])).await })
        })
        .collect();
    let mut received = Vec::new();
    while received.len() < 4 * length {
        received.extend(channel.incoming.next().await.unwrap().unwrap());
    }
    for message in received.chunks(length) {
        assert!(message.iter().all(|byte| *byte == message[0]));
    }
    for sender in senders {
        sender.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_channel_outlives_its_connection_handle_and_ends_with_its_halves() {
    let sshd = Sshd::builder().line("MaxSessions 1").start();
    let connection = host(&sshd, &sshd.options()).connect().await.unwrap();
    let mut channel = connection.subsystem("echo").await.unwrap();
    // The only session allowed: a second one is refused for now, not for ever.
    let error = connection.subsystem("echo").await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Busy, Retry::Later), "{error}");
    echo(&mut channel, pattern(100_000)).await;
    drop(channel);
    // The server frees the session when it receives the close.
    let mut channel = loop {
        match connection.subsystem("echo").await {
            Ok(channel) => break channel,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Busy),
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    drop(connection);
    echo(&mut channel, pattern(100_000)).await;
}

#[tokio::test]
async fn after_a_send_was_dropped_half_way_further_sends_fail_with_the_reason() {
    let sshd = Sshd::start();
    let connection = host(&sshd, &sshd.options()).connect().await.unwrap();
    let channel = connection.subsystem("echo").await.unwrap();
    // The echo is not read, so the far end stops accepting bytes.
    let outgoing = channel.outgoing.clone();
    let sending = outgoing.send(Bytes::from(vec![0; 256 << 20]));
    let limit = std::time::Duration::from_secs(2);
    assert!(tokio::time::timeout(limit, sending).await.is_err());
    let error = channel.outgoing.send(Bytes::from_static(b"x")).await.unwrap_err();
    assert!(error.to_string().contains("truncated"), "{error}");
}
