//! A server that falls silent where the client waits for it: each wait is bounded, and its report names the
//! awaited reply or data.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use haul_ftp::{FtpHost, FtpOptions, TlsMode};
use haul_net::{Wait, Waits};
use haul_storage::{
    Block, CommitOptions, CreateOptions, ErrorKind, Metadata, Range, RelPath, Result, Storage,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use crate::scripted::{Script, Scripted};
use crate::{host, opened};

const FILE: usize = 1 << 20;

/// Longer than all limits together, with all retries.
const OUTCOME_TIMEOUT: Duration = Duration::from_secs(3600);

/// What the client does when the server falls silent.
#[derive(Debug, Clone, Copy)]
enum Doing {
    Resolve,
    List,
    Read,
    Write,
    WriteSmall,
    Remove,
}

/// Where a server falls silent, and what is reported then.
struct Silence {
    script: Script,
    tls: TlsMode,
    doing: Doing,
    reported: &'static str,
}

fn silent_at(silent_at: &'static str, doing: Doing, reported: &'static str) -> Silence {
    let script = Script { silent_at, ..Script::default() };
    Silence { script, tls: TlsMode::Auto, doing, reported }
}

fn all() -> Vec<Silence> {
    let accepted =
        Script { replies: &[("AUTH", "234 Go ahead.")], silent_after: "AUTH", ..Script::default() };
    let handshake = silent_at("greeting", Doing::Resolve, "TLS handshake");
    vec![
        silent_at("greeting", Doing::Resolve, "greeting"),
        Silence { tls: TlsMode::Implicit, ..handshake },
        Silence {
            script: accepted,
            tls: TlsMode::Always,
            doing: Doing::Resolve,
            reported: "TLS handshake",
        },
        silent_at("AUTH", Doing::Resolve, "reply to AUTH"),
        silent_at("USER", Doing::Resolve, "reply to USER"),
        silent_at("PASS", Doing::Resolve, "reply to PASS"),
        silent_at("FEAT", Doing::Resolve, "reply to FEAT"),
        silent_at("EPSV", Doing::Read, "reply to EPSV"),
        silent_at("accept", Doing::Read, "data connection for RETR /up/f"),
        silent_at("RETR", Doing::Read, "data of RETR /up/f"),
        silent_at("226", Doing::Read, "reply to RETR"),
        silent_at("LIST", Doing::List, "reply to LIST"),
        silent_at("STOR", Doing::Write, "send buffer space for STOR /up/.g."),
        silent_at("226", Doing::WriteSmall, "reply to STOR"),
        silent_at("DELE", Doing::Remove, "reply to DELE"),
    ]
}

async fn run(host: &Arc<FtpHost>, doing: Doing) -> Result<()> {
    let path = |name| RelPath::parse(name).unwrap();
    if matches!(doing, Doing::Resolve) {
        return host.resolve(b"/up").await.map(drop);
    }
    let (_journals, storage) = opened(host).await;
    match doing {
        Doing::Resolve => Ok(()),
        Doing::List => {
            let batches = storage.list(&RelPath::root()).await?;
            futures_util::TryStreamExt::try_collect::<Vec<_>>(batches).await.map(drop)
        }
        Doing::Read => {
            let file = storage.open(&path("f")).await?;
            let blocks = file.read_at(Range::new(0, FILE as u64));
            futures_util::TryStreamExt::try_collect::<Vec<_>>(blocks).await.map(drop)
        }
        Doing::Write => {
            let writer = storage.create(&path("g"), &CreateOptions::default()).await?;
            // More than the system's buffers hold.
            for n in 0..64_u64 {
                let block = Block::from(Bytes::from(vec![1; FILE]));
                writer.write_at(n * FILE as u64, block).await?;
            }
            Ok(())
        }
        Doing::WriteSmall => {
            let options = CommitOptions {
                metadata: Metadata::default(),
                replace: true,
                sync: false,
                expected: None,
            };
            storage.write_whole(&path("g"), Bytes::from_static(b"x"), &options).await.map(drop)
        }
        Doing::Remove => storage.remove(&path("f")).await,
    }
}

/// After this time a report is considered missing.
const REPORT_TIMEOUT: Duration = Duration::from_secs(60);

async fn reported(of: &mut UnboundedReceiver<Wait>, what: &str) -> Wait {
    let mut others = Vec::new();
    loop {
        // On a busy machine, other waits may also be long enough to be reported.
        let Ok(wait) = timeout(REPORT_TIMEOUT, of.recv()).await else {
            panic!("{what}: not reported; reported are {others:?}");
        };
        let wait = wait.unwrap();
        // The name of a part file contains an ID.
        let is_part = what.ends_with('.') && wait.what.starts_with(what);
        if wait.what == what || is_part {
            return wait;
        }
        others.push(wait.what);
    }
}

/// Runs a test in a runtime of its own, whose clock can be paused.
fn block_on(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(test);
}

#[test]
fn every_wait_for_a_silent_server_is_reported_and_bounded() {
    for silence in all() {
        block_on(reported_and_bounded(silence));
    }
}

async fn reported_and_bounded(Silence { script, tls, doing, reported: what }: Silence) {
    let server = Scripted::start(script).await;
    server.put("/up/f", &vec![7; FILE]);
    let (reports, mut reports_made) = unbounded_channel();
    let waits = Waits::new(move |wait: &Wait| drop(reports.send(wait.clone())));
    let waits = waits.after(Duration::from_millis(20));
    let host = host(server.port(), FtpOptions { waits, tls, ..FtpOptions::default() });
    let mut running = pin!(run(&host, doing));
    let wait = tokio::select! {
        wait = reported(&mut reports_made, what) => wait,
        outcome = &mut running => panic!("{what}: {outcome:?}"),
    };
    assert_eq!(wait.host, format!("127.0.0.1:{}", server.port()));
    // From here on the clock advances whenever all tasks are idle, so all limits are reached at once.
    tokio::time::pause();
    let outcome = timeout(OUTCOME_TIMEOUT, running).await;
    let Ok(Err(error)) = outcome else { panic!("{what}: {outcome:?}") };
    assert!([ErrorKind::Unreachable, ErrorKind::Busy].contains(&error.kind()), "{what}: {error}");
}
