//! Spoken codes: each is exchanged for its ticket, once. The ticket is stored for a day, so that an interrupted command
//! can be run again: the code itself does not work twice.

use std::borrow::Cow;
use std::collections::HashMap;

use haul_peer::bridge::code::{Code, fetch};
use haul_peer::identity::Fetched;
use haul_peer::lan::bridges;
use haul_peer::ticket::{BridgeAddress, Ticket};
use haul_storage::{Error, ErrorKind, Location, Result, TicketText};
use tokio::sync::Mutex;
use tokio::task::JoinError;

use super::opened::Shared;
use crate::args::BridgeArg;
use crate::moment::unix_seconds;
use crate::{directories, lan};

/// Exchanges codes for tickets.
#[derive(Debug)]
pub(super) struct Codes {
    bridge: Option<BridgeAddress>,
    /// Whether to look for a bridge on the local network if none is known.
    lan: bool,
    /// By the text of the code. A code is tried once, and its outcome stored: each attempt lets a false sharer test one
    /// guess of the words.
    tickets: Mutex<HashMap<String, Result<TicketText>>>,
}

impl Codes {
    /// No code yet.
    pub(super) fn new(bridge: Option<&BridgeArg>, lan: bool) -> Self {
        let bridge = bridge.map(|bridge| bridge.0.clone());
        Self { bridge, lan, tickets: Mutex::default() }
    }

    /// The location with the ticket in place of a code.
    ///
    /// # Errors
    /// No bridge is known, the local network has several, or the bridge does not exchange the code.
    pub(super) async fn resolved<'a>(
        &self,
        location: &'a Location,
        shared: &Shared,
    ) -> Result<Cow<'a, Location>> {
        let Location::Peer { ticket, path } = location else { return Ok(Cow::Borrowed(location)) };
        let Ok(code) = ticket.expose().parse::<Code>() else { return Ok(Cow::Borrowed(location)) };
        let text = code.to_string();
        // Held during the exchange: several locations may have the same code.
        let mut tickets = self.tickets.lock().await;
        let again = |outcome: &Result<TicketText>| match outcome {
            Ok(ticket) => Ok(ticket.clone()),
            Err(error) => Err(error.again().at(location)),
        };
        let ticket = match tickets.get(&text) {
            Some(known) => again(known)?,
            None => {
                let ticket = self.ticket(code, &text, shared).await;
                let ticket = ticket.map(|ticket| TicketText::new(ticket.to_string()));
                let outcome = again(&ticket);
                tickets.insert(text, ticket);
                outcome?
            }
        };
        Ok(Cow::Owned(Location::Peer { ticket, path: path.clone() }))
    }

    async fn ticket(&self, code: Code, text: &str, shared: &Shared) -> Result<Ticket> {
        let fetched = directories::state().map(|state| Fetched::at(&state.join("codes.toml")));
        // If the file cannot be used, the code still works; only a rerun of the command fails.
        let known = fetched
            .as_ref()
            .and_then(|fetched| fetched.ticket(text, unix_seconds()).ok().flatten());
        if let Some(ticket) = known {
            return Ok(ticket);
        }
        let failed =
            |error: JoinError| Error::new(ErrorKind::Other, "use the code").with_source(error);
        let bridge = match &self.bridge {
            Some(bridge) => Some(bridge.clone()),
            None if self.lan => {
                let found = shared.runtime()?.spawn(bridges()).await.map_err(failed)?;
                lan::only(&found, &shared.printer)?
            }
            None => None,
        };
        let bridge = bridge.ok_or_else(|| {
            Error::new(ErrorKind::InvalidInput, "use the code").because("no bridge is known").hinting(
                "name it with --bridge, or bridge in [defaults] of the configuration; for a local \
                 file of that name write './' before it",
            )
        })?;
        let (waits, number) = (shared.waits.of(bridge.to_string()), code.number());
        let fetching = shared.runtime()?.spawn(async move { fetch(&bridge, &code).await });
        let fetching = waits.watch(|| format!("ticket for code {number}"), fetching);
        let ticket = fetching.await.map_err(failed)??;
        if let Some(fetched) = fetched {
            drop(fetched.store(text, &ticket, unix_seconds()));
        }
        Ok(ticket)
    }
}
