//! `haul serve`: offers a directory to clients of standard protocols.
//!
//! ```text
//! who may log in, host key, address → a running server → one result → until a signal
//! ```

mod log;

use std::env;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use haul_sftp::server::{AuthorizedKeys, Credentials, HostKey, Password, SftpServer};
use haul_storage::{Error, ErrorKind};
use serde::Serialize;

use crate::args::{ServeArgs, ServeProtocol, ServeSftpArgs};
use crate::exit::{Exit, Stop};
use crate::output::Printer;
use crate::signals::Signals;

use log::Log;

/// What is printed when it serves.
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

/// Runs it.
pub(crate) async fn run(args: &ServeArgs, printer: &Printer) -> Result<Exit, Stop> {
    match &args.protocol {
        ServeProtocol::Sftp(args) => sftp(args, printer).await,
    }
}

async fn sftp(args: &ServeSftpArgs, printer: &Printer) -> Result<Exit, Stop> {
    let listen = resolved(&args.listen)?;
    let user = args.user.clone().unwrap_or_else(own_name);
    let (credentials, password) = credentials(args, &user, listen, printer)?;
    let host_key = match &args.host_key {
        Some(path) => HostKey::read(path)?,
        None => HostKey::read_or_create(&usual_host_key()?)?,
    };
    let signals = Signals::listen(printer, "stopping");
    let mut builder = SftpServer::builder(&args.directory);
    let mut log_end = None;
    if printer.is_verbose() {
        let (log, end) = Log::start(printer)?;
        builder = builder.observer(move |event| log.note(event));
        log_end = Some(end);
    }
    let server = builder
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
    if let Some(end) = log_end {
        end.wait();
    }
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
            printer.result(format!("password  {password} (made for this run)"));
        }
    }
    // Whoever started it may be waiting for exactly this.
    printer.flush();
}

/// Who may log in, and the password if one was made.
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
            printer.warning(&location, &format!("{}; this line lets nobody in", refused.cause));
        }
        credentials = credentials.with_keys(keys);
    }
    if let Some(command) = &args.password_command {
        credentials = credentials.with_password(asked(command)?);
    }
    if args.authorized_keys.is_some() || args.password_command.is_some() {
        return Ok((credentials, None));
    }
    if !listen.ip().is_loopback() {
        return Err(Stop::Usage(format!(
            "{listen} can be reached from other machines: say who may log in, with \
             --authorized-keys FILE or --password-command CMD"
        )));
    }
    let (password, text) = Password::random()?;
    Ok((credentials.with_password(password), Some(text)))
}

/// The password that a command prints. What it prints is never shown, not even in an error.
fn asked(command: &str) -> Result<Password, Error> {
    let failed =
        || Error::new(ErrorKind::InvalidInput, "ask for the password").at("--password-command");
    let output = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::inherit())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| failed().with_source(error))?;
    if !output.status.success() {
        return Err(failed().because(format!("the command ended with {}", output.status)));
    }
    let text = String::from_utf8(output.stdout)
        .map_err(|_| failed().because("what the command printed is not UTF-8"))?;
    match text.lines().next() {
        Some(password) if !password.is_empty() => Ok(Password::new(password)),
        _ => Err(failed().because("the command printed no password on its first line")),
    }
}

fn resolved(listen: &str) -> Result<SocketAddr, Stop> {
    let wrong = || {
        let listen = listen.escape_debug();
        Stop::Usage(format!("--listen '{listen}' is not an address and port, as in 127.0.0.1:2022"))
    };
    if !listen.contains(':') {
        return Err(wrong());
    }
    listen.to_socket_addrs().map_err(|_| wrong())?.next().ok_or_else(wrong)
}

/// The name of who runs this, as the shell knows it.
fn own_name() -> String {
    ["USER", "LOGNAME"]
        .into_iter()
        .filter_map(|variable| env::var(variable).ok())
        .find(|name| !name.is_empty())
        .unwrap_or_else(|| "haul".to_owned())
}

/// Where the host key is kept (XDG Base Directory Specification: state).
fn usual_host_key() -> Result<PathBuf, Stop> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    let state = state.ok_or_else(|| {
        Stop::Usage(
            "neither XDG_STATE_HOME nor HOME says where to keep the host key; give --host-key FILE"
                .to_owned(),
        )
    })?;
    Ok(state.join(Path::new("haul/sftp_host_ed25519_key")))
}
