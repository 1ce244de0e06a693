//! Arguments that all protocols share: the password, the address, the default user name, the path of the key.

use std::env;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use haul_storage::{Error, ErrorKind};

use crate::directories;
use crate::exit::Stop;

/// The password that a command prints. Its output is never shown, not even in an error.
pub(super) fn asked(command: &str) -> Result<String, Error> {
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
        Some(password) if !password.is_empty() => Ok(password.to_owned()),
        _ => Err(failed().because("the command printed no password on its first line")),
    }
}

/// The address to listen on; `example` shows the form in the error message.
pub(super) fn resolved(listen: &str, example: &str) -> Result<SocketAddr, Stop> {
    let wrong = || {
        let listen = listen.escape_debug();
        Stop::Usage(format!("--listen '{listen}' is not an address and port, as in {example}"))
    };
    if !listen.contains(':') {
        return Err(wrong());
    }
    listen.to_socket_addrs().map_err(|_| wrong())?.next().ok_or_else(wrong)
}

/// The name of the current user, as the shell knows it.
pub(super) fn own_name() -> String {
    ["USER", "LOGNAME"]
        .into_iter()
        .filter_map(|variable| env::var(variable).ok())
        .find(|name| !name.is_empty())
        .unwrap_or_else(|| "haul".to_owned())
}

/// The default path of a key of the server. `instead` is the option that sets another path.
pub(super) fn kept(name: &str, instead: &str) -> Result<PathBuf, Stop> {
    let state = directories::state().ok_or_else(|| {
        Stop::Usage(format!(
            "neither XDG_STATE_HOME nor HOME is set, so the server's key has no default path; \
             use {instead}"
        ))
    })?;
    Ok(state.join(name))
}
