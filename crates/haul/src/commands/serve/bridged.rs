//! `haul share --bridge`: registers the share at a bridge, and stays registered. With `--code`, it offers the ticket
//! at a bridge by a spoken code.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use haul_peer::bridge::code::{Code, CodeEvent, CodeOffer};
use haul_peer::bridge::{Registration, RegistrationEvent};
use haul_peer::lan::bridges;
use haul_peer::server::PeerServer;
use haul_peer::ticket::{BridgeAddress, Secret, Ticket};
use haul_storage::text;
use serde::Serialize;

use super::server_args::bridge_token;
use crate::args::ShareArgs;
use crate::exit::Stop;
use crate::lan;
use crate::output::Printer;

/// Checks that a bridge is known if an option needs one. Returns the bridge of the local network at which to offer a
/// code if no other one is known. It is used for that only: the user has not chosen it.
///
/// # Errors
/// If an option needs a bridge and none is known, or if the local network has several.
pub(super) async fn check(
    args: &ShareArgs,
    printer: &Printer,
) -> Result<Option<BridgeAddress>, Stop> {
    let option = match args {
        _ if args.bridge.is_some() => return Ok(None),
        ShareArgs { bridge_only: true, .. } => "--bridge-only",
        ShareArgs { code: true, .. } => {
            let found = if args.no_lan { Vec::new() } else { bridges().await };
            match lan::only(&found, printer)? {
                Some(bridge) => return Ok(Some(bridge)),
                None => "--code",
            }
        }
        ShareArgs { bridge_token: Some(_), .. } => "--bridge-token",
        _ => return Ok(None),
    };
    Err(Stop::Usage(format!(
        "{option} needs a bridge\n\
         hint: name one with --bridge HOST:PORT/KEY; --code also uses bridge in [defaults] of the \
         configuration, or the one that announces itself on the local network"
    )))
}

/// Registers the share; `None` without a bridge. The ticket must not be printed before: it does not work if the bridge
/// refuses the share.
pub(super) async fn register(
    args: &ShareArgs,
    server: &PeerServer,
    secret: &Secret,
    printer: &Printer,
) -> Result<Option<Registration>, Stop> {
    let (Some(bridge), Some(acceptor)) = (&args.bridge, server.acceptor()) else {
        return Ok(None);
    };
    let bridge = bridge.0.clone();
    let (name, printer) = (bridge.to_string(), printer.clone());
    // One warning each time that the bridge is lost.
    let is_lost = AtomicBool::new(false);
    let mut builder = Registration::builder(bridge)
        .token(bridge_token("--bridge-token", args.bridge_token.as_ref())?)
        .secret(secret.clone());
    if !args.bridge_only {
        let checker = acceptor.clone();
        builder = builder.dial_back(move || checker.has_valid_ticket_or_session());
    }
    let registration = builder
        .observer(move |event| match event.action {
            RegistrationEvent::Lost { cause } if !is_lost.swap(true, Ordering::Relaxed) => {
                let message = format!("the bridge is lost, reconnecting: {}", text::line(&cause));
                printer.warning(&name, &message);
            }
            RegistrationEvent::Registered { .. } if is_lost.swap(false, Ordering::Relaxed) => {
                printer.note(format_args!("haul: {name}: registered again"));
            }
            _ => {}
        })
        .start(move |stream, from| acceptor.accept(stream, from))
        .await?;
    Ok(Some(registration))
}

/// Offers the ticket by a spoken code: at `lan_bridge` if there is one, else at the bridge of `args`. `None` without
/// `--code`.
pub(super) async fn offer(
    args: &ShareArgs,
    lan_bridge: Option<BridgeAddress>,
    ticket: &Ticket,
    printer: &Printer,
) -> Result<Option<(CodeOffer, Code)>, Stop> {
    // A bridge can test guesses of a token against its proof. The token in the environment is for the user's bridges,
    // so one that was only found on the local network gets no proof of it.
    let is_known = lan_bridge.is_none() || args.bridge_token.is_some();
    let token =
        if is_known { bridge_token("--bridge-token", args.bridge_token.as_ref())? } else { None };
    let bridge = lan_bridge.or_else(|| args.bridge.as_ref().map(|bridge| bridge.0.clone()));
    let Some(bridge) = bridge.filter(|_| args.code) else { return Ok(None) };
    let printer = printer.clone();
    let offered = CodeOffer::builder(bridge, ticket.clone())
        .token(token)
        .observer(move |event| report(&event.action, event.address, &printer))
        .start()
        .await?;
    Ok(Some(offered))
}

/// Prints an event of a code.
fn report(event: &CodeEvent, address: SocketAddr, printer: &Printer) {
    if printer.is_json() {
        printer.object(&object(event, address));
    } else {
        match event {
            CodeEvent::Used => printer.note(format_args!("haul: {address} has used the code")),
            CodeEvent::Guessed { next } => {
                let more = match next {
                    Some(_) => "is not valid any more; there is a new one",
                    None => "is not valid any more; for a new one, start haul share again",
                };
                let message = format!("{address} has used wrong words: the code {more}");
                printer.warning("--code", &message);
                if let Some(next) = next {
                    printer.result(format!("code     {next}"));
                }
            }
            CodeEvent::Expired => printer.note("haul: the code has expired"),
            CodeEvent::Lost { cause } => {
                let message = format!("the code is not valid any more: {}", text::line(cause));
                printer.warning("--code", &message);
            }
            _ => {}
        }
    }
    // The user may be waiting for the new code.
    printer.flush();
}

fn object(event: &CodeEvent, address: SocketAddr) -> CodeObject {
    let (action, code, cause) = match event {
        CodeEvent::Used => ("used", None, None),
        CodeEvent::Guessed { next } => ("guessed", next.as_ref().map(Code::to_string), None),
        CodeEvent::Lost { cause } => ("lost", None, Some(cause.clone())),
        _ => ("expired", None, None),
    };
    CodeObject { event: "code", address, action, code, cause }
}

/// An event in JSON.
#[derive(Debug, Serialize)]
struct CodeObject {
    event: &'static str,
    address: SocketAddr,
    action: &'static str,
    /// The code that is valid now.
    code: Option<String>,
    cause: Option<String>,
}
