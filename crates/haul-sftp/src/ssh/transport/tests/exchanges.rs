//! Key exchange against an attacker on the network, and against a malicious server.

use russh::keys::key::safe_rng;

use super::*;

/// Connects to a server that follows `plan`, which has to fail. Returns the error message.
async fn refused(plan: Plan) -> String {
    let (listener, host) = listen().await;
    // The server fails when the client closes the connection.
    let server = tokio::spawn(async move { Server::accept_with(&listener, &plan).await });
    let error = host.connect().await.unwrap_err();
    server.abort();
    assert!(matches!(error.kind(), ErrorKind::Protocol | ErrorKind::Unauthenticated), "{error:?}");
    error.to_string()
}

/// Connects to a server that follows `plan` and accepts any login.
async fn accepted(plan: Plan) -> (SshConnection, Server) {
    accepted_preferring(&[], plan).await
}

/// Like [`accepted`], with further `-o` options.
async fn accepted_preferring(more: &[&str], plan: Plan) -> (SshConnection, Server) {
    let (listener, host) = listen_preferring(more).await;
    let serving = async {
        let mut server = Server::accept_with(&listener, &plan).await;
        assert_eq!(server.receive().await[0], message::SERVICE_REQUEST);
        assert_eq!(server.receive().await[0], message::USERAUTH_REQUEST);
        server.send(&[message::USERAUTH_SUCCESS]).await;
        server
    };
    let (connected, server) = tokio::join!(host.connect(), serving);
    (connected.unwrap(), server)
}

/// A message whose fields do not matter.
fn filler(number: u8) -> Vec<u8> {
    let mut message = vec![number];
    message.u32(0);
    message.string(b"");
    message.string(b"");
    message
}

fn extensions() -> Vec<u8> {
    let mut message = vec![message::EXT_INFO];
    message.u32(1);
    message.string(b"server-sig-algs");
    message.string(b"ssh-rsa");
    message
}

/// CVE-2023-48795 (Terrapin): packets inserted into the first key exchange keep the sequence numbers right when
/// packets after it are dropped.
#[tokio::test]
async fn a_packet_inserted_into_a_strict_first_key_exchange_is_refused() {
    for number in [message::IGNORE, message::DEBUG, message::UNIMPLEMENTED] {
        let before = Plan { before_offer: vec![filler(number)], ..Plan::default() };
        assert!(refused(before).await.contains("not the first packet"), "{number}");
        let after = Plan { after_offer: vec![filler(number)], ..Plan::default() };
        assert!(refused(after).await.contains("during a key exchange"), "{number}");
        let last = Plan { after_half: vec![filler(number)], ..Plan::default() };
        assert!(refused(last).await.contains("during a key exchange"), "{number}");
    }
}

#[tokio::test]
async fn a_server_without_strict_key_exchange_may_send_ignore_and_debug() {
    let idle = || [message::IGNORE, message::DEBUG].map(filler).to_vec();
    let plan = Plan {
        kex: vec!["curve25519-sha256"],
        before_offer: idle(),
        after_offer: idle(),
        after_half: idle(),
        ..Plan::default()
    };
    let (connection, _server) = accepted(plan).await;
    drop(connection);
}

#[tokio::test]
async fn ext_info_during_a_key_exchange_is_refused() {
    for kex in [vec!["curve25519-sha256"], vec!["curve25519-sha256", STRICT]] {
        for (after_offer, after_half) in
            [(vec![extensions()], Vec::new()), (Vec::new(), vec![extensions()])]
        {
            let plan = Plan { kex: kex.clone(), after_offer, after_half, ..Plan::default() };
            assert!(refused(plan).await.contains("message 7 during a key exchange"), "{kex:?}");
        }
    }
}

#[tokio::test]
async fn a_packet_dropped_after_a_strict_key_exchange_is_detected() {
    let (listener, host) = listen().await;
    let serving = async {
        let mut server = Server::accept(&listener).await;
        // An attacker drops EXT_INFO: it is encrypted, which advances the sequence number, but not sent.
        drop(server.sealed(&extensions()));
        server.send(&[message::USERAUTH_SUCCESS]).await;
        server
    };
    let (connected, _server) = tokio::join!(host.connect(), serving);
    let error = connected.unwrap_err();
    assert!(error.to_string().contains("MAC"), "{error}");
}

/// Servers from before 2024 do not support strict key exchange. Like OpenSSH, haul connects to them with any cipher.
/// With ChaCha20-Poly1305 an attacker can then drop the first packet, EXT_INFO, which hides the signature algorithms
/// of the server. GCM has a packet counter of its own, and haul prefers it if the processor has AES instructions.
#[tokio::test]
async fn without_strict_key_exchange_gcm_but_not_chacha20_detects_a_dropped_first_packet() {
    for (cipher, is_affected) in [
        ("chacha20-poly1305@openssh.com", true),
        ("aes128-gcm@openssh.com", false),
        ("aes256-gcm@openssh.com", false),
    ] {
        let plan = Plan {
            kex: vec!["curve25519-sha256"],
            suite: Suite { cipher, mac: "none" },
            inserted: Some(filler(message::IGNORE)),
            ..Plan::default()
        };
        let (listener, host) = listen().await;
        let serving = async {
            let mut server = Server::accept_with(&listener, &plan).await;
            drop(server.sealed(&extensions()));
            server.send(&[message::USERAUTH_SUCCESS]).await;
            server
        };
        let (connected, _server) = tokio::join!(host.connect(), serving);
        match connected {
            Ok(_) => assert!(is_affected, "{cipher}"),
            Err(error) => assert!(!is_affected && error.to_string().contains("MAC"), "{error}"),
        }
    }
}

