//! Arguments that several servers have: password, listen address, user name, the token of a bridge, and the default
//! paths of keys and of the list of shares.

use std::env;
use std::fs;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use haul_net::Secret;
use haul_sftp::ssh::local_user;
use haul_storage::{Error, ErrorKind};

use crate::args::TokenArg;
use crate::directories;
use crate::exit::Stop;

/// The password, which a command prints on its first line. Its standard output is never shown, not even in an error.
pub(super) fn password_from(command: &str) -> Result<String, Error> {
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

/// The token of a bridge: that of `option`, from the first line of a file (`@FILE`), or from the environment.
pub(super) fn bridge_token(
    option: &str,
    given: Option<&TokenArg>,
) -> Result<Option<Secret>, Error> {
    let failed = |at: &str| Error::new(ErrorKind::InvalidInput, "read the token").at(at);
    let Some(TokenArg(given)) = given else {
        let token = env::var("HAUL_BRIDGE_TOKEN").ok().filter(|token| !token.is_empty());
        return Ok(token.map(Secret::new));
    };
    let Some(path) = given.expose().strip_prefix('@') else {
        return match given.expose().is_empty() {
            true => Err(failed(option).because("it is empty")),
            false => Ok(Some(given.clone())),
        };
    };
    let text = fs::read_to_string(path)
        .map_err(|error| Error::from_io("read the token", error).at(path))?;
    match text.lines().next().map(str::trim) {
        Some(token) if !token.is_empty() => Ok(Some(Secret::new(token))),
        _ => Err(failed(path).because("its first line is empty")),
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

/// The name of the current user: from `USER` or `LOGNAME`, else that of the account; `haul` if it has none.
pub(super) fn own_name() -> String {
    ["USER", "LOGNAME"]
        .into_iter()
        .filter_map(|variable| env::var(variable).ok())
        .find(|name| !name.is_empty())
        .or_else(local_user)
        .unwrap_or_else(|| "haul".to_owned())
}

/// The default path of a file that outlives a server: a key, or the list of shares. The error names `instead`, the
/// option or variable that sets another path.
pub(super) fn state_path(name: &str, instead: &str) -> Result<PathBuf, Stop> {
    let state = directories::state().ok_or_else(|| {
        Stop::Usage(format!(
            "neither XDG_STATE_HOME nor HOME is set to an absolute path, so there is no default place \
             for {name}; use {instead}"
        ))
    })?;
    Ok(state.join(name))
}
