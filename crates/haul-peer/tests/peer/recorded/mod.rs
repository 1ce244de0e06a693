//! Exchanges that earlier versions recorded below TLS, in `tests/recorded`. They are replayed against this build, once
//! in place of the client and once in place of the server.
//!
//! `HAUL_RECORD=1 cargo test -p haul-peer --test peer -- --exact recorded::record` records those of this version, in
//! place of the ones that it has recorded before. Do so once for each release, and never change those of another
//! version.

mod bridge;
mod cases;
mod client;
mod file;
mod server;
mod tap;

use haul_peer::client::PeerHost;
use haul_peer::identity::Identity;
use haul_peer::ticket::{Address, Ticket};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::time::timeout;

use self::cases::{CASES, Case};

/// Environment variable that is set to record.
const RECORD: &str = "HAUL_RECORD";

/// Runs the operations of a case through a tap, and saves the frames that pass.
async fn record_one(case: &Case) {
    let (server, secret) = server::serve(case).await;
    let (listener, identity) =
        (TcpListener::bind("127.0.0.1:0").await.unwrap(), Identity::ephemeral().unwrap());
    let address = Address::new(listener.local_addr().unwrap()).unwrap();
    let ticket = Ticket::new(identity.key(), secret.clone()).with_addresses([address]);
    let to = (server.addresses()[0], *server.key());
    let recording = tokio::spawn(tap::record(listener, identity, to, secret));
    let own = Identity::ephemeral().unwrap();
    let host = PeerHost::new(&ticket, &own, Handle::current()).unwrap();
    (case.run)(host).await;
    let lines = timeout(tap::PATIENCE, recording).await.unwrap().unwrap();
    file::save(case.name, &lines);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn record() {
    if std::env::var_os(RECORD).is_none() {
        return;
    }
    for case in &CASES {
        record_one(case).await;
    }
    bridge::record().await;
}

/// The recordings of a name: at least one.
fn recordings(name: &str) -> Vec<(String, Vec<file::Line>)> {
    let found = file::load(name);
    let directory = file::directory();
    assert!(!found.is_empty(), "{}: {name} is not recorded ({RECORD}=1)", directory.display());
    found
}

/// A client of an earlier version works with this one's server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_clients_get_the_recorded_responses() {
    for case in &CASES {
        for (version, lines) in recordings(case.name) {
            eprintln!("{version}: {}", case.name);
            server::replay(case, &lines).await;
        }
    }
}

/// A client of this version works with an earlier one's server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_succeed_with_recorded_servers() {
    for case in &CASES {
        for (version, lines) in recordings(case.name) {
            eprintln!("{version}: {}", case.name);
            client::replay(case, &lines).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_clients_of_a_bridge_get_the_recorded_responses() {
    for (version, lines) in recordings(bridge::NAME) {
        eprintln!("{version}");
        bridge::replay_to_bridge(&lines).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sharers_and_receivers_work_with_a_recorded_bridge() {
    for (version, lines) in recordings(bridge::NAME) {
        eprintln!("{version}");
        bridge::replay_to_clients(&lines).await;
    }
}
