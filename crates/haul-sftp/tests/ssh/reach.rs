//! Connections to a host: by address, through jump hosts and a ProxyCommand; and how they fail.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use haul_fault_proxy::{Connections, Direction, Fault, FaultProxy};
use haul_net::{Wait, Waits};
use haul_sftp::ssh::{ConfigFile, NoPrompter, PasswordSource, Secret, SshHost, SshOptions};
use haul_storage::{ErrorKind, Retry};

use crate::port::free_port;
use crate::sshd::{Sshd, public};
use crate::{echo, greet, host, host_at, pattern, with};

#[tokio::test]
async fn an_ipv6_address_is_reached() {
    let sshd = Sshd::builder().ipv6().start();
    let connection = host(&sshd, &sshd.options()).connect().await.unwrap();
    greet(&connection).await.unwrap();
}

#[tokio::test]
async fn a_host_name_is_resolved_and_reached() {
    let sshd = Sshd::start();
    let alias = format!("HostKeyAlias={}", sshd.known_name());
    let options = with(sshd.options(), &[&alias]);
    let port = Some(sshd.port());
    let host = SshHost::resolve(None, "localhost", port, &options, Arc::new(NoPrompter)).unwrap();
    greet(&host.connect().await.unwrap()).await.unwrap();
}

#[tokio::test]
async fn only_the_configured_address_family_is_dialled() {
    let sshd = Sshd::start();
    let options = with(sshd.options(), &["AddressFamily=inet6"]);
    let error = host(&sshd, &options).connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
}

#[tokio::test]
async fn a_port_without_a_listener_is_unreachable() {
    let sshd = Sshd::start();
    let free = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let error = host_at(free, &sshd.options()).connect().await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unreachable, Retry::Later));
    assert!(error.to_string().contains("refused"), "{error}");
    assert_eq!(error.location(), free.to_string());
}

#[tokio::test]
async fn a_name_that_does_not_exist_is_unreachable() {
    let options = SshOptions { config: ConfigFile::None, ..SshOptions::default() };
    let host = SshHost::resolve(None, "no.such.host.invalid", None, &options, Arc::new(NoPrompter));
    let error = host.unwrap().connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
}

#[tokio::test]
async fn a_server_that_does_not_speak_ssh_is_a_protocol_error() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        use tokio::io::AsyncWriteExt;
        let (mut stream, _) = listener.accept().await.unwrap();
        let page = "HTTP/1.1 400 Bad Request\r\n".repeat(100);
        stream.write_all(page.as_bytes()).await.unwrap();
    });
    let options = SshOptions { config: ConfigFile::None, ..SshOptions::default() };
    let error = host_at(address, &options).connect().await.unwrap_err();
    server.await.unwrap();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Protocol, Retry::Never), "{error}");
}

#[tokio::test]
async fn connecting_to_a_silent_server_ends_after_connect_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = SshOptions { config: ConfigFile::None, ..SshOptions::default() };
    let options = with(options, &["ConnectTimeout=1"]);
    let host = host_at(listener.local_addr().unwrap(), &options);
    let begun = Instant::now();
    let error = host.connect().await.unwrap_err();
    let after = begun.elapsed();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unreachable, Retry::Later), "{error}");
    // The default is 60 s.
    assert!((Duration::from_secs(1)..Duration::from_secs(20)).contains(&after), "{after:?}");
}