#[tokio::test]
async fn exactly_one_wrongly_guessed_packet_is_ignored() {
    let guess = Plan {
        kex: vec!["ecdh-sha2-nistp256", "curve25519-sha256", STRICT],
        guess: true,
        after_offer: vec![vec![message::KEX_REPLY, 1, 2, 3]],
        ..Plan::default()
    };
    let (connection, _server) = accepted(guess.clone()).await;
    drop(connection);
    // The second packet is parsed as the reply, which fails.
    let twice = Plan { after_offer: vec![vec![message::KEX_REPLY, 1]; 2], ..guess.clone() };
    refused(twice).await;
    // Only a key exchange message counts as a guessed packet.
    let other = Plan { after_offer: vec![filler(message::IGNORE)], ..guess };
    assert!(refused(other).await.contains("during a key exchange"));
}

#[tokio::test]
async fn a_server_without_the_private_host_key_is_refused() {
    let text = refused(Plan { forged: true, ..Plan::default() }).await;
    assert!(text.contains("does not hold the private key"), "{text}");
}

/// SHA-1 is not collision-resistant, so a server that agreed on a newer digest must not fall back to it.
#[tokio::test]
async fn a_signature_by_another_algorithm_than_negotiated_is_refused() {
    // The shortest key that OpenSSH and haul accept.
    let pair = RsaKeypair::random(&mut safe_rng(), 1024).unwrap();
    let plan = |negotiated, hash, label| Plan {
        host_keys: vec![negotiated],
        rsa: Some(Rsa { pair: pair.clone(), hash, label }),
        ..Plan::default()
    };
    let (sha256, sha512) = (Some(HashAlg::Sha256), Some(HashAlg::Sha512));
    for (hash, label) in [
        (None, "ssh-rsa"),
        (None, "rsa-sha2-512"),
        (sha512, "ssh-rsa"),
        (sha256, "rsa-sha2-256"),
        (sha256, "rsa-sha2-512"),
        (sha512, "rsa-sha2-512-cert-v01@openssh.com"),
    ] {
        let text = refused(plan("rsa-sha2-512", hash, label)).await;
        assert!(text.contains("does not hold the private key"), "{hash:?} as {label}: {text}");
    }
    // Each is accepted if it was negotiated.
    for (hash, label) in [(sha512, "rsa-sha2-512"), (sha256, "rsa-sha2-256"), (None, "ssh-rsa")] {
        let more = ["HostKeyAlgorithms=+ssh-rsa"];
        let (connection, _server) = accepted_preferring(&more, plan(label, hash, label)).await;
        drop(connection);
    }
}

#[tokio::test]
async fn a_host_key_of_another_type_than_negotiated_is_refused() {
    for kind in ["ssh-rsa", "ssh-dss", "ssh-ed25519-cert-v01@openssh.com", "a\u{1b}[31m"] {
        let mut blob = Vec::new();
        blob.string(kind.as_bytes());
        blob.string(&[1; 32]);
        let text = refused(Plan { blob: Some(blob), ..Plan::default() }).await;
        assert!(text.contains("was negotiated") && !text.contains('\u{1b}'), "{text}");
    }
}

#[tokio::test]
async fn a_second_kexinit_during_a_key_exchange_is_refused() {
    let offer = Plan::default().offer();
    for plan in [
        Plan { after_offer: vec![offer.clone()], ..Plan::default() },
        Plan { after_half: vec![offer], ..Plan::default() },
    ] {
        let text = refused(plan).await;
        assert!(text.contains("KEXINIT during a key exchange"), "{text}");
    }
}

/// Public values that lead to an all-zero shared secret (RFC 8731, 3).
#[tokio::test]
async fn points_of_low_order_are_refused() {
    let mut one = [0; 32];
    one[0] = 1;
    // A point of order 8 (https://cr.yp.to/ecdh.html#validate).
    let eight = [
        0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3, 0xfa, 0xf1, 0x9f, 0xc4,
        0x6a, 0xda, 0x09, 0x8d, 0xeb, 0x9c, 0x32, 0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49,
        0xb8, 0x00,
    ];
    for value in [[0; 32], one, eight] {
        let text = refused(Plan { value: Some(value.to_vec()), ..Plan::default() }).await;
        assert!(text.contains("public value"), "{text}");
    }
}

