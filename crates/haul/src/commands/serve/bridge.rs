//! `haul bridge`: runs a server that connects peers.
//!
//! ```text
//! token, key → start the bridge → print its addresses → wait for a signal
//! ```

use std::net::SocketAddr;

use haul_peer::bridge::{BridgeAction, BridgeEvent, BridgeServer};
use haul_peer::identity::Identity;
use haul_storage::text;
use serde::Serialize;

use super::addresses::for_others;
use super::announced;
use super::log::{Log, LogEvent};
use super::server_args::{bridge_token, state_path};
use crate::args::BridgeArgs;
use crate::exit::{Exit, Stop};
use crate::output::Printer;
use crate::signals::Signals;
use crate::units::bytes;

/// The port without `--listen`.
const PORT: u16 = 4181;

/// Printed once the bridge runs.
#[derive(Debug, Serialize)]
struct Bridge {
    event: &'static str,
    bridges: Vec<String>,
    key: String,
    metrics: Option<String>,
}

/// Runs `haul bridge`.
pub(crate) async fn run(args: &BridgeArgs, printer: &Printer) -> Result<Exit, Stop> {
    let token = if args.open { None } else { bridge_token("--token", args.token.as_ref())? };
    if token.is_none() && !args.open {
        return Err(Stop::Usage(
            "without a token, everyone could use the bridge\n\
             hint: write --token @FILE, or --open if that is intended"
                .to_owned(),
        ));
    }
    let identity = Identity::read_or_create(&state_path("bridge.pem", "XDG_STATE_HOME")?)?;
    let signals = Signals::listen(printer, "stopping");
    let (observer, log_end) = Log::<BridgeEvent>::observer(printer)?;
    let mut builder = BridgeServer::builder()
        .observer(observer)
        .token(token)
        .open(args.open)
        .max_sessions(args.max_sessions.as_usize())
        .max_rate(args.max_rate.map(|rate| rate.0))
        .quota(args.quota.map(|size| size.0))
        .metrics(args.metrics);
    for address in &args.listen {
        builder = builder.listen(*address);
    }
    if args.listen.is_empty() {
        builder = builder.listen_anywhere(PORT);
    }
    let bridge = builder.bind(&identity).await?;
    let announcement = match args.announce {
        true => announced::bridge(bridge.key(), bridge.addresses(), printer),
        false => None,
    };
    if args.announce && announcement.is_none() && bridge.addresses().iter().all(is_loopback) {
        printer.warning("--announce", "only this machine can reach the bridge: see --listen");
    }
    print(&bridge, printer);
    signals.cancel().cancelled().await;
    announced::end(announcement).await;
    bridge.stop().await;
    log_end.wait();
    Ok(Exit::Done)
}

fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().is_loopback()
}

fn print(bridge: &BridgeServer, printer: &Printer) {
    let key = bridge.key().to_text();
    let addresses = for_others(bridge.addresses());
    let bridges: Vec<String> = addresses.iter().map(|one| format!("{one}/{key}")).collect();
    let metrics = bridge.metrics().map(|address| format!("http://{address}/metrics"));
    if printer.is_json() {
        printer.object(&Bridge { event: "bridge", bridges, key, metrics });
    } else {
        for one in bridges {
            printer.result(format!("bridge {one}"));
        }
        if let Some(url) = metrics {
            printer.result(format!("metrics {url}"));
        }
    }
    // The process that started it may be waiting for this output.
    printer.flush();
}

impl LogEvent for BridgeEvent {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn text(&self) -> String {
        match &self.action {
            BridgeAction::Registered => "registered".to_owned(),
            BridgeAction::Unregistered => "unregistered".to_owned(),
            BridgeAction::Joined => "joined".to_owned(),
            BridgeAction::Forwarded { bytes: moved } => format!("forwarded {}", bytes(*moved)),
            BridgeAction::Refused(cause) => format!("refused: {cause}"),
            BridgeAction::Failed(cause) => format!("disconnected: {}", text::line(cause)),
            BridgeAction::TurnedAway => "rejected: too many connections".to_owned(),
            _ => "unknown event".to_owned(),
        }
    }

    fn object(&self) -> impl Serialize {
        let (action, cause, moved) = match &self.action {
            BridgeAction::Registered => ("registered", None, None),
            BridgeAction::Unregistered => ("left", None, None),
            BridgeAction::Joined => ("joined", None, None),
            BridgeAction::Forwarded { bytes } => ("forwarded", None, Some(*bytes)),
            BridgeAction::Refused(cause) => ("refused", Some((*cause).to_owned()), None),
            BridgeAction::Failed(cause) => ("failed", Some(cause.clone()), None),
            _ => ("rejected", None, None),
        };
        Object { event: "client", address: self.address, action, cause, bytes: moved }
    }
}

/// An event in JSON.
#[derive(Debug, Serialize)]
struct Object {
    event: &'static str,
    address: SocketAddr,
    action: &'static str,
    cause: Option<String>,
    bytes: Option<u64>,
}
