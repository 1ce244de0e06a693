//! `haul share`: serves files and directories to peers that have a ticket.
//!
//! ```text
//! identity, contents, addresses → start the server → print a ticket → show clients until a signal, or until the ticket
//! has expired → end the share
//! ```

use std::future::pending;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use haul_peer::identity::{Identity, Shares, StoredShare, Terms};
use haul_peer::port_mapping::PortMapping;
use haul_peer::server::{
    ClientAction, ClientEvent, Grant, PeerServer, PeerServerBuilder, SessionEnd,
};
use haul_peer::ticket::{Address, BridgeAddress, Secret, Ticket};
use haul_storage::{Error, ErrorKind, Result, text};
use serde::Serialize;
use tokio::time::sleep;

use super::addresses::{is_only_local, reachable};
use super::announced;
use super::bridged;
use super::contents::{Contents, ShareRoot, labels_with};
use super::log::{Log, LogEnd, LogEvent};
use super::mapped;
use super::qr;
use super::server_args::state_path;
use super::spool::Paths;
use super::watch::Watch;
use super::web::{Page, Web};
use crate::args::ShareArgs;
use crate::exit::{Exit, Stop};
use crate::moment::unix_seconds;
use crate::output::{Printer, human};
use crate::signals::Signals;
use crate::units::{bytes, duration, per_second, rate};

/// How often the clock is checked until the ticket expires.
const CLOCK: Duration = Duration::from_secs(1);

/// A warning about a ticket.
const ONLY_LOCAL: &str = "only this machine can use it, because it has no address that others can \
     reach: connect it to a network, or name an address with --address";

/// What is printed when the share is ready.
#[derive(Serialize)]
struct Sharing<'a> {
    event: &'static str,
    paths: Vec<String>,
    name: &'a str,
    ticket: &'a str,
    code: Option<&'a str>,
    key: String,
    addresses: Vec<String>,
    bridge: Option<String>,
    writable: bool,
    one_use: bool,
    kept: bool,
    /// In seconds from now.
    expires: Option<u64>,
    web: Option<&'a Page>,
}

/// What is printed when tickets were revoked.
#[derive(Debug, Serialize)]
struct Revoked {
    event: &'static str,
    path: Option<String>,
    count: u64,
}

/// Runs `haul share`.
pub(crate) async fn run(args: &ShareArgs, printer: &Printer) -> Result<Exit, Stop> {
    if let Some(path) = &args.revoke {
        return revoke(path, printer);
    }
    let lan_bridge = bridged::check(args, printer).await?;
    let identity = match args.ephemeral {
        true => Identity::ephemeral()?,
        false => Identity::read_or_create(&state_file("identity.pem")?)?,
    };
    let signals = Signals::listen(printer, "stopping");
    let Some(paths) = Paths::of(args, &signals).await? else {
        return Ok(signals.exit().unwrap_or(Exit::Done));
    };
    let contents = Contents::open(&paths.paths)?;
    let admission = Admission::new(args, &contents.label)?;
    let name = args.name.clone().unwrap_or(contents.name);
    let builder = PeerServer::builder(contents.storage, name.as_str());
    let (builder, log_end) = configured(builder, args, &admission, printer)?;
    let server = builder.bind(&identity).await?;
    let addresses = own_addresses(args, &server)?;
    admission.save_port(args, server.addresses())?;
    let mut mapping = mapped::start(args, &addresses, server.addresses(), printer);
    let share = Share { args, printer, signals: &signals, identity, admission, name, server };
    let outcome =
        Box::pin(share.serve(addresses, lan_bridge, contents.root, mapping.as_mut())).await;
    // The mapping is removed however the share has ended.
    mapped::end(mapping).await;
    if let (Ok(_), Some(end)) = (&outcome, log_end) {
        end.wait();
    }
    outcome
}

/// The addresses of this machine for the ticket.
fn own_addresses(args: &ShareArgs, server: &PeerServer) -> Result<Vec<Address>> {
    let addresses = match args.bridge_only {
        true => Vec::new(),
        false => reachable(&args.address, server.addresses()),
    };
    if addresses.is_empty() && args.bridge.is_none() {
        return Err(Error::new(ErrorKind::Unreachable, "share")
            .because("this machine has no address that others can reach")
            .hinting("connect it to a network, or name an address with --address"));
    }
    Ok(addresses)
}

/// A share whose server is running.
struct Share<'a> {
    args: &'a ShareArgs,
    printer: &'a Printer,
    signals: &'a Signals,
    identity: Identity,
    admission: Admission,
    name: String,
    server: PeerServer,
}

