//! The shell that runs a tool's command, at either end of a link.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::link::Namespace;
use crate::sys;

/// A shell in a process group of its own, killed when the thread that starts it ends. Its environment has only the
/// variables set here, so that no user's configuration has an effect.
pub(super) fn shell(
    namespace: Option<&Namespace>,
    script: &str,
    tool: &Path,
    variables: &[(&'static str, OsString)],
    home: &Path,
) -> Command {
    let mut command = match namespace {
        Some(namespace) => namespace.command("sh"),
        None => {
            let mut command = Command::new("sh");
            sys::prepare(&mut command, None);
            command
        }
    };
    command
        .args(["-c", script])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()))
        .env("HOME", home)
        .env("TMP", home)
        .env("TMPDIR", home)
        .env("LC_ALL", "C.UTF-8")
        .env("HAUL_LAN", "no")
        .env("HAUL_PORT_MAPPING", "no")
        .env("TOOL", tool)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .current_dir(home)
        .stdin(Stdio::null())
        .process_group(0);
    command
}
