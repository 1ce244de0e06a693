//! Metrics of a bridge, served in the text format of Prometheus over HTTP.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use haul_net::{Admission, Admitted, Running};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::super::messages::Refusal;

/// Maximum number of concurrent connections to the metrics endpoint.
const READERS: usize = 16;

/// Time for a request and its response.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longest head of a request in bytes.
const HEAD: usize = 8 << 10;

/// Why something was refused or ended, other than by a [`Refusal`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// More connections than allowed.
    Connections,
    /// Neither TLS nor a data connection.
    Garbage,
    /// A handshake failed or took too long.
    Handshake,
    /// A data connection that was not announced in time, or an announced one that did not arrive.
    Unclaimed,
    /// A data connection with the number of another one, or too many that are not announced yet.
    Data,
}

impl Fault {
    const ALL: [Self; 5] =
        [Self::Connections, Self::Garbage, Self::Handshake, Self::Unclaimed, Self::Data];

    const fn label(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Garbage => "garbage",
            Self::Handshake => "handshake",
            Self::Unclaimed => "unclaimed",
            Self::Data => "data",
        }
    }
}

/// The metrics.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    pub(super) sharers: AtomicU64,
    pub(super) pairs: AtomicU64,
    pub(super) joins: AtomicU64,
    pub(super) bytes: AtomicU64,
    refusals: [AtomicU64; Refusal::ALL.len()],
    faults: [AtomicU64; Fault::ALL.len()],
}

impl Metrics {
    pub(super) fn refused(&self, refusal: Refusal) {
        if let Some(at) = Refusal::ALL.iter().position(|one| *one == refusal) {
            self.refusals[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn failed(&self, fault: Fault) {
        if let Some(at) = Fault::ALL.iter().position(|one| *one == fault) {
            self.faults[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts one until the result is dropped.
    pub(super) fn counted(self: &Arc<Self>, which: Gauge) -> Counted {
        which.of(self).fetch_add(1, Ordering::Relaxed);
        Counted { metrics: Arc::clone(self), which }
    }

    /// The metrics in the text format of Prometheus, version 0.0.4.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let mut metric = |name: &str, kind: &str, help: &str, value: &AtomicU64| {
            let value = value.load(Ordering::Relaxed);
            // Writing to a string cannot fail.
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
        };
        metric("haul_bridge_sharers", "gauge", "Registered sharers.", &self.sharers);
        metric("haul_bridge_pairs", "gauge", "Pairs of data connections.", &self.pairs);
        metric("haul_bridge_joins_total", "counter", "Joins of rooms.", &self.joins);
        metric("haul_bridge_bytes_total", "counter", "Bytes forwarded.", &self.bytes);
        text.push_str("# HELP haul_bridge_refused_total Requests and connections refused.\n");
        text.push_str("# TYPE haul_bridge_refused_total counter\n");
        let refusals = Refusal::ALL.iter().map(|one| label(*one)).zip(&self.refusals);
        let faults = Fault::ALL.iter().map(|one| one.label()).zip(&self.faults);
        for (reason, count) in refusals.chain(faults) {
            let count = count.load(Ordering::Relaxed);
            let _ = writeln!(text, "haul_bridge_refused_total{{reason=\"{reason}\"}} {count}");
        }
        text
    }
}

/// A metric that also goes down: it counts what exists at the moment.
#[derive(Debug, Clone, Copy)]
pub(super) enum Gauge {
    Sharers,
    Pairs,
}

impl Gauge {
    const fn of(self, metrics: &Metrics) -> &AtomicU64 {
        match self {
            Self::Sharers => &metrics.sharers,
            Self::Pairs => &metrics.pairs,
        }
    }
}

/// Counts one until it is dropped.
#[derive(Debug)]
pub(super) struct Counted {
    metrics: Arc<Metrics>,
    which: Gauge,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.which.of(&self.metrics).fetch_sub(1, Ordering::Relaxed);
    }
}

const fn label(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Other => "other",
        Refusal::Version => "version",
        Refusal::Token => "token",
        Refusal::Room => "room",
        Refusal::Mac => "mac",
        Refusal::Busy => "busy",
        Refusal::Quota => "quota",
        Refusal::Invalid => "invalid",
        Refusal::Rate => "rate",
    }
}

/// Serves the metrics at `/metrics`, on a thread of its own, until the bridge stops.
pub(super) fn serve(
    listener: std::net::TcpListener,
    metrics: Arc<Metrics>,
    running: Running,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let run = move || {
        runtime.block_on(async move {
            let Ok(listener) = TcpListener::from_std(listener) else { return };
            let admission = Admission::new(READERS, READERS);
            let on_reader = move |socket: TcpStream, _: SocketAddr, admitted: Admitted| {
                let metrics = Arc::clone(&metrics);
                tokio::spawn(async move {
                    // The client may be gone.
                    drop(timeout(PATIENCE, respond(socket, &metrics)).await);
                    drop(admitted);
                });
            };
            running.accept(listener, &admission, on_reader, |_, _| {}).await;
        });
    };
    thread::Builder::new().name("haul-bridge-metrics".to_owned()).spawn(run).map(drop)
}

async fn respond(mut socket: TcpStream, metrics: &Metrics) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() > HEAD || socket.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let (status, body) = match line.strip_prefix(b"GET ") {
        Some(rest) if rest.starts_with(b"/metrics ") => ("200 OK", metrics.text()),
        Some(_) => ("404 Not Found", "the metrics are at /metrics\n".to_owned()),
        None => ("405 Method Not Allowed", "only GET is supported\n".to_owned()),
    };
    let length = body.len();
    let response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    socket.write_all(response.as_bytes()).await?;
    socket.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_and_reasons_are_in_the_text() {
        let metrics = Arc::new(Metrics::default());
        metrics.refused(Refusal::Token);
        metrics.failed(Fault::Garbage);
        metrics.failed(Fault::Garbage);
        metrics.bytes.fetch_add(7, Ordering::Relaxed);
        let pair = metrics.counted(Gauge::Pairs);
        let text = metrics.text();
        for line in [
            "# TYPE haul_bridge_sharers gauge",
            "haul_bridge_sharers 0",
            "haul_bridge_pairs 1",
            "haul_bridge_bytes_total 7",
            "haul_bridge_refused_total{reason=\"token\"} 1",
            "haul_bridge_refused_total{reason=\"garbage\"} 2",
            "haul_bridge_refused_total{reason=\"rate\"} 0",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        drop(pair);
        assert!(metrics.text().contains("haul_bridge_pairs 0\n"));
    }
}