#[tokio::test]
async fn connections_dropped_by_max_startups_are_busy_and_succeed_later() {
    let sshd = Sshd::builder().line("MaxStartups 1:100:1").start();
    // A connection that does not authenticate occupies the only slot.
    let held = std::net::TcpStream::connect(sshd.address()).unwrap();
    let host = host(&sshd, &sshd.options());
    let error = loop {
        match host.connect().await {
            Err(error) => break error,
            // The server has not counted the held connection yet.
            Ok(connection) => connection.close().await,
        }
    };
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Busy, Retry::Later), "{error}");
    drop(held);
    let connection = loop {
        match host.connect().await {
            Ok(connection) => break connection,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    greet(&connection).await.unwrap();
}

#[tokio::test]
async fn eight_concurrent_connections_succeed() {
    let sshd = Sshd::start();
    let host = host(&sshd, &sshd.options());
    for connection in join_all((0..8).map(|_| host.connect())).await {
        let connection = connection.unwrap();
        greet(&connection).await.unwrap();
        // 4 if an earlier connection has already learned the key exchange of the server.
        assert!([4, 5].contains(&connection.rtts()));
    }
    assert_eq!(sshd.connections(), 8);
}

#[tokio::test]
async fn a_connection_with_an_unencrypted_key_does_not_wait_for_a_stuck_one() {
    let sshd = Sshd::start();
    // Long enough that a connection that waited for the stuck one would not succeed in this test.
    let (proxy, options) = behind_proxy(&sshd, &["ServerAliveInterval=1000"]);
    let host = Arc::new(host_at(proxy.address(), &options));
    host_at(proxy.address(), &options).connect().await.unwrap();
    let whole = proxy.stats().connections[0].to_client.delivered;
    // During authentication.
    let stuck = Fault::Blackhole { from: whole * 3 / 4 };
    let rule = proxy.set(Connections::Nth(2), Direction::ToClient, stuck);
    let first = tokio::spawn({
        let host = Arc::clone(&host);
        async move { host.connect().await.map(drop) }
    });
    while !proxy.stats().has_fired(rule) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    greet(&host.connect().await.unwrap()).await.unwrap();
    assert!(!first.is_finished());
    first.abort();
}

/// Options with a configuration file that has the known hosts and user keys of several servers. Unlike
/// options of the command line, it applies to jump hosts too.
fn known_to(sshds: &[&Sshd]) -> (tempfile::TempDir, SshOptions) {
    let directory = tempfile::tempdir().unwrap();
    let known: String =
        sshds.iter().map(|sshd| std::fs::read_to_string(sshd.known_hosts()).unwrap()).collect();
    let file = directory.path().join("known_hosts");
    std::fs::write(&file, known).unwrap();
    let keys: String =
        sshds.iter().map(|sshd| format!("IdentityFile {}\n", sshd.user_key().display())).collect();
    let config = directory.path().join("config");
    let text = format!(
        "Host *\nUserKnownHostsFile {}\nGlobalKnownHostsFile none\nIdentityAgent none\n{keys}",
        file.display()
    );
    std::fs::write(&config, text).unwrap();
    let options = SshOptions { config: ConfigFile::Path(config), ..SshOptions::default() };
    (directory, options)
}

fn address(sshd: &Sshd) -> String {
    sshd.address().to_string()
}

#[tokio::test]
async fn a_host_is_reached_through_two_jump_hosts_whose_keys_are_verified() {
    let (near, far, goal) = (Sshd::start(), Sshd::builder().ipv6().start(), Sshd::start());
    let (_directory, options) = known_to(&[&near, &far, &goal]);
    let chain = format!("{}@{},{}", near.user(), address(&near), address(&far));
    let options = SshOptions { jump: Some(chain), ..options };
    let connection = host(&goal, &options).connect().await.unwrap();
    let mut channel = connection.subsystem("echo").await.unwrap();
    echo(&mut channel, pattern(3 << 20)).await;
    assert!(connection.rtts() > 3 * 4);
    assert!(!connection.rtt().is_zero());
    for sshd in [&near, &far, &goal] {
        assert_eq!(sshd.connections(), 1);
    }
    // The key of a jump host is verified too.
    let (_directory, without_near) = known_to(&[&far, &goal]);
    let without_near = SshOptions { jump: options.jump.clone(), ..without_near };
    let error = host(&goal, &without_near).connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    assert!(error.location().ends_with(&address(&near)), "{error}");
}

#[tokio::test]
async fn a_configured_jump_host_is_used_with_its_own_settings() {
    let (near, goal) = (Sshd::start(), Sshd::start());
    let (directory, options) = known_to(&[&near, &goal]);
    let config = format!(
        "Host near\n HostName {}\n Port {}\n HostKeyAlias {}\nHost goal\n HostName {}\n Port {}\n \
         HostKeyAlias {}\n ProxyJump near\n",
        near.host(),
        near.port(),
        near.known_name(),
        goal.host(),
        goal.port(),
        goal.known_name(),
    );
    let file = directory.path().join("config");
    let known = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, config + &known).unwrap();
    let host = SshHost::resolve(None, "goal", None, &options, Arc::new(NoPrompter)).unwrap();
    greet(&host.connect().await.unwrap()).await.unwrap();
    assert_eq!(near.connections(), 1);
}