#[tokio::test]
async fn a_key_re_exchange_requires_the_same_host_key() {
    let (_connection, mut channel, mut server) = pair().await;
    server.send(&data(b"before")).await;
    assert_eq!(channel.incoming.next().await.unwrap().unwrap(), "before");
    let renewal = async {
        server.exchange(&Plan::default()).await;
        server.send(&data(b"behind")).await;
    };
    let (read, ()) = tokio::join!(channel.incoming.next(), renewal);
    assert_eq!(read.unwrap().unwrap(), "behind");
    // With StrictHostKeyChecking=no any key of an unknown host would be accepted.
    let swapped = Plan { seed: 8, ..Plan::default() };
    let renewal = tokio::spawn(async move { server.exchange(&swapped).await });
    let error = channel.incoming.next().await.unwrap_err();
    assert!(error.to_string().contains("different host key than earlier"), "{error}");
    renewal.abort();
}

fn data(text: &[u8]) -> Vec<u8> {
    let mut data = to(message::CHANNEL_DATA, 0);
    data.string(text);
    data
}

/// asyncssh sends channel data during a key re-exchange; haul used to close the connection then, in the
/// middle of a download.
#[tokio::test]
async fn channel_data_is_accepted_during_a_key_re_exchange() {
    let plan = Plan {
        after_offer: vec![data(b"one "), vec![message::REQUEST_FAILURE]],
        after_half: vec![data(b"two ")],
        ..Plan::default()
    };
    let (_connection, mut channel, mut server) = pair().await;
    let renewal = async {
        server.exchange(&plan).await;
        server.send(&data(b"three")).await;
    };
    let reading = async {
        let mut read = Vec::new();
        while read.len() < b"one two three".len() {
            read.extend_from_slice(&channel.incoming.next().await.unwrap().unwrap());
        }
        read
    };
    let (read, ()) = tokio::join!(reading, renewal);
    assert_eq!(read, b"one two three");
}

#[tokio::test]
async fn banner_ext_info_and_service_accept_are_refused_during_a_key_re_exchange() {
    for sneaked in [filler(message::USERAUTH_BANNER), extensions(), vec![message::SERVICE_ACCEPT]] {
        for (after_offer, after_half) in
            [(vec![sneaked.clone()], Vec::new()), (Vec::new(), vec![sneaked.clone()])]
        {
            let (_connection, mut channel, mut server) = pair().await;
            let plan = Plan { after_offer, after_half, ..Plan::default() };
            let renewal = tokio::spawn(async move { server.exchange(&plan).await });
            let error = channel.incoming.next().await.unwrap_err();
            assert!(error.to_string().contains("during a key exchange"), "{error}");
            renewal.abort();
        }
    }
}

#[tokio::test]
async fn channel_data_during_the_first_key_exchange_is_refused() {
    for sneaked in [data(b"sneaked in"), vec![message::REQUEST_FAILURE]] {
        for (after_offer, after_half) in
            [(vec![sneaked.clone()], Vec::new()), (Vec::new(), vec![sneaked.clone()])]
        {
            let plan = Plan { after_offer, after_half, ..Plan::default() };
            assert!(refused(plan).await.contains("during a key exchange"));
        }
    }
}

#[tokio::test]
async fn a_second_connection_with_another_host_key_is_refused() {
    let (listener, host) = listen().await;
    let (first, server) = tokio::join!(host.connect(), Server::let_in(&listener));
    drop((first.unwrap(), server));
    let other = Plan { seed: 8, ..Plan::default() };
    let server = tokio::spawn(async move { Server::accept_with(&listener, &other).await });
    let error = host.connect().await.unwrap_err();
    server.abort();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    assert!(error.to_string().contains("different host key than earlier"), "{error}");
}

/// On a later connection haul guesses the algorithms of the first, if both sides prefer them: it announces that its
/// first key exchange packet follows (RFC 4253, 7), and sends another one if the guess was wrong.
#[tokio::test]
async fn a_guessed_packet_is_announced_and_sent_again_if_the_guess_was_wrong() {
    let (listener, host) = listen_preferring(&["KexAlgorithms=curve25519-sha256"]).await;
    // `first_kex_packet_follows` comes after the cookie and ten name-lists.
    let announced = |offer: &[u8]| {
        let mut reader = Reader::new(&offer[17..]);
        for _ in 0..10 {
            reader.string().unwrap();
        }
        reader.boolean().unwrap()
    };
    let (first, server) = tokio::join!(host.connect(), Server::let_in(&listener));
    drop((first.unwrap(), server));
    let first = Plan { host_keys: vec!["rsa-sha2-512", "ssh-ed25519"], ..Plan::default() };
    for (plan, again) in [(Plan::default(), false), (first, true)] {
        let serving = async {
            let mut server = Server::before_exchange(&listener).await;
            let theirs = server.receive().await;
            assert!(announced(&theirs));
            let half = server.receive().await;
            assert_eq!(half[0], message::KEX_INIT);
            server.read_already = if again { vec![theirs] } else { vec![theirs, half] };
            server.exchange(&plan).await;
            server.receive_one(message::USERAUTH_REQUEST).await;
            server.send(&[message::USERAUTH_SUCCESS]).await;
            server
        };
        let (connected, server) = tokio::join!(host.connect(), serving);
        let connection = connected.unwrap();
        drop((connection, server));
    }
}