impl Share<'_> {
    /// Prints the ticket, and serves until a signal, or until the ticket has expired.
    async fn serve(
        self,
        mut addresses: Vec<Address>,
        lan_bridge: Option<BridgeAddress>,
        root: ShareRoot,
        mapping: Option<&mut PortMapping>,
    ) -> Result<Exit, Stop> {
        let Self { args, printer, signals, identity, admission, name, server } = self;
        let registration = tokio::select! {
            registered = bridged::register(args, &server, &admission.secret, printer) => registered?,
            () = signals.cancel().cancelled() => return Ok(Exit::Done),
        };
        mapped::add_address(mapping, args, &mut addresses, printer).await;
        let ticket = admission.ticket(args, &identity, &addresses);
        let web = Web::start(args, root, printer).await?;
        let offered = tokio::select! {
            offered = Box::pin(bridged::offer(args, lan_bridge, &ticket, printer)) => offered?,
            () = signals.cancel().cancelled() => return Ok(Exit::Done),
        };
        let announcement = match args.no_lan {
            true => None,
            false => announced::share(&admission.secret, server.addresses(), printer),
        };
        let code = offered.as_ref().map(|(_, code)| code.to_string());
        let page = web.as_ref().map(|web| &web.page);
        print(
            args,
            (&ticket, code.as_deref(), name.as_str()),
            (addresses.as_slice(), page),
            printer,
        )?;
        if args.bridge.is_none() && is_only_local(&addresses, server.addresses()) {
            printer.warning("the ticket", ONLY_LOCAL);
        }
        let watch = Watch::start(server.sessions(), printer);
        let has_expired = tokio::select! {
            () = signals.cancel().cancelled() => false,
            () = expired(admission.expires) => true,
        };
        if let Some(watch) = watch {
            watch.end();
        }
        if has_expired {
            printer.note("haul: the ticket has expired, so the share ends");
        }
        drop((offered, registration));
        announced::end(announcement).await;
        tokio::join!(server.end(), async {
            if let Some(web) = web {
                web.stop().await;
            }
        });
        Ok(Exit::Done)
    }
}

/// Adds the ticket's grant, the addresses to listen on, and the log.
fn configured(
    builder: PeerServerBuilder,
    args: &ShareArgs,
    admission: &Admission,
    printer: &Printer,
) -> Result<(PeerServerBuilder, Option<LogEnd>)> {
    let mut builder = builder.grant(admission.grant(args));
    for address in &args.listen {
        builder = builder.listen(*address);
    }
    if args.listen.is_empty() && !args.bridge_only {
        builder = builder.listen_anywhere(admission.port());
    }
    if args.bridge.is_some() {
        builder = builder.bridged();
    }
    let is_verbose = printer.is_verbose();
    if !is_verbose && (printer.is_json() || printer.is_quiet()) {
        return Ok((builder, None));
    }
    let (log, end) = Log::start(printer)?;
    let observer = move |event: ClientEvent| {
        if is_verbose || has_moved(&event.action) {
            log.note(event);
        }
    };
    Ok((builder.observer(observer), Some(end)))
}

/// Whether this is the end of a session that has moved bytes, which is printed without `-v` too.
fn has_moved(action: &ClientAction) -> bool {
    matches!(action, ClientAction::SessionEnded(end) if end.sent + end.received > 0)
}

/// Waits until a ticket expires: at `expires`, in seconds since 1970, or never. Reads the clock, which goes on while
/// this machine is suspended.
async fn expired(expires: Option<u64>) {
    let Some(expires) = expires else { return pending().await };
    while unix_seconds() < expires {
        sleep(CLOCK).await;
    }
}

/// Revokes the tickets that `--keep` has stored for a path, alone or with others, or for all paths (`all`).
fn revoke(path: &Path, printer: &Printer) -> Result<Exit, Stop> {
    let is_all = path == Path::new("all");
    let shares = Shares::at(&state_file("shares.toml")?);
    let count = match is_all {
        true => shares.revoke_all(|_| true, unix_seconds())?,
        false => shares.revoke_all(labels_with(path)?, unix_seconds())?,
    } as u64;
    if count == 0 && !is_all {
        return Err(Error::new(ErrorKind::NotFound, "revoke")
            .at(path.display())
            .because("no ticket of --keep is valid for this path")
            .into());
    }
    if printer.is_json() {
        let path = (!is_all).then(|| path.display().to_string());
        printer.object(&Revoked { event: "revoked", path, count });
    } else {
        printer.result(format!("revoked {}", human::plural(count, "ticket")));
    }
    Ok(Exit::Done)
}