/// `-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null` is meant for a virtual machine that is
/// recreated every day, not for the bastion before it; the same goes for keys (`-i`).
#[tokio::test]
async fn options_of_the_command_line_apply_to_the_destination_only() {
    let (near, goal) = (Sshd::start(), Sshd::start());
    let (directory, options) = known_to(&[&near, &goal]);
    let options = SshOptions { jump: Some(address(&near)), ..options };
    let lax = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null"];
    greet(&host(&goal, &with(options.clone(), &lax)).connect().await.unwrap()).await.unwrap();
    // Another machine has the bastion's address.
    let known = directory.path().join("known_hosts");
    let other = near.new_key("other", "ed25519", "");
    for (lines, why) in [
        (format!("{} {}", near.known_name(), public(&other)), "HAS CHANGED"),
        (String::new(), "is not known"),
    ] {
        std::fs::write(&known, lines).unwrap();
        // As a destination the bastion is accepted unchecked, but not as a jump host.
        let direct = with(SshOptions { jump: None, ..options.clone() }, &lax);
        greet(&host(&near, &direct).connect().await.unwrap()).await.unwrap();
        let error = host(&goal, &with(options.clone(), &lax)).connect().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
        assert!(error.location().ends_with(&address(&near)), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    // Once as a jump host, and twice as a destination.
    assert_eq!(near.log().matches("Accepted publickey").count(), 3, "{}", near.log());
    // A key of the command line is not offered to the bastion.
    let keyless = SshOptions {
        identities: vec![goal.user_key(), near.user_key()],
        jump: options.jump.clone(),
        ..SshOptions::default()
    };
    let config = format!(
        "IdentityFile none\nIdentityAgent none\nUserKnownHostsFile {}\n",
        near.known_hosts().display()
    );
    std::fs::write(directory.path().join("keyless"), config).unwrap();
    let config = ConfigFile::Path(directory.path().join("keyless"));
    let keyless = SshOptions { config, ..with(keyless, &lax) };
    let error = host(&goal, &keyless).connect().await.unwrap_err();
    assert!(error.location().ends_with(&address(&near)), "{error}");
    assert!(error.to_string().contains("nothing to try"), "{error}");
}

#[tokio::test]
async fn a_destination_that_the_jump_host_cannot_reach_is_unreachable() {
    let near = Sshd::start();
    let free = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let (_directory, options) = known_to(&[&near]);
    let options = SshOptions { jump: Some(address(&near)), ..options };
    let error = host_at(free, &options).connect().await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unreachable, Retry::Later));
    let text = error.to_string();
    assert!(text.contains(&free.to_string()) && text.contains(&address(&near)), "{text}");
    // MaxSessions does not limit tunnels.
    assert!(!text.contains("MaxSessions"), "{text}");
}

#[tokio::test]
async fn a_loop_or_too_long_a_chain_of_jump_hosts_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config");
    let chain = |count: usize| -> String {
        (0..count).map(|at| format!("Host h{at}\nProxyJump h{}\n", at + 1)).collect()
    };
    let config: [(String, bool); 3] = [
        ("Host h0\nProxyJump b\nHost b\nProxyJump h0\n".to_owned(), false),
        (chain(17), false),
        (chain(16), true),
    ];
    for (text, is_short) in config {
        std::fs::write(&file, &text).unwrap();
        let options =
            SshOptions { config: ConfigFile::Path(file.clone()), ..SshOptions::default() };
        let resolved = SshHost::resolve(None, "h0", None, &options, Arc::new(NoPrompter));
        assert_eq!(resolved.is_ok(), is_short, "{text}");
        if let Err(error) = resolved {
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            let text = "(more than 16 jump hosts in a row; is its ProxyJump a loop?)";
            assert!(error.to_string().contains(text), "{error}");
        }
    }
}

