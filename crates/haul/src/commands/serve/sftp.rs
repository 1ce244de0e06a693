//! `haul serve sftp`: serves a directory over SFTP.
//!
//! ```text
//! credentials, host key, address → start the server → print its address → wait for a signal
//! ```

use std::net::SocketAddr;

use haul_sftp::server::{
    AuthorizedKeys, ClientAction, ClientEvent, Credentials, HostKey, Password, SftpServer,
};
use serde::Serialize;

use super::log::{Log, LogEvent};
use super::server_args::{own_name, password_from, resolved, state_path};
use crate::args::ServeSftpArgs;
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
    user: &'a str,
    password: Option<&'a str>,
    fingerprint: &'a str,
    host_key: &'a str,
    read_only: bool,
}

/// Runs `haul serve sftp`.
pub(super) async fn run(args: &ServeSftpArgs, printer: &Printer) -> Result<Exit, Stop> {
    let listen = resolved(&args.listen, "127.0.0.1:2022")?;
    let user = args.user.clone().unwrap_or_else(own_name);
    let (credentials, password) = credentials(args, &user, listen, printer)?;
    let host_key = match &args.host_key {
        Some(path) => HostKey::read(path)?,
        None => HostKey::read_or_create(&state_path("sftp_host_ed25519_key", "--host-key FILE")?)?,
    };
    let signals = Signals::listen(printer, "stopping");
    let (observer, log_end) = Log::<ClientEvent>::observer(printer)?;
    let server = SftpServer::builder(&args.directory)
        .observer(observer)
        .listen(listen)
        .credentials(credentials)
        .host_key(host_key)
        .read_only(args.read_only)
        .max_sessions(args.max_sessions.as_usize())
        .bind()
        .await?;
    let serving = Serving {
        event: "serving",
        protocol: "sftp",
        address: server.address(),
        url: format!("sftp://{user}@{}/", server.address()),
        directory: args.directory.display().to_string(),
        user: &user,
        password: password.as_deref(),
        fingerprint: server.fingerprint(),
        host_key: server.public_key(),
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
        printer.result(format!("serving   {}{how}", serving.directory));
        printer.result(format!("address   {}", serving.url));
        printer.result(format!("host key  {}", serving.fingerprint));
        if let Some(password) = serving.password {
            printer.result(format!("password  {password} (generated for this run)"));
        }
    }
    // The process that started it may be waiting for this output.
    printer.flush();
}

/// The credentials that clients need, and the password if one was generated.
fn credentials(
    args: &ServeSftpArgs,
    user: &str,
    listen: SocketAddr,
    printer: &Printer,
) -> Result<(Credentials, Option<String>), Stop> {
    let mut credentials = Credentials::new(user);
    if let Some(path) = &args.authorized_keys {
        let keys = AuthorizedKeys::read(path)?;
        for refused in keys.refused() {
            let location = format!("{}:{}", path.display(), refused.line);
            printer.warning(&location, &format!("{}; this line is ignored", refused.cause));
        }
        credentials = credentials.with_keys(keys);
    }
    if let Some(command) = &args.password_command {
        credentials = credentials.with_password(Password::new(&password_from(command)?));
    }
    if args.authorized_keys.is_some() || args.password_command.is_some() {
        return Ok((credentials, None));
    }
    if !listen.ip().is_loopback() {
        return Err(Stop::Usage(format!(
            "{listen} is reachable from other machines, and needs a way to log in\n\
             hint: write --authorized-keys FILE or --password-command CMD"
        )));
    }
    let (password, text) = Password::random()?;
    Ok((credentials.with_password(password), Some(text)))
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
        ClientAction::ConnectionRefused => "rejected: too many connections".to_owned(),
        ClientAction::LoggedIn { user, with } => {
            format!("logged in as {} with {with}", user.escape_debug())
        }
        ClientAction::Refused { user, with } => {
            format!("refused as {} with {with}", user.escape_debug())
        }
        ClientAction::LoginTimedOut => "disconnected: no login in time".to_owned(),
        ClientAction::Disconnected { after, .. } => {
            format!("disconnected after {}", duration(*after))
        }
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
    with: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
}

impl<'a> From<&'a ClientEvent> for Line<'a> {
    fn from(event: &'a ClientEvent) -> Self {
        let (action, user, with, seconds) = match &event.action {
            ClientAction::Connected => ("connected", None, None, None),
            ClientAction::ConnectionRefused => ("turned away", None, None, None),
            ClientAction::LoggedIn { user, with } => ("logged in", Some(user), Some(with), None),
            ClientAction::Refused { user, with } => ("refused", Some(user), Some(with), None),
            ClientAction::LoginTimedOut => ("too late", None, None, None),
            ClientAction::Disconnected { user, after } => {
                ("left", user.as_ref(), None, Some(after.as_secs_f64()))
            }
        };
        Self {
            event: "client",
            address: event.address,
            action,
            user: user.map(String::as_str),
            with: with.map(ToString::to_string),
            seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use haul_sftp::server::Proof;

    use super::*;

    #[test]
    fn the_user_names_of_refused_clients_are_escaped() {
        let user = "me\n\u{1b}[31m".to_owned();
        let line = words(&ClientAction::Refused { user, with: Proof::Password });
        assert_eq!(line, "refused as me\\n\\u{1b}[31m with password");
    }
}
