//! A dropped proxy leaves no thread, no file descriptor and no socket.
//!
//! This test has a process of its own, so that no other test's threads and sockets come and go
//! meanwhile.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use haul_fault_proxy::{Connections, Direction, Fault, FaultProxy};

fn count(directory: &str) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

/// Sockets with this local port in any state but TIME_WAIT.
fn sockets(address: SocketAddr) -> usize {
    const TIME_WAIT: &str = "06";
    let port = format!(":{:04X}", address.port());
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    table
        .lines()
        .map(|line| line.split_ascii_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields[1].ends_with(&port) && fields[3] != TIME_WAIT)
        .count()
}

#[test]
fn a_dropped_proxy_leaves_no_thread_and_no_socket() {
    // A server that accepts nothing meanwhile needs no threads. The system completes its clients' handshakes.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let (threads, files) = (count("/proc/self/task"), count("/proc/self/fd"));
    for round in 0..20 {
        let proxy = FaultProxy::to(server.local_addr().unwrap())
            .stall(Connections::Nth(2))
            .refuse(Connections::Nth(3))
            .set(Connections::All, Direction::ToServer, Fault::delay(Duration::from_secs(3600)))
            .set(Connections::Nth(4), Direction::ToServer, Fault::Blackhole { from: 0 })
            .set(Connections::Nth(5), Direction::ToServer, Fault::CutSoft { after: 0 })
            .set(Connections::Nth(6), Direction::ToServer, Fault::Rate(1))
            .start()
            .unwrap();
        // Connecting may fail for the refused client.
        let mut clients: Vec<_> =
            (0..7).filter_map(|_| TcpStream::connect(proxy.address()).ok()).collect();
        for client in &mut clients {
            let _ = client.write_all(b"in flight");
        }
        assert!(proxy.wait_until(|stats| stats.open == 6, Duration::from_secs(60)));
        if round % 2 == 0 {
            proxy.pause();
        }
        assert_eq!(count("/proc/self/task"), threads + 1);
        let address = proxy.address();
        drop(proxy);

        assert_eq!(count("/proc/self/fd"), files + clients.len());
        assert_eq!(sockets(address), 0);
        // A joined thread stays on the system's list for a short time.
        let begin = Instant::now();
        while count("/proc/self/task") > threads {
            assert!(begin.elapsed() < Duration::from_secs(60), "a thread is left");
            std::thread::yield_now();
        }
        let refused = TcpStream::connect(address).map_err(|error| error.kind());
        assert_eq!(refused.map(drop), Err(ErrorKind::ConnectionRefused));
        for mut client in clients {
            // One client has received a FIN before; Linux reports a reset behind that as a broken pipe.
            let end = client.read(&mut [0]).map_err(|error| error.kind());
            assert!(
                matches!(end, Ok(0) | Err(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)),
                "{end:?}"
            );
        }
        // Take the proxy's connections, which are closed by now, from the server's queue.
        server.set_nonblocking(true).unwrap();
        while server.accept().is_ok() {}
        assert_eq!(count("/proc/self/fd"), files);
    }
}
