//! An idle proxy sleeps, whatever the state of its connections.
//!
//! This is the only test of its process, so that the proxy's thread can be found by name.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use haul_fault_proxy::{Connections, Direction, Fault, FaultProxy};

/// Number of context switches of the proxy's thread, voluntary and involuntary.
fn switches() -> u64 {
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        if status.starts_with("Name:\tfault-proxy\n") {
            return status
                .lines()
                .filter(|line| line.contains("ctxt_switches"))
                .map(|line| line.split_ascii_whitespace().last().unwrap().parse::<u64>().unwrap())
                .sum();
        }
    }
    panic!("no thread named fault-proxy");
}

/// CPU time of the proxy's thread.
fn time() -> Duration {
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        if std::fs::read_to_string(task.join("comm")).unwrap() == "fault-proxy\n" {
            let stat = std::fs::read_to_string(task.join("schedstat")).unwrap();
            let nanos = stat.split_ascii_whitespace().next().unwrap();
            return Duration::from_nanos(nanos.parse().unwrap());
        }
    }
    panic!("no thread named fault-proxy");
}

fn reset(socket: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).unwrap();
    drop(socket);
}

#[test]
fn an_idle_proxy_sleeps() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let hour = Fault::delay(Duration::from_secs(3600));
    let proxy = FaultProxy::to(server.local_addr().unwrap())
        .set(Connections::Nth(1), Direction::ToServer, hour)
        .set(Connections::Nth(2), Direction::ToServer, Fault::Blackhole { from: 0 })
        .set(Connections::Nth(2), Direction::ToClient, Fault::Blackhole { from: 0 })
        .set(Connections::Nth(3), Direction::ToServer, Fault::Blackhole { from: 2 })
        .stall(Connections::Nth(4))
        .set(Connections::Nth(5), Direction::ToServer, Fault::Rate(0))
        .set(Connections::Nth(6), Direction::ToServer, Fault::CutSoft { after: 1 })
        .set(Connections::Nth(7), Direction::ToServer, Fault::Truncate { after: 1 })
        .start()
        .unwrap();
    let mut clients = Vec::new();
    // 8 and 9 have no fault: the server does not read from 8, and 9 sends nothing.
    for number in 1..=9_u64 {
        let mut client = TcpStream::connect(proxy.address()).unwrap();
        assert!(proxy.wait_until(|stats| stats.accepted == number, Duration::from_secs(60)));
        match number {
            8 => {
                client.set_nonblocking(true).unwrap();
                // Write until all buffers on the path are full.
                let mut full = 0;
                while full < 20 {
                    if client.write(&[0; 65536]).is_err() {
                        full += 1;
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
            }
            9 => {}
            _ => client.write_all(b"hello").unwrap(),
        }
        clients.push(client);
    }
    // On a busy machine, earlier work may take longer than usual, so the check is repeated.
    let quiet = |what: &str| {
        for tries in (0..20).rev() {
            std::thread::sleep(Duration::from_millis(100));
            let (before, worked) = (switches(), time());
            std::thread::sleep(Duration::from_millis(400));
            let (switches, worked) = (switches() - before, time() - worked);
            if switches <= 10 && worked < Duration::from_millis(40) {
                return;
            }
            assert!(tries > 0, "{what}: woke {switches} times, worked {worked:?}");
        }
    };
    quiet("open");
    // FINs and resets, most of which cannot be forwarded yet.
    for (number, client) in (1..).zip(clients) {
        match number {
            1 | 2 | 5 => reset(client),
            6 | 7 | 9 => drop(client),
            _ => {
                client.shutdown(Shutdown::Write).unwrap();
                std::mem::forget(client);
            }
        }
    }
    quiet("clients closed");
    // Responses to clients, some of which are gone while their FIN or reset cannot be forwarded yet.
    server.set_nonblocking(true).unwrap();
    let mut served: Vec<_> = std::iter::from_fn(|| server.accept().ok()).collect();
    assert_eq!(served.len(), 8);
    for (socket, _) in &mut served {
        // Some of the connections are closed.
        let _ = socket.write_all(&[0; 1000]);
    }
    quiet("responses sent");
    let mut open = TcpStream::connect(proxy.address()).unwrap();
    assert!(proxy.wait_until(|stats| stats.accepted == 10, Duration::from_secs(60)));
    quiet("new connection");
    proxy.pause();
    open.write_all(b"hello").unwrap();
    let _late = TcpStream::connect(proxy.address()).unwrap();
    quiet("paused");
}
