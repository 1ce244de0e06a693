//! `haul serve dav`: serves a directory over WebDAV.
//!
//! ```text
//! credentials, certificate, address → start the server → print its address → wait for a signal
//! ```

use std::net::SocketAddr;

use haul_http::server::{ClientAction, ClientEvent, Credentials, DavServer, ServerTls};
use serde::Serialize;

use super::log::{Log, LogEvent};
use super::server_args::{own_name, password_from, resolved, state_path};
use crate::args::ServeDavArgs;
use crate::exit::{Exit, Stop};
use crate::output::Printer;
use crate::signals::Signals;
use crate::units::duration;

/// Printed once the server runs.
#[derive(Debug, Serialize)]
struct Serving<'a> {
    event: &'static str,
    protocol: &'static str,
    address: SocketAddr,
    url: String,
    directory: String,
    user: Option<&'a str>,
    fingerprint: Option<&'a str>,
    read_only: bool,
}

/// Runs `haul serve dav`.
pub(super) async fn run(args: &ServeDavArgs, printer: &Printer) -> Result<Exit, Stop> {
    let listen = resolved(&args.listen, "127.0.0.1:8080")?;
    let credentials = credentials(args, listen)?;
    let tls = tls(args)?;
    if !listen.ip().is_loopback() && tls.is_none() {
        let what = if credentials.is_some() { "the password and all files" } else { "all files" };
        let message = format!(
            "{what} cross the network unencrypted; --tls-self-signed or --tls-cert encrypts them"
        );
        printer.warning(&listen.to_string(), &message);
    }
    let signals = Signals::listen(printer, "stopping");
    let (observer, log_end) = Log::<ClientEvent>::observer(printer)?;
    let mut builder = DavServer::builder(&args.directory).observer(observer);
    let user = credentials.as_ref().map(|credentials| credentials.user().to_owned());
    if let Some(credentials) = credentials {
        builder = builder.credentials(credentials);
    }
    if let Some(tls) = tls {
        builder = builder.tls(tls);
    }
    for name in &args.name {
        builder = builder.name(name);
    }
    let server = builder
        .listen(listen)
        .anonymous(args.anonymous)
        .read_only(args.read_only)
        .max_connections(args.max_connections.as_usize())
        .bind()
        .await?;
    let serving = Serving {
        event: "serving",
        protocol: "dav",
        address: server.address(),
        url: server.url(),
        directory: args.directory.display().to_string(),
        user: user.as_deref(),
        fingerprint: server.fingerprint(),
        read_only: args.read_only,
    };
    print(&serving, printer);
    signals.cancel().cancelled().await;
    server.stop().await;
    log_end.wait();
    Ok(Exit::Done)
}

fn print(serving: &Serving<'_>, printer: &Printer) {
    if printer.is_json() {
        printer.object(serving);
    } else {
        let how = if serving.read_only { ", read-only" } else { "" };
        printer.result(format!("serving      {}{how}", serving.directory));
        printer.result(format!("address      {}", serving.url));
        match serving.user {
            Some(user) => printer.result(format!("user         {user}")),
            None => printer.result("user         anyone, without a password"),
        }
        if let Some(fingerprint) = serving.fingerprint {
            printer.result(format!("certificate  SHA-256 {fingerprint}"));
        }
    }
    // The process that started it may be waiting for this output.
    printer.flush();
}

/// The credentials that clients need; `None` if everyone is allowed.
fn credentials(args: &ServeDavArgs, listen: SocketAddr) -> Result<Option<Credentials>, Stop> {
    let Some(command) = &args.password_command else {
        if args.anonymous || listen.ip().is_loopback() {
            return Ok(None);
        }
        return Err(Stop::Usage(format!(
            "{listen} is reachable from other machines, and needs a way to log in\n\
             hint: write --password-command CMD, or allow everyone with --anonymous"
        )));
    };
    let user = args.user.clone().unwrap_or_else(own_name);
    if user.contains(':') {
        // RFC 7617, section 2.
        return Err(Stop::Usage("--user: the name must not contain a colon".to_owned()));
    }
    let password = password_from(command)?;
    Ok(Some(Credentials::new(user, &password)))
}

fn tls(args: &ServeDavArgs) -> Result<Option<ServerTls>, Stop> {
    if let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) {
        return Ok(Some(ServerTls::read(certificate, key)?));
    }
    if args.tls_self_signed {
        let path = state_path("dav_self_signed.pem", "--tls-cert FILE and --tls-key FILE")?;
        return Ok(Some(ServerTls::read_or_create(&path, &args.name)?));
    }
    Ok(None)
}

impl LogEvent for ClientEvent {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn text(&self) -> String {
        words(&self.action)
    }

    fn object(&self) -> impl Serialize {
        Line::from(self)
    }
}

fn words(action: &ClientAction) -> String {
    match action {
        ClientAction::Connected => "connected".to_owned(),
        ClientAction::TurnedAway => "rejected: too many connections".to_owned(),
        ClientAction::NoTls => "disconnected: no TLS handshake".to_owned(),
        ClientAction::Refused { user } => format!("refused as {}", user.escape_debug()),
        ClientAction::Request { method, path, status, received, sent, after } => format!(
            "{} {}: {status}, {received} bytes received, {sent} sent, {}",
            method.escape_debug(),
            path.escape_debug(),
            duration(*after)
        ),
        ClientAction::Disconnected { after } => format!("disconnected after {}", duration(*after)),
    }
}

/// An event as a line of JSON.
#[derive(Debug, Serialize)]
struct Line<'a> {
    event: &'static str,
    address: SocketAddr,
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    received_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sent_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
}

impl<'a> From<&'a ClientEvent> for Line<'a> {
    fn from(event: &'a ClientEvent) -> Self {
        let mut line = Self {
            event: "client",
            address: event.address,
            action: "connected",
            user: None,
            method: None,
            path: None,
            status: None,
            received_bytes: None,
            sent_bytes: None,
            seconds: None,
        };
        match &event.action {
            ClientAction::Connected => {}
            ClientAction::TurnedAway => line.action = "turned away",
            ClientAction::NoTls => line.action = "no tls",
            ClientAction::Refused { user } => {
                line.action = "refused";
                line.user = Some(user);
            }
            ClientAction::Request { method, path, status, received, sent, after } => {
                line.action = "request";
                line.method = Some(method);
                line.path = Some(path);
                line.status = Some(*status);
                line.received_bytes = Some(*received);
                line.sent_bytes = Some(*sent);
                line.seconds = Some(after.as_secs_f64());
            }
            ClientAction::Disconnected { after } => {
                line.action = "left";
                line.seconds = Some(after.as_secs_f64());
            }
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_names_of_refused_clients_are_escaped() {
        let line = words(&ClientAction::Refused { user: "me\n\u{1b}[31m".to_owned() });
        assert_eq!(line, "refused as me\\n\\u{1b}[31m");
    }
}