#[tokio::test]
async fn a_proxy_command_carries_the_connection_and_ends_with_it() {
    let sshd = Sshd::start();
    let pid = sshd.path("pid");
    // OpenSSH's `ssh -W`, to the same server.
    let command = format!(
        "ProxyCommand=sh -c 'echo $$ >{}; exec ssh -F none -q -i {} -o UserKnownHostsFile={} -o \
         GlobalKnownHostsFile=none -o IdentityAgent=none -p %p -W %h:%p %r@%h'",
        pid.display(),
        sshd.user_key().display(),
        sshd.known_hosts().display(),
    );
    let connection = host(&sshd, &with(sshd.options(), &[&command])).connect().await.unwrap();
    let mut channel = connection.subsystem("echo").await.unwrap();
    echo(&mut channel, pattern(2 << 20)).await;
    let pid: i32 = std::fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    let process = PathBuf::from(format!("/proc/{pid}"));
    assert!(process.exists());
    drop((channel, connection));
    // Waits until the process is gone or a zombie; otherwise the test does not end.
    while std::fs::read_to_string(process.join("stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn the_error_of_a_failing_proxy_command_contains_its_standard_error() {
    let sshd = Sshd::start();
    let options = with(sshd.options(), &["ProxyCommand=sh -c 'echo no route to %h >&2; exit 1'"]);
    let error = host(&sshd, &options).connect().await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unreachable, Retry::Later));
    assert!(error.to_string().contains("no route to 127.0.0.1"), "{error}");
}

/// A proxy in front of a server, and options that find the host key of the server.
fn behind_proxy(sshd: &Sshd, more: &[&str]) -> (FaultProxy, SshOptions) {
    let proxy = FaultProxy::to(sshd.address()).start().unwrap();
    let alias = format!("HostKeyAlias={}", sshd.known_name());
    (proxy, with(with(sshd.options(), &[&alias]), more))
}

fn blackhole(proxy: &FaultProxy) {
    for direction in Direction::BOTH {
        proxy.set(Connections::All, direction, Fault::Blackhole { from: 0 });
    }
}

const IMPATIENT: [&str; 2] = ["ServerAliveInterval=1", "ServerAliveCountMax=2"];

fn assert_lost(error: &haul_storage::Error) {
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unreachable, Retry::Later), "{error}");
}

#[tokio::test]
async fn a_dead_link_fails_reads_and_writes() {
    let sshd = Sshd::start();
    let (proxy, options) = behind_proxy(&sshd, &IMPATIENT);
    let host = host_at(proxy.address(), &options);
    let (reading, writing) = tokio::join!(host.connect(), host.connect());
    let (reading, writing) = (reading.unwrap(), writing.unwrap());
    let mut reader = reading.subsystem("echo").await.unwrap();
    let writer = writing.subsystem("echo").await.unwrap();
    blackhole(&proxy);
    let message = Bytes::from(vec![0; 256 << 20]);
    let (read, written) = tokio::join!(reader.incoming.next(), writer.outgoing.send(message));
    assert_lost(&read.unwrap_err());
    assert_lost(&written.unwrap_err());
    assert_lost(&reading.subsystem("echo").await.unwrap_err());
}

#[tokio::test]
async fn a_link_that_dies_while_connecting_is_unreachable() {
    let sshd = Sshd::start();
    let more = [IMPATIENT[0], IMPATIENT[1], "ConnectTimeout=2"];
    let (proxy, options) = behind_proxy(&sshd, &more);
    host_at(proxy.address(), &options).connect().await.unwrap();
    let whole = proxy.stats().connections[0].to_client.delivered;
    // From the start; within the identification; during key exchange; before the last response of authentication.
    for after in [0, 30, whole / 2, whole * 3 / 4] {
        let (proxy, options) = behind_proxy(&sshd, &more);
        proxy.set(Connections::All, Direction::ToClient, Fault::Blackhole { from: after });
        assert_lost(&host_at(proxy.address(), &options).connect().await.unwrap_err());
    }
}