/// The secret of a ticket, and when it expires.
struct Admission {
    secret: Secret,
    /// In seconds since 1970.
    expires: Option<u64>,
    /// With `--keep`.
    stored: Option<(Shares, StoredShare)>,
}

impl Admission {
    fn new(args: &ShareArgs, label: &str) -> Result<Self, Stop> {
        let now = unix_seconds();
        let expires = args.expires.map(|seconds| now + seconds.0);
        if !args.keep {
            return Ok(Self { secret: Secret::generate()?, expires, stored: None });
        }
        let shares = Shares::at(&state_file("shares.toml")?);
        let label = label.to_owned();
        let (is_one_use, is_writable, sets_owners) = (args.one_use, args.writable, args.owners);
        let terms = Terms { label, expires, is_one_use, is_writable, sets_owners };
        let share = shares.store(&terms, now)?;
        let (secret, expires) = (share.secret.clone(), share.expires);
        Ok(Self { secret, expires, stored: Some((shares, share)) })
    }

    fn grant(&self, args: &ShareArgs) -> Grant {
        Grant {
            writable: args.writable,
            owners: args.owners,
            expires: self.expires.map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds)),
            one_use: args.one_use,
            stored: self.stored.as_ref().map(|(shares, _)| shares.clone()),
            ..Grant::new(self.secret.clone())
        }
    }

    /// The port of the last run, with `--keep`.
    fn port(&self) -> Option<u16> {
        self.stored.as_ref().and_then(|(_, share)| share.port)
    }

    /// Saves the port for the next run, unless the user has chosen it.
    fn save_port(&self, args: &ShareArgs, listening: &[SocketAddr]) -> Result<()> {
        match (&self.stored, listening.first()) {
            (Some((shares, share)), Some(first))
                if args.listen.is_empty() && share.port != Some(first.port()) =>
            {
                shares.set_port(share.id, first.port())
            }
            _ => Ok(()),
        }
    }

    fn ticket(&self, args: &ShareArgs, identity: &Identity, addresses: &[Address]) -> Ticket {
        let ticket = Ticket::new(identity.key(), self.secret.clone());
        let mut ticket = ticket.with_addresses(addresses.iter().copied());
        ticket.bridge = args.bridge.as_ref().map(|bridge| bridge.0.clone());
        ticket.expires = self.expires;
        ticket.is_one_use = args.one_use;
        ticket.is_writable = args.writable;
        ticket
    }
}

fn print(
    args: &ShareArgs,
    (ticket, code, name): (&Ticket, Option<&str>, &str),
    (addresses, page): (&[Address], Option<&Page>),
    printer: &Printer,
) -> Result<()> {
    let paths: Vec<String> = args.paths.iter().map(|path| path.display().to_string()).collect();
    let word = ticket.to_string();
    if printer.is_json() {
        printer.object(&Sharing {
            event: "sharing",
            paths,
            name,
            ticket: &word,
            code,
            key: ticket.key.to_string(),
            addresses: addresses.iter().map(ToString::to_string).collect(),
            bridge: args.bridge.as_ref().map(|bridge| bridge.0.to_string()),
            writable: args.writable,
            one_use: args.one_use,
            kept: args.keep,
            expires: ticket.expires.map(|expires| expires.saturating_sub(unix_seconds())),
            web: page,
        });
    } else {
        let how = if args.writable { "writable" } else { "read-only" };
        printer.result(format!("sharing  {}, {how}", text::name(listed(&paths).as_bytes())));
        printer.result(format!("key      {}", ticket.key));
        if let Some(bridge) = &args.bridge {
            printer.result(format!("bridge   {}", bridge.0));
        }
        printer.result(format!("ticket   {word}"));
        if args.qr {
            qr::lines(&ticket.to_upper())?.into_iter().for_each(|line| printer.result(line));
        }
        if let Some(code) = code {
            printer.result(format!("code     {code}"));
            printer.result("The code works once, within 10 minutes, with the same bridge.");
        }
        let word = code.unwrap_or("TICKET");
        printer.result(format!("On the other machine: haul cp {word}/ DIR"));
        let left = ticket
            .expires
            .map(|expires| Duration::from_secs(expires.saturating_sub(unix_seconds())));
        printer.result(access(args.one_use, args.keep, left));
        if let Some(page) = page {
            page.print(args.qr, printer)?;
        }
    }
    // The process that started it may be waiting for this output.
    printer.flush();
    Ok(())
}

/// The line that states who has access, and for how long.
fn access(is_for_one: bool, is_kept: bool, left: Option<Duration>) -> String {
    let who = match is_for_one {
        true => "The first receiver that uses the ticket",
        false => "Anyone who has the ticket",
    };
    let until = match is_kept {
        true => "while this or a later --keep runs",
        false => "until Ctrl-C",
    };
    let limit = left.map_or_else(String::new, |left| format!(", for at most {}", duration(left)));
    format!("{who} has access {until}{limit}.")
}

