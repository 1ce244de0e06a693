//! `haul share` behind a router: requests a port mapping, and puts the router's address into the ticket. Without a
//! mapping the share runs all the same: peers may reach this machine in other ways, or use a bridge.

use std::net::SocketAddr;

use haul_peer::port_mapping::{MappingEvent, PortMapping};
use haul_peer::ticket::Address;
use haul_storage::Error;

use crate::args::ShareArgs;
use crate::output::Printer;

/// The subject of messages.
const ABOUT: &str = "port mapping";

/// Starts to request a mapping if this machine, with these addresses, is behind a router. `None` if it is not, if an
/// option turns mappings off, or if there is no router to request one from.
pub(super) fn start(
    args: &ShareArgs,
    addresses: &[Address],
    listening: &[SocketAddr],
    printer: &Printer,
) -> Option<PortMapping> {
    if args.no_port_mapping || args.bridge_only || !is_behind_router(addresses) {
        return None;
    }
    let observing = printer.clone();
    let observer = move |event| report(event, &observing);
    let started = PortMapping::start(listening, observer);
    started.map_err(|error| refused(&error, printer)).ok()
}

/// Adds the router's address to those of the ticket, behind those that the user has named. Waits for it at most until
/// one second after the start.
pub(super) async fn add_address(
    mapping: Option<&mut PortMapping>,
    args: &ShareArgs,
    addresses: &mut Vec<Address>,
    printer: &Printer,
) {
    let Some(mapping) = mapping else { return };
    match mapping.address().await {
        Ok(address) => {
            addresses.insert(args.address.len().min(addresses.len()), address);
            if printer.is_verbose() {
                printer.note(format_args!("haul: {ABOUT}: the router forwards {address}"));
            }
        }
        Err(error) => refused(&error, printer),
    }
}

/// Removes the mapping.
pub(super) async fn end(mapping: Option<PortMapping>) {
    if let Some(mapping) = mapping {
        mapping.stop().await;
    }
}

/// Whether others can reach this machine by IPv4 only through a router: apart from loopback, it has private addresses
/// only.
fn is_behind_router(addresses: &[Address]) -> bool {
    let v4 = addresses.iter().filter(|address| address.socket().is_ipv4());
    let mut others = v4.filter(|address| !address.socket().ip().is_loopback()).peekable();
    others.peek().is_some() && others.all(|address| address.is_private())
}

fn refused(error: &Error, printer: &Printer) {
    if printer.is_verbose() {
        printer.note(format_args!("haul: {ABOUT}: no port is forwarded: {}", error.cause()));
    }
}

fn report(event: MappingEvent, printer: &Printer) {
    match event {
        MappingEvent::Lost { cause } => {
            let message = format!("the router does not forward the port any more: {cause}");
            printer.warning(ABOUT, &message);
        }
        MappingEvent::Restored => {
            printer.note(format_args!("haul: {ABOUT}: the router forwards the port again"));
        }
        MappingEvent::Moved { address } => {
            let message =
                format!("the router forwards {address} now, which the ticket does not have");
            printer.warning(ABOUT, &message);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_with_private_addresses_only_is_behind_a_router() {
        let is_behind = |texts: &[&str]| {
            let addresses: Vec<_> = texts.iter().map(|text| text.parse().unwrap()).collect();
            is_behind_router(&addresses)
        };
        assert!(is_behind(&["192.168.1.7:4180", "127.0.0.1:4180"]));
        // A firewall may block incoming IPv6 connections, or the receiver may not have IPv6.
        assert!(is_behind(&["10.0.0.7:4180", "100.64.0.7:4180", "[2001:db8::7]:4180"]));
        assert!(!is_behind(&["192.168.1.7:4180", "203.0.113.7:4180"]));
        assert!(!is_behind(&["127.0.0.1:4180", "[2001:db8::7]:4180"]));
        assert!(!is_behind(&[]));
    }
}