/// ConnectTimeout limits the key exchange, and keepalives limit the authentication.
#[tokio::test]
async fn a_silent_handshake_is_reported_and_ends() {
    const REPORTED_AFTER: Duration = Duration::from_millis(200);
    let sshd = Sshd::start();
    let (proxy, options) = behind_proxy(&sshd, &[]);
    host_at(proxy.address(), &options).connect().await.unwrap();
    let whole = proxy.stats().connections[0].to_client.delivered;
    // From the start; within the identification; during key exchange; during authentication.
    let stages =
        [(0, "connect"), (30, "connect"), (whole / 2, "connect"), (whole * 3 / 4, "authenticate")];
    let silent = stages.map(|(from, operation)| {
        // The key exchange must not exceed its limit before the authentication begins.
        let limit = if operation == "connect" { 4 } else { 25 };
        let limit = format!("ConnectTimeout={limit}");
        let limits = [&limit, "ServerAliveInterval=1", "ServerAliveCountMax=4"];
        let (proxy, options) = behind_proxy(&sshd, &limits);
        proxy.set(Connections::All, Direction::ToClient, Fault::Blackhole { from });
        let reports = Arc::<Mutex<Vec<Wait>>>::default();
        let sink = Arc::clone(&reports);
        let waits = Waits::new(move |wait| sink.lock().unwrap().push(wait.clone()));
        let options = SshOptions { waits: waits.after(REPORTED_AFTER), ..options };
        async move {
            let begun = Instant::now();
            let error = host_at(proxy.address(), &options).connect().await.unwrap_err();
            // The defaults are 60 s.
            assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
            assert_lost(&error);
            assert_eq!(error.operation(), operation, "{error}");
            let (host, what) = (proxy.address().to_string(), format!("response, to {operation}"));
            let reports = reports.lock().unwrap();
            let is_expected = |wait: &Wait| {
                (&wait.host, &wait.what) == (&host, &what) && wait.waited >= REPORTED_AFTER
            };
            assert!(reports.iter().any(is_expected), "{from}: {reports:?}");
        }
    });
    join_all(silent).await;
}

#[tokio::test]
async fn a_cut_connection_is_unreachable_and_a_new_one_succeeds() {
    let sshd = Sshd::start();
    let (proxy, options) = behind_proxy(&sshd, &[]);
    let host = host_at(proxy.address(), &options);
    let connection = host.connect().await.unwrap();
    let mut channel = connection.subsystem("echo").await.unwrap();
    echo(&mut channel, pattern(1000)).await;
    proxy.cut_all();
    assert_lost(&channel.incoming.next().await.unwrap_err());
    assert_lost(&channel.outgoing.send(pattern(10)).await.unwrap_err());
    assert_lost(&connection.subsystem("echo").await.unwrap_err());
    greet(&host.connect().await.unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_connection_cut_before_key_exchange_is_busy() {
    let sshd = Sshd::start();
    for cut in
        [Fault::CutHard { after: 0 }, Fault::CutSoft { after: 0 }, Fault::CutSoft { after: 60 }]
    {
        let (proxy, options) = behind_proxy(&sshd, &[]);
        proxy.set(Connections::All, Direction::ToClient, cut);
        let error = host_at(proxy.address(), &options).connect().await.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Busy, Retry::Later), "{error}");
    }
}

#[tokio::test]
async fn a_slow_link_is_no_error_while_bytes_arrive() {
    let sshd = Sshd::start();
    let patience = ["ServerAliveInterval=2", "ServerAliveCountMax=3"];
    let (proxy, options) = behind_proxy(&sshd, &patience);
    let connection = host_at(proxy.address(), &options).connect().await.unwrap();
    let mut channel = connection.subsystem("echo").await.unwrap();
    for direction in Direction::BOTH {
        proxy.set(Connections::All, direction, Fault::Rate(20 * 1024));
    }
    // The transfer takes at least 7 s, longer than keepalives tolerate silence (6 s); one packet takes less.
    echo(&mut channel, pattern(140 * 1024)).await;
}

#[tokio::test]
async fn keepalive_replies_keep_a_silent_connection_alive() {
    let sshd = Sshd::builder().line("LogLevel DEBUG3").start();
    let options = with(sshd.options(), &IMPATIENT);
    let connection = host(&sshd, &options).connect().await.unwrap();
    let mut channel = connection.subsystem("echo").await.unwrap();
    // Longer than keepalives tolerate an unresponsive server (2 s).
    let silence = channel.incoming.next();
    assert!(tokio::time::timeout(Duration::from_millis(3500), silence).await.is_err());
    echo(&mut channel, pattern(1000)).await;
    assert!(sshd.log().contains("keepalive@openssh.com"), "{}", sshd.log());
}

