//! `haul peers`: lists, adds, renames and forgets machines that are known by name.

use std::ffi::OsStr;

use haul_peer::identity::{Peer, Peers};
use haul_peer::ticket::{Ticket, TicketError};
use haul_storage::{Location, Timestamp};
use serde::Serialize;

use crate::args::{PeersAction, PeersArgs, RemoteArgs};
use crate::backends::Storages;
use crate::config::Config;
use crate::directories;
use crate::exit::{Exit, Stop};
use crate::moment::unix_seconds;
use crate::output::{Printer, human};

/// A peer in JSON.
#[derive(Debug, Serialize)]
struct Object<'a> {
    event: &'static str,
    name: &'a str,
    key: String,
    addresses: Vec<String>,
    has_ticket: bool,
    /// In seconds since 1970.
    added: u64,
}

/// Runs `haul peers`.
pub(crate) async fn run(
    args: &PeersArgs,
    config: &Config,
    printer: &Printer,
) -> Result<Exit, Stop> {
    let state = directories::state().ok_or_else(|| {
        Stop::Usage("neither XDG_STATE_HOME nor HOME is set to an absolute path".to_owned())
    })?;
    let peers = Peers::at(&state.join("peers.toml"));
    match &args.action {
        None | Some(PeersAction::List) => list(&peers, printer)?,
        Some(PeersAction::Add { name, ticket, bridge, no_lan }) => {
            // Checked first, since a spoken code works only once.
            peers.check_name(name)?;
            let mut remote = RemoteArgs::default();
            remote.network.bridge.clone_from(bridge);
            remote.network.no_lan = *no_lan;
            let storages = Storages::for_names(config, &remote, printer)?;
            let ticket = Box::pin(ticket_of(ticket, &storages)).await?;
            peers.add(name, &Peer::of_ticket(&ticket, unix_seconds()))?;
        }
        Some(PeersAction::Forget { name }) => peers.forget(name)?,
        Some(PeersAction::Rename { from, to }) => peers.rename(from, to)?,
    }
    Ok(Exit::Done)
}

fn list(peers: &Peers, printer: &Printer) -> Result<(), Stop> {
    let known = peers.list()?;
    let width = known.keys().map(String::len).max().unwrap_or(0);
    for (name, peer) in &known {
        let addresses: Vec<_> = peer.addresses.iter().map(ToString::to_string).collect();
        if printer.is_json() {
            let (key, has_ticket) = (peer.key.to_string(), peer.secret.is_some());
            let (event, added) = ("peer", peer.first_seen);
            printer.object(&Object { event, name, key, addresses, has_ticket, added });
            continue;
        }
        let seconds = i64::try_from(peer.first_seen).unwrap_or(i64::MAX);
        let added = human::utc(Timestamp { seconds, nanos: 0 }, false);
        let first = addresses.first().map_or("-", String::as_str);
        printer.result(format!("{name:width$}  {}  added {added}  {first}", peer.key));
    }
    Ok(())
}

/// The ticket of an argument, in any of its forms. A spoken code is used up.
async fn ticket_of(argument: &OsStr, storages: &Storages<'_>) -> Result<Ticket, Stop> {
    // Standard input is `@-` in a location.
    let argument = if argument == "-" { OsStr::new("@-") } else { argument };
    let location = storages.locate(argument)?;
    let Location::Peer { path, .. } = &location else {
        return Err(Stop::Usage(format!(
            "{location}: it is neither a ticket (which begins with 'haul1') nor a spoken code"
        )));
    };
    if !path.is_empty() {
        return Err(Stop::Usage(format!("{location}: give it without a path")));
    }
    let location = storages.with_ticket(&location).await?;
    let Location::Peer { ticket, .. } = &location else {
        return Err(Stop::Usage(format!("{location}: it is not a ticket")));
    };
    ticket.expose().parse().map_err(|error: TicketError| {
        Stop::Usage(format!("{location}: cannot use the ticket ({error})"))
    })
}