/// The first three of the paths, and how many more there are.
fn listed(paths: &[String]) -> String {
    const SHOWN: usize = 3;
    let shown = paths.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match paths.len().checked_sub(SHOWN) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} and {more} more"),
    }
}

/// A file below the state directory.
fn state_file(name: &str) -> Result<PathBuf, Stop> {
    state_path(name, "XDG_STATE_HOME")
}

impl LogEvent for ClientEvent {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn text(&self) -> String {
        match &self.action {
            ClientAction::Joined => "connected".to_owned(),
            ClientAction::Refused(cause) => format!("refused: {cause}"),
            ClientAction::Failed(cause) => format!("disconnected: {}", text::line(cause)),
            ClientAction::TurnedAway => "rejected: too many connections".to_owned(),
            ClientAction::SessionEnded(end) => session_summary(end),
            _ => "unknown event".to_owned(),
        }
    }

    fn object(&self) -> impl Serialize {
        let (action, cause) = match &self.action {
            ClientAction::Joined => ("connected", None),
            ClientAction::Refused(cause) => ("refused", Some(cause)),
            ClientAction::Failed(cause) => ("failed", Some(cause)),
            ClientAction::SessionEnded(_) => ("left", None),
            _ => ("rejected", None),
        };
        let end = match &self.action {
            ClientAction::SessionEnded(end) => Some(end),
            _ => None,
        };
        Object {
            event: "client",
            address: self.address,
            action,
            cause: cause.cloned(),
            route: end.map(|end| end.route.to_string()),
            sent_bytes: end.map(|end| end.sent),
            received_bytes: end.map(|end| end.received),
            seconds: end.map(|end| end.after.as_secs_f64()),
            bytes_per_second: end.map(|end| per_second(end.sent + end.received, end.after)),
        }
    }
}

/// Bytes and rate of a session, as in `sent 1.20 GiB in 13 s, 93.2 MiB/s (direct)`.
fn session_summary(end: &SessionEnd) -> String {
    let SessionEnd { route, sent, received, after } = end;
    let moved = match (*sent, *received) {
        (0, 0) => return format!("disconnected after {} ({route})", duration(*after)),
        (sent, 0) => format!("sent {}", bytes(sent)),
        (0, received) => format!("received {}", bytes(received)),
        (sent, received) => format!("sent {}, received {}", bytes(sent), bytes(received)),
    };
    let speed = rate(per_second(sent + received, *after));
    format!("{moved} in {}, {speed} ({route})", duration(*after))
}

/// An event in JSON.
#[derive(Debug, Serialize)]
struct Object {
    event: &'static str,
    address: SocketAddr,
    action: &'static str,
    cause: Option<String>,
    route: Option<String>,
    sent_bytes: Option<u64>,
    received_bytes: Option<u64>,
    seconds: Option<f64>,
    bytes_per_second: Option<u64>,
}

#[cfg(test)]
mod tests {
    use haul_peer::server::Route;

    use super::*;

    /// Formerly, it was always "Anyone who has the ticket has access until Ctrl-C".
    #[test]
    fn a_line_has_the_terms_of_access() {
        let hour = Some(Duration::from_secs(3600));
        for (is_for_one, is_kept, left, expected) in [
            (false, false, None, "Anyone who has the ticket has access until Ctrl-C."),
            (true, false, None, "The first receiver that uses the ticket has access until Ctrl-C."),
            (
                false,
                false,
                hour,
                "Anyone who has the ticket has access until Ctrl-C, for at most 1 h 00 min.",
            ),
            (
                false,
                true,
                None,
                "Anyone who has the ticket has access while this or a later --keep runs.",
            ),
        ] {
            assert_eq!(access(is_for_one, is_kept, left), expected);
        }
    }

    #[test]
    fn the_end_of_a_session_has_its_bytes_and_rate() {
        let end = |sent, received| {
            let after = Duration::from_secs(12);
            session_summary(&SessionEnd { route: Route::Bridge, sent, received, after })
        };
        assert_eq!(end(0, 0), "disconnected after 12 s (bridge)");
        assert_eq!(end(1200 << 20, 0), "sent 1.17 GiB in 12 s, 100 MiB/s (bridge)");
        assert_eq!(end(0, 120), "received 120 B in 12 s, 10 B/s (bridge)");
        assert_eq!(end(60, 60), "sent 60 B, received 60 B in 12 s, 10 B/s (bridge)");
    }
}