#[tokio::test]
async fn a_corrupted_byte_anywhere_in_the_stream_is_an_error() {
    let sshd = Sshd::start();
    let (proxy, options) = behind_proxy(&sshd, &["ConnectTimeout=2", IMPATIENT[0], IMPATIENT[1]]);
    let connection = host_at(proxy.address(), &options).connect().await.unwrap();
    greet(&connection).await.unwrap();
    let whole = proxy.stats().connections[0].to_client.delivered;
    for at in (0..whole).step_by(37) {
        let (proxy, options) =
            behind_proxy(&sshd, &["ConnectTimeout=2", IMPATIENT[0], IMPATIENT[1]]);
        proxy.set(Connections::All, Direction::ToClient, Fault::Flip { at, mask: 0x41 });
        let outcome = async {
            let connection = host_at(proxy.address(), &options).connect().await?;
            greet(&connection).await
        };
        if let Err(error) = outcome.await {
            let kinds = [
                ErrorKind::Protocol,
                ErrorKind::Unauthenticated,
                ErrorKind::Unreachable,
                ErrorKind::Busy,
            ];
            assert!(kinds.contains(&error.kind()), "at {at}: {error}");
        } else {
            // Bytes after the last awaited response may never be read.
            assert!(at > whole / 2, "the flipped byte at {at} was not detected");
        }
    }
}

#[tokio::test]
async fn bind_address_is_the_source_address_that_the_server_sees() {
    let sshd = Sshd::start();
    let options = with(sshd.options(), &["BindAddress=127.0.0.9"]);
    greet(&host(&sshd, &options).connect().await.unwrap()).await.unwrap();
    assert!(sshd.log().contains("Connection from 127.0.0.9"), "{}", sshd.log());
}

#[test]
fn the_test_server_ends_when_it_is_dropped() {
    let sshd = Sshd::start();
    // Its port may belong to another program soon after its end, and its process ID, too.
    let (process, configuration) = (sshd.process(), sshd.path("sshd_config"));
    let is_running = || {
        let arguments = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&arguments).contains(&*configuration.to_string_lossy())
    };
    assert!(is_running());
    drop(sshd);
    assert!(!is_running());
}

/// The password is for the destination: a jump host could store it.
#[tokio::test]
async fn the_password_is_not_sent_to_a_jump_host() {
    let line = "PubkeyAuthentication no";
    let near = Sshd::builder().password("open sesame").line(line).start();
    let goal = Sshd::start();
    let (_directory, options) = known_to(&[&near, &goal]);
    let password = Some(PasswordSource::Secret(Secret::new("open sesame")));
    let options = SshOptions { password, ..options };
    // As a destination the same host accepts it.
    greet(&host(&near, &options).connect().await.unwrap()).await.unwrap();
    let through = SshOptions { jump: Some(address(&near)), ..options };
    let error = host(&goal, &through).connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
    assert!(error.location().ends_with(&address(&near)), "{error}");
    // The jump host would have accepted it, so it was not sent.
    assert_eq!(near.log().matches("Accepted ").count(), 1, "{}", near.log());
}

/// A ProxyCommand is another program, perhaps of another author.
#[test]
fn a_proxy_command_does_not_inherit_secrets() {
    const NAME: &str = "reach::a_proxy_command_does_not_inherit_secrets";
    const SECRETS: [&str; 3] = ["HAUL_PASSWORD", "HAUL_PASSWORD_NEAR", "HAUL_TOKEN"];
    if std::env::var_os("HAUL_PASSWORD").is_none() {
        // Runs this test again in a process that has them.
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", NAME]).envs(SECRETS.map(|name| (name, "open sesame")));
        let output = again.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let seen = directory.path().join("environment");
    let options = SshOptions {
        config: ConfigFile::None,
        // Connecting waits up to 1 s for the end of the command's standard error; the file is complete by then.
        options: vec![format!("ProxyCommand=sh -c 'env > {}'", seen.display())],
        ..SshOptions::default()
    };
    let host = SshHost::resolve(None, "127.0.0.1", None, &options, Arc::new(NoPrompter)).unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(host.connect()).unwrap_err();
    let environment = std::fs::read_to_string(seen).unwrap();
    assert!(environment.contains("PATH="), "{environment}");
    assert!(!environment.contains("open sesame"), "{environment}");
}
